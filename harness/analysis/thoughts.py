"""Thoughts drawn before a choice (`choose` on a model that thinks) → numbers of a cell.

Knows the column `output.thoughts` of samples.parquet: per cell a list of {cut, censored, reasoning_tokens,
logprobs}, the last in the sorted order of the cell's choices. Knows nothing of arms, clusters or tables.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

THOUGHTS = "output.thoughts"
LABELS = ("choices", "expectation.tool")
"""Columns that name the choices whose probabilities a thought holds."""
NUMBERS = ("thoughts", "thoughts_cut", "thoughts_censored", "thought_tokens", "thought_sd")
_UNKNOWN = (0, 0, 0, float("nan"), float("nan"))


def mark_thoughts(cells: pd.DataFrame, raw: pd.DataFrame) -> None:
    """Add to `cells`, which share the index of the raw rows, what their thoughts were.

    `thoughts`: how many were drawn. `thoughts_cut`: how many were closed by rule, having no end of their own.
    `thoughts_censored`: how many were cut by a limit inside their block, the cells' `tau` included; their count
    is a lower bound. `thought_tokens`: mean tokens of a thought restricted to τ, a censored one counting as τ and
    every other as long as it is. `thought_sd`: standard deviation over the cell's thoughts of the asked-for
    action's probability, renormalised over the choices; unknown below two thoughts.
    """
    drawn: list[Sequence[Mapping[str, Any]]] = [[] for _ in range(len(raw))]
    if THOUGHTS in raw.columns:
        drawn = [[] if value is None else list(value) for value in raw[THOUGHTS]]
    labels = [_labels(raw, i) if thoughts else (None, ()) for i, thoughts in enumerate(drawn)]
    numbers = [
        _numbers(thoughts, float(tau), *named) if thoughts else _UNKNOWN
        for thoughts, tau, named in zip(drawn, cells["tau"], labels, strict=True)
    ]
    for at, name in enumerate(NUMBERS):
        cells[name] = [float(row[at]) for row in numbers]


def _labels(raw: pd.DataFrame, i: int) -> tuple[str | None, tuple[str, ...]]:
    """The label of the asked-for action, and all labels in sorted order; none where the columns are absent."""
    if any(name not in raw.columns for name in (*LABELS, "target")):
        return None, ()
    choices = raw["choices"].iloc[i]
    return f"{raw['expectation.tool'].iloc[i]}:{raw['target'].iloc[i]}", tuple(
        sorted(json.loads(choices) if isinstance(choices, str) else {})
    )


def _numbers(
    thoughts: Sequence[Mapping[str, Any]], tau: float, act: str | None, labels: tuple[str, ...]
) -> tuple[int, int, int, float, float]:
    cut = sum(bool(thought["cut"]) for thought in thoughts)
    counts = [float(thought["reasoning_tokens"]) for thought in thoughts]
    censored = [bool(thought.get("censored")) or n > tau for thought, n in zip(thoughts, counts, strict=True)]
    restricted = [tau if c else n for n, c in zip(counts, censored, strict=True)]
    shares = [_share(thought["logprobs"], act, labels) for thought in thoughts]
    known = [share for share in shares if share is not None]
    spread = float(np.std(known, ddof=1)) if len(known) == len(thoughts) > 1 else float("nan")
    return len(thoughts), cut, sum(censored), float(np.mean(restricted)), spread


def _share(logprobs: Sequence[float] | None, act: str | None, labels: tuple[str, ...]) -> float | None:
    """P(act) renormalised over the choices; None where the labels do not fit the numbers."""
    if logprobs is None or act not in labels or len(logprobs) != len(labels):
        return None
    logs = np.asarray(logprobs, dtype=np.float64)
    total = float(np.logaddexp.reduce(logs))
    return float(np.exp(logs[labels.index(act)] - total)) if np.isfinite(total) else None
