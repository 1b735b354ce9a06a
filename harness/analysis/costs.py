"""Tables of what a condition costs: tokens, throughput, and latency where it was measured apart.

Knows that unknown is not 0, that a reply cut inside its thinking is censored at the limit τ, and that a
batched run has no latency.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.decisions import Row, arms_there, spread
from harness.analysis.frames import KEYS, Arm, RunData, by_cluster, common, control_for
from harness.analysis.table import Shown, Table, frame

PROMPT, OUTPUT = "output.usage.prompt_tokens", "output.usage.completion_tokens"
CACHED, COUNTED = "output.usage.cached_tokens", "output.usage.reasoning_tokens"
COUNTED_BY = "output.usage.reasoning_counted_by"
REPORTED, REPORTED_FIELD = "output.usage.reported_reasoning_tokens", "output.usage.reported_reasoning_field"

TOKEN_COLUMNS: dict[str, int | None] = {
    "probe": None, "series": None, "condition": None, "placement": None, "cells": 0, "n": 0, "clusters": 0,
    "bar_tokens": 1, "prompt": 1, "prompt_low": 1, "prompt_high": 1, "n_output": 0, "output": 1,
    "output_low": 1, "output_high": 1, "tau": 0, "n_thinking": 0, "thinking": 1, "thinking_low": 1,
    "thinking_high": 1, "start_missing": 0, "end_missing": 0, "opened": 0, "censored_share": 4,
    "thinking_median": 1, "thinking_ratio": 3, "thinking_ratio_low": 3, "thinking_ratio_high": 3, "counted_by": None,
    "n_reported": 0, "reported": 1, "disagree": 0, "reported_field": None,
}  # fmt: skip
_READ = [
    "probe", "series", "condition", "cluster", *KEYS, "excluded", "bar_tokens", "thinking", "censored", "tau",
    "start_missing", "end_missing", "think_open", PROMPT, OUTPUT, COUNTED, COUNTED_BY, REPORTED, REPORTED_FIELD,
]  # fmt: skip
"""Columns of the cells that the table of tokens reads: they are copied for every arm."""
THROUGHPUT_COLUMNS: dict[str, int | None] = {
    "cells": 0, "seconds": 1, "cells_per_second": 3, "prompt_tokens": 0, "computed_tokens": 0,
    "new_tokens": 0, "prompt_tokens_per_second": 1, "new_tokens_per_second": 2, "reuse": 2,
}  # fmt: skip
LATENCIES = ("total", "first_token", "first_answer_token", "per_token")
LATENCY_COLUMNS: dict[str, int | None] = {
    "probe": None, "series": None, "condition": None, "against": None, "measure": None, "cache_state": None,
    "cells": 0, "clusters": 0, "cached_tokens": 1, "seconds": 4, "ratio": 3, "ratio_low": 3, "ratio_high": 3,
}  # fmt: skip


def tokens(run: RunData) -> Table:
    """Prompt, bar, output and thinking tokens per arm, probe and series."""
    rows: list[Row] = []
    for (probe, series), part in run.cells[_READ].groupby(["probe", "series"]):
        for arm in arms_there(run, part):
            rows.append(
                _token_row(part, arm, control_for(arm, run.arms)) | {"probe": probe, "series": series}
            )
    return Table(
        name="tokens",
        title="Tokens",
        how_to_read=(
            "Mean tokens per cell with 95 % t intervals over clusters. Bar tokens are what the condition "
            "adds to the prompt. Thinking is the mean restricted to the limit τ: a reply cut inside its "
            "thinking counts as τ, and the censored share says how many were. `no start`, `no end`: "
            "replies in which that mark of a thinking block is missing (both: it did not think). The ratio divides by the "
            "control at the same decision points." + (_OF_PROVIDERS if any("reported" in row for row in rows) else "")
            + (_OF_DRAWN if (run.cells["thoughts"] > 0).any() else "")
        ),
        columns=TOKEN_COLUMNS,
        shown=(
            Shown("probe", ("probe",)), Shown("series", ("series",)), Shown("condition", ("condition",)),
            Shown("n", ("n",)), Shown("bar", ("bar_tokens",)),
            Shown("prompt", ("prompt", "prompt_low", "prompt_high")),
            Shown("output", ("output", "output_low", "output_high")), Shown("τ", ("tau",)),
            Shown("thinking", ("thinking", "thinking_low", "thinking_high")),
            Shown("censored", ("censored_share",)), Shown("no start", ("start_missing",)),
            Shown("no end", ("end_missing",)), Shown("opened by the prompt", ("opened",)),
            Shown("thinking ÷ control", ("thinking_ratio", "thinking_ratio_low", "thinking_ratio_high")),
            *((Shown("counted by", ("counted_by",)),) if _counted_otherwise(rows) else ()),
            Shown("provider's figure", ("reported",), rare=True), Shown("cells with one", ("n_reported",), rare=True),
            Shown("disagree", ("disagree",), rare=True), Shown("its field", ("reported_field",), rare=True),
        ),
        data=frame(TOKEN_COLUMNS, rows),
        absent="the run has no cells.",
    )  # fmt: skip


_OF_PROVIDERS = (
    " `provider's figure`: the mean of what the provider itself gives as thinking tokens, over the cells where it "
    "gives one; `disagree`: in how many of them our own count is another number."
)
_OF_DRAWN = " Thoughts that are drawn before a choice are in the tables of probabilities and of length."


def _counted_otherwise(rows: list[Row]) -> bool:
    return any(row["counted_by"] not in ("", "token_ids") for row in rows)


def _token_row(part: pd.DataFrame, arm: Arm, control: Arm | None) -> Row:
    mine = part[part["condition"] == arm.name]
    used = mine[~mine["excluded"]]
    counted = used[used["thinking"].notna()]
    censored = float(counted["censored"].mean()) if len(counted) else None
    row: Row = {
        "condition": arm.name, "placement": arm.placement, "cells": len(mine), "n": len(used),
        "clusters": int(used["cluster"].nunique()), "bar_tokens": used["bar_tokens"].mean(),
        "n_output": int(used[OUTPUT].notna().sum()), "n_thinking": len(counted),
        "tau": counted["tau"].min() if len(counted) else None, "censored_share": censored,
        "start_missing": int(counted["start_missing"].sum()), "end_missing": int(counted["end_missing"].sum()),
        "opened": int(counted["think_open"].sum()),
        "counted_by": _joined(counted[COUNTED_BY]),
    } | _reported(used)  # fmt: skip
    for name, column in (("prompt", PROMPT), ("output", OUTPUT), ("thinking", "thinking")):
        row |= spread(name, st.t_interval(by_cluster(part, arm.name, column)))
    if censored is not None and censored < 0.5:  # all censoring sits at τ, so this is the Kaplan–Meier median
        row["thinking_median"] = float(counted["thinking"].median())
    if control and control.name != arm.name:
        both = common(part, arm.name, control.name, "thinking")
        a, b = (by_cluster(both, name, "thinking") for name in (arm.name, control.name))
        a, b = a.align(b, join="inner")
        row |= spread("thinking_ratio", st.ratio_of_means(a, b))
    return row


def _joined(values: "pd.Series[Any]") -> str:
    return "+".join(sorted({str(value) for value in values.dropna()}))


def _reported(used: pd.DataFrame) -> Row:
    """The provider's own figure where it gives one, and how often it is not our count."""
    given = used[used[REPORTED].notna()]
    if given.empty:
        return {}
    both = given[given[COUNTED].notna()]
    return {
        "n_reported": len(given), "reported": float(given[REPORTED].mean()),
        "disagree": int((both[REPORTED] != both[COUNTED]).sum()), "reported_field": _joined(given[REPORTED_FIELD]),
    }  # fmt: skip


