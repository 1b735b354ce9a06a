"""Partial, torn and foreign run folders: no crash, and a plain word for what was not measured."""

from pathlib import Path

import pytest
from analysis_data import ARMS, ROBUST, rows, tables_of, write_run
from runlog_records import make_record

from harness.analysis.frames import load
from harness.analysis.tables import build_tables
from harness.errors import ReportError
from harness.runlog import finalize, record_to_json


@pytest.mark.parametrize("name", list(ROBUST))
def test_a_partial_run_gives_every_table_and_says_what_was_not_measured(tmp_path: Path, name: str) -> None:
    tables = tables_of(tmp_path, ROBUST[name])
    assert [name for name in tables if name != "places"] == [
        "cells",
        "choose",
        "comparisons",
        "rates",
        "outcomes",
        "detection",
        "ask",
        "prior_calls",
        "filler",
        "length",
        "slopes",
        "tokens",
        "throughput",
        "cache",
        "latency",
    ]
    for table in tables.values():
        text = table.to_markdown()
        assert "nan" not in table.to_csv().split("\n", 1)[1] and "nan" not in text.split("Brackets")[-1]
        assert table.data.empty == ("Not measured (n = 0)" in text)


def test_a_bar_without_its_placebo_is_named(tmp_path: Path) -> None:
    arms = tuple(arm for arm in ARMS if arm[0] != "placebo_before")
    text = tables_of(tmp_path, rows(3, arms=arms), arms=arms)["comparisons"].to_markdown()
    assert (
        "No placebo at the same placement, so the bar's own effect is unknown: agent_status_before." in text
    )


def test_columns_that_a_run_lacks_are_unknown(tmp_path: Path) -> None:
    cells = [{k: v for k, v in c.items() if not k.startswith("output.usage")} for c in rows(3)]
    tables = tables_of(tmp_path, cells)
    assert tables["tokens"].data["prompt"].isna().all()


def test_a_folder_without_samples_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"no samples\.parquet there.*finish the run"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_torn_manifest_is_one_clear_line(tmp_path: Path, text: str) -> None:
    write_run(tmp_path, rows(1))
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(ReportError, match=r"manifest\.json: expected"):
        load(tmp_path)


def test_a_torn_parquet_file_is_one_clear_line(tmp_path: Path) -> None:
    write_run(tmp_path, rows(1))
    (tmp_path / "samples.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(ReportError, match=r"samples\.parquet: not a readable parquet file"):
        load(tmp_path)


def test_what_the_run_log_writes_is_what_analysis_reads(tmp_path: Path) -> None:
    write_run(tmp_path, [])
    lines = [record_to_json(make_record(i)) + "\n" for i in range(8)]
    (tmp_path / "samples.jsonl").write_text("".join(lines), encoding="utf-8")
    finalize(tmp_path)
    run = load(tmp_path)
    assert list(run.cells["cluster"].unique()) == ["xfinity/c0", "xfinity/c1"]
    found = build_tables(run)["rates"].data.set_index("measure")
    made = make_record(0)
    assert found.loc["compliance", "n"] == 4
    assert run.cells["score.attempted"].eq(made.score.attempted is True).all()
    assert (
        run.cells["output.usage.prompt_tokens"].notna().all()
        and run.cells["decoding.max_new_tokens"].notna().all()
    )
    assert set(run.timings["cell_id"]) == set(run.cells["cell_id"])
