"""The verdict on a comparison: one word against a stated margin, and what it would take where there is none.

`better` and `worse`: the sign-flip p (after Holm in the confirmatory family) is below α. `equivalent`: both one-sided
tests at α reject a difference as large as the margin, which is the same as the 1 − 2α interval lying within it
(Schuirmann 1987); it comes first, so that a difference that is proven to be negligible is not called better.
`inconclusive`: neither, or fewer than `MIN_CLUSTERS` clusters. Bias has no better or worse: there it is `more
cautious` and `less cautious`. Knows numbers, no run.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.analysis import power
from harness.analysis import statistics as st
from harness.analysis.pairs import few_note
from harness.errors import ReportError

Word = Literal["better", "worse", "equivalent", "inconclusive", "more cautious", "less cautious"]
Unit = Literal["logit", "probability", "share", "ratio"]
MIN_CLUSTERS = 8
"""Below this many clusters no comparison gets a verdict: p cannot go below .0156, and spreads are guesses."""
LEVEL = 1 - 2 * st.ALPHA
"""Level of the interval that stands for the two one-sided tests."""
LOWER_IS_BETTER = frozenset(
    {
        "over_refusal",
        "thinking",
        "output",
        "first_token",
        "first_answer_token",
        "per_token",
        "total",
        "cost",
        "prompt",
    }
)


@dataclass(frozen=True, slots=True)
class Margins:
    """Differences that are small enough not to matter, stated before the run (configuration key `margins`)."""

    logit: float = 0.5
    """Sensitivity and bias, in log-odds."""
    share: float = 0.1
    """Rates and probabilities: 0.1 is ten points."""
    ratio: float = 1.25
    """Tokens and seconds: from 1 ÷ 1.25 = 0.8 to 1.25."""

    def bounds(self, unit: str) -> tuple[float, float]:
        """Lower and upper margin in the unit of the comparison."""
        if unit == "ratio":
            return 1 / self.ratio, self.ratio
        half = self.logit if unit == "logit" else self.share
        return -half, half


def margins_of(manifest: Mapping[str, Any]) -> Margins:
    """The margins that the run's manifest states; the defaults for a run from before they were stated."""
    found = manifest.get("margins")
    if not isinstance(found, Mapping):
        return Margins()
    if (
        not all(key in _KEYS and _positive(value) for key, value in found.items())
        or found.get("ratio", 2) <= 1
    ):
        raise ReportError(
            f"manifest.json: margins: expected {', '.join(_KEYS)} as numbers above 0 (ratio above 1), got {dict(found)}; "
            "restore the manifest"
        )
    return Margins(**{str(key): float(value) for key, value in found.items()})


_KEYS = ("logit", "share", "ratio")


def _positive(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < float(value) < math.inf  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one comparison. `estimate` and `equivalence` are in its unit; `sd` is the spread of the
    clusters' differences, of their logs where the unit is `ratio`. `alpha`: the level that p is held against in
    planning, smaller than α in a family of several tests."""

    measure: str
    unit: str
    estimate: float | None
    sd: float | None
    clusters: int
    p: float | None
    equivalence: tuple[float, float] | None
    alpha: float = st.ALPHA


@dataclass(frozen=True, slots=True)
class Verdict:
    """`more_clusters`: how many more would settle an inconclusive comparison, None where that cannot be said."""

    word: Word
    more_clusters: int | None = None


def few_clusters(clusters: int, tests: int) -> str:
    """What too few clusters do: to the permutation test (in a family of `tests`), and to the verdict."""
    guard = f"no verdict below {MIN_CLUSTERS} clusters" if 0 < clusters < MIN_CLUSTERS else ""
    return few_note(clusters, tests) or guard


def decide(found: Evidence, margins: Margins) -> Verdict:
    """The verdict, and for `inconclusive` the clusters that are missing."""
    low, high = margins.bounds(found.unit)
    if found.clusters >= MIN_CLUSTERS and found.estimate is not None:
        if found.equivalence and low <= found.equivalence[0] and found.equivalence[1] <= high:
            return Verdict("equivalent")
        if found.p is not None and found.p < st.ALPHA:
            return Verdict(
                _direction(found.measure, found.estimate - (1.0 if found.unit == "ratio" else 0.0))
            )
    return Verdict(
        "inconclusive", _missing(found, min(-low, high) if found.unit != "ratio" else math.log(high))
    )


def _direction(measure: str, change: float) -> Word:
    if measure == "bias":
        return "more cautious" if change > 0 else "less cautious"
    return "better" if (change < 0) == (measure in LOWER_IS_BETTER) else "worse"


def _missing(found: Evidence, margin: float) -> int | None:
    """Clusters beyond those there at which the comparison would be settled, at least up to `MIN_CLUSTERS`."""
    if found.estimate is None or found.sd is None or found.clusters < 3 or found.sd < 1e-12:
        return max(MIN_CLUSTERS - found.clusters, 0) or None
    if found.unit == "ratio" and found.estimate <= 0:
        return None
    change = math.log(found.estimate) if found.unit == "ratio" else found.estimate
    needed = power.clusters_to_settle(change, found.sd, margin, found.alpha)
    return None if needed is None else max(max(needed, MIN_CLUSTERS) - found.clusters, 1)
