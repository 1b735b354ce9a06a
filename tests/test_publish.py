"""The publication kit: what its files claim is what the tables say, and nothing of anybody else's is touched."""

import csv
import errno
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import analysis_data as made
import attention_data
import pandas as pd
import pytest
import yaml
from PIL import Image

from harness.analysis.frames import load
from harness.analysis.publication.build import publish
from harness.analysis.publication.folder import check_own, replaced
from harness.analysis.publication.kit import FORMATS, read
from harness.analysis.publication.methods import methods
from harness.analysis.publication.references import REFERENCES
from harness.analysis.table import fixed
from harness.analysis.tables import build_tables
from harness.cli import main
from harness.errors import ReportError, RunLogError

ARMS = (made.CONTROL, made.PLACEBO, made.BAR)
FIGURES = ("both_sides", "sensitivity", "verdicts", "tokens")
COLUMN_PX, PAGE_PX = 1051, 2161
"""89 mm and 183 mm at 300 dpi."""
HASH = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
STATED: Mapping[str, Any] = {
    "run_id": "toy-0123456789", "experiment": "toy_case", "config_digest": "0123456789", "measure": "throughput",
    "model": {"name": "toy-1.5B", "source": "folder toy", "sha256": HASH, "revision": None},
    "inputs": {"scenario": "bf93f9b8d9567601", "template": "d5495a1e5db06111", "weights": HASH},
    "config": {
        "scenario": {"file": "toyland"}, "seed": 41, "epochs": 1,
        "model": {"thinking": "off", "decoding": {"source": "stated", "temperature": 0.0}},
        "probe": {"act": {"max_new_tokens": 77}},
    },
    "engine": {"engine": "transformers", "engine_version": "5.24.0", "device": "cpu", "dtype": "float32"},
    "cpu": {"model": "Toy CPU", "count": 3}, "harness": "0.1.0", "python": "3.11.7",
    "git": {"revision": "543bd7439fbfcff1a8778d58be419ee028633942", "dirty": False},
    "started": "2026-11-30T16:00:56+00:00",
}  # fmt: skip


