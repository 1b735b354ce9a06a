"""Series over length: what each arm does at every x, and each cluster's value of a measure at every x.

Knows the two series (`filler` over tokens of small talk, `moved_limit` over prior calls, both sides of the rule
at every x) and the measures that are read along them. Fits nothing; `slopes` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.costs import OUTPUT, PROMPT, timed
from harness.analysis.decisions import ACT_MEASURES, Row, arms_there, spread
from harness.analysis.frames import SIDES, Arm, RunData, choose_by_cluster
from harness.analysis.table import Shown, Table, frame

SERIES = {"filler": "filler_tokens", "moved_limit": "prior_calls"}
"""Series over length → the column that is its x."""
SECONDS = ("first_token", "first_answer_token", "total")
MEANS = {"thinking": "thinking", "output": OUTPUT} | {name: name for name in SECONDS}
"""Measures that are a mean of one column over both sides."""
MEASURES = ("sensitivity", "bias", *MEANS)
CONTEXT = "context"
"""Prompt tokens without the bar: the control's prompt at the same decision point."""

COLUMNS: dict[str, int | None] = {
    "series": None, "probe": None, "condition": None, "placement": None, "x": 0, "context": 1, "prompt": 1,
    "cells": 0, "excluded": 0, "n": 0, "clusters": 0, "sensitivity": 3, "sensitivity_low": 3,
    "sensitivity_high": 3, "bias": 3, "bias_low": 3, "bias_high": 3, "p_due": 4, "p_forbidden": 4,
    "compliance": 4, "compliance_low": 4, "compliance_high": 4, "over_refusal": 4, "over_refusal_low": 4,
    "over_refusal_high": 4, "tau": 0, "n_thinking": 0, "thinking": 1, "thinking_low": 1, "thinking_high": 1,
    "censored_share": 4, "cut_share": 4, "n_output": 0, "output": 1, "output_low": 1, "output_high": 1, "cache_state": None,
    "first_token": 4, "first_token_low": 4, "first_token_high": 4, "first_answer_token": 4,
    "first_answer_token_low": 4, "first_answer_token_high": 4, "total": 4, "total_low": 4, "total_high": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sweep:
    """The cells of one series and probe, excluded ones included, with `x`, `context` and, where the run was
    timed, seconds."""

    series: str
    probe: str
    cells: pd.DataFrame


def sweeps(run: RunData) -> Iterator[Sweep]:
    """Every series over length that the run has, probe by probe."""
    cells = run.cells.copy()
    cells[CONTEXT] = cells[PROMPT] - cells["bar_tokens"]
    # After drawn thoughts the thinking of a cell is the mean of its thoughts.
    drawn = cells["thoughts"] > 0
    cells["thinking"] = cells["thinking"].mask(drawn, cells["thought_tokens"])
    cells["cut"] = (cells["thoughts_cut"] / cells["thoughts"]).where(drawn)
    cells["censored"] = (
        cells["censored"].astype("float64").mask(drawn, cells["thoughts_censored"] / cells["thoughts"])
    )
    cells = cells.merge(timed(run)[["cell_id", *SECONDS, "cache_state"]], on="cell_id", how="left")
    for series, column in SERIES.items():
        there = cells[cells["series"] == series]
        for probe in dict.fromkeys(sorted(str(name) for name in there["probe"])):
            yield Sweep(series, probe, there[there["probe"] == probe].assign(x=there[column]))


def length(run: RunData) -> Table:
    """Decisions, thinking, output and seconds at every length, per series, probe and arm."""
    rows: list[Row] = []
    for sweep in sweeps(run):
        for arm in arms_there(run, sweep.cells):
            mine = sweep.cells[sweep.cells["condition"] == arm.name]
            for x, cells in mine.groupby("x"):
                where: Row = {"series": sweep.series, "probe": sweep.probe, "x": x}
                rows.append(_row(cells, arm, sweep.probe) | where)
    return Table(
        name="length",
        title="Against length",
        how_to_read=(
            "x is the filler tokens asked for (series `filler`) or the prior calls to the target (`moved_limit`: n "
            "calls are forbidden once more under a limit of n and due under n + 1). Context is the prompt without "
            "the bar, in tokens. Both sides of the rule stand at every x. Sensitivity as in the table of "
            "probabilities, compliance and over-refusal as in the one of free answers, thinking restricted to the "
            "limit τ, the same at every length (after drawn thoughts: tokens a thought). A reply or thought that the "
            "limit cut inside its thinking is `censored` and counts as τ; `closed by rule` is the share of drawn "
            "thoughts without an end of their own: the censored ones, and others of known length. Seconds only where "
            "requests were timed one at a time, per x and not paired. Brackets: 95 % t intervals over clusters, Wilson "
            "intervals on the effective n for shares."
        ),
        columns=COLUMNS,
        shown=(
            Shown("series", ("series",)), Shown("probe", ("probe",)), Shown("condition", ("condition",)),
            Shown("x", ("x",)), Shown("context", ("context",)), Shown("n", ("n",)),
            Shown("clusters", ("clusters",)), *(_spread(name) for name in ("sensitivity", "compliance")),
            Shown("over-refusal", ("over_refusal", "over_refusal_low", "over_refusal_high"), rare=True),
            Shown("τ", ("tau",), rare=True), _spread("thinking"),
            Shown("censored", ("censored_share",), rare=True),
            Shown("closed by rule", ("cut_share",), rare=True), _spread("output"),
            Shown("cache", ("cache_state",), rare=True), *(_spread(name) for name in SECONDS),
            Shown("excluded", ("excluded",)),
        ),
        data=frame(COLUMNS, rows),
        absent="the run has no cells of a series over length (`filler`, `moved_limit`).",
    )  # fmt: skip


def _spread(key: str) -> Shown:
    header = f"{key.replace('_', ' ')}, s" if key in SECONDS else key
    return Shown(header, (key, f"{key}_low", f"{key}_high"), rare=True)


def _row(cells: pd.DataFrame, arm: Arm, probe: str) -> Row:
    used = cells[~cells["excluded"]]
    counted = used[used["thinking"].notna()]
    row: Row = {
        "condition": arm.name, "placement": arm.placement, "context": used[CONTEXT].mean(),
        "prompt": used[PROMPT].mean(), "cells": len(cells), "excluded": len(cells) - len(used), "n": len(used),
        "clusters": int(used["cluster"].nunique()), "n_thinking": len(counted),
        "n_output": int(used[OUTPUT].notna().sum()), "tau": counted["tau"].min() if len(counted) else None,
        "censored_share": float(counted["censored"].mean()) if len(counted) else None,
        "cut_share": float(counted["cut"].mean()) if counted["cut"].notna().any() else None,
        "cache_state": "+".join(sorted(set(used["cache_state"].dropna()))) or None,
    }  # fmt: skip
    for name, column in MEANS.items():
        row |= spread(name, st.t_interval(used.groupby("cluster")[column].mean()))
    if probe == "choose":
        clusters = choose_by_cluster(cells)
        for name in ("sensitivity", "bias"):
            row |= spread(name, st.t_interval(clusters[name]))
        row |= {f"p_{side}": st.t_interval(clusters[f"p_act_norm_{side}"]).value for side in SIDES}
    if probe == "act":
        for name, side, mark in ACT_MEASURES:
            there = used[used["side"] == side]
            found = st.proportion(there[mark], list(there["cluster"]))
            row |= {name: found.rate, f"{name}_low": found.low, f"{name}_high": found.high}
    return row


def points(sweep: Sweep, condition: str, measure: str) -> pd.DataFrame:
    """One row per cluster and x of an arm: columns `cluster`, `x`, `context`, `value`.

    A mean takes the sides with equal weight, so that a lost repeat shifts nothing; a side without a value leaves
    the point unknown (nan).
    """
    keys, column = ["cluster", "x"], MEANS.get(measure, "score.logit_act")
    mine = sweep.cells["condition"] == condition
    cells = sweep.cells.loc[mine, [*keys, "side", "excluded", CONTEXT, column]]
    grid = cells.groupby(keys)[CONTEXT].mean().reset_index()
    sides = cells[~cells["excluded"]].groupby([*keys, "side"])[column].mean().unstack("side")
    if measure in MEANS:
        expected = sorted(set(sweep.cells["side"]))
        values = sides.reindex(columns=expected).mean(axis=1, skipna=False)
    elif sweep.probe == "choose":
        both = sides.reindex(columns=list(SIDES))
        due, forbidden = both["due"], both["forbidden"]
        values = due - forbidden if measure == "sensitivity" else -(due + forbidden) / 2
    else:
        values = pd.Series(dtype="float64")
    if values.empty:
        return grid.assign(value=np.nan)
    return grid.merge(values.rename("value").reset_index(), on=keys, how="left")
