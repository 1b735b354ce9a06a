"""The table of models × conditions: every headline number and cost, each with its interval and n.

Reads the numbers from the tables of each run, so that both say the same; adds balanced accuracy, seconds and money.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.across.measures import (
    DECISIONS,
    TIMES,
    Measure,
    cache_states,
    costed_cells,
    decided_cells,
    per_cluster,
    timed_cells,
    usable,
)
from harness.analysis.across.runs import Entry, engine, template
from harness.analysis.ask import BOTH, ask
from harness.analysis.costs import tokens
from harness.analysis.decisions import MATCHED, Row, choose, rates
from harness.analysis.frames import RunData
from harness.analysis.table import UNKNOWN, Table, fixed, frame, markdown_grid, with_interval

COLUMNS: dict[str, int | None] = {
    "model": None, "run_id": None, "condition": None, "bar": None, "placement": None, "probe": None,
    "measure": None, "unit": None, "cache_state": None, "n": 0, "clusters": 0, "estimate": 4, "low": 4,
    "high": 4, "interval": None,
}  # fmt: skip
T, WILSON, LOG = "t", "Wilson on the effective n", "t on the log"
PER = 1000
"""Money is told per so many replies."""
_DECIDED = {
    "sensitivity": ("sensitivity", 2), "bias": ("bias", 2), "auc_within": ("AUC within", 2),
    "balanced_accuracy": ("balanced accuracy", 2), "compliance": ("compliance", 2),
    "over_refusal": ("over-refusal", 2), "accuracy": ("right answers", 2),
}  # fmt: skip
_SPENT = {
    "prompt": ("prompt tokens", 0), "output": ("output tokens", 1), "thinking": ("thinking tokens", 1),
    "first_token": ("first token, s", 2), "first_answer_token": ("first answer token, s", 2),
    "total": ("whole reply, s", 2), "cost": ("cost", 3),
}  # fmt: skip


def models_table(entries: Sequence[Entry]) -> Table:
    """One row per model, condition and measure; raises nothing, what was not measured has no row."""
    rows = [row for entry in entries for row in _rows(entry)]
    data = frame(COLUMNS, rows)
    return Table(
        name="models",
        title="Models and conditions",
        how_to_read=(
            "Sensitivity and bias in log-odds, from forced choices. Balanced accuracy: the mean of compliance and of the "
            "share of due calls that were made (free replies; 0.5 is what a model gets that always calls, or never). "
            "Right answers: probe `ask`. Tokens, seconds and money are per free reply. Brackets: 95 % intervals over "
            "episodes: Wilson on the effective n for shares, else t (on the log for seconds and money). Seconds come from "
            f"runs of measure=latency alone; money is per {PER:,} replies and unknown where a run states no price. `n`: "
            "cells/episodes per probe. Everything here is exploratory."
        ),
        columns=COLUMNS,
        shown=(),
        data=data,
        absent="no run has cells on matched pairs.",
        notes=notes(entries),
        grid=_grids(data) if len(data) else "",
    )


def _rows(entry: Entry) -> Iterator[Row]:
    run = entry.run
    read = [*_choose_rows(run), *_act_rows(run), *_ask_rows(run), *_token_rows(run),
            *_time_rows(entry), *_cost_rows(entry)]  # fmt: skip
    order = {name: i for i, name in enumerate((*_DECIDED, "delta_p", *_SPENT))}
    for arm in run.arms:
        mine = [row for row in read if row["condition"] == arm.name]
        for row in sorted(mine, key=lambda row: order[str(row["measure"])]):
            yield {
                "model": entry.name, "run_id": entry.run_id, "cache_state": "", "bar": arm.bar,
                "placement": arm.placement, **row,
            }  # fmt: skip


def _row(
    condition: object, measure: Measure | tuple[str, str, str], found: st.Estimate, n: int, interval: str
) -> Row:
    name, probe, unit = (
        (measure.name, measure.probe, measure.unit) if isinstance(measure, Measure) else measure
    )
    return {
        "condition": condition, "measure": name, "probe": probe, "unit": unit, "n": n, "clusters": found.n,
        "estimate": found.value, "low": found.low, "high": found.high, "interval": interval,
    }  # fmt: skip


def _read(row: Mapping[str, Any], key: str, ends: tuple[str, str] | None = None) -> st.Estimate:
    """An estimate from three columns of a run's table; unknown stays unknown."""
    low, high = ends or (f"{key}_low", f"{key}_high")
    value, below, above = (None if pd.isna(row[k]) else float(row[k]) for k in (key, low, high))
    return st.Estimate(value, below, above, None, int(row["clusters"]))


