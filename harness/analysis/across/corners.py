"""The small model with a bar against the large one without: tables of corners, differences, share of the gap closed.

Knows which corners are compared and why a share of the gap can be undefined. Values come from `quads`, intervals from
`statistics` and `independent`, verdict words from `verdicts`. All of it is exploratory.
"""

from collections.abc import Iterator, Sequence

from harness.analysis.across import independent
from harness.analysis.across.judging import Difference, Side, difference, judged, own_interval, worst_case
from harness.analysis.across.measures import COSTS, DECISIONS, GAPS, TIMES, TOKENS, Measure
from harness.analysis.across.models import PER
from harness.analysis.across.quads import (
    CORNERS,
    LARGE,
    LARGE_BAR,
    SMALL,
    SMALL_BAR,
    SMALL_PLACEBO,
    TITLES,
    Corners,
    Quad,
    corner_values,
)
from harness.analysis.across.runs import template
from harness.analysis.decisions import Row
from harness.analysis.table import Shown, Table, frame
from harness.analysis.verdicts import MIN_CLUSTERS, Margins, few_clusters

_KEY: dict[str, int | None] = {
    "small": None, "large": None, "bar": None, "placement": None, "probe": None, "measure": None, "unit": None,
}  # fmt: skip
CORNER_COLUMNS: dict[str, int | None] = {
    **_KEY, "cache_state": None, "clusters": 0, "clusters_large": 0, "points": None, "left_out": 0,
    **{f"{corner}{end}": 3 for corner in CORNERS for end in ("", "_low", "_high")},
}  # fmt: skip
DIFFERENCE_COLUMNS: dict[str, int | None] = {
    **_KEY, "cache_state": None, "kind": None, "condition": None, "against": None, "label": None, "points": None,
    "clusters": 0, "clusters_against": 0, "estimate": 3, "low": 3, "high": 3, "p": 6, "sd": 3, "verdict": None,
    "margin_low": 3, "margin_high": 3, "equivalence_low": 3, "equivalence_high": 3, "more_clusters": 0,
    "excluded": 0, "excluded_against": 0, "worst_low": 3, "worst_high": 3, "note": None,
}  # fmt: skip
GAP_COLUMNS: dict[str, int | None] = {
    **_KEY, "of": None, "points": None, "clusters": 0, "clusters_large": 0, "gained": 3, "gained_low": 3,
    "gained_high": 3, "gap": 3, "gap_low": 3, "gap_high": 3, "closed": 3, "closed_low": 3, "closed_high": 3,
    "note": None,
}  # fmt: skip
COMPARED = (
    (SMALL_BAR, LARGE), (SMALL_BAR, LARGE_BAR), (SMALL_BAR, SMALL), (SMALL_BAR, SMALL_PLACEBO), (LARGE_BAR, LARGE),
    (LARGE, SMALL),
)  # fmt: skip
"""First minus (or over) second; the first of all is what the comparison is for."""
PAIRED, UNPAIRED = "paired", "unpaired"


def found_corners(quads_: Sequence[Quad]) -> list[tuple[Quad, Measure, Corners]]:
    """Every quad and measure that has values, in order."""
    return [
        (quad, measure, corners)
        for quad in quads_ for measure in (*DECISIONS, *COSTS)
        if (corners := corner_values(quad, measure)) is not None and _spent(corners, measure)
    ]  # fmt: skip


def _spent(corners: Corners, measure: Measure) -> bool:
    """False for what no corner spends anything of, such as the thinking of models that do not think."""
    return measure.unit != "ratio" or measure.geometric or any(v.any() for v in corners.values.values())


def corners_table(found: Sequence[tuple[Quad, Measure, Corners]]) -> Table:
    """The corners of each pair of models side by side, at the decision points that they share."""
    rows = [_corner_row(*one) for one in found]
    return Table(
        name="corners",
        title="Small with bar against large without: the corners",
        how_to_read=(
            "Each corner at the decision points that all corners of the row share (`paired`), else at each model's own "
            "points (`unpaired`). Brackets: 95 % intervals over episodes, one by one; whether two corners differ is said "
            f"in the next table. Money per {PER:,} replies; seconds and ratios of them are geometric means."
        ),
        columns=CORNER_COLUMNS,
        shown=(
            Shown("small", ("small",)), Shown("large", ("large",)), Shown("bar", ("bar",)),
            Shown("measure", ("measure",)), Shown("cache", ("cache_state",), rare=True), Shown("unit", ("unit",)),
            *(Shown(TITLES[c], (c, f"{c}_low", f"{c}_high")) for c in CORNERS),
            Shown("episodes", ("clusters",)), Shown("of the large", ("clusters_large",)),
            Shown("points", ("points",)), Shown("cells left out", ("left_out",)),
        ),
        data=frame(CORNER_COLUMNS, rows),
        absent="no two models have both a bar and a control, measured by the same probe.",
    )  # fmt: skip


