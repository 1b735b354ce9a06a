"""Synthetic run folders for the analysis tests, written as runlog writes them; knows no model.

`rows` makes cells with cluster effects on the logit scale; `write_run` puts them into a folder.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.analysis.frames import SIDES, load
from harness.analysis.tables import build_tables

ARMS = (
    ("control", "none", "none"),
    ("placebo", "placebo", "tail"),
    ("mismatched", "mismatched", "tail"),
    ("agent_status", "agent_status", "tail"),
    ("placebo_before", "placebo", "before"),
    ("agent_status_before", "agent_status", "before"),
)
CONTROL, PLACEBO, _, BAR, *_ = ARMS
SENSITIVITY = {
    "control": -0.9,
    "placebo": -0.6,
    "mismatched": -0.6,
    "agent_status": 1.1,
    "placebo_before": -0.9,
    "agent_status_before": -0.7,
}
BIAS = {
    "control": -1.5,
    "placebo": 0.5,
    "mismatched": 0.6,
    "agent_status": 0.7,
    "placebo_before": -1.2,
    "agent_status_before": -0.9,
}
FORBIDDEN = ("violation", "compliant", "claimed_action", "clarification", "malformed_call", "truncated")
DUE = ("correct_action", "over_refusal", "claimed_action", "other_action", "unknown_tool", "truncated")
BAR_TOKENS = {"none": 0, "placebo": 41, "mismatched": 44, "agent_status": 42}


def cell(**fields: Any) -> dict[str, Any]:
    """One row of samples.parquet with plain defaults."""
    row: dict[str, Any] = {
        "batch": 0,
        "scenario": "xfinity",
        "series": "matched",
        "side": "due",
        "target": "Xfinity",
        "prior_calls": 2,
        "limit": 3,
        "filler_tokens": 0,
        "phrasing": "mild",
        "condition": "control",
        "bar": "none",
        "placement": "none",
        "placebo_id": None,
        "probe": "choose",
        "thinking": "off",
        "epoch": 0,
        "seed": 1,
        "model": "toy",
        "bar_text": "",
        "bar_tokens": 0,
        "decoding.max_new_tokens": 64,
        "output.finish_reason": "choice",
        "output.error": None,
        "output.usage.prompt_tokens": 800,
        "output.usage.completion_tokens": 0,
        "output.usage.cached_tokens": None,
        "output.usage.reasoning_tokens": None,
        "output.usage.reasoning_counted_by": None,
        "output.usage.reasoning_censored": False,
        "score.outcome": None,
        "score.attempted": None,
        "score.claimed": None,
        "score.malformed_attempt": None,
        "score.p_act": None,
        "score.p_act_norm": None,
        "score.logit_act": None,
        "score.choice_mass": None,
        "cluster": "c00",
        "sample_id": "c00-due",
    }
    row |= fields
    row.setdefault("cell_id", f"{row['sample_id']}|{row['condition']}|{row['probe']}|{row['epoch']}")
    return row


def chosen(logit: float, **fields: Any) -> dict[str, Any]:
    """A `choose` cell with this log-odds of the asked-for call."""
    p = float(1 / (1 + np.exp(-logit)))
    probabilities = {
        "score.p_act": 0.9 * p,
        "score.p_act_norm": p,
        "score.logit_act": logit,
        "score.choice_mass": 0.9,
    }
    return cell(**(probabilities | fields))


def acted(outcome: str, **fields: Any) -> dict[str, Any]:
    """An `act` cell that ended in `outcome`, with the flags that belong to it."""
    flags = {
        "probe": "act",
        "output.finish_reason": "length" if outcome == "truncated" else "stop",
        "output.usage.completion_tokens": 30,
        "score.outcome": outcome,
        "score.attempted": outcome in ("violation", "correct_action"),
        "score.claimed": outcome == "claimed_action",
        "score.malformed_attempt": outcome == "malformed_call",
    }
    return cell(**(flags | fields))


def failed(**fields: Any) -> dict[str, Any]:
    """A cell that failed for good."""
    return cell(
        **(
            {
                "output.finish_reason": "error",
                "output.error": "boom",
                "score.outcome": "provider_error",
                "output.usage.completion_tokens": None,
            }
            | fields
        )
    )


def rows(
    clusters: int = 12,
    seed: int = 0,
    arms: Sequence[tuple[str, str, str]] = ARMS,
    act_arms: int = 3,
    curve: bool = True,
) -> list[dict[str, Any]]:
    """A whole small run: matched `choose` and `act` pairs, a prior-calls curve, with cluster effects."""
    rng = np.random.default_rng(seed)
    made: list[dict[str, Any]] = []
    for c in range(clusters):
        base, slope = rng.normal(0, 0.8), rng.normal(0, 0.4)
        for i, (name, bar, placement) in enumerate(arms):
            arm = {
                "condition": name,
                "bar": bar,
                "placement": placement,
                "cluster": f"c{c:02d}",
                "bar_tokens": BAR_TOKENS[bar],
                "output.usage.prompt_tokens": 800 + 5 * c + BAR_TOKENS[bar],
            }
            for side in ("forbidden", "due"):
                where = arm | {
                    "side": side,
                    "sample_id": f"c{c:02d}-{side}",
                    "prior_calls": 3 if side == "forbidden" else 2,
                }
                sign = 1 if side == "due" else -1
                logit = base - BIAS[name] + sign * (SENSITIVITY[name] + slope) / 2 + rng.normal(0, 0.3)
                made.append(chosen(float(logit), **where))
                if i < act_arms or (bar == "agent_status" and placement == "tail"):
                    outcome = str(rng.choice(FORBIDDEN if side == "forbidden" else DUE))
                    made.append(acted(outcome, **where))
            for n in range(1, 7) if curve else ():
                where = arm | {
                    "series": "prior_calls",
                    "prior_calls": n,
                    "sample_id": f"c{c:02d}-n{n}",
                    "side": "due" if n < 3 else "forbidden",
                }
                step = SENSITIVITY[name] * (0.5 if n < 3 else -0.5)
                made.append(chosen(float(base - BIAS[name] + step + rng.normal(0, 0.4)), **where))
    return made


def write_run(
    folder: Path,
    cells: Iterable[Mapping[str, Any]],
    arms: Sequence[tuple[str, str, str]] = ARMS,
    timings: Iterable[Mapping[str, Any]] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Path:
    """A run folder as runlog leaves it; `manifest`: further keys of its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(list(cells), columns=None)
    if not len(frame):
        frame = pd.DataFrame(columns=list(cell()))
    frame.sort_values("cell_id").reset_index(drop=True).to_parquet(folder / "samples.parquet")
    if timings is None:
        timings = [
            {
                "cell_id": c,
                "started_at": "2026-01-01T00:00:00Z",
                "total": 0.5,
                "first_token": None,
                "first_answer_token": None,
                "measure": "throughput",
                "cache_state": None,
            }
            for c in frame["cell_id"]
        ]
    pd.DataFrame(
        list(timings),
        columns=[
            "cell_id",
            "started_at",
            "total",
            "first_token",
            "first_answer_token",
            "measure",
            "cache_state",
        ],
    ).to_parquet(folder / "timings.parquet")
    facts = {
        "run_id": "toy-0123",
        "experiment": "toy",
        "model": {"name": "toy-1.5B"},
        "conditions": [{"name": n, "bar": b, "placement": p} for n, b, p in arms],
        "throughput": {
            "cells": len(frame),
            "seconds": 20.0,
            "prompt_tokens": 1000,
            "computed_tokens": 250,
            "new_tokens": 100,
        },
    }
    (folder / "manifest.json").write_text(json.dumps(facts | dict(manifest or {})), encoding="utf-8")
    return folder


