"""What a run cost: provider's figures, drawn thoughts, prefix cache and latency, counted by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_data import BAR, CONTROL, acted, arm_fields, matched, rows, tables_of, write_run
from runlog_records import make_record

from harness.analysis.frames import load
from harness.analysis.tables import build_tables
from harness.analysis.thoughts import THOUGHTS
from harness.runlog import finalize, record_to_json

CACHED, PREDICTED = "output.usage.cached_tokens", "output.usage.predicted_cached_tokens"
REPORTED = "output.usage.reported_reasoning_tokens"
LABELS = {"phone_call:Xfinity": [1, 2], "lookup_account": [3], "reply": [4]}
"""Sorted: lookup_account, phone_call:Xfinity, reply."""


def row(tables: dict[str, Any], name: str, **where: Any) -> dict[str, Any]:
    data = tables[name].data
    for key, value in where.items():
        data = data[data[key] == value]
    assert len(data) == 1, f"{len(data)} rows of {name} with {where}"
    return dict(data.iloc[0])


def replied(arm: Any, count: int, **fields: Any) -> list[dict[str, Any]]:
    """`act` cells of an arm, one per cluster; a list as a value gives each cell its own."""
    return [
        acted("compliant", **arm_fields(arm, i, "forbidden"))
        | {key: value[i] if isinstance(value, list) else value for key, value in fields.items()}
        for i in range(count)
    ]


def test_the_providers_figure_stands_beside_the_count_and_disagreements_are_counted(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "output.usage.reasoning_tokens": [10, 20, 30, None],
        REPORTED: [10, 22, None, 7],
        "output.usage.reported_reasoning_field": ["details.reasoning_tokens"] * 2
        + [None, "details.reasoning_tokens"],
        "output.usage.reasoning_counted_by": "token_ids",
    }
    tables = tables_of(tmp_path, replied(CONTROL, 4, **fields) + replied(BAR, 4))
    found = row(tables, "tokens", condition="control")
    assert (found["n_reported"], found["reported"], found["disagree"]) == (3, pytest.approx(13.0), 1)
    assert found["reported_field"] == "details.reasoning_tokens"
    text = tables["tokens"].to_markdown()
    assert "| provider's figure |" in text and "| counted by |" not in text
    assert pd.isna(row(tables, "tokens", condition="agent_status")["n_reported"])  # unknown, not 0


def test_how_thinking_was_counted_is_shown_where_it_was_not_on_token_ids(tmp_path: Path) -> None:
    counted = {"output.usage.reasoning_tokens": 5, "output.usage.reasoning_counted_by": "retokenised"}
    assert "retokenised" in tables_of(tmp_path, replied(CONTROL, 2, **counted))["tokens"].to_markdown()


def test_a_run_without_providers_figures_shows_no_columns_for_them(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, rows(2, curve=False))
    text = tables["tokens"].to_markdown().partition("| --- |")[0]
    assert "| provider's figure |" not in text and "| disagree |" not in text
    header = tables["tokens"].to_csv().partition("\n")[0].split(",")
    assert {"reported", "n_reported", "disagree", "reported_field", "counted_by"} <= set(header)


def test_columns_that_no_row_knows_are_named_once_and_not_shown(tmp_path: Path) -> None:
    text = tables_of(tmp_path, rows(2, curve=False))["tokens"].to_markdown()
    grid = next(line for line in text.split("\n") if line.startswith("| probe"))
    assert "| thinking |" not in grid and "| prompt |" in grid
    assert "Unknown in every row: τ, thinking, censored, thinking ÷ control." in text


def drawn(*thoughts: tuple[int, str, float]) -> list[dict[str, Any]]:
    """Thoughts of (tokens, end, P(act)); the rest of the mass is `reply`'s, one part in 20 of all is lost. `end`:
    its own, by the rule (`cut`), or by the rule since the limit cut it (`censored`)."""
    return [
        {
            "token_ids": [7] * min(tokens, 3), "cut": end != "own", "censored": end == "censored",
            "reasoning_tokens": tokens,
            "logprobs": [float("-inf"), float(np.log(0.95 * p)), float(np.log(0.95 * (1 - p)))],
        }
        for tokens, end, p in thoughts
    ]  # fmt: skip


def test_thoughts_before_a_choice_are_counted_restricted_and_their_spread_is_given(tmp_path: Path) -> None:
    cells = matched(CONTROL, [1.0, 2.0], [0.0, 0.0])
    four = drawn((10, "own", 0.2), (20, "own", 0.4), (30, "cut", 0.6), (40, "censored", 0.8))
    for i, cell in enumerate(cells):
        cell |= {"choices": json.dumps(LABELS), "expectation.tool": "phone_call", "target": "Xfinity"}
        cell["output.usage.reasoning_tokens"] = 400  # of all thoughts together: no length of a thought
        cell[THOUGHTS] = four if i else drawn(*[(100, "own", 0.5)] * 4)
    tables = tables_of(tmp_path, cells)
    found = row(tables, "choose", condition="control")
    assert (found["thoughts"], found["thought_tau"]) == (4, 64)
    assert found["thoughts_cut_share"] == pytest.approx(6 / 16)
    assert found["thoughts_censored_share"] == pytest.approx((3 + 4) / 16)
    # A censored thought counts as τ, and so does a longer one; one that was closed by rule, but whose length is
    # known, as what it is. c0 holds one cell of each kind.
    plain, long = (10 + 20 + 30 + 64) / 4, 64
    assert found["thought_tokens"] == pytest.approx(((plain + long) / 2 + plain) / 2)
    assert found["thought_sd"] == pytest.approx(3 / 4 * np.std([0.2, 0.4, 0.6, 0.8], ddof=1))
    text = tables["choose"].to_markdown()
    assert "| thoughts a cell | cut | censored |" in text
    assert pd.isna(row(tables, "tokens", condition="control")["thinking"])


def test_without_thoughts_the_table_of_choices_says_nothing_of_them(tmp_path: Path) -> None:
    text = tables_of(tmp_path, matched(CONTROL, [1.0, 2.0], [0.0, 0.0]))["choose"].to_markdown()
    assert "thought" not in text


def test_a_thought_whose_choices_are_unknown_has_no_spread_but_counts(tmp_path: Path) -> None:
    cells = [c | {THOUGHTS: drawn(*[(9, "own", 0.5)] * 4)} for c in matched(CONTROL, [1.0], [0.0])]
    found = row(tables_of(tmp_path, cells), "choose", condition="control")
    assert found["thought_tokens"] == 9 and pd.isna(found["thought_sd"])


def test_cached_tokens_are_compared_where_both_figures_are_known(tmp_path: Path) -> None:
    cells = replied(CONTROL, 4, **{CACHED: [96, 64, None, 32], PREDICTED: [100, 60, 64, None]})
    cells += replied(BAR, 2, **{CACHED: 0, PREDICTED: 0})
    tables = tables_of(tmp_path, cells)
    found = row(tables, "cache", condition="control")
    assert (found["cells"], found["n"], found["unknown"]) == (4, 2, 2)
    assert (found["prompt"], found["predicted"], found["measured"]) == (1600, 160, 160)
    assert (found["measured_share"], found["cached_share"]) == (1.0, 0.1)
    none = row(tables, "cache", condition="agent_status")
    assert (none["measured"], none["cached_share"]) == (0, 0) and pd.isna(none["measured_share"])
    total = row(tables, "cache", probe="all")
    assert (total["cells"], total["n"], total["prompt"]) == (6, 4, 3200)


def test_the_block_of_the_ledger_is_named_and_a_run_without_one_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path, replied(CONTROL, 2, **{CACHED: 32, PREDICTED: 32}))
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8")) | {"ledger": {"block_size": 32}}
    path.write_text(json.dumps(manifest), encoding="utf-8")
    text = build_tables(load(folder))["cache"].to_markdown()
    assert "Tokens in a block: 32." in text and "resumes a run starts with an empty cache" in text
    table = tables_of(tmp_path / "b", replied(CONTROL, 2, **{CACHED: 32}))["cache"]
    assert table.data.empty and "no prediction" in table.to_markdown()


def timing(cells: list[dict[str, Any]], state: str, **times: Any) -> list[dict[str, Any]]:
    return [
        {"cell_id": c["cell_id"], "measure": "latency", "cache_state": state}
        | {key: value[i] if isinstance(value, list) else value for key, value in times.items()}
        for i, c in enumerate(cells)
    ]


def test_the_time_to_the_first_answer_token_is_paired_and_a_reply_without_one_leaves_its_pair(
    tmp_path: Path,
) -> None:
    control, bar = replied(CONTROL, 3, **{CACHED: 0}), replied(BAR, 3, **{CACHED: [512, 512, 0]})
    times = timing(control, "warm", total=9.0, first_token=1.0, first_answer_token=[2.0, 2.0, 2.0])
    times += timing(bar, "warm", total=9.0, first_token=1.0, first_answer_token=[4.0, 4.0, None])
    tables = tables_of(tmp_path, control + bar, timings=times)
    found = row(tables, "latency", condition="agent_status", measure="first_answer_token")
    assert (found["ratio"], found["clusters"], found["cells"]) == (pytest.approx(2.0), 2, 2)
    assert (found["cache_state"], found["series"]) == ("warm", "matched")
    assert found["cached_tokens"] == pytest.approx(1024 / 3)
    assert "| warm |" in tables["latency"].to_markdown()


def test_series_and_cache_states_are_timed_apart(tmp_path: Path) -> None:
    cells = replied(CONTROL, 2) + [
        c | {"series": "filler", "cell_id": c["cell_id"] + "f"} for c in replied(CONTROL, 2)
    ]
    times = timing(cells[:2], "cold", total=1.0) + timing(cells[2:], "natural", total=3.0)
    data = tables_of(tmp_path, cells, timings=times)["latency"].data
    assert dict(zip(data["series"], data["seconds"], strict=True)) == {"matched": 1.0, "filler": 3.0}
    assert set(data["measure"]) == {"total"}  # what was not measured has no row


def test_a_batched_run_refuses_to_print_a_latency_even_with_every_time_in_its_log(tmp_path: Path) -> None:
    cells = replied(CONTROL, 3) + replied(BAR, 3)
    times = [
        t | {"measure": "throughput"}
        for t in timing(cells, "shared", total=77.7, first_token=77.7, first_answer_token=77.7)
    ]
    tables = tables_of(tmp_path, cells, timings=times)
    assert (
        tables["latency"].data.empty
        and "batched run has a throughput and no latency" in tables["latency"].to_markdown()
    )
    assert not [name for name, table in tables.items() if "77.7" in table.to_csv() + table.to_markdown()]


def test_what_the_run_log_writes_of_thoughts_and_cache_is_what_analysis_reads(tmp_path: Path) -> None:
    from dataclasses import replace

    from harness.types import Thought

    write_run(tmp_path, [])
    made = make_record(0)
    labels = {f"{made.expectation.tool}:{made.target}": (5, 6), "reply": (7,)}
    ends = ((True, True), (True, False), (False, False))
    thoughts = tuple(Thought((1, 2, 3), cut, 3, (-0.5, -1.0), censored) for cut, censored in ends)
    usage = replace(made.output.usage, predicted_cached_tokens=32, cached_tokens=16)
    score = replace(made.score, outcome=None, logit_act=0.5, p_act=0.6, p_act_norm=0.6, choice_mass=1.0)
    output = replace(made.output, thoughts=thoughts, usage=usage, finish_reason="choice")
    made = replace(made, probe="choose", choices=labels, output=output, score=score, parsed=None)
    (tmp_path / "samples.jsonl").write_text(record_to_json(made) + "\n", encoding="utf-8")
    finalize(tmp_path)
    cell = load(tmp_path).cells.iloc[0]
    assert (cell["thoughts"], cell["thoughts_cut"], cell["thoughts_censored"]) == (3, 2, 1)
    assert cell["thought_sd"] == 0.0 and cell["thought_tokens"] == (cell["tau"] + 3 + 3) / 3
    assert (cell[PREDICTED], cell[CACHED]) == (32, 16)