def _choose_rows(run: RunData) -> Iterator[Row]:
    units = {
        "sensitivity": "logit", "bias": "logit", "delta_p": "probability", "auc_within": "share",
        "thought_tokens": "tokens",
    }  # fmt: skip
    for row in choose(run).rows():
        for key, unit in units.items():
            found = _read(row, key)
            if found.value is not None:
                name = "thinking" if key == "thought_tokens" else key
                how = "score interval over episodes" if key == "auc_within" else T
                n = int(str(row["cells"])) - int(str(row["excluded"]))
                yield _row(row["condition"], (name, "choose", unit), found, n, how)


def _act_rows(run: RunData) -> Iterator[Row]:
    for row in rates(run).rows():
        found = _read(row, "rate", ("low", "high"))
        yield _row(row["condition"], (str(row["measure"]), "act", "share"), found, int(str(row["n"])), WILSON)
    balanced = next(measure for measure in DECISIONS if measure.name == "balanced_accuracy")
    cells = decided_cells(run)
    for arm in run.arms:
        mine = usable(cells, arm.name, balanced)
        found = st.share_interval(per_cluster(mine, balanced), len(mine))
        if found.n:
            yield _row(arm.name, balanced, found, len(mine), WILSON)


def _ask_rows(run: RunData) -> Iterator[Row]:
    for row in ask(run).rows():
        if row["series"] == MATCHED and row["side"] == BOTH:
            found = _read(row, "rate", ("low", "high"))
            yield _row(row["condition"], ("accuracy", "ask", "share"), found, int(str(row["n"])), WILSON)


def _token_rows(run: RunData) -> Iterator[Row]:
    matched = replace(run, cells=run.cells[run.cells["series"] == MATCHED])
    for row in tokens(matched).rows():
        for key, count in (("prompt", "n"), ("output", "n_output"), ("thinking", "n_thinking")):
            found = _read(row, key)
            if found.value is not None:
                n = int(str(row[count]))
                yield _row(row["condition"], (key, str(row["probe"]), "tokens"), found, n, T)


def _time_rows(entry: Entry) -> Iterator[Row]:
    for state in cache_states(entry):
        cells = timed_cells(entry, state)
        for arm in entry.run.arms:
            for name in TIMES:
                row = _mean_row(cells, arm.name, Measure(name, "act", "ratio", name), "s")
                yield from ([row | {"cache_state": state}] if row else [])


def _cost_rows(entry: Entry) -> Iterator[Row]:
    if entry.price is None:
        return
    cells = costed_cells(entry)
    cells = cells.assign(cost=cells["cost"] * PER)
    for arm in entry.run.arms:
        unit = f"{entry.price.currency} per {PER} replies"
        row = _mean_row(cells, arm.name, Measure("cost", "act", "ratio", "cost"), unit)
        yield from ([row] if row else [])


def _mean_row(cells: pd.DataFrame, condition: str, measure: Measure, unit: str) -> Row | None:
    """The mean over episodes of something above 0, its t interval taken on the log."""
    mine = usable(cells, condition, measure)
    values = per_cluster(mine, measure)
    if not len(values):
        return None
    found = st.ratio_of_means(values, pd.Series(1.0, values.index))
    if found.value is None:  # free of charge: 0 has no logarithm
        found = st.t_interval(values)
    return _row(condition, (measure.name, measure.probe, unit), found, len(mine), LOG)


def notes(entries: Sequence[Entry]) -> tuple[str, ...]:
    """What stands between the rows and a plain comparison: tokenizers, machines, prices, cells that were lost."""
    found = []
    if len({template(entry.run) for entry in entries}) > 1:
        found.append(
            "The models have different chat templates, and perhaps tokenizers: each counts tokens in its own, so token "
            "counts compare conditions within a model, and models only roughly."
        )
    found += [*_of_limits(entries), *timing_notes(entries)]
    unpriced = [entry.name for entry in entries if entry.price is None]
    if unpriced and len(unpriced) < len(entries):
        found.append(f"No price is stated, so cost is unknown: {', '.join(unpriced)}.")
    elif unpriced:
        found.append("No run states a price, so cost is unknown.")
    untimed = [entry.name for entry in entries if not entry.timed]
    if untimed:
        found.append(f"No latency run, so seconds are unknown: {', '.join(untimed)}.")
    found += _of_caches(entries) + _of_hours(entries) + _of_losses(entries)
    return tuple(found)


