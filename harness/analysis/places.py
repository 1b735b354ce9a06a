"""The same bar at different places, or under different policies: what its content does at one minus at the other.

Knows the arms' roles and options. At each place the bar is first held against its own placebo there, so that what any
text at that place does is in neither side; then the two differences are compared, cluster by cluster. All of it is
exploratory.
"""

from collections.abc import Iterator, Sequence

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.comparisons import CHOOSE_MEASURES, choose_differences, evidence
from harness.analysis.decisions import MATCHED, Row
from harness.analysis.frames import Arm, RunData, placebo_for
from harness.analysis.table import Shown, Table, frame
from harness.analysis.verdicts import LEVEL, MIN_CLUSTERS, Margins, decide, few_clusters, margins_of

COLUMNS: dict[str, int | None] = {
    "measure": None, "unit": None, "condition": None, "against": None, "placement": None, "against_placement": None,
    "policy": None, "against_policy": None, "clusters": 0, "estimate": 3, "low": 3, "high": 3, "p": 6,
    "equivalence_low": 3, "equivalence_high": 3, "margin_low": 3, "margin_high": 3, "verdict": None,
    "more_clusters": 0, "note": None,
}  # fmt: skip
Effect = tuple[Arm, Arm]
"""A bar and its own placebo."""


def effects(arms: Sequence[Arm]) -> Iterator[tuple[Effect, Effect]]:
    """(the bar elsewhere, the same bar at the first place), each with its own placebo, in arm order."""
    first: dict[tuple[str, str], Effect] = {}
    for arm in arms:
        placebo = placebo_for(arm, arms) if arm.role == "bar" else None
        if placebo is None:
            continue
        reference = first.setdefault((arm.bar, arm.form), (arm, placebo))
        if (reference[0].placement, reference[0].at, reference[0].policy) != (
            arm.placement,
            arm.at,
            arm.policy,
        ):
            yield (arm, placebo), reference


def places(run: RunData) -> Table | None:
    """Differences of a bar's own effect between places and policies; None for a run that has each bar at one alone."""
    pairs = list(effects(run.arms))
    cells = run.part("choose", MATCHED)
    if not pairs or cells.empty:
        return None
    margins = margins_of(run.manifest)
    rows = [
        _row(cells, here, there, measure, unit, margins)
        for measure, unit in CHOOSE_MEASURES
        for here, there in pairs
    ]
    return Table(
        name="places",
        title="The same bar elsewhere: differences of its own effect",
        how_to_read=(
            "Each row is the bar's own effect (bar − its placebo there) at one place or under one policy minus that of "
            "the same bar at the first one, paired by cluster: above 0 its content does more there. All rows are "
            "exploratory; p (sign-flip permutation over clusters) is not corrected. Verdict: as in the comparisons, "
            f"against the same margins; none below {MIN_CLUSTERS} clusters. Brackets: 95 % intervals, Student's t."
        ),
        columns=COLUMNS,
        shown=(
            Shown("measure", ("measure",)), Shown("condition", ("condition",)), Shown("minus", ("against",)),
            Shown("placement", ("placement",)), Shown("of the other", ("against_placement",)),
            Shown("policy", ("policy",)), Shown("of the other", ("against_policy",)),
            Shown("verdict", ("verdict",)), Shown("more clusters", ("more_clusters",)),
            Shown("clusters", ("clusters",)), Shown("difference", ("estimate", "low", "high")),
            Shown("unit", ("unit",)), Shown("p", ("p",)), Shown("margin", ("margin_high",)),
            Shown("90 % from", ("equivalence_low",)), Shown("to", ("equivalence_high",)), Shown("note", ("note",)),
        ),
        data=frame(COLUMNS, rows),
        absent="no bar stands at two places.",
    )  # fmt: skip


def _row(cells: pd.DataFrame, here: Effect, there: Effect, measure: str, unit: str, margins: Margins) -> Row:
    mine, other = (choose_differences(cells, bar.name, own.name, measure) for bar, own in (here, there))
    d = (mine - other).dropna()
    found, narrow = st.t_interval(d), st.t_interval(d, LEVEL)
    row: Row = {
        "measure": measure, "unit": unit, "condition": here[0].name, "against": there[0].name,
        "placement": here[0].placement, "against_placement": there[0].placement,
        "policy": here[0].policy or "replace", "against_policy": there[0].policy or "replace",
        "clusters": found.n, "estimate": found.value, "low": found.low, "high": found.high, "sd": found.sd,
        "p": st.sign_flip_p(d), "equivalence_low": narrow.low, "equivalence_high": narrow.high,
        "label": "exploratory", "note": few_clusters(found.n, 1),
    }  # fmt: skip
    verdict = decide(evidence(row), margins)
    low, high = margins.bounds(unit)
    return row | {
        "verdict": verdict.word, "more_clusters": verdict.more_clusters, "margin_low": low, "margin_high": high,
    }  # fmt: skip
