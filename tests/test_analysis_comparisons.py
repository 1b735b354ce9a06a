"""The table of comparisons: lost cells and their worst case, ratios, and runs that were looked at all along."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from analysis_data import (
    ARMS,
    BAR,
    CONTROL,
    PLACEBO,
    acted,
    arm_fields,
    failed,
    matched,
    tables_of,
    write_run,
)

CLUSTERS = 10


def bent(cluster: int) -> float:
    return (-1) ** cluster * 0.2 + 0.01 * cluster


def chosen_cells(bar: float = 1.0) -> list[dict[str, Any]]:
    """Sensitivity 0 in control and placebo, `bar` in the bar's arm, a little spread; bias 0 everywhere."""
    n = range(CLUSTERS)
    flat = ([bent(c) / 2 for c in n], [-bent(c) / 2 for c in n])
    lifted = ([bar / 2 + bent(c) for c in n], [-bar / 2 - bent(c) / 2 for c in n])
    return [*matched(CONTROL, *flat), *matched(PLACEBO, *flat), *matched(BAR, *lifted)]


def row(tables: dict[str, Any], **where: str) -> "pd.Series[Any]":
    data = tables["comparisons"].data
    for key, value in where.items():
        data = data[data[key] == value]
    assert len(data) == 1, where
    return data.iloc[0]


def test_every_comparison_has_a_verdict_and_the_margin_that_it_was_held_against(tmp_path: Path) -> None:
    data = tables_of(tmp_path, chosen_cells())["comparisons"].data
    assert data["verdict"].notna().all() and len(data) > 6
    assert set(data.loc[data["unit"] == "logit", "margin_high"]) == {0.5}
    assert set(data.loc[data["unit"] == "probability", "margin_high"]) == {0.1}


def test_nothing_lost_leaves_no_worst_case(tmp_path: Path) -> None:
    found = row(tables_of(tmp_path, chosen_cells()), measure="sensitivity", kind="bar - placebo")
    assert found["excluded"] == found["excluded_against"] == 0
    assert pd.isna(found["worst_low"]) and found["verdict"] == "better"


def test_a_lost_cell_is_counted_per_arm_and_opens_the_range_that_it_could_have_moved(tmp_path: Path) -> None:
    cells = chosen_cells()
    gone = next(i for i, cell in enumerate(cells) if cell["condition"] == BAR[0] and cell["side"] == "due")
    cells[gone] |= {"output.finish_reason": "error", "output.error": "gone", "score.logit_act": None}
    whole = row(tables_of(tmp_path / "whole", chosen_cells()), measure="sensitivity", kind="bar - placebo")
    found = row(tables_of(tmp_path / "lost", cells), measure="sensitivity", kind="bar - placebo")
    assert (found["excluded"], found["excluded_against"], found["clusters"]) == (1, 0, CLUSTERS - 1)
    true = chosen_cells()[gone]["score.logit_act"]
    assert found["worst_high"] == pytest.approx(whole["estimate"] + (12 - true) / CLUSTERS)
    assert found["worst_low"] == pytest.approx(whole["estimate"] + (-12 - true) / CLUSTERS)


def test_a_lost_reply_could_have_kept_or_broken_the_rule(tmp_path: Path) -> None:
    cells = []
    for arm in ARMS[:2]:
        for c in range(CLUSTERS):
            cells.append(acted("compliant" if c % 2 else "violation", **arm_fields(arm, c, "forbidden")))
    cells[0] = failed(**arm_fields(ARMS[0], 0, "forbidden"), probe="act")
    found = row(tables_of(tmp_path, cells), measure="compliance", kind="placebo - control")
    assert (found["excluded"], found["excluded_against"]) == (0, 1)
    # The control's lost reply was compared with a violation: as another one 0, as a pass −1 of ten clusters.
    assert (found["worst_low"], found["worst_high"]) == (pytest.approx(-0.1), pytest.approx(0.0))


def test_tokens_are_compared_as_a_ratio_and_fewer_are_better(tmp_path: Path) -> None:
    cells = []
    for arm, tokens in ((CONTROL, 100), (PLACEBO, 100), (BAR, 50)):
        for c in range(CLUSTERS):
            fields = arm_fields(arm, c, "forbidden") | {"output.usage.completion_tokens": tokens + c}
            cells.append(acted("compliant", **fields))
    found = row(tables_of(tmp_path, cells), measure="output", kind="bar - control")
    assert found["estimate"] == pytest.approx(54.5 / 104.5) and found["unit"] == "ratio"
    assert found["verdict"] == "better" and found["label"] == "exploratory"


def test_a_run_that_was_looked_at_all_along_gets_anytime_valid_numbers_and_no_other_verdicts(
    tmp_path: Path,
) -> None:
    once = tables_of(tmp_path / "once", chosen_cells(bar=3.0))
    looked = tables_of(tmp_path / "looked", chosen_cells(bar=3.0), manifest={"sequential": {"least": 8}})
    first, second = (row(t, measure="sensitivity", kind="bar - placebo") for t in (once, looked))
    assert second["p"] > first["p"]  # the price of looking
    assert second["high"] - second["low"] > first["high"] - first["low"]
    others = looked["comparisons"].data
    others = others[others["label"] != "confirmatory"]
    assert set(others["verdict"]) == {"inconclusive"} and others["more_clusters"].isna().all()


def test_a_run_that_ended_by_its_rule_says_so_and_is_no_unfinished_one(tmp_path: Path) -> None:
    from harness.analysis.frames import load
    from harness.analysis.publication.kit import read
    from harness.analysis.publication.methods import methods
    from harness.analysis.sentences import sentences
    from harness.analysis.tables import build_tables
    from harness.analysis.threats import audit

    stopped = {"reason": "sequential", "said": "settled", "done": 60, "cells": 600}
    facts = {"sequential": {"least": 8}, "stopped": stopped, "cells": 600}
    run = load(write_run(tmp_path, chosen_cells(bar=3.0), manifest=facts))
    tables = build_tables(run)
    assert "ended early, by its rule: 60 of 600 cells" in sentences(run, tables)[-1]
    assert "Ended early by its rule" in [threat.title for threat in audit(run, tables).threats]
    (published,) = read([tmp_path], incomplete=False)
    text = " ".join(paragraph for _, paragraph in methods(published))
    assert "anytime-valid" in text and "howard2021" in text
