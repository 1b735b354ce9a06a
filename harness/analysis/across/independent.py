"""Statistics that only a comparison across runs needs: two unpaired groups of episodes, and a quotient of differences.

Knows arrays whose entries are clusters and nothing of models or runs. scipy does Welch's test; own code is what it
lacks: MOVER for shares that do not vary, and Fieller's interval. None stands for "cannot be said", never 0.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from harness.analysis import statistics as st


@dataclass(frozen=True, slots=True)
class Quotient:
    """top ÷ bottom with an interval, or `why` there is none."""

    value: float | None
    low: float | None
    high: float | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Moments:
    """Two means, the variances and covariance of these means, and the degrees of freedom behind them."""

    top: float
    bottom: float
    var_top: float
    var_bottom: float
    cov: float
    df: float


def welch(first: ArrayLike, second: ArrayLike, level: float = 1 - st.ALPHA) -> st.Estimate:
    """mean(first) − mean(second) of two independent groups of clusters, Welch's t interval.

    `n` is the smaller group's. No interval with fewer than two clusters in a group, or where nothing varies.
    """
    a, b = st.finite(first), st.finite(second)
    n = int(min(a.size, b.size))
    if n == 0:
        return st.Estimate(None, None, None, None, 0)
    value = float(a.mean() - b.mean())
    if n == 1 or max(float(a.std()), float(b.std())) < 1e-12:
        return st.Estimate(value, None, None, None, n)
    found = stats.ttest_ind(a, b, equal_var=False).confidence_interval(level)
    sd = math.sqrt(float(a.var(ddof=1) + b.var(ddof=1)))
    return st.Estimate(value, float(found.low), float(found.high), sd, n)


def share_difference(
    first: ArrayLike, second: ArrayLike, cells: tuple[int, int], level: float = 1 - st.ALPHA
) -> st.Estimate:
    """mean(first) − mean(second) of clusters' shares of two independent groups; `cells`: rows in each.

    MOVER (Zou & Donner 2008) puts the groups' own intervals (`statistics.share_interval`) together:
    d − √((a − a_low)² + (b_high − b)²) below and the like above. `n` is the smaller group's.
    """
    a, b = (st.share_interval(values, n, level) for values, n in zip((first, second), cells, strict=True))
    n = min(a.n, b.n)
    if a.value is None or b.value is None:
        return st.Estimate(None, None, None, None, n)
    d = a.value - b.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return st.Estimate(d, None, None, None, n)
    below, above = (
        math.hypot(a.value - a.low, b.high - b.value),
        math.hypot(a.high - a.value, b.value - b.low),
    )
    return st.Estimate(d, d - below, d + above, math.hypot(a.sd or 0.0, b.sd or 0.0), n)


def welch_p(first: ArrayLike, second: ArrayLike) -> float | None:
    """Two-sided p of Welch's t test; the permutation of labels decides where neither group varies."""
    a, b = st.finite(first), st.finite(second)
    if min(a.size, b.size) == 0:
        return None
    if min(a.size, b.size) == 1:
        return 1.0
    if max(float(a.std()), float(b.std())) >= 1e-12:
        return float(stats.ttest_ind(a, b, equal_var=False).pvalue)
    if abs(float(a.mean() - b.mean())) < 1e-12:
        return 1.0
    # Only the split as observed and, for groups of one size, its mirror image are as extreme.
    return min(1.0, (2.0 if a.size == b.size else 1.0) / math.comb(int(a.size + b.size), int(a.size)))


def paired_moments(top: ArrayLike, bottom: ArrayLike) -> Moments | None:
    """Moments of two quantities measured in the same clusters; None from fewer than two."""
    a, b = np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)
    n = int(a.size)
    if n < 2:
        return None
    cov = np.cov(a, b, ddof=1) / n
    return Moments(
        float(a.mean()), float(b.mean()), float(cov[0, 0]), float(cov[1, 1]), float(cov[0, 1]), n - 1
    )


def unpaired_moments(gain: ArrayLike, base: ArrayLike, other: ArrayLike) -> Moments | None:
    """Moments of `gain` and of `other` − `base`, where gain and base share clusters and `other` has its own.

    Degrees of freedom: those of the smaller group, which is on the safe side.
    """
    d, b, o = (np.asarray(x, dtype=np.float64) for x in (gain, base, other))
    if min(d.size, o.size) < 2:
        return None
    cov = np.cov(d, b, ddof=1) / d.size
    return Moments(
        float(d.mean()), float(o.mean() - b.mean()), float(cov[0, 0]),
        float(cov[1, 1] + o.var(ddof=1) / o.size), float(-cov[0, 1]), min(d.size, o.size) - 1,
    )  # fmt: skip


def fieller(moments: Moments, level: float = 1 - st.ALPHA) -> Quotient:
    """top ÷ bottom with Fieller's interval (1954): all θ for which top − θ·bottom is not refuted by a t test.

    That set is bounded only where the bottom itself differs from 0; elsewhere the quotient is undefined.
    """
    m = moments
    t2 = float(stats.t.ppf(0.5 + level / 2, m.df)) ** 2
    a = m.bottom**2 - t2 * m.var_bottom
    b = m.top * m.bottom - t2 * m.cov
    c = m.top**2 - t2 * m.var_top
    if a <= 1e-18 * max(1.0, m.bottom**2):
        return Quotient(None, None, None, "the gap's interval includes 0")
    value = m.top / m.bottom
    if max(m.var_top, m.var_bottom) < 1e-24:
        return Quotient(
            value, None, None, "every episode gives the same difference, so its spread is unknown"
        )
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Quotient(value, (b - root) / a, (b + root) / a)
