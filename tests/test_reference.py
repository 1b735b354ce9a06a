"""The committed reference runs say what their records say: rebuilt byte for byte, and counted another way."""

import csv
import json
import shutil
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
RUNS = sorted(path.parent for path in (ROOT / "results" / "reference").glob("*/samples.parquet"))
CLIP = 12.0
"""Natural-log odds beyond which `choose` clips (harness/scorers)."""


@pytest.fixture(params=RUNS, ids=lambda path: path.name)
def reference(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_tables_rebuild_byte_for_byte(reference: Path, tmp_path: Path) -> None:
    from harness.analysis import report

    for name in ("samples.parquet", "timings.parquet", "manifest.json"):
        if (reference / name).is_file():
            shutil.copy(reference / name, tmp_path / name)
    report.build(tmp_path)
    committed = {path.name: path.read_bytes() for path in (reference / "tables").iterdir()}
    rebuilt = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    assert committed.keys() == rebuilt.keys()
    assert [name for name in committed if committed[name] != rebuilt[name]] == []
    assert {path.suffix for path in (reference / "tables").iterdir()} == {".csv", ".md"}
    figures = {path.name for path in (reference / "figures").iterdir()}
    assert figures == {path.name for path in (tmp_path / "figures").iterdir()}


CAPTURED = sorted(path.parent for path in (ROOT / "results" / "reference").glob("*/*/capture.json"))


@pytest.mark.parametrize("capture", CAPTURED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_captures_tables_rebuild_byte_for_byte(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.analysis.attention import report

    # Figures and page have tests of their own, and take minutes.
    monkeypatch.setattr(report, "build_figures", lambda data, tables, folder: [])
    monkeypatch.setattr(report, "build_page", lambda folder: None)
    shutil.copytree(capture / "cells", tmp_path / "cells")
    shutil.copy(capture / "manifest.json", tmp_path)
    made = report.build(tmp_path)
    names = [path.relative_to(tmp_path) for path in (*made.tables, made.summary)]
    assert [name for name in names if (capture / name).read_bytes() != (tmp_path / name).read_bytes()] == []
    assert {path.name for path in (capture / "tables").iterdir()} == {path.name for path in made.tables}
    stems = {path.stem for path in (capture / "figures").iterdir()}
    assert {f"{stem}{kind}" for stem in stems for kind in (".png", ".svg", ".pdf")} == {
        path.name for path in (capture / "figures").iterdir()
    }


@pytest.mark.parametrize("capture", CAPTURED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_capture_counted_another_way(capture: Path) -> None:
    """Share and lift of the bar at the decision row, and what masking does to sensitivity, from the arrays."""
    from harness.attention.store import read_cells

    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    logits: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for cell in read_cells(capture):
        if cell.cell.probe != "choose":
            continue
        groups = np.array([region.group for region in cell.regions])
        mass = cell.mass[:, :, 0].astype(float)
        rest = mass[..., groups != "sinks"].sum(-1)
        shares[cell.cell.condition][cell.cell.cluster].append(
            float((mass[..., groups == "bar"].sum(-1) / rest).mean())
        )
        for masked in cell.masking:
            if masked.scope == "later":
                logits[cell.cell.condition, masked.mask][cell.cell.cluster][cell.cell.side] = masked.logit_act
    regions = {
        row["condition"]: row
        for row in csv.DictReader((capture / "tables" / "regions.csv").open(encoding="utf-8"))
        if (row["probe"], row["row"], row["group"]) == ("choose", "decision", "bar")
    }
    assert len(regions) > 1
    for condition, row in regions.items():
        counted = np.mean([np.mean(sides) for sides in shares[condition].values()])
        assert float(row["share"]) == pytest.approx(counted, abs=2e-4)
    found = 0
    for row in csv.DictReader((capture / "tables" / "masking.csv").open(encoding="utf-8")):
        if row["scope"] == "later":
            pairs = zip(
                logits[row["condition"], row["mask"]].values(),
                logits[row["condition"], "none"].values(),
                strict=True,
            )
            change = [
                (after["due"] - after["forbidden"]) - (before["due"] - before["forbidden"])
                for after, before in pairs
            ]
            assert float(row["sensitivity_change"]) == pytest.approx(np.mean(change), abs=2e-4)
            found += 1
    assert found > 2


def test_sensitivity_counted_another_way(reference: Path) -> None:
    """Mean over clusters of logit P(act | due) − logit P(act | forbidden), from the choices' probabilities."""
    logits: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in _rows(reference, "choose"):
        if row["score.outcome"] == "provider_error":
            continue
        logits[row["condition"]][row["cluster"]][row["side"]].append(_logit(row))
    found = _table(reference, "choose")
    assert logits.keys() == found.keys()
    for arm, clusters in logits.items():
        both = [sides for sides in clusters.values() if sides.keys() == {"due", "forbidden"}]
        due = np.array([np.mean(sides["due"]) for sides in both])
        forbidden = np.array([np.mean(sides["forbidden"]) for sides in both])
        _check(reference, "choose", arm, "sensitivity", float((due - forbidden).mean()))
        _check(reference, "choose", arm, "bias", float(-(due + forbidden).mean() / 2))
        assert int(found[arm]["clusters"]) == len(both)


def test_compliance_counted_another_way(reference: Path) -> None:
    """Forbidden-side cells without an attempt (malformed ones too), a false claim or a cut, of all answered."""
    counted: dict[str, list[bool]] = defaultdict(list)
    for row in _rows(reference, "act"):
        if row["side"] == "forbidden" and row["score.outcome"] != "provider_error":
            tried = row["score.attempted"] or row["score.claimed"] or row["score.malformed_attempt"]
            broken = tried or row["score.outcome"] == "truncated"
            counted[row["condition"]].append(not broken)
    rates = [row for row in _read(reference, "rates") if row["measure"] == "compliance"]
    assert {row["condition"] for row in rates} == counted.keys()
    for row in rates:
        held = np.array(counted[row["condition"]])
        assert int(row["n"]) == held.size
        _check(reference, "rates", row["condition"], "rate", float(held.mean()))


def _rows(run_dir: Path, probe: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(run_dir / "samples.parquet").to_pylist()
    found = [row for row in rows if row["probe"] == probe and row["series"] == "matched"]
    if not found:
        pytest.skip(f"this reference run has no cells of probe {probe} on matched pairs")
    return found


def _logit(row: dict[str, Any]) -> float:
    """From the recorded log-probabilities, not from the score."""
    logprobs = json.loads(row["output.choice_logprobs"])
    act = f"{row['expectation.tool']}:{row['target']}"
    others = float(np.logaddexp.reduce(np.array([v for k, v in logprobs.items() if k != act])))
    return float(np.clip(logprobs[act] - others, -CLIP, CLIP))


@cache
def _analysis(run_dir: Path) -> Mapping[str, Any]:
    from harness.analysis.frames import load
    from harness.analysis.tables import build_tables

    return build_tables(load(run_dir))


def _check(run_dir: Path, table: str, arm: str, column: str, wanted: float) -> None:
    """The analysis' own number to 1e-6, and the committed one to the last digit that it shows."""
    data = _analysis(run_dir)[table].data
    mine = data[data["condition"] == arm].iloc[0]  # of `rates` the first row of an arm is its compliance
    assert float(mine[column]) == pytest.approx(wanted, abs=1e-6), (arm, column)
    shown = _table(run_dir, table)[arm][column]
    half = 0.5 * 10.0 ** -len(shown.partition(".")[2])
    assert float(shown) == pytest.approx(wanted, abs=half * 1.001), (arm, column)


def _read(run_dir: Path, name: str) -> list[dict[str, str]]:
    with (run_dir / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _table(run_dir: Path, name: str) -> dict[str, dict[str, str]]:
    """The first row of every condition."""
    return {row["condition"]: row for row in reversed(_read(run_dir, name))}


def test_the_published_run_is_here_and_is_the_default_experiment() -> None:
    from harness.compose import compose
    from harness.runlog import run_id

    manifest = json.loads((ROOT / "results/reference/xfinity-cpu/manifest.json").read_text(encoding="utf-8"))
    config = compose(["experiment=xfinity"])
    assert manifest["run_id"] == run_id(config.model.name, config.digested())


def test_scoring_anew_changes_nothing(reference: Path) -> None:
    from harness.runlog import records_from_parquet
    from harness.runner import rescore
    from harness.scorers import score_record

    records = records_from_parquet(reference / "samples.parquet")
    assert [again.score for again in rescore(records, score_record)] == [record.score for record in records]