def throughput(run: RunData) -> Table:
    """Cells and tokens per second of the whole run, from the manifest."""
    found = run.manifest.get("throughput")
    facts = {k: _number(v) for k, v in found.items()} if isinstance(found, Mapping) else {}
    rows = [_throughput_row(facts)] if facts.get("seconds") else []
    return Table(
        name="throughput",
        title="Throughput of the run",
        how_to_read=(
            "How fast the whole run went, batching and prefix reuse included. Not a latency: cells share "
            "work. Reuse is prompt tokens asked for ÷ prompt tokens computed."
        ),
        columns=THROUGHPUT_COLUMNS,
        shown=(
            Shown("cells", ("cells",)), Shown("seconds", ("seconds",)),
            Shown("cells/s", ("cells_per_second",)), Shown("prompt tokens", ("prompt_tokens",)),
            Shown("computed", ("computed_tokens",)), Shown("new tokens", ("new_tokens",)),
            Shown("prompt tokens/s", ("prompt_tokens_per_second",)),
            Shown("new tokens/s", ("new_tokens_per_second",)), Shown("reuse", ("reuse",)),
        ),
        data=frame(THROUGHPUT_COLUMNS, rows),
        absent="the manifest records no throughput.",
    )  # fmt: skip


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _over(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom else top / bottom


def _throughput_row(facts: Mapping[str, float | None]) -> Row:
    seconds, computed = facts.get("seconds"), facts.get("computed_tokens")
    return {
        **facts,
        "cells_per_second": _over(facts.get("cells"), seconds),
        "prompt_tokens_per_second": _over(facts.get("prompt_tokens"), seconds),
        "new_tokens_per_second": _over(facts.get("new_tokens"), seconds),
        "reuse": _over(facts.get("prompt_tokens"), computed),
    }


def latency(run: RunData) -> Table:
    """Paired latency ratios against the control, from cells measured one at a time only."""
    rows = _latency_rows(run)
    return Table(
        name="latency",
        title="Latency (one request at a time)",
        how_to_read=(
            "Geometric mean of the paired ratios condition ÷ control with a 95 % t interval on the log "
            "over clusters; 1 is no difference. `first_token` is the time to the first token, thinking included; "
            "`first_answer_token` to the first one after it (a reply cut inside its thinking has none); `per_token` "
            "is the time of each further token; `total` also grows with the length of the reply. Cache: `cold` "
            "holds nothing of the prompt, `warm` what all conditions share and not the bar, `natural` what earlier "
            "requests left; cached is the mean of prompt tokens taken from it."
        ),
        columns=LATENCY_COLUMNS,
        shown=(
            Shown("probe", ("probe",)), Shown("series", ("series",)), Shown("condition", ("condition",)),
            Shown("measure", ("measure",)), Shown("cache", ("cache_state",)),
            Shown("cached", ("cached_tokens",)), Shown("cells", ("cells",)), Shown("clusters", ("clusters",)),
            Shown("mean seconds", ("seconds",)),
            Shown("ratio to control", ("ratio", "ratio_low", "ratio_high")),
        ),
        data=frame(LATENCY_COLUMNS, rows),
        absent="a batched run has a throughput and no latency; run with `measure=latency` for it.",
    )  # fmt: skip


def _latency_rows(run: RunData) -> list[Row]:
    cells = timed(run)
    if cells.empty:
        return []
    rows: list[Row] = []
    for (probe, series, cache), part in cells.groupby(["probe", "series", "cache_state"]):
        for arm in arms_there(run, part):
            control = control_for(arm, run.arms)
            if control is None:
                continue
            for measure in LATENCIES:
                where = {"probe": probe, "series": series, "cache_state": cache}
                rows.append(_latency_row(part, arm, control, measure) | where)
    return [row for row in rows if row["cells"]]


def timed(run: RunData) -> pd.DataFrame:
    """The usable cells that were measured one at a time, with their seconds and `per_token`.

    Empty for a batched run: its times are of work that cells shared, and no table may show them.
    """
    times = run.timings[run.timings["measure"] == "latency"]
    cells = run.cells[~run.cells["excluded"]].merge(times, on="cell_id", how="inner")
    cells["cache_state"] = cells["cache_state"].fillna("unknown").astype(str)
    further = (cells[OUTPUT] - 1).where(cells[OUTPUT] > 1)
    cells["per_token"] = (cells["total"] - cells["first_token"]) / further
    return cells


def _latency_row(part: pd.DataFrame, arm: Arm, control: Arm, measure: str) -> Row:
    mine = part[part["condition"] == arm.name]
    row: Row = {
        "condition": arm.name, "against": control.name, "measure": measure,
        "cells": int(mine[measure].notna().sum()), "clusters": int(mine["cluster"].nunique()),
        "cached_tokens": mine[CACHED].mean(), "seconds": mine[measure].mean(),
    }  # fmt: skip
    if arm.name == control.name:
        return row
    columns = [*KEYS, "cluster", measure]
    base = part[part["condition"] == control.name][columns]
    both = mine[columns].merge(base, on=[*KEYS, "cluster"], suffixes=("", "_control"))
    both = both[(both[measure] > 0) & (both[f"{measure}_control"] > 0)]
    logs = pd.Series(np.log(both[measure] / both[f"{measure}_control"]), index=both.index)
    found = st.mean_log_ratio(logs.groupby(both["cluster"]).mean())
    return row | {"clusters": found.n} | spread("ratio", found)