def run_folder(folder: Path, rows: Sequence[Mapping[str, Any]] | None = None, **stated: Any) -> Path:
    """A finished run with a whole manifest; `stated` overrides or (None) removes entries."""
    cells = made.rows(9, arms=ARMS, curve=False) if rows is None else rows
    made.write_run(folder, cells, ARMS)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | STATED | {"cells": len(cells)} | stated
    path.write_text(json.dumps({key: value for key, value in manifest.items() if value is not None}))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and the kit that the console command wrote of it."""
    base = tmp_path_factory.mktemp("publish")
    run = run_folder(base / "run")
    assert main(["publish", str(run), "--out", str(base / "kit")]) == 0
    return run, base / "kit"


def captions(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(c["kind"], c["key"]): c for c in json.loads((folder / "captions.json").read_text())}


def table(folder: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "tables" / f"{name}.csv").open()))


def test_every_figure_is_there_in_three_formats_and_two_widths(kit: tuple[Path, Path]) -> None:
    figures = kit[1] / "figures"
    expected = {f"{name}_{w}.{end}" for name in FIGURES for w in ("column", "page") for end in FORMATS}
    assert {path.name for path in figures.iterdir()} == expected
    for name in FIGURES:
        assert Image.open(figures / f"{name}_column.png").size[0] == COLUMN_PX
        assert Image.open(figures / f"{name}_page.png").size[0] == PAGE_PX
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", (figures / f"{name}_column.pdf").read_bytes())
        assert box is not None and float(box[1]) / 72 * 25.4 == pytest.approx(89, abs=0.5)


def test_n_in_captions_is_that_of_the_table_of_cells(kit: tuple[Path, Path]) -> None:
    cells = table(kit[1], "cells")
    for caption in captions(kit[1]).values():
        for part in caption["n"]:
            rows = [r for r in cells if (r["probe"], r["series"]) == (part["probe"], part["series"])]
            assert part["cells"] == sum(int(row["cells"]) for row in rows)
            assert part["clusters"] == max(int(row["clusters"]) for row in rows)
            assert (
                f"{part['cells']} cells of {part['probe']} in {part['clusters']} clusters" in caption["text"]
            )
    both = captions(kit[1])["figure", "both_sides"]
    assert {part["probe"] for part in both["n"]} == {"act", "choose"}
    assert both["conditions"] == ["control", "placebo", "agent_status"]


def test_estimates_and_margins_in_captions_are_those_of_the_table(kit: tuple[Path, Path]) -> None:
    rows = table(kit[1], "comparisons")
    (row,) = [r for r in rows if r["label"] == "confirmatory"]
    shown = f"{row['estimate']} [{row['low']}, {row['high']}]".replace("-", "−")
    for key in ("sensitivity", "verdicts"):
        caption = captions(kit[1])["figure", key]
        said = f"agent_status − placebo: sensitivity {shown}, p (Holm) = {float(row['p_holm']):.4f}, 9 clusters: "
        assert said + row["verdict"] in caption["text"]
        low, high = float(row["margin_low"]), float(row["margin_high"])
        assert f"−{-low:g} to {high:g} (logit)" in caption["margin"]
    counted = captions(kit[1])["figure", "verdicts"]["text"]
    assert f"Of {len(rows)} comparisons" in counted
    for verdict in {r["verdict"] for r in rows}:
        assert f"{sum(r['verdict'] == verdict for r in rows)} {verdict}" in counted


def test_a_caption_states_model_run_interval_test_and_margin(kit: tuple[Path, Path]) -> None:
    found = captions(kit[1])
    tables = {path.stem for path in (kit[1] / "tables").glob("*.csv")}
    assert {key for kind, key in found if kind == "figure"} == set(FIGURES)
    assert {key for kind, key in found if kind == "table"} == tables
    for caption in found.values():
        for said in (
            "Model: toy-1.5B",
            HASH[:12],
            "run toy-0123456789",
            "Intervals: ",
            "Test: ",
            "Equivalence margin: ",
        ):
            assert said in caption["text"]
        assert "INCOMPLETE" not in caption["title"]


def test_all_formats_carry_every_caption(kit: tuple[Path, Path]) -> None:
    markdown, latex = ((kit[1] / f"captions.{end}").read_text() for end in ("md", "tex"))
    for caption in captions(kit[1]).values():
        assert all(file in markdown for file in caption["files"])
        if caption["measured"]:
            assert f"\\label{{{caption['label']}}}" in latex
    for file in re.findall(r"(?:\\input|\\includegraphics\[[^]]*\])\{([^}]*)\}", latex):
        assert (kit[1] / file).is_file()
    assert latex.count(r"\begin{figure") == latex.count(r"\end{figure") == len(FIGURES)


def test_the_manifest_lists_every_file_with_its_hash_and_the_runs_digests(kit: tuple[Path, Path]) -> None:
    run, folder = kit
    manifest = json.loads((folder / "manifest.json").read_text())
    there = {name: content for name, content in contents(folder).items() if name != "manifest.json"}
    assert {n: hashlib.sha256(c).hexdigest() for n, c in there.items()} == {
        name: entry["sha256"] for name, entry in manifest["files"].items()
    }
    (source,) = manifest["runs"]
    assert source["run_id"] == "toy-0123456789" and source["config_digest"] == "0123456789"
    assert (
        source["sha256"]["samples.parquet"]
        == hashlib.sha256((run / "samples.parquet").read_bytes()).hexdigest()
    )
    readme = (folder / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in there)


def test_the_same_run_gives_the_same_bytes_wherever_it_lies(kit: tuple[Path, Path], tmp_path: Path) -> None:
    moved = run_folder(tmp_path / "elsewhere")
    for name in ("samples.parquet", "timings.parquet"):
        (moved / name).write_bytes((kit[0] / name).read_bytes())
    before = contents(kit[1])
    publish([moved], kit[1])
    assert contents(kit[1]) == before
    assert {path.name for path in kit[1].parent.iterdir()} == {"run", "kit"}


def test_methods_say_what_the_manifest_says_and_cite_what_is_used(kit: tuple[Path, Path]) -> None:
    text, latex = ((kit[1] / f"methods.{end}").read_text() for end in ("md", "tex"))
    for said in ("`toyland`", "`bf93f9b8d956…`", "seed 41", "`toy-1.5B`", f"`{HASH[:12]}…`", "`folder toy`",
                 "`transformers 5.24.0`", "`float32`", "`Toy CPU`, 3 cores", "decoded greedily", "Thinking was off",
                 "up to 77 tokens", "54 cells in 9 clusters", "revision `543bd7439fbf…`", "begun on 2026-11-30",
                 "token length of `agent_status`", "Holm 1979", "Schuirmann 1987", "logit"):  # fmt: skip
        assert said in text, said
    assert "McNemar" in text and "d′" not in text  # 9 replies a side are too few for d′
    used = {key for group in re.findall(r"\\cite\{([^}]*)\}", latex) for key in group.split(",")}
    used |= {key for caption in captions(kit[1]).values() for key in caption["cites"]}
    assert used == set(re.findall(r"@\w+\{(\w+),", (kit[1] / "references.bib").read_text()))


def test_methods_leave_out_what_the_manifest_does_not_hold(tmp_path: Path) -> None:
    run = made.write_run(tmp_path / "bare", made.rows(8, arms=ARMS, curve=False), ARMS)
    (facts,) = read([run], incomplete=True)
    text = " ".join(said for _, said in methods(facts))
    assert "None" not in text and "unknown" not in text.replace("unknown number of planned", "")
    assert "seed" not in text and "revision" not in text and "decoded" not in text


def test_every_reference_can_be_printed() -> None:
    for reference in REFERENCES.values():
        assert {"author", "title", "year"} <= set(reference.fields)
        assert reference.fields["year"] in reference.short
        text = "".join(reference.fields.values())
        assert text.count("{") == text.count("}")


def test_the_citation_file_has_what_the_format_asks_for(kit: tuple[Path, Path]) -> None:
    text = (kit[1] / "CITATION.cff").read_text()
    found = yaml.safe_load(text)
    assert {"cff-version", "message", "title", "authors"} <= set(found)
    assert found["title"] == "Status-bar ablation: toy_case on toy-1.5B" and found["type"] == "dataset"
    assert text.startswith("# Put the authors")


# Refusals: one line, exit code 2, nothing touched.


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["publish", *arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("tailgauge: ") and "Traceback" not in "".join(lines)
    return lines[-1]


def test_an_unfinished_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = made.rows(8, arms=ARMS, curve=False)
    run = run_folder(tmp_path / "run", cells[:-1], cells=len(cells))
    line = refused(capsys, str(run), "--out", str(tmp_path / "kit"))
    assert f"{len(cells) - 1} of {len(cells)} cells" in line and "--incomplete" in line
    assert not (tmp_path / "kit").exists()
    untold = run_folder(tmp_path / "untold", cells[:-1], cells=None)
    assert "does not say how many cells" in refused(capsys, str(untold), "--out", str(tmp_path / "kit"))


def test_an_unfinished_run_that_is_published_says_so_everywhere(tmp_path: Path) -> None:
    cells = [c for c in made.rows(8, arms=ARMS, curve=False) if c["probe"] == "act"]
    run = run_folder(tmp_path / "run", cells, cells=1000)
    folder = publish([run], tmp_path / "kit", incomplete=True)
    for caption in captions(folder).values():
        assert caption["title"].startswith(f"INCOMPLETE RUN: {len(cells)} of 1,000 planned cells")
        assert caption["complete"] is False
    for name in ("captions.md", "captions.tex", "methods.md", "methods.tex", "README.md"):
        assert "INCOMPLETE RUN" in (folder / name).read_text()
    assert json.loads((folder / "manifest.json").read_text())["runs"][0]["complete"] is False


def test_a_folder_with_foreign_files_is_refused_and_kept(
    kit: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    (target / "manifest.json").write_text('{"of": "something else"}')
    assert "manifest.json" in refused(capsys, str(kit[0]), "--out", str(target))
    (target / "manifest.json").unlink()
    (target / "thesis.tex").write_text("years of work")
    assert "thesis.tex" in refused(capsys, str(kit[0]), "--out", str(target))
    assert contents(target) == {"thesis.tex": b"years of work"}
    (tmp_path / "file").write_text("")
    assert "not a folder" in refused(capsys, str(kit[0]), "--out", str(tmp_path / "file"))
    assert "manifest" in refused(
        capsys, str(kit[0]), "--out", str(kit[0])
    )  # the run itself is no place either


def test_a_foreign_or_changed_file_inside_a_kit_is_refused_and_kept(
    kit: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    foreign, changed = kit[1] / "figures" / "mine.txt", kit[1] / "CITATION.cff"
    before = changed.read_bytes()
    try:
        foreign.write_text("mine")
        assert "figures/mine.txt" in refused(capsys, str(kit[0]), "--out", str(kit[1]))
        assert foreign.read_text() == "mine"
        foreign.unlink()
        changed.write_bytes(before.replace(b"Unknown authors", b"A. N. Author"))
        assert "CITATION.cff" in refused(capsys, str(kit[0]), "--out", str(kit[1]))
        assert b"A. N. Author" in changed.read_bytes()
    finally:
        foreign.unlink(missing_ok=True)
        changed.write_bytes(before)


def test_a_missing_run_or_the_same_twice_is_refused(
    kit: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "samples.parquet" in refused(capsys, str(tmp_path / "nowhere"))
    assert "named twice" in refused(capsys, str(kit[0]), str(kit[0]), "--out", str(tmp_path / "kit"))
    assert list(tmp_path.iterdir()) == []


# The folder on disk.


def write_old(target: Path) -> dict[str, bytes]:
    target.mkdir()
    (target / "old.txt").write_text("old")
    sha = hashlib.sha256(b"old").hexdigest()
    (target / "manifest.json").write_text(
        json.dumps({"made_by": "tailgauge publish", "files": {"old.txt": {"sha256": sha}}})
    )
    return contents(target)


@pytest.mark.parametrize(
    "error, told",
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (ReportError("no"), ReportError),
        (OSError(errno.ENOSPC, "No space left on device"), RunLogError),
    ],
)
def test_a_stopped_or_failed_publish_leaves_the_old_kit(
    tmp_path: Path, error: BaseException, told: type[BaseException]
) -> None:
    target = tmp_path / "kit"
    old = write_old(target)
    with pytest.raises(told), replaced(target) as staging:
        (staging / "half.txt").write_text("half")
        raise error
    assert contents(target) == old
    assert [path.name for path in tmp_path.iterdir()] == ["kit"]


def test_a_kit_takes_the_place_of_the_old_one_whole(tmp_path: Path) -> None:
    target = tmp_path / "kit"
    write_old(target)
    with replaced(target) as staging:
        (staging / "new.txt").write_text("new")
        assert (target / "old.txt").exists()
    assert contents(target) == {"new.txt": b"new"}
    assert [path.name for path in tmp_path.iterdir()] == ["kit"]


def test_what_a_killed_publish_left_is_put_right(tmp_path: Path) -> None:
    target = tmp_path / "kit"
    old = write_old(target)
    target.rename(tmp_path / ".kit.before")  # killed between its two renames
    (tmp_path / ".kit.publishing").mkdir()
    (tmp_path / ".kit.publishing" / "half.txt").write_text("half")
    with pytest.raises(ReportError), replaced(target) as staging:
        assert not (staging / "half.txt").exists()
        raise ReportError("no")
    assert contents(target) == old


def test_a_file_that_comes_while_figures_are_drawn_is_not_lost(tmp_path: Path) -> None:
    target = tmp_path / "kit"
    with pytest.raises(ReportError, match=r"late\.txt"), replaced(target) as staging:
        (staging / "new.txt").write_text("new")
        target.mkdir()
        (target / "late.txt").write_text("late")
    assert contents(target) == {"late.txt": b"late"}
    check_own(tmp_path / "absent")


# Several runs, captures.


def test_several_runs_have_a_folder_and_labels_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = [c for c in made.rows(8, arms=ARMS[:1], curve=False) if c["probe"] == "act"]
    runs = [run_folder(tmp_path / name, acts, run_id=name) for name in ("one.a", "two")]
    monkeypatch.chdir(tmp_path)
    folder = publish(runs)
    assert folder == Path("publication/toy-case-one-a-and-1-more")
    found = json.loads((folder / "captions.json").read_text())
    assert len({caption["label"] for caption in found}) == len(found)
    assert {path.name for path in (folder / "figures").iterdir()} == {"one-a", "two"}
    assert {path.name for path in (folder / "tables").iterdir()} == {"one-a", "two"}
    assert (folder / "methods.md").read_text().count("**Model.**") == 2


def test_figures_and_tables_of_a_capture_are_published_with_captions(tmp_path: Path) -> None:
    acts = [c for c in made.rows(8, arms=ARMS[:1], curve=False) if c["probe"] == "act"]
    run = run_folder(tmp_path / "run", acts)
    attention_data.make_folder(run / "attention", clusters=2, conditions=("control",))
    folder = publish([run], tmp_path / "kit")
    figures = {path.stem for path in (folder / "figures" / "attention").iterdir()}
    found = captions(folder)
    assert figures and {f"attention/{stem}" for stem in figures} <= {
        key for kind, key in found if kind == "figure"
    }
    heads = found["table", "attention/heads"]
    assert (folder / "tables/attention/heads.tex").is_file() and "exploratory" in heads["test"]
    captured = pd.read_csv(folder / "tables/attention/captured.csv")
    assert sum(part["cells"] for part in heads["n"]) == captured["cells"].sum() + captured["skipped"].sum()
    assert "replaying the recorded token ids" in (folder / "methods.md").read_text()


def test_unknown_numbers_are_no_zeros(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", made.rows(1, arms=ARMS, curve=False))
    tables = build_tables(load(run))
    row = tables["comparisons"].data.iloc[0]
    assert fixed(row["low"], 3) == "–"
    (facts,) = read([run], incomplete=False)
    text = " ".join(said for _, said in methods(facts))
    assert "nan" not in text