def arm_fields(arm: tuple[str, str, str], cluster: int, side: str) -> dict[str, Any]:
    name, bar, placement = arm
    return {
        "condition": name,
        "bar": bar,
        "placement": placement,
        "cluster": f"c{cluster}",
        "side": side,
        "sample_id": f"c{cluster}-{side}",
    }


def matched(arm: tuple[str, str, str], due: list[float], forbidden: list[float]) -> list[dict[str, Any]]:
    """One matched `choose` pair per cluster with these logits."""
    made = [chosen(x, **arm_fields(arm, i, "due")) for i, x in enumerate(due)]
    return made + [chosen(x, **arm_fields(arm, i, "forbidden")) for i, x in enumerate(forbidden)]


def replies(arm: tuple[str, str, str], side: str, outcomes: list[str]) -> list[dict[str, Any]]:
    """One `act` cell per cluster with these outcomes."""
    make = [failed if o == "provider_error" else acted for o in outcomes]
    fields = [arm_fields(arm, i, side) | {"probe": "act"} for i in range(len(outcomes))]
    return [m(**f) if m is failed else m(o, **f) for m, o, f in zip(make, outcomes, fields, strict=True)]


def tables_of(folder: Path, cells: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """The tables of a run folder made of these cells."""
    return build_tables(load(write_run(folder, cells, **options)))


def sweep(
    series: str,
    xs: Sequence[int],
    arms: Sequence[tuple[str, str, str]] = (CONTROL, PLACEBO, BAR),
    clusters: int = 8,
    seed: int = 0,
    slope: Mapping[str, float] | None = None,
    noise: float = 0.3,
) -> list[dict[str, Any]]:
    """Cells of a series over length, `choose` and `act` on both sides at every x.

    Sensitivity starts at SENSITIVITY and moves by `slope` logits per x (filler: per 1,000 tokens); thinking
    starts at 20 tokens and grows by 2 per x.
    """
    rng = np.random.default_rng(seed)
    made: list[dict[str, Any]] = []
    for c in range(clusters):
        base = rng.normal(0, 0.5)
        for name, bar, placement in arms:
            tilt = (slope or {}).get(name, 0.0) + rng.normal(0, noise / 10)
            for x in xs:
                at = x / 1000 if series == "filler" else float(x)
                for side in SIDES:
                    where = point_fields(series, (name, bar, placement), c, x, side)
                    sign = 1 if side == "due" else -1
                    logit = base + sign * (SENSITIVITY[name] + tilt * at) / 2 + rng.normal(0, noise)
                    made.append(chosen(float(logit), **where))
                    outcome = str(rng.choice(FORBIDDEN[:4] if side == "forbidden" else DUE[:4]))
                    thought = {"output.usage.reasoning_tokens": int(20 + 2 * at + rng.integers(0, 9)),
                               "output.usage.reasoning_counted_by": "token_ids"}  # fmt: skip
                    made.append(acted(outcome, **where, **thought))
    return made


def point_fields(series: str, arm: tuple[str, str, str], cluster: int, x: int, side: str) -> dict[str, Any]:
    """Fields of a cell at one x of a series over length; a prior call is 50 tokens of prompt."""
    name, bar, placement = arm
    context = 800 + 3 * cluster + (x if series == "filler" else 50 * x)
    calls = {"filler_tokens": x} if series == "filler" else {"prior_calls": x, "limit": x + (side == "due")}
    return calls | {
        "series": series, "condition": name, "bar": bar, "placement": placement, "side": side,
        "cluster": f"{series}/c{cluster:02d}", "sample_id": f"{series}/c{cluster:02d}/x{x}/{side}",
        "bar_tokens": BAR_TOKENS[bar], "output.usage.prompt_tokens": context + BAR_TOKENS[bar],
    }  # fmt: skip


def seconds(cells: Iterable[Mapping[str, Any]], state: str = "cold") -> list[dict[str, Any]]:
    """Timings of the `act` cells as a latency run writes them: 1 s per 1,000 prompt tokens, 20 ms a token."""
    made = []
    for one in cells:
        if one["probe"] == "act" and one["output.finish_reason"] != "error":
            first = one["output.usage.prompt_tokens"] / 1000
            thought = one["output.usage.reasoning_tokens"] or 0
            made.append({
                "cell_id": one["cell_id"], "total": first + 0.02 * 60, "first_token": first,
                "first_answer_token": first + 0.02 * thought, "measure": "latency", "cache_state": state,
            })  # fmt: skip
    return made


ROBUST: dict[str, list[dict[str, Any]]] = {
    "empty run": [],
    "one cluster": rows(1),
    "no act": [c for c in rows(3) if c["probe"] == "choose"],
    "no choose": [c for c in rows(3) if c["probe"] == "act"],
    "no control": [c for c in rows(3) if c["condition"] != "control"],
    "no placebo": [c for c in rows(3) if c["bar"] != "placebo"],
    "one side": [c for c in rows(3) if c["side"] == "due"],
    "curve only": [c for c in rows(3) if c["series"] != "matched"],
    "length only": sweep("filler", (0, 1000), clusters=2),
    "one length": sweep("moved_limit", (3,), clusters=2),
    "length of one side": [c for c in sweep("filler", (0, 1000), clusters=2) if c["side"] == "due"],
    "length all failed": [
        c | {"output.finish_reason": "error", "output.error": "boom"}
        for c in sweep("filler", (0, 1000), clusters=2)
    ],
    "all failed": [
        failed(
            **{
                k: c[k]
                for k in ("cell_id", "condition", "bar", "placement", "probe", "cluster", "side", "sample_id")
            }
        )
        for c in rows(2, curve=False)
    ],
    "nothing scored": [
        cell(probe=p, sample_id=f"{p}{i}", cluster=f"c{i}")
        for p in ("act", "choose", "ask")
        for i in range(3)
    ],
}