def differences_table(found: Sequence[tuple[Quad, Measure, Corners]], margins: Margins) -> Table:
    """The differences between corners, or ratios of what is spent, each with a verdict against the stated margin."""
    rows = [
        row for quad, measure, corners in found for row in _difference_rows(quad, measure, corners, margins)
    ]
    return Table(
        name="differences",
        title="Small with bar against large without: differences and ratios",
        how_to_read=(
            "`condition` minus `against`; where the unit is `ratio`, `condition` ÷ `against`. Paired: the same decision "
            "points, p by sign-flip permutation over episodes. Unpaired: each model's own episodes, p by Welch's t. "
            "Brackets: 95 % intervals over episodes: Wilson put together for shares (Newcombe; MOVER where unpaired), "
            "else t (Welch's where unpaired), on the log for ratios. The verdict is against the margin by two one-sided "
            f"tests; none below {MIN_CLUSTERS} episodes. `lost`: cells of the two that failed for good, and the range of "
            "the difference had they come out at either extreme. Everything here is exploratory and no p is corrected."
        ),
        columns=DIFFERENCE_COLUMNS,
        shown=(
            Shown("measure", ("measure",)), Shown("cache", ("cache_state",), rare=True),
            Shown("condition", ("condition",)), Shown("against", ("against",)), Shown("points", ("points",)),
            Shown("episodes", ("clusters",)), Shown("estimate", ("estimate", "low", "high")), Shown("unit", ("unit",)),
            Shown("p", ("p",)), Shown("verdict", ("verdict",)), Shown("margin", ("margin_low",)),
            Shown("to", ("margin_high",)), Shown("more episodes", ("more_clusters",)),
            Shown("lost", ("excluded",)), Shown("lost of the other", ("excluded_against",)),
            Shown("worst case from", ("worst_low",), rare=True), Shown("to", ("worst_high",), rare=True),
            Shown("note", ("note",)),
        ),
        data=frame(DIFFERENCE_COLUMNS, rows),
        absent="no two models have both a bar and a control, measured by the same probe.",
    )  # fmt: skip


def gaps_table(found: Sequence[tuple[Quad, Measure, Corners]]) -> Table:
    """What share of the way from the small model to the large one the bar goes, where that is defined."""
    rows = [
        row for quad, measure, corners in found if measure.name in GAPS
        for row in _gap_rows(quad, measure, corners)
    ]  # fmt: skip
    return Table(
        name="gap",
        title="Share of the gap between the models that the bar closes",
        how_to_read=(
            "The gap: large without a bar − small without. Gained: small with bar − small without (`bar - control`), or "
            "− small with placebo (`bar - placebo`: what the bar's content alone does). Closed = gained ÷ gap: 0 nothing, 1 "
            "all of it, above 1 more. Brackets: 95 % intervals, of the share by Fieller's method. Where the gap's own "
            "interval includes 0 the share is undefined. Exploratory."
        ),
        columns=GAP_COLUMNS,
        shown=(
            Shown("small", ("small",)), Shown("large", ("large",)), Shown("bar", ("bar",)),
            Shown("measure", ("measure",)), Shown("of", ("of",)), Shown("points", ("points",)),
            Shown("episodes", ("clusters",)), Shown("gap", ("gap", "gap_low", "gap_high")),
            Shown("gained", ("gained", "gained_low", "gained_high")),
            Shown("closed", ("closed", "closed_low", "closed_high")), Shown("unit", ("unit",)), Shown("note", ("note",)),
        ),
        data=frame(GAP_COLUMNS, rows),
        absent="no pair of models has all of: small with bar, small without, large without.",
    )  # fmt: skip


def _key(quad: Quad, measure: Measure) -> Row:
    return {
        "small": quad.small.name, "large": quad.large.name, "bar": quad.bar.name,
        "placement": quad.bar.placement, "probe": measure.probe, "measure": measure.name, "unit": measure.unit,
    }  # fmt: skip


def _corner_row(quad: Quad, measure: Measure, corners: Corners) -> Row:
    row = _key(quad, measure) | {
        "unit": _own_unit(quad, measure), "cache_state": corners.cache_state or "",
        "clusters": len(corners.values[SMALL_BAR]), "clusters_large": len(corners.values[LARGE]),
        "points": UNPAIRED if corners.unpaired else PAIRED, "left_out": corners.left_out,
    }  # fmt: skip
    scale = PER if measure.name == "cost" else 1
    for corner in corners.values:
        own = own_interval(_side(corners, corner, scale), measure)
        row |= {corner: own.value, f"{corner}_low": own.low, f"{corner}_high": own.high}
    return row


