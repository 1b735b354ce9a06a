"""The table of answers to the question about the state (probe `ask`), and what they say in a sentence.

Knows the marks `right` and `several` of the cells, and that a constant answer is right on one side of a matched pair:
hence the pairs answered right on both sides. Comparisons between arms live in `comparisons`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.decisions import MATCHED, Row, arms_there, missing_note
from harness.analysis.frames import SIDES, Arm, RunData
from harness.analysis.table import UNKNOWN, Shown, Table, fixed, frame, p_value, with_interval

X = {"filler": "filler_tokens", "prior_calls": "prior_calls", "moved_limit": "prior_calls"}
"""Series that are a curve → the column that is its x."""
BOTH, PAIR = "both", "whole pair"

COLUMNS: dict[str, int | None] = {
    "series": None, "x": 0, "condition": None, "placement": None, "side": None, "cells": 0, "excluded": 0, "n": 0,
    "clusters": 0, "n_effective": 1, "count": 0, "rate": 4, "low": 4, "high": 4, "mean_answer": 3, "several": 0,
    "no_number": 0, "truncated": 0, "several_right": 4,
}  # fmt: skip


def ask(run: RunData) -> Table:
    """Share of right answers per series, x, arm and side, over both sides, and of pairs right on both."""
    asked = run.cells[run.cells["probe"] == "ask"]
    return Table(
        name="ask",
        title="Answers to the question about the state",
        how_to_read=(
            "In place of the follow-up the model was asked how often the tool was used for the merchant. Rate: share of "
            "right answers; brackets: 95 % Wilson intervals on the effective n. Where the follow-up would be "
            "forbidden the right answer is one more than where it is due (matched pairs), so a model that always says "
            f"the same number is right on one side at most: `{PAIR}` is the share of pairs answered right on "
            "both. A reply that states several different numbers, or none, or is cut off, is wrong; `if several were "
            "right` counts every reply with several numbers as right. x: filler tokens or prior calls."
        ),
        columns=COLUMNS,
        shown=(
            Shown("series", ("series",)), Shown("x", ("x",), rare=True), Shown("condition", ("condition",)),
            Shown("side", ("side",)), Shown("n", ("n",)), Shown("clusters", ("clusters",)),
            Shown("right", ("rate", "low", "high")), Shown("mean answer", ("mean_answer",)),
            Shown("several numbers", ("several",)), Shown("no number", ("no_number",)),
            Shown("truncated", ("truncated",)), Shown("if several were right", ("several_right",)),
            Shown("excluded", ("excluded",)),
        ),
        data=frame(COLUMNS, _rows(run, asked)),
        absent="the run has no cells of probe `ask`.",
        notes=missing_note(asked, run.arms),
    )  # fmt: skip


def _rows(run: RunData, asked: pd.DataFrame) -> Iterator[Row]:
    for series in sorted({str(name) for name in asked["series"]}, key=lambda name: (name != MATCHED, name)):
        part = asked[asked["series"] == series]
        for arm in arms_there(run, part):
            mine = part[part["condition"] == arm.name]
            points = mine.groupby(X[series]) if series in X else [(None, mine)]
            for x, cells in points:
                where: Row = {
                    "series": series, "x": x, "condition": arm.name, "placement": arm.placement,
                }  # fmt: skip
                yield from (where | row for row in _sides(cells))


def _sides(cells: pd.DataFrame) -> Iterator[Row]:
    there = [side for side in SIDES if (cells["side"] == side).any()]
    for side in there:
        yield _row(cells[cells["side"] == side]) | {"side": side}
    if len(there) == len(SIDES):
        yield _row(cells) | {"side": BOTH}
        yield _pair_row(cells) | {"side": PAIR}


def _row(cells: pd.DataFrame) -> Row:
    used = cells[~cells["excluded"]]
    found = st.proportion(used["right"], list(used["cluster"]))
    several, cut = int(used["several"].sum()), int(used["truncated"].sum())
    answered = int(used["score.answer"].notna().sum())
    return _rate(found) | {
        "cells": len(cells), "excluded": len(cells) - len(used),
        "mean_answer": used["score.answer"].mean() if answered else None, "several": several,
        "no_number": len(used) - answered - several - cut, "truncated": cut,
        "several_right": (found.count + several) / found.n if found.n else None,
    }  # fmt: skip


def _pair_row(cells: pd.DataFrame) -> Row:
    """Both sides of a cluster in one epoch are a pair; one that lost a side is excluded."""
    grid = cells.assign(right=cells["right"].mask(cells["excluded"]))
    pairs = grid.pivot_table(
        index=["cluster", "epoch"], columns="side", values="right", aggfunc="min", dropna=False
    )
    whole = pairs.reindex(columns=list(SIDES)).dropna().min(axis=1)
    clusters = [str(key[0]) for key in whole.index]
    return _rate(st.proportion(whole, clusters)) | {"cells": len(pairs), "excluded": len(pairs) - len(whole)}


def _rate(found: st.Proportion) -> Row:
    return {
        "n": found.n, "clusters": found.clusters, "n_effective": found.n_effective, "count": found.count,
        "rate": found.rate, "low": found.low, "high": found.high,
    }  # fmt: skip


def ask_sentences(answers: pd.DataFrame, compared: pd.DataFrame, arms: Sequence[Arm]) -> list[str]:
    """What came out on matched pairs, from the tables `ask` and `comparisons`; nothing where nobody was asked."""
    matched = answers[answers["series"] == MATCHED]
    parts = []
    for arm in arms:
        mine = matched[matched["condition"] == arm.name]
        rows = {str(row["side"]): row for row in mine.to_dict("records")}
        if BOTH in rows:
            both = with_interval([fixed(rows[BOTH][key], 2) for key in ("rate", "low", "high")])
            parts.append(
                f"{arm.name} {both} of {rows[BOTH]['n']} ({fixed(rows[PAIR]['rate'], 2)} of the pairs)"
            )
    if not parts:
        return []
    told = "Asked how often the tool was used, the share of right answers (of pairs right on both sides): "
    tested = compared[
        (compared["measure"] == "accuracy") & compared["kind"].isin(["bar - placebo", "bar - control"])
    ]
    differences = [_difference(row) for row in tested.to_dict("records")]
    return [" ".join([f"{told}{'; '.join(parts)}.", *differences])]


def _difference(row: Mapping[Any, Any]) -> str:
    change = with_interval([fixed(row[key], 2) for key in ("estimate", "low", "high")])
    p = fixed(row["p"], 6)
    decided = p != UNKNOWN and float(p) < st.ALPHA
    verdict = (
        "undecided"
        if not decided
        else "right more often"
        if float(row["estimate"]) > 0
        else "right less often"
    )
    return (
        f"{row['condition']} against {row['against']}: {change} (p {p_value(row['p'])}, exploratory, uncorrected, "
        f"{row['clusters']} episodes): {verdict}."
    )
