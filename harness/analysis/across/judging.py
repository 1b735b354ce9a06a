"""One difference or ratio between two corners, its intervals, its p, and its verdict against the stated margin.

Knows values per episode, paired or not, and nothing of models, cells or files.
"""

import math
from dataclasses import dataclass

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.across import independent
from harness.analysis.across.measures import Measure, aligned, imputed, per_cluster, valued
from harness.analysis.decisions import Row
from harness.analysis.verdicts import LEVEL, Evidence, Margins, decide


@dataclass(frozen=True, slots=True)
class Difference:
    """first − second (or first ÷ second), with the 95 % interval and, for equivalence, the 90 % one."""

    estimate: float | None
    low: float | None
    high: float | None
    inner_low: float | None
    inner_high: float | None
    p: float | None
    sd: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One corner: `values` per cluster (logs for a geometric measure), and the cells that they are made of."""

    values: "pd.Series[float]"
    cells: pd.DataFrame


def difference(first: Side, second: Side, measure: Measure, paired: bool) -> Difference:
    """first − second, or their ratio, over the clusters of both (paired, index alike) or of each (independent)."""
    outer, inner = (_interval(first, second, measure, paired, level) for level in (1 - st.ALPHA, LEVEL))
    a, b = first.values, second.values
    p = st.sign_flip_p(a - b) if paired else independent.welch_p(a, b)
    return Difference(outer.value, outer.low, outer.high, inner.low, inner.high, p, outer.sd)


def own_interval(side: Side, measure: Measure) -> st.Estimate:
    """One corner by itself: a mean over episodes with the interval that fits its kind."""
    if measure.geometric:
        return st.mean_log_ratio(side.values)
    if measure.unit != "share":
        return st.t_interval(side.values)
    if len(measure.needed) > 1:
        return st.share_interval(side.values, len(side.cells))
    found = st.proportion(side.cells[measure.column], list(side.cells["cluster"]))
    return st.Estimate(found.rate, found.low, found.high, None, found.clusters)


def _interval(first: Side, second: Side, measure: Measure, paired: bool, level: float) -> st.Estimate:
    a, b = first.values, second.values
    if measure.unit == "ratio":
        return _ratio(a, b, measure.geometric, paired, level)
    if measure.unit == "share" and paired:
        return st.share_difference(a, b, min(len(first.cells), len(second.cells)), level)
    if measure.unit == "share":
        return independent.share_difference(a, b, (len(first.cells), len(second.cells)), level)
    return st.t_interval(a - b, level) if paired else independent.welch(a, b, level)


def _ratio(
    a: "pd.Series[float]", b: "pd.Series[float]", geometric: bool, paired: bool, level: float
) -> st.Estimate:
    """The ratio with its t interval on the log, Welch's where the clusters are independent."""
    if paired:
        return st.mean_log_ratio(a - b, level) if geometric else st.ratio_of_means(a, b, level)
    if geometric:
        return _exponential(float(a.mean() - b.mean()), independent.welch(a, b, level))
    if float(a.mean()) <= 0 or float(b.mean()) <= 0:
        return st.Estimate(None, None, None, None, 0)
    spread = independent.welch(a / a.mean(), b / b.mean(), level)
    return _exponential(math.log(float(a.mean()) / float(b.mean())), spread)


def _exponential(middle: float, spread: st.Estimate) -> st.Estimate:
    value = math.exp(middle)
    if spread.low is None or spread.high is None:
        return st.Estimate(value, None, None, spread.sd, spread.n)
    half = math.exp((spread.high - spread.low) / 2)
    return st.Estimate(value, value / half, value * half, spread.sd, spread.n)


def worst_case(
    first: pd.DataFrame, second: pd.DataFrame, measure: Measure, paired: bool
) -> tuple[float | None, float | None]:
    """The difference had every lost cell of the two corners come out at either extreme; None where none was lost, and
    for ratios, which have no extreme. `first`, `second`: all cells of the corners, lost ones too."""
    if measure.unit == "ratio" or not (first["excluded"].any() or second["excluded"].any()):
        return None, None
    found = []
    for best in (False, True):
        a = valued(imputed(first, measure, best), measure)
        b = valued(imputed(second, measure, not best), measure)
        if paired:
            both = aligned({"a": a, "b": b}, measure).values
            found.append(float((both["a"] - both["b"]).mean()) if len(both) else None)
        else:
            found.append(float(per_cluster(a, measure).mean() - per_cluster(b, measure).mean()))
    return found[0], found[1]


def judged(found: Difference, measure: Measure, clusters: int, margins: Margins) -> Row:
    """The verdict's columns; `clusters`: those of both, or of the smaller group where they are independent."""
    inner = (
        None if found.inner_low is None or found.inner_high is None else (found.inner_low, found.inner_high)
    )
    evidence = Evidence(measure.name, measure.unit, found.estimate, found.sd, clusters, found.p, inner)
    verdict = decide(evidence, margins)
    low, high = margins.bounds(measure.unit)
    return {
        "verdict": verdict.word, "more_clusters": verdict.more_clusters, "margin_low": low, "margin_high": high,
        "equivalence_low": found.inner_low, "equivalence_high": found.inner_high,
    }  # fmt: skip
