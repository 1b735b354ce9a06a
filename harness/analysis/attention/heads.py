"""Heads that read a span: found on half of the clusters, tested on the other half.

The pure part works on an array (clusters, heads) and knows no capture: rank on the discovery half, keep the top k
whose mean there is above a floor (a tiny, steady difference is none that matters), and test these alone on the test half
by a one-sided max-T sign-flip permutation (step-down, Westfall & Young 1993), which holds the family-wise error rate
whatever the heads' dependence. The null hypothesis is that a head treats the two spans alike, so that their values could
be swapped: then a cluster's difference is symmetric about 0 and the test is exact. It is not a test of a mean of 0: with
lopsided differences whose mean is 0 it passed up to 46 % of simulated data sets (exponential, long tail below 0), with
mildly lopsided ones 7 to 15 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.analysis import statistics as st

Floats = npt.NDArray[np.float64]
TOP = 12
"""How many heads go to the test."""
MIN_HALF = 4
"""Fewest clusters in a half for a test."""
EXACT_CLUSTERS = 14
"""Up to this many clusters all 2^n sign patterns are enumerated."""
DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class Halves:
    """Row numbers of the discovery and the test half; `test` is empty where there are too few clusters."""

    discovery: tuple[int, ...]
    test: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One head that the discovery half chose; None where nothing was tested."""

    head: int
    """Its column."""
    discovery: st.Estimate
    discovery_t: float | None
    test: st.Estimate
    p: float | None
    """One-sided, adjusted for the family of the heads that were tested."""


def halves(clusters: int, seed: int) -> Halves:
    """A seeded shuffle of the row numbers, split in two; an odd one goes to the test half. With fewer than
    2 × MIN_HALF clusters all are for discovery."""
    order = [int(i) for i in np.random.default_rng(seed).permutation(clusters)]
    cut = clusters // 2 if clusters >= 2 * MIN_HALF else clusters
    return Halves(tuple(sorted(order[:cut])), tuple(sorted(order[cut:])))


def find(
    values: Floats, split: Halves, top: int = TOP, seed: int = st.SEED, floor: float = 0.0
) -> list[Finding]:
    """The top heads of the discovery half, best first, with their estimate and p in the test half.

    `values` (clusters, heads): what a head should do more than nothing (0). Heads with an unknown value, or with a
    mean of `floor` or less in the discovery half, are left out. The test half is looked at for the chosen heads alone.
    """
    first, second = values[list(split.discovery)], values[list(split.test)]
    known = np.isfinite(values).all(axis=0)
    score = np.where(known, studentised(first), -np.inf)
    positive = known & (first.mean(axis=0) > floor) if len(first) else np.zeros(values.shape[1], dtype=bool)
    order = [int(i) for i in np.argsort(-score, kind="stable") if positive[i]][:top]
    adjusted = max_t(second[:, order], seed) if len(second) and order else None
    return [
        Finding(
            head=head,
            discovery=st.t_interval(first[:, head]),
            discovery_t=float(score[head]) if len(first) > 1 else None,
            test=st.t_interval(second[:, head]),
            p=None if adjusted is None else float(adjusted[i]),
        )
        for i, head in enumerate(order)
    ]


def studentised(values: Floats) -> Floats:
    """(heads,) mean ÷ its standard error; the mean itself where one cluster gives no error."""
    n = len(values)
    if n < 2:
        return values.mean(axis=0) if n else np.zeros(values.shape[1])
    error = values.std(axis=0, ddof=1) / np.sqrt(n)
    return np.asarray(values.mean(axis=0) / np.maximum(error, 1e-12))


def max_t(values: Floats, seed: int = st.SEED) -> Floats:
    """(heads,) adjusted p that each head's mean is above 0, by step-down max-T over sign flips of whole clusters.

    `values` (clusters, heads). All 2^n patterns for n ≤ EXACT_CLUSTERS, so that the smallest p is 1/2^n, else
    DRAWS drawn ones and the pattern that was observed. Σx² does not change with the signs and t rises with
    Σx ÷ √(n Σx²), which is therefore the statistic: same p as t's, and no division by a zero spread.
    """
    n, k = values.shape
    norm = np.sqrt(n * (values**2).sum(axis=0))
    scaled = np.divide(values, norm, out=np.zeros_like(values), where=norm > 0)
    observed = scaled.sum(axis=0)
    flipped = sign_patterns(n, seed) @ scaled
    order = np.argsort(-observed, kind="stable")
    p = np.empty(k)
    reached = 0.0
    for place, head in enumerate(order):
        best = flipped[:, order[place:]].max(axis=1)
        # The tolerance lets a pattern that ties but for rounding count as reaching what was observed.
        reached = max(reached, float(np.mean(best >= observed[head] - 1e-9)))
        p[head] = reached
    return p


def sign_patterns(n: int, seed: int) -> Floats:
    """Patterns of ±1, the observed (all +1) among them: all (2^n, n), or (DRAWS + 1, n) drawn ones."""
    if n <= EXACT_CLUSTERS:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, 2, (DRAWS, n))
    return np.vstack([np.ones((1, n)), 1.0 - 2.0 * drawn])


def smallest_p(n: int) -> float:
    """The smallest p that `max_t` can give from n clusters."""
    return 2.0**-n if n <= EXACT_CLUSTERS else 1 / (DRAWS + 1)


def needed(alpha: float = st.ALPHA) -> int:
    """Fewest clusters in all at which a head can pass: enough in the test half for a p of `alpha`."""
    half = MIN_HALF
    while smallest_p(half) > alpha:
        half += 1
    return 2 * half


def passed(findings: Sequence[Finding], alpha: float = st.ALPHA) -> int:
    """How many heads passed the test."""
    return sum(found.p is not None and found.p <= alpha for found in findings)
