"""The committed reference runs say what their records say: rebuilt byte for byte. Their headline numbers are counted
another way in test_headlines.py, those of a capture here."""

import csv
import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
RUNS = sorted(path.parent for path in (ROOT / "results" / "reference").glob("*/samples.parquet"))


@pytest.fixture(params=RUNS, ids=lambda path: path.name)
def reference(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_tables_rebuild_byte_for_byte(reference: Path, tmp_path: Path) -> None:
    from harness.analysis import report

    for name in ("samples.parquet", "timings.parquet", "tokens.parquet", "manifest.json"):
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
    assert (reference / "report.md").read_bytes() == (tmp_path / "report.md").read_bytes()


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


def test_the_readme_shows_the_calibration_that_was_measured() -> None:
    folder = ROOT / "results" / "reference" / "benchmarks"
    assert (folder / "calibration.md").read_text(encoding="utf-8") in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )
    measured = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    assert measured["ok"] and not measured["missed"]
    shown = (folder / "calibration.md").read_text(encoding="utf-8").splitlines()[2:]
    for outcome in dict.fromkeys(found["outcome"] for found in measured["found"]):
        worst = max(
            f["share"] for f in measured["found"] if (f["outcome"], f["what"]) == (outcome, "false verdict")
        )
        mine = [line.split(" | ")[2] for line in shown if line.startswith(f"| {outcome} |")]
        assert max(map(float, mine)) == pytest.approx(worst, abs=6e-4)


COMPARED = ROOT / "results" / "reference" / "small-vs-large-cpu"


def test_the_comparison_of_small_and_large_rebuilds_byte_for_byte(tmp_path: Path) -> None:
    """`experiment=small_vs_frontier` where nobody has a key: the embedded 0.5B beside the 1.5B."""
    from harness.analysis import across

    manifests = {path.parent: json.loads(path.read_text()) for path in COMPARED.glob("runs/*/manifest.json")}
    assert len(manifests) == 4 and all(m["experiment"] == "small_vs_frontier" for m in manifests.values())
    # As the experiment names them: the smaller model first, its decisions before its latency.
    folders = sorted(
        manifests, key=lambda f: (manifests[f]["model"]["name"], manifests[f]["measure"] == "latency")
    )
    names = list(dict.fromkeys(manifests[folder]["model"]["name"] for folder in folders))
    across.write(across.compare(across.load_all(folders), names[:1], names[1:]), tmp_path)
    told = sorted(path.name for path in COMPARED.glob("comparison/*.*"))
    assert {"corners.csv", "pareto.csv", "tables.md"} <= set(told)
    for name in told:
        assert (tmp_path / name).read_bytes() == (COMPARED / "comparison" / name).read_bytes(), name
    assert (COMPARED / "comparison" / "figures" / "pareto.png").exists()
