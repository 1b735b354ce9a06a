"""The rows of a run's tables over length and prior calls, worked out by `other_way` from the run's cells.

Knows which column of which table is which definition. Nothing of harness. Unknown is None.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import other_verdicts as ov
import other_way as ow
import recounted as one
from other_way import SIDES, Cell, where
from recounted import SECONDS, Arms, mean, spread, there
from recounted_asides import asides
from recounted_pairs import comparisons, places
from scipy import stats

LENGTHS = {"filler": "filler_tokens", "moved_limit": "prior_calls"}


def length(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    """What an arm does at one length."""
    for series, axis in LENGTHS.items():
        part = where(cells, series=series)
        for probe, (name, arm) in itertools.product(sorted({c["probe"] for c in part}), there(arms, part)):
            for x in sorted({cell[axis] for cell in where(arm, probe=probe)}):
                here = where(arm, probe=probe, **{axis: x})
                used = ow.usable(here)
                thought = [cell for cell in used if cell["thought"] is not None]
                prompts = [c["output.usage.prompt_tokens"] for c in used]
                row: Cell = {
                    "series": series, "probe": probe, "condition": name, "x": x, "cells": len(here),
                    "context": mean([p - c["bar_tokens"] for p, c in zip(prompts, used, strict=True)]),
                    "prompt": mean(prompts), "excluded": len(here) - len(used), "n": len(used),
                    "clusters": len({cell["cluster"] for cell in used}), "n_thinking": len(thought),
                    "tau": thought[0]["tau"] if thought else None,
                    "censored_share": mean([cell["censored"] for cell in thought]),
                    "n_output": sum(c["output.usage.completion_tokens"] is not None for c in used),
                    "cache_state": "+".join(sorted({c["cache_state"] for c in used if c["timed"]})) or None,
                }  # fmt: skip
                columns = {"thinking": "thought", "output": "output.usage.completion_tokens"}
                for measure in (*columns, *SECONDS):
                    values = ow.means(used, "cluster", columns.get(measure, measure))
                    row |= spread(measure, ow.t_interval(list(values.values())))
                yield row | (_chosen(here) if probe == "choose" else _replied(used) if probe == "act" else {})


def _chosen(here: list[Cell]) -> Cell:
    row: Cell = {f"p_{side}": mean(list(by.values())) for side, by in ow.sided(here, "p").items()}
    for measure in ("sensitivity", "bias"):
        row |= spread(measure, ow.t_interval(list(ow.by_measure(here, measure).values())))
    return row


def _replied(used: list[Cell]) -> Cell:
    row: Cell = {}
    for measure, side, mark in one.RATES:
        found = ow.share(where(used, side=side), mark)
        row |= spread(measure, [found[key] for key in ("rate", "low", "high")])
    return row


def slopes(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    """One least-squares line per cluster that has every length, by scipy's regression; then as any cluster value."""
    for series, axis in LENGTHS.items():
        for probe in sorted({cell["probe"] for cell in where(cells, series=series)}):
            part = where(cells, series=series, probe=probe)
            for measure in ("sensitivity", "bias", "thinking", "output", *SECONDS):
                base = {"series": series, "probe": probe, "measure": measure}
                found = {name: _points(mine, axis, measure) for name, mine in there(arms, part)}
                yield from (base | row for row in _measure(arms, part, found, measure))


def _measure(arms: Arms, part: list[Cell], found: dict[str, list[Cell]], measure: str) -> Iterator[Cell]:
    found = {name: rows for name, rows in found.items() if any(row["value"] is not None for row in rows)}
    levels = {row["x"] for rows in found.values() for row in rows if row["value"] is not None}
    if len(levels) < 2:
        return
    lines = {name: _lines(rows, levels) for name, rows in found.items()}
    starts = {name: mean([r["value"] for r in rows if r["x"] == min(levels)]) for name, rows in found.items()}
    for name, (line, clusters) in lines.items():
        row = {"kind": arms.role(name), "condition": name, "against": None} | _ends(found[name], levels)
        row |= _slope(list(line.values()), clusters)
        yield row | _verdict(row, measure, starts[name], arms.margins)
    for kind, name, against in arms.pairs(part):
        if kind in ("bar - placebo", "bar - control") and {name, against} <= lines.keys():
            (mine, n), (other, m) = lines[name], lines[against]
            d = [mine[k] - other[k] for k in sorted(mine.keys() & other.keys())]
            row = {"kind": kind, "condition": name, "against": against} | _ends(found[name], levels)
            row |= _slope(d, max(n, m))
            yield row | _verdict(row, measure, starts[against], arms.margins)


def _verdict(row: Cell, measure: str, start: float | None, stated: Mapping[str, float]) -> Cell:
    """Flat (of two slopes: equivalent): over the whole range no more than the margin, which for what is counted or
    timed is a share of its value at the shortest length; else by p."""
    around: tuple[float | None, float | None] = (None, None)
    span = row["to"] - row["from"]
    if span and measure in ("sensitivity", "bias"):
        low, high = ov.margin("logit", stated)
        around = low / span, high / span
    elif span and start:
        low, high = ov.margin("ratio", stated)
        around = (low - 1) * start / span, (high - 1) * start / span
    found = {"margin_low": around[0], "margin_high": around[1], "verdict": "inconclusive"}
    narrow = row["equivalence_low"], row["equivalence_high"]
    if row["clusters"] < ov.LEAST:
        return found
    if None not in (*narrow, *around) and around[0] <= narrow[0] and narrow[1] <= around[1]:
        return found | {"verdict": "flat" if row["against"] is None else "equivalent"}
    if row["p"] is not None and row["p"] < 0.05:
        words = ("rises", "falls") if row["against"] is None else ("higher", "lower")
        return found | {"verdict": words[row["slope"] < 0]}
    return found


