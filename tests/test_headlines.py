"""Every headline number of the reference runs, and of a made-up run that has what they lack, agrees to 1e-6 with
another way of working it out (tests/other_way.py, tests/recounted*.py)."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_data import failed, rows, seconds, sweep, write_run
from asides_data import texts, write_pieces
from recounted_series import recount

ROOT = Path(__file__).resolve().parent.parent
RUNS = sorted(path.parent for path in (ROOT / "results" / "reference").glob("*/samples.parquet"))
TOLERANCE = 1e-6
"""Of the value where that is above 1 (tokens, seconds), else absolute."""
KEYS = {
    "choose": ("condition",), "comparisons": ("probe", "measure", "condition", "against"),
    "places": ("measure", "condition", "against"), "asides": ("condition", "measure"),
    "rates": ("condition", "measure"), "detection": ("condition",), "ask": ("series", "x", "condition", "side"),
    "tokens": ("probe", "series", "condition"),
    "latency": ("probe", "series", "cache_state", "condition", "measure"),
    "length": ("series", "probe", "condition", "x"),
    "slopes": ("series", "probe", "measure", "condition", "against"),
    "cells": ("probe", "series", "condition"), "outcomes": ("condition", "side", "outcome"),
    "cache": ("probe", "series", "condition"), "throughput": ("cells",),
    "prior_calls": ("probe", "condition", "x", "limit", "side"),
    "filler": ("probe", "condition", "x", "limit", "side"),
}  # fmt: skip
WORDS = {"placement", "note", "counted_by", "reported_field", "unit", "against", "against_placement", "policy",
         "against_policy"}  # fmt: skip
"""Columns that hold words, which are no numbers to recount (or are among the keys)."""

TILT = {"control": 0.0, "placebo": -0.4, "agent_status": 0.5}
"""Logits of sensitivity per 1,000 tokens in the made-up run, so that slopes rise, fall and stay flat."""


@cache
def tables(run_dir: Path) -> Mapping[str, list[dict[str, Any]]]:
    """The tables that are published, not rounded: test_reference holds the committed files to them byte for byte."""
    from harness.analysis.frames import load
    from harness.analysis.tables import build_tables

    return {name: table.rows() for name, table in build_tables(load(run_dir)).items()}


recounted = cache(recount)


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_up(tmp_path_factory.mktemp("made_up") / "run")


def make_up(folder: Path) -> Path:
    """A run with what the reference runs lack: repeats, failures, lost scores, thinking with censored counts,
    several limits, enough replies for d′, malformed calls, and a cluster that lacks a side."""
    rng = np.random.default_rng(5)
    matched = [cell | {"epoch": 0} for cell in rows(10, seed=5)]
    again = [cell | {"epoch": epoch} for epoch in (1, 2) for cell in matched if cell["probe"] == "act"]
    asked = [
        cell | {
            "probe": "ask", "score.outcome": "truncated" if (cut := rng.random() < 0.1) else None,
            "score.right": bool(rng.random() < 0.6) and not cut,
            "score.answer": None if cut else int(rng.integers(0, 4)),
            "score.reason": "several numbers" if rng.random() < 0.2 and not cut else "one number",
        }
        for cell in matched if cell["probe"] == "act"
    ]  # fmt: skip
    lengths = sweep("filler", (0, 1000, 3000), clusters=9, slope=TILT) + sweep(
        "moved_limit", (1, 2), clusters=9
    )
    cells = [cell | {"epoch": 0} for cell in lengths] + matched + again + asked
    made = []
    for cell in cells:
        cell = cell | {
            "cell_id": "|".join(str(cell[k]) for k in ("sample_id", "condition", "probe", "epoch"))
        }
        if cell["probe"] == "act":
            count = int(rng.integers(5, 80))  # the limit is 64 at least
            talk = "talk: nothing found" if rng.random() < 0.3 else "call"
            cell |= {"output.usage.reasoning_tokens": count, "output.usage.reasoning_counted_by": "token_ids",
                     "output.usage.reasoning_censored": count > 60, "score.reason": talk,
                     "decoding.max_new_tokens": 64 + cell["epoch"],
                     "parsed": '{"thinking_end_missing": true}' if count > 60 else "{}"}  # fmt: skip
            if cell["score.outcome"] == "truncated":  # some after a whole call
                cell["score.attempted"] = bool(rng.random() < 0.5)
        if rng.random() < 0.9:  # where the engine told what it found in its cache
            cell |= {"output.usage.cached_tokens": int(rng.integers(0, 700)),
                     "output.usage.predicted_cached_tokens": int(rng.integers(0, 700))}  # fmt: skip
        if cell["probe"] == "act" and cell["cluster"] == "c03" and cell["side"] == "due":
            continue
        if cell["probe"] == "act" and cell["series"] == "matched":
            cell |= (said := texts(cell, rng))
            cell["parsed"] = json.dumps(
                json.loads(said["parsed"]) | {"thinking_end_missing": cell["output.usage.reasoning_censored"]}
            )
        kept = {k: v for k, v in cell.items() if not k.startswith(("output.", "score."))}
        lost = rng.random()
        made.append(failed(**kept) if lost < 0.04 else cell)
        if 0.04 < lost < 0.06:  # answered, but never scored
            made[-1] = cell | {k: None for k in cell if k.startswith("score.")}
    folder.mkdir(parents=True, exist_ok=True)
    write_pieces(folder)
    return write_run(folder, made, timings=seconds(made))


def disagreements(
    published: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> list[str]:
    """Every cell of a table that is not what was recounted; rows and columns on one side alone too."""
    mine = {tuple(_plain(row[key]) for key in keys): row for row in published}
    theirs = {tuple(_plain(row.get(key)) for key in keys): row for row in wanted}
    found = [f"{key}: on one side alone" for key in mine.keys() ^ theirs.keys()]
    for key in mine.keys() & theirs.keys():
        row, again = mine[key], theirs[key]
        found += [f"{key} {column}: recounted, not published" for column in again.keys() - row.keys()]
        for column in row.keys() - set(keys) - WORDS:
            if not _same(_plain(row[column]), _plain(again.get(column))):
                found.append(f"{key} {column}: {row[column]} published, {again.get(column)} recounted")
    return sorted(found)


def _plain(value: Any) -> Any:
    """None for unknown, else the value."""
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else value


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None or isinstance(one, str):
        return bool(one == other)
    return abs(float(one) - float(other)) <= TOLERANCE * max(1.0, abs(float(other)))


def check(run_dir: Path, table: str) -> None:
    published, wanted = tables(run_dir).get(table, []), recounted(run_dir)[table]
    assert len({tuple(_plain(row[key]) for key in KEYS[table]) for row in published}) == len(published)
    assert disagreements(published, wanted, KEYS[table]) == []


@pytest.mark.parametrize("table", KEYS)
@pytest.mark.parametrize("run_dir", RUNS, ids=lambda path: path.name)
def test_the_reference_runs_recounted(run_dir: Path, table: str) -> None:
    check(run_dir, table)


@pytest.mark.parametrize("table", KEYS)
def test_a_run_with_failures_repeats_and_thinking_recounted(made_up: Path, table: str) -> None:
    assert tables(made_up)[table], "the made-up run fills every table"
    check(made_up, table)


def test_no_table_is_left_out(made_up: Path) -> None:
    assert tables(made_up).keys() == KEYS.keys()


def test_one_perturbed_number_is_found(made_up: Path) -> None:
    """Each number of each table in turn, moved by twice the tolerance, and each word, such as a verdict."""
    for name, keys in KEYS.items():
        row = tables(made_up)[name][-1]
        wanted = [r for r in recounted(made_up)[name] if disagreements([row], [r], keys) == []]
        assert len(wanted) == 1, name
        for column in row.keys() - {*keys, *WORDS}:
            value = _plain(row[column])
            if value is None:
                continue
            moved = f"{value}?" if isinstance(value, str) else value + 2 * TOLERANCE * max(1.0, abs(value))
            assert len(disagreements([row | {column: moved}], wanted, keys)) == 1, (name, column)


def test_the_readmes_first_table_is_that_of_the_reference_run() -> None:
    found = {row["condition"]: row for row in recounted(ROOT / "results/reference/xfinity-cpu")["choose"]}
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("−", "-")
    shown = {
        name: cells
        for name, cells in re.findall(r"^\| `(\w+)` \| (.+\].*\].*\].*\]) \|$", text, re.MULTILINE)
    }
    assert shown == {
        name: " | ".join(
            f"{row[key]:.2f} [{row[f'{key}_low']:.2f}, {row[f'{key}_high']:.2f}]"
            for key in ("p_due", "p_forbidden", "sensitivity", "bias")
        )
        for name, row in found.items()
    }  # fmt: skip