def _side(corners: Corners, corner: str, scale: int = 1) -> Side:
    return Side(corners.values[corner] * scale, corners.cells[corner])


def _own_unit(quad: Quad, measure: Measure) -> str:
    if measure.name == "cost":
        currencies = {str(entry.price.currency) for entry in (quad.small, quad.large) if entry.price}
        return f"{' or '.join(sorted(currencies))} per {PER}"
    return "tokens" if measure.name in TOKENS else "s" if measure.name in TIMES else measure.unit


def _difference_rows(quad: Quad, measure: Measure, corners: Corners, margins: Margins) -> Iterator[Row]:
    for first, second in COMPARED:
        if first not in corners.values or second not in corners.values:
            continue
        paired = corners.paired(first, second)
        n, others = len(corners.values[first]), len(corners.values[second])
        found = difference(_side(corners, first), _side(corners, second), measure, paired)
        worst = worst_case(corners.asked[first], corners.asked[second], measure, paired)
        yield _key(quad, measure) | {
            "cache_state": corners.cache_state or "", "kind": f"{TITLES[first]} - {TITLES[second]}",
            "condition": quad.title(first), "against": quad.title(second), "label": "exploratory",
            "points": PAIRED if paired else UNPAIRED, "clusters": n, "clusters_against": others,
            "estimate": found.estimate, "low": found.low, "high": found.high, "p": found.p, "sd": found.sd,
            "excluded": corners.lost(first), "excluded_against": corners.lost(second), "worst_low": worst[0],
            "worst_high": worst[1], "note": "; ".join(_notes(quad, measure, corners, (first, second), found)),
        } | judged(found, measure, min(n, others), margins)  # fmt: skip


def _notes(
    quad: Quad, measure: Measure, corners: Corners, pair: tuple[str, str], found: Difference
) -> Iterator[str]:
    paired, clusters = corners.paired(*pair), min(len(corners.values[corner]) for corner in pair)
    if not paired:
        yield f"unpaired: {corners.unpaired}"
    few = few_clusters(clusters, 1) if paired else f"no verdict below {MIN_CLUSTERS} clusters"
    if few and (paired or clusters < MIN_CLUSTERS):
        yield few
    across = quad.entry(pair[0]) is not quad.entry(pair[1])
    if measure.name in TOKENS and across and template(quad.small.run) != template(quad.large.run):
        yield "each model counts in its own tokens"
    if found.estimate is None:
        yield "no ratio: one of the two is 0"


def _gap_rows(quad: Quad, measure: Measure, corners: Corners) -> Iterator[Row]:
    values = corners.values
    if SMALL not in values:
        return
    gap = difference(_side(corners, LARGE), _side(corners, SMALL), measure, corners.paired(LARGE, SMALL))
    for base, name in ((SMALL, "bar - control"), (SMALL_PLACEBO, "bar - placebo")):
        if base not in values:
            continue
        gained = difference(_side(corners, SMALL_BAR), _side(corners, base), measure, True)
        closed = _closed(corners, base, gap)
        yield _key(quad, measure) | {
            "of": name, "points": UNPAIRED if corners.unpaired else PAIRED,
            "clusters": len(values[SMALL_BAR]), "clusters_large": len(values[LARGE]),
            "gained": gained.estimate, "gained_low": gained.low, "gained_high": gained.high,
            "gap": gap.estimate, "gap_low": gap.low, "gap_high": gap.high,
            "closed": closed.value, "closed_low": closed.low, "closed_high": closed.high, "note": closed.why,
        }  # fmt: skip


def _closed(corners: Corners, base: str, gap: Difference) -> independent.Quotient:
    """gained ÷ gap; undefined unless the gap's interval lies on one side of 0."""
    if gap.low is None or gap.high is None or gap.estimate is None:
        return independent.Quotient(None, None, None, "undefined: too few episodes for the gap's interval")
    if gap.low <= 0 <= gap.high:
        return independent.Quotient(None, None, None, "undefined: the gap's interval includes 0")
    values = corners.values
    gained = values[SMALL_BAR] - values[base]
    moments = (
        independent.unpaired_moments(gained, values[SMALL], values[LARGE])
        if corners.unpaired
        else independent.paired_moments(gained, values[LARGE] - values[SMALL])
    )
    if moments is None:
        return independent.Quotient(None, None, None, "undefined: too few episodes")
    return independent.fieller(moments)
