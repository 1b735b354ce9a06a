"""The table of slopes: how a measure changes with length, per arm and between arms.

Knows how a cluster's points become one slope (ordinary least squares) and that clusters are the unit of every
interval and test. What the points are is `lengths`' business.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.decisions import Row, arms_there
from harness.analysis.frames import Arm, RunData
from harness.analysis.lengths import CONTEXT, MEASURES, Sweep, points, sweeps
from harness.analysis.pairs import pairs
from harness.analysis.table import Shown, Table, frame, known
from harness.analysis.verdicts import LEVEL, MIN_CLUSTERS, Margins, few_clusters, margins_of

PER = {"filler": "1,000 tokens of context", "moved_limit": "prior call"}
UNITS = {"sensitivity": "logits", "bias": "logits", "thinking": "tokens", "output": "tokens"}
COMPARED = ("bar - placebo", "bar - control")
COLUMNS: dict[str, int | None] = {
    "series": None, "probe": None, "measure": None, "unit": None, "kind": None, "condition": None,
    "against": None, "placement": None, "points": 0, "from": 2, "to": 2, "clusters": 0, "excluded": 0, "slope": 4,
    "low": 4, "high": 4, "p": 6, "verdict": None, "margin_low": 4, "margin_high": 4, "equivalence_low": 4,
    "equivalence_high": 4, "sd": 4, "mde": 4, "note": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fitted:
    """Slopes of the clusters that have every point; `excluded` clusters lack one, or have one x alone."""

    slopes: "pd.Series[float]"
    excluded: int
    points: int
    low: float
    """Mean x at the shortest and at the longest point."""
    high: float
    start: float
    """Mean value at the shortest point."""


def cluster_slopes(found: pd.DataFrame) -> "pd.Series[float]":
    """Ordinary least squares within each cluster: slope of `value` on `at`, indexed by cluster.

    `found`: columns `cluster`, `at`, `value`, one row per point. A cluster with an unknown value or with fewer
    than two different `at` has no slope and is left out.
    """
    by = found.groupby("cluster")
    dx = found["at"] - by["at"].transform("mean")
    dy = found["value"] - by["value"].transform("mean")
    sums = pd.DataFrame({"xy": dx * dy, "xx": dx * dx}).groupby(found["cluster"]).sum()
    whole = found["value"].notna().groupby(found["cluster"]).all() & (by["at"].nunique() > 1)
    # Rounding: equal slopes must give a difference of 0 and not of 1e-17, whose sign would be tested.
    return (sums["xy"] / sums["xx"])[whole].astype("float64").round(12)


def slopes(run: RunData) -> Table:
    """Slope on length of every measure per arm, and the paired differences of slopes between arms."""
    rows: list[Row] = []
    for sweep in sweeps(run):
        for measure in MEASURES:
            rows += _measure_rows(run, sweep, measure)
    return Table(
        name="slopes",
        title="Slopes against length",
        how_to_read=(
            "How much a measure changes per 1,000 tokens of context (series `filler`; context is the prompt without "
            "the bar) or per prior call (`moved_limit`). A straight line is fitted to each cluster's points; the "
            "slope is the mean over clusters with a 95 % t interval, p the sign-flip permutation over clusters "
            "that it is 0. `bar - placebo` and `bar - control` compare the slopes of two conditions cluster by "
            "cluster: whether the bar matters more as the context grows. A cluster with a point missing is left "
            "out and counted in `excluded` (a reply cut inside its thinking has no first answer token). Verdict: `flat` "
            "(of two slopes: `equivalent`) where the 90 % interval, two one-sided tests at 5 %, lies within the margin: "
            "over the whole range no more than the margin of logits, or no more than the margin's ratio of what was "
            f"measured at the shortest length; else by p; none below {MIN_CLUSTERS} clusters. Every row "
            "is exploratory, its p not corrected; a slope that is undecided is not a flat line, and a straight "
            "line is a summary, so look at the figure."
        ),
        columns=COLUMNS,
        shown=(
            Shown("series", ("series",)), Shown("probe", ("probe",)), Shown("measure", ("measure",)),
            Shown("what", ("kind",)), Shown("condition", ("condition",)),
            Shown("minus", ("against",), rare=True), Shown("points", ("points",)),
            Shown("clusters", ("clusters",)), Shown("excluded", ("excluded",)),
            Shown("slope", ("slope", "low", "high")), Shown("unit", ("unit",)), Shown("p", ("p",)),
            Shown("verdict", ("verdict",)), Shown("margin from", ("margin_low",)), Shown("to", ("margin_high",)),
            Shown("MDE", ("mde",)), Shown("note", ("note",)),
        ),
        data=frame(COLUMNS, rows),
        absent="the run has no series over length (`filler`, `moved_limit`) with two lengths or more.",
    )  # fmt: skip


def _measure_rows(run: RunData, sweep: Sweep, measure: str) -> list[Row]:
    found = {arm.name: _points(sweep, arm, measure) for arm in arms_there(run, sweep.cells)}
    known = [part for part in found.values() if part["value"].notna().any()]
    # The points that a whole cluster has: every length at which anything of this measure is known.
    levels = {float(x) for part in known for x in part.loc[part["value"].notna(), "x"]}
    if len(levels) < 2:
        return []
    fitted = {name: fit(part, levels) for name, part in found.items() if part["value"].notna().any()}
    unit = f"{UNITS.get(measure, 'seconds')} per {PER[sweep.series]}"
    base: Row = {"series": sweep.series, "probe": sweep.probe, "measure": measure, "unit": unit}
    arms = [arm for arm in run.arms if arm.name in fitted]
    rows = [_own(arm, fitted[arm.name]) for arm in arms] + list(_differences(arms, fitted))
    margins = margins_of(run.manifest)
    return [base | row | _judged(row, margins, measure) for row in rows]


def _points(sweep: Sweep, arm: Arm, measure: str) -> pd.DataFrame:
    found = points(sweep, arm.name, measure)
    return found.assign(at=found[CONTEXT] / 1000 if sweep.series == "filler" else found["x"])


def fit(found: pd.DataFrame, levels: set[float]) -> Fitted:
    """One slope per cluster that has a value at every one of `levels`; `found`: cluster, x, at, value."""
    here = found[found["x"].isin(levels)]
    full = here.groupby("cluster")["x"].transform("nunique") == len(levels)
    known = cluster_slopes(here[full])
    means = here.groupby("x")[["at", "value"]].mean().sort_index()
    clusters = int(found["cluster"].nunique())
    low, high = float(means["at"].min()), float(means["at"].max())
    return Fitted(known, clusters - len(known), len(levels), low, high, float(means["value"].iloc[0]))


def _own(arm: Arm, fitted: Fitted) -> Row:
    row: Row = {"kind": arm.role, "condition": arm.name, "against": None, "placement": arm.placement}
    return row | _tested(fitted.slopes, fitted, fitted.excluded)


def _differences(arms: list[Arm], fitted: dict[str, Fitted]) -> Iterator[Row]:
    for pair in pairs(arms):
        if pair.kind in COMPARED:
            mine, other = fitted[pair.arm.name], fitted[pair.against.name]
            d = (mine.slopes - other.slopes).dropna()
            row: Row = {"kind": pair.kind, "condition": pair.arm.name, "against": pair.against.name}
            there = max(len(fit_.slopes) + fit_.excluded for fit_ in (mine, other))
            # Both slopes' margin is that of the arm compared with.
            tested = _tested(d, mine, there - len(d)) | {"start": other.start}
            yield row | {"placement": pair.arm.placement} | tested


def _tested(values: "pd.Series[float]", fitted: Fitted, excluded: int) -> Row:
    found, narrow = st.t_interval(values), st.t_interval(values, LEVEL)
    if found.sd is not None and found.sd < 1e-12:  # no spread says nothing about the mean's uncertainty
        found = narrow = st.Estimate(found.value, None, None, found.sd, found.n)
    return {
        "points": fitted.points, "from": fitted.low, "to": fitted.high, "clusters": found.n,
        "excluded": excluded, "slope": found.value, "low": found.low, "high": found.high,
        "p": st.sign_flip_p(values), "sd": found.sd, "mde": st.minimum_detectable(found.sd, found.n),
        "note": few_clusters(found.n, 1) or ("all clusters alike: no interval" if found.sd == 0 else ""),
        "equivalence_low": narrow.low, "equivalence_high": narrow.high,
        "span": fitted.high - fitted.low, "start": fitted.start,
    }  # fmt: skip


def _judged(row: Row, margins: Margins, measure: str) -> Row:
    """The verdict on a slope, or on a difference of two, and the margin in slopes that it is held against."""
    low, high = _margin(row, margins, measure)
    found: Row = {"margin_low": low, "margin_high": high, "verdict": "inconclusive"}
    near, far, p = known(row, "equivalence_low"), known(row, "equivalence_high"), known(row, "p")
    compared = row["against"] is not None
    if int(str(row["clusters"])) < MIN_CLUSTERS:
        return found
    within = low is not None and high is not None and near is not None and far is not None
    if within and low <= near and far <= high:  # type: ignore[operator]
        return found | {"verdict": "equivalent" if compared else "flat"}
    if p is not None and p < st.ALPHA:
        words = ("higher", "lower") if compared else ("rises", "falls")
        return found | {"verdict": words[(known(row, "slope") or 0.0) < 0]}
    return found


def _margin(row: Row, margins: Margins, measure: str) -> tuple[float | None, float | None]:
    """Slopes that change a measure over the whole range by no more than the margin; None where that is unknown."""
    span, start = known(row, "span"), known(row, "start")
    if not span:
        return None, None
    if measure in ("sensitivity", "bias"):
        return -margins.logit / span, margins.logit / span
    if not start:
        return None, None
    low, high = margins.bounds("ratio")
    return (low - 1) * start / span, (high - 1) * start / span