def _of_limits(entries: Sequence[Entry]) -> list[str]:
    """Different limits on new tokens: they cut replies, and with them every count and every share of failures."""
    told = []
    for entry in entries:
        replies = entry.run.cells[entry.run.cells["probe"] == "act"]["decoding.max_new_tokens"].dropna()
        told += [f"{entry.name} {replies.min():.0f}"] if len(replies) else []
    if len({text.rsplit(" ", 1)[1] for text in told}) < 2:
        return []
    return [
        "The models' replies had different limits of new tokens, so they are cut, and count as failures, at different "
        f"lengths: {'; '.join(told)}. Ratios of thinking are taken at the smaller limit."
    ]


def timing_notes(entries: Sequence[Entry]) -> list[str]:
    """That seconds come from different engines or machines, where they do."""
    engines = sorted({name for entry in entries for run in entry.timed if (name := engine(run))})
    if len(engines) < 2:
        return []
    return [f"Seconds were measured on different engines or machines: {'; '.join(engines)}."]


def _of_caches(entries: Sequence[Entry]) -> list[str]:
    cheaper = [
        e.name for e in entries if e.price and e.price.by_token and e.price.cached_per_million is not None
    ]
    if not cheaper:
        return []
    return [
        "Cached tokens are billed as the run had them; its conditions share prefixes, of which an agent that runs under one "
        f"condition has fewer: {', '.join(cheaper)}."
    ]


def _of_hours(entries: Sequence[Entry]) -> list[str]:
    hourly = [
        entry.name for entry in entries
        if entry.price and entry.price.per_hour is not None
    ]  # fmt: skip
    if not hourly:
        return []
    return [
        "Priced by the hour, as if the machine did one request at a time (a batch costs less), from latency runs "
        f"alone: {', '.join(hourly)}."
    ]


def _of_losses(entries: Sequence[Entry]) -> list[str]:
    counts = {entry.name: int(decided_cells(entry.run)["excluded"].sum()) for entry in entries}
    if not any(counts.values()):
        return []
    told = "; ".join(f"{name} {count}" for name, count in counts.items() if count)
    return [f"Cells that failed for good or have no score, in no number above: {told}."]


def _grids(data: pd.DataFrame) -> str:
    """Decisions, then costs: one line per model and condition."""
    lines = list(dict.fromkeys(zip(data["model"], data["condition"], strict=True)))
    by_line = {line: data[(data["model"] == line[0]) & (data["condition"] == line[1])] for line in lines}
    made = []
    for what in (_DECIDED, _SPENT):
        columns = _columns(data, what)
        body = []
        for line, rows in by_line.items():
            picked = [_picked(rows, key) for key in columns]
            if any(row is not None for row in picked):
                texts = [_text(row, what[key[0]][1]) for row, key in zip(picked, columns, strict=True)]
                body.append([*line, *texts, _counts([row for row in picked if row is not None])])
        if body:
            made.append(
                markdown_grid(
                    ["model", "condition", *(_header(what, key, data) for key in columns), "n"], body
                )
            )
    return "\n\n".join(made)


Key = tuple[str, str]
"""Measure and cache state; the latter empty for what is no time."""


def _columns(data: pd.DataFrame, what: Mapping[str, Any]) -> list[Key]:
    found = []
    for name in what:
        states = data[data["measure"] == name]["cache_state"]
        found += [(name, str(state)) for state in sorted(set(states))]
    return found


def _header(what: Mapping[str, tuple[str, int]], key: Key, data: pd.DataFrame) -> str:
    name, state = key
    units = sorted(set(data[data["measure"] == name]["unit"])) if name == "cost" else []
    return what[name][0] + (f" ({state})" if state else "") + (f" ({'; '.join(units)})" if units else "")


def _picked(rows: pd.DataFrame, key: Key) -> dict[str, Any] | None:
    """The row of this measure; free replies before forced choices where both have one."""
    name, state = key
    mine = rows[(rows["measure"] == name) & (rows["cache_state"] == state)]
    mine = mine.sort_values("probe", key=lambda probe: probe != "act", kind="stable")
    return {str(k): v for k, v in mine.iloc[0].items()} if len(mine) else None


def _text(row: Mapping[str, Any] | None, decimals: int) -> str:
    if row is None:
        return UNKNOWN
    return with_interval([fixed(row[key], decimals) for key in ("estimate", "low", "high")])


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    found: dict[str, str] = {}
    for row in rows:
        what = f"latency, {row['cache_state']}" if row["unit"] == "s" else str(row["probe"])
        found.setdefault(what, f"{what} {int(row['n'])}/{int(row['clusters'])}")
    return "; ".join(found.values())