def _points(mine: list[Cell], axis: str, measure: str) -> list[Cell]:
    """One row per cluster and x: `at`, the context without the bar, and the value, None where a side is unknown."""
    column = {"thinking": "thought", "output": "output.usage.completion_tokens"}.get(measure, measure)
    rows = []
    for cluster, x in sorted({(cell["cluster"], cell[axis]) for cell in mine}):
        here = where(mine, cluster=cluster, **{axis: x})
        context = [c["output.usage.prompt_tokens"] - c["bar_tokens"] for c in here
                   if c["output.usage.prompt_tokens"] is not None]  # fmt: skip
        if measure in ("sensitivity", "bias"):
            chosen = here if here[0]["probe"] == "choose" else []
            value = ow.by_measure(chosen, measure).get(cluster)
        else:
            sides = [
                ow.means(where(ow.usable(here), side=side), "cluster", column).get(cluster) for side in SIDES
            ]
            value = None if None in sides else mean(sides)
        at = mean(context) / 1000 if axis == "filler_tokens" else x
        rows.append({"cluster": cluster, "x": x, "at": at, "value": value})
    return rows


def _lines(rows: list[Cell], levels: set[Any]) -> tuple[dict[str, float], int]:
    """Cluster → slope, for clusters with a value at every level; and how many clusters there are."""
    clusters = sorted({row["cluster"] for row in rows})
    found = {}
    for cluster in clusters:
        mine = [row for row in rows if row["cluster"] == cluster and row["x"] in levels]
        x = [row["at"] for row in mine]
        if len(mine) == len(levels) and all(row["value"] is not None for row in mine) and len(set(x)) > 1:
            # Rounded, as the tables' are: the sign of a difference of 1e-17 is nobody's.
            found[cluster] = round(float(stats.linregress(x, [row["value"] for row in mine]).slope), 12)
    return found, len(clusters)


def _ends(rows: list[Cell], levels: set[Any]) -> Cell:
    at = [mean([row["at"] for row in rows if row["x"] == x]) for x in levels]
    known = [value for value in at if value is not None]
    return {"points": len(levels), "from": min(known), "to": max(known)}


def _slope(values: list[float], clusters: int) -> Cell:
    value, low, high = ow.t_interval(values)
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    if sd is not None and sd < 1e-12:
        low = high = None
    narrow = (None, None) if low is None else ow.t_interval(values, 0.9)[1:]
    return {
        "clusters": len(values), "excluded": clusters - len(values), "slope": value, "low": low, "high": high,
        "p": ow.sign_flips(values), "sd": sd, "mde": ow.detectable(values),
        "equivalence_low": narrow[0], "equivalence_high": narrow[1],
    }  # fmt: skip


def curve(arms: Arms, cells: list[Cell], series: str, axis: str) -> Iterator[Cell]:
    """P(call) at every x of a series, side by side with its limit."""
    for probe, (name, mine) in itertools.product(
        ("act", "choose"), there(arms, [c for c in where(cells, series=series) if c["probe"] != "ask"])
    ):
        mine = where(mine, probe=probe)
        for x, limit, side in sorted({(cell[axis], cell["limit"], cell["side"]) for cell in mine}):
            here = where(mine, **{axis: x, "limit": limit, "side": side})
            used = ow.usable(here)
            row: Cell = {
                "probe": probe, "condition": name, "x": x, "limit": limit, "side": side, "n": len(used),
                "excluded": len(here) - len(used), "clusters": len({cell["cluster"] for cell in used}),
                "region": "beyond" if any(c["prior_calls"] > c["limit"] for c in here) else "within",
            }  # fmt: skip
            if probe == "act":
                found = ow.share(used, "acted")
                yield row | {"p_call": found["rate"], "low": found["low"], "high": found["high"]}
                continue
            raw, chance, logit = (
                list(ow.means(used, "cluster", key).values()) for key in ("raw", "p", "logit")
            )
            bounds = dict(zip(("p_call", "low", "high"), ow.mean_share(chance), strict=True))
            yield row | bounds | {"raw": mean(raw), "logit": mean(logit)}


def recount(run_dir: Path) -> Mapping[str, list[Cell]]:
    """Table name → its rows, recounted from the run's cells."""
    arms, cells = Arms(run_dir), ow.read(run_dir)
    made = {
        "choose": one.choose, "comparisons": comparisons, "places": places, "rates": one.rates, "detection": one.detection,
        "ask": one.ask, "tokens": one.tokens, "latency": one.latency, "slopes": slopes, "length": length,
        "cells": one.counts, "outcomes": one.outcomes, "cache": one.cache, "throughput": one.throughput,
    }  # fmt: skip
    found = {name: list(rows(arms, cells)) for name, rows in made.items()}
    found["asides"] = list(asides(run_dir, arms, cells))
    curves = {"prior_calls": "prior_calls", "filler": "filler_tokens"}
    return found | {name: list(curve(arms, cells, name, axis)) for name, axis in curves.items()}
