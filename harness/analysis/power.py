"""How many clusters a comparison needs, and which difference a number of clusters finds.

Means (logits, log ratios): the paired t test's power from statsmodels, and the two one-sided tests' in closed form.
Shares: simulation of the very test that decides, since near 0 and 1 no closed form keeps its promise.
Everything at α two-sided and 80 % power unless said otherwise. Knows designs as plain numbers, no run.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats
from statsmodels.stats.power import TTestPower

from harness.analysis import statistics as st

MOST = 100_000
"""More clusters than anyone will run: the answer is then None."""
RUNS = 1_000
"""Simulated runs per power: its error is 1.3 points at 80 %."""
_SIGNS = 999
"""Random sign patterns in a simulated run of more than `EXACT` clusters."""
_EXACT = 12


def detecting(effect: float, sd: float, clusters: int, alpha: float = st.ALPHA) -> float:
    """Power of the paired t test for a mean difference `effect` whose clusters spread by `sd`."""
    return float(TTestPower().power(abs(effect) / sd, clusters, alpha))


def showing_equivalence(effect: float, sd: float, margin: float, clusters: int) -> float:
    """Power of two one-sided t tests at α against ± `margin` if the difference is `effect` (Julious 2004, eq. 9)."""
    se, freedom = sd / math.sqrt(clusters), clusters - 1
    reach = stats.t.ppf(1 - st.ALPHA, freedom)
    sides = [stats.t.cdf((margin + sign * effect) / se - reach, freedom) for sign in (-1, 1)]
    return max(float(sum(sides)) - 1, 0.0)


def clusters_to_detect(effect: float, sd: float, alpha: float = st.ALPHA) -> int | None:
    """Clusters at which `effect` is found in 80 % of runs; None above `MOST`."""
    return _first(lambda n: detecting(effect, sd, n, alpha)) if abs(effect) > 1e-12 else None


def clusters_for_equivalence(effect: float, sd: float, margin: float) -> int | None:
    """Clusters at which a difference of `effect` is shown to lie within ± `margin` in 80 % of runs; None above
    `MOST` and where it does not lie there."""
    return _first(lambda n: showing_equivalence(effect, sd, margin, n)) if abs(effect) < margin else None


def clusters_to_settle(effect: float, sd: float, margin: float, alpha: float = st.ALPHA) -> int | None:
    """Clusters at which 80 % of runs would get another verdict than `inconclusive`, should the true difference be
    `effect`: it is found, or shown to be negligible. Never more than those at which the interval is so narrow
    (± half the margin) that one of the two holds wherever the truth lies."""
    narrow = math.ceil((stats.norm.ppf(1 - alpha / 2) * 2 * sd / margin) ** 2)
    found = (clusters_to_detect(effect, sd, alpha), clusters_for_equivalence(effect, sd, margin), narrow)
    least = min(n for n in found if n is not None)
    return least if least <= MOST else None


def _first(power: Callable[[int], float]) -> int | None:
    """The first number of clusters (3 or more) at which a rising power reaches 80 %."""
    high = 4
    while power(high) < st.POWER:
        high *= 2
        if high > MOST:
            return None
    low = max(high // 2, 3)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= st.POWER else (middle + 1, high)
    return low


@dataclass(frozen=True, slots=True)
class ShareDesign:
    """Two arms of 0/1 outcomes in clusters. `sizes`: cells per arm in each cluster, repeated in turn. `rate`: of the
    arm compared with. `icc`: how alike the cells of one cluster and arm are (beta-binomial). `shared`: the rank
    correlation of a cluster's two arms (Gaussian copula); 1 is the same effect everywhere."""

    clusters: int
    sizes: tuple[int, ...]
    rate: float
    icc: float = 0.3
    shared: float = 0.7


def draw_shares(
    design: ShareDesign, effect: float, runs: int, rng: np.random.Generator
) -> tuple[st.Floats, st.Floats]:
    """Clusters' shares of the arm with `effect` added to its rate and of the other, each of shape (runs, clusters)."""
    shape = (runs, design.clusters)
    sizes = np.resize(np.asarray(design.sizes), design.clusters)
    common = rng.standard_normal(shape)
    own = design.shared * common + math.sqrt(1 - design.shared**2) * rng.standard_normal(shape)
    found = []
    for normal, rate in ((own, design.rate + effect), (common, design.rate)):
        chances = np.interp(stats.norm.cdf(normal), _GRID, _quantiles(round(rate, 6), design.icc))
        found.append(rng.binomial(sizes, chances) / sizes)
    return found[0], found[1]


_GRID = np.linspace(0, 1, 2_001)


@lru_cache(maxsize=64)
def _quantiles(rate: float, icc: float) -> st.Floats:
    """Quantiles of clusters' rates: a beta distribution of this mean, whose draws correlate by `icc`."""
    if icc <= 0 or rate <= 0 or rate >= 1:
        return np.full(_GRID.shape, min(max(rate, 0.0), 1.0))
    return np.asarray(stats.beta.ppf(_GRID, rate * (1 / icc - 1), (1 - rate) * (1 / icc - 1)))


def detecting_share(design: ShareDesign, effect: float, alpha: float = st.ALPHA) -> float:
    """Simulated power of the sign-flip test for a change of the rate by `effect`; the same for the same design."""
    first, second = draw_shares(design, effect, RUNS, np.random.default_rng(st.SEED))
    return float(np.mean(_sign_flip_each(first - second) < alpha))


def _sign_flip_each(differences: st.Floats) -> st.Floats:
    """Two-sided sign-flip p of each row (run) of `differences` at once."""
    n = differences.shape[1]
    if n <= _EXACT:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        extra = 0
    else:
        signs = np.random.default_rng(st.SEED).choice((-1.0, 1.0), size=(_SIGNS, n))
        extra = 1
    sums = np.abs(signs @ differences.T)
    observed = np.abs(differences.sum(axis=1))
    return np.asarray((np.sum(sums >= observed - 1e-9, axis=0) + extra) / (len(signs) + extra))


def detectable_share(design: ShareDesign, alpha: float = st.ALPHA) -> float | None:
    """The smallest rise of the rate (a fall, where the rate is above a half) that 80 % of runs find, to a
    twentieth of a point; None where no change within [0, 1] is found so often."""
    sign = 1.0 if design.rate <= 0.5 else -1.0
    most = max(design.rate, 1 - design.rate)
    low, high = 0.0, most
    if detecting_share(design, sign * high, alpha) < st.POWER:
        return None
    while high - low > 0.0005:
        middle = (low + high) / 2
        low, high = (
            (low, middle) if detecting_share(design, sign * middle, alpha) >= st.POWER else (middle, high)
        )
    return sign * high
