"""The verdict on a comparison, and how many clusters would give one, from the definitions and another way.

Powers come from the noncentral t distribution and the closed form for two one-sided tests, looked up for every number
of clusters in turn. Knows numbers; nothing of harness, runs or tables.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

LEAST, MOST = 8, 100_000
"""Clusters below which there is no verdict; clusters that nobody will run."""
SAVED = {"over_refusal", "thinking", "output", "first_token", "first_answer_token", "per_token", "total"}
"""Measures of which less is better."""


def margin(unit: str, stated: Mapping[str, float]) -> tuple[float, float]:
    """0.5 logit, 10 points, 0.8 to 1.25, unless the manifest states others."""
    if unit == "ratio":
        top = stated.get("ratio", 1.25)
        return 1 / top, top
    half = stated.get("logit", 0.5) if unit == "logit" else stated.get("share", 0.1)
    return -half, half


def word(
    measure: str, change: float, p: float | None, narrow: Sequence[Any], around: Sequence[float], n: int
) -> str:
    """`narrow`: the 90 % interval; `around`: the margin; `change`: estimate minus no difference."""
    if n < LEAST:
        return "inconclusive"
    if None not in narrow and around[0] <= narrow[0] and narrow[1] <= around[1]:
        return "equivalent"
    if p is None or p >= 0.05:
        return "inconclusive"
    if measure == "bias":
        return "more cautious" if change > 0 else "less cautious"
    return "better" if (change > 0) != (measure in SAVED) else "worse"


def further(change: float, sd: float | None, half: float, n: int, alpha: float) -> int | None:
    """Clusters beyond the n there are at which 80 % of runs are settled, were the truth as estimated."""
    if sd is None or n < 3 or sd < 1e-12:
        return LEAST - n if n < LEAST else None
    narrow = math.ceil((stats.norm.isf(alpha / 2) * 2 * sd / half) ** 2)
    sizes = np.arange(3, min(narrow, MOST) + 1)
    settled = []
    for start in range(0, len(sizes), 500):
        some = sizes[start : start + 500]
        enough = (_found(change / sd, some, alpha) >= 0.8) | (_negligible(change, sd, half, some) >= 0.8)
        if enough.any():
            settled.append(int(some[enough.argmax()]))
            break
    least = min([*settled, narrow])
    return None if least > MOST else max(max(least, LEAST) - n, 1)


def _found(effect: float, n: np.ndarray, alpha: float) -> np.ndarray:
    """Power of the paired t test."""
    if abs(effect) <= 1e-12:
        return np.zeros(len(n))
    critical, shift = stats.t.isf(alpha / 2, n - 1), abs(effect) * np.sqrt(n)
    return stats.nct.sf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift)


def _negligible(effect: float, sd: float, half: float, n: np.ndarray) -> np.ndarray:
    """Power of two one-sided t tests at 5 % (Julious 2004)."""
    if abs(effect) >= half:
        return np.zeros(len(n))
    se, reach = sd / np.sqrt(n), stats.t.isf(0.05, n - 1)
    return (
        stats.t.cdf((half - effect) / se - reach, n - 1)
        + stats.t.cdf((half + effect) / se - reach, n - 1)
        - 1
    )
