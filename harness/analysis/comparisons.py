"""The table of paired comparisons between arms: bar − placebo, bar − control, and what lies beside them.

Knows which comparison is confirmatory (sensitivity, bar − placebo of the same placement; Holm-corrected
as one family), and that clusters are the unit. Pairs are formed at the decision points both arms have.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.decisions import ACT_MEASURES, MATCHED, Row
from harness.analysis.frames import (
    Arm,
    RunData,
    by_cluster,
    choose_by_cluster,
    common,
    control_of,
    placebo_for,
)
from harness.analysis.table import Shown, Table, frame

COLUMNS: dict[str, int | None] = {
    "probe": None, "measure": None, "unit": None, "kind": None, "condition": None, "against": None,
    "placement": None, "label": None, "clusters": 0, "estimate": 3, "low": 3, "high": 3, "boot_low": 3,
    "boot_high": 3, "p": 6, "p_holm": 6, "p_mcnemar": 6, "sd": 3, "mde": 3, "note": None,
}  # fmt: skip
CHOOSE_MEASURES = (("sensitivity", "logit"), ("bias", "logit"), ("delta_p", "probability"))


@dataclass(frozen=True, slots=True)
class Pair:
    """`arm` compared with `against`; `kind` names the comparison by the arms' roles."""

    arm: Arm
    against: Arm

    @property
    def kind(self) -> str:
        """For example `bar - placebo`."""
        return f"{self.arm.role} - {self.against.role}"


def pairs(arms: Sequence[Arm]) -> list[Pair]:
    """Every comparison that the arms allow, in arm order: with the same placement's placebo, with the
    control."""
    control = control_of(arms)
    found: list[Pair] = []
    for arm in arms:
        if arm.role in ("bar", "mismatched"):
            placebo = placebo_for(arm, arms)
            found += [Pair(arm, placebo)] if placebo else []
        if arm.role != "control" and control:
            found.append(Pair(arm, control))
    order = {"bar - placebo": 0, "bar - control": 1, "mismatched - placebo": 2}
    return sorted(found, key=lambda pair: order.get(pair.kind, 3))


def comparisons(run: RunData) -> Table:
    """Paired differences with interval, permutation p, Holm p for the confirmatory family, and MDE."""
    rows: list[Row] = []
    chosen, acted = run.part("choose", MATCHED), run.part("act", MATCHED)
    for measure, unit in CHOOSE_MEASURES:
        rows += [_choose_row(chosen, pair, measure, unit) for pair in pairs(run.arms) if _both(chosen, pair)]
    for measure, side, mark in ACT_MEASURES:
        cells = acted[acted["side"] == side]
        rows += [
            _share_row(cells, pair, "act", measure, mark) for pair in pairs(run.arms) if _both(cells, pair)
        ]
    asked = run.part("ask", MATCHED)
    rows += [
        _share_row(asked, pair, "ask", "accuracy", "right") for pair in pairs(run.arms) if _both(asked, pair)
    ]
    _correct(rows)
    return Table(
        name="comparisons",
        title="Comparisons between conditions (paired, clusters as the unit)",
        how_to_read=(
            "Each row is one condition minus another at the same decision points. `bar - placebo` is what "
            "the bar's content does; `bar - control` adds what any text at that place does. p: sign-flip "
            "permutation over clusters. p (Holm) is given for the confirmatory family, fixed in advance; "
            "every other row is exploratory and its p is not corrected. MDE: the smallest true difference "
            "that this design finds in 80 % of cases at α = .05 before Holm (paired t, observed spread). Where p and "
            "interval disagree, p decides; undecided is not `no effect`."
        ),
        columns=COLUMNS,
        shown=(
            Shown("measure", ("measure",)), Shown("comparison", ("kind",)),
            Shown("condition", ("condition",)), Shown("minus", ("against",)),
            Shown("clusters", ("clusters",)), Shown("difference", ("estimate", "low", "high")),
            Shown("unit", ("unit",)), Shown("p", ("p",)), Shown("p (Holm)", ("p_holm",)),
            Shown("MDE", ("mde",)), Shown("label", ("label",)), Shown("note", ("note",)),
        ),
        data=frame(COLUMNS, rows),
        absent="no two conditions were measured at the same decision points.",
        notes=_unpaired(run.arms),
    )  # fmt: skip


def _both(cells: pd.DataFrame, pair: Pair) -> bool:
    there = set(cells["condition"])
    return pair.arm.name in there and pair.against.name in there


def _unpaired(arms: Sequence[Arm]) -> tuple[str, ...]:
    alone = [arm.name for arm in arms if arm.role == "bar" and placebo_for(arm, arms) is None]
    notes = (f"No placebo at the same placement, so the bar's own effect is unknown: {', '.join(alone)}.",)
    return notes if alone else ()


def choose_differences(cells: pd.DataFrame, arm: str, against: str, measure: str) -> "pd.Series[float]":
    """Per-cluster difference `arm` − `against` of a `choose` measure, over the decision points both have."""
    both = common(cells, arm, against, "score.logit_act")
    frame_ = choose_by_cluster(both).pivot(index="cluster", columns="condition", values=measure)
    if arm not in frame_.columns or against not in frame_.columns:
        return pd.Series(dtype="float64")
    return (frame_[arm] - frame_[against]).astype("float64").dropna()


def _choose_row(cells: pd.DataFrame, pair: Pair, measure: str, unit: str) -> Row:
    d = choose_differences(cells, pair.arm.name, pair.against.name, measure)
    confirmatory = measure == "sensitivity" and pair.kind == "bar - placebo"
    found = st.t_interval(d) if unit == "logit" else st.difference_interval(d)
    row = _row("choose", measure, unit, pair) | _tested(d, found)
    return row | {"label": "confirmatory" if confirmatory else "exploratory"}


def _share_row(cells: pd.DataFrame, pair: Pair, probe: str, measure: str, mark: str) -> Row:
    both = common(cells, pair.arm.name, pair.against.name, mark)
    mine, other = (by_cluster(both, name, mark) for name in (pair.arm.name, pair.against.name))
    d = (mine - other).dropna()
    row = (
        _row(probe, measure, "share", pair) | _tested(d, st.difference_interval(d)) | {"label": "exploratory"}
    )
    if len(both) == 2 * len(d):  # one pair per cluster: the exact test of the pairs is valid
        row["p_mcnemar"] = st.mcnemar_p(mine.loc[d.index], other.loc[d.index])
    return row


def _row(probe: str, measure: str, unit: str, pair: Pair) -> Row:
    return {
        "probe": probe, "measure": measure, "unit": unit, "kind": pair.kind, "condition": pair.arm.name,
        "against": pair.against.name, "placement": pair.arm.placement,
    }  # fmt: skip


def _tested(d: "pd.Series[float]", found: st.Estimate) -> Row:
    boot_low, boot_high = st.bootstrap_interval(d) or (None, None)
    return {
        "clusters": found.n, "estimate": found.value, "low": found.low, "high": found.high,
        "boot_low": boot_low, "boot_high": boot_high, "p": st.sign_flip_p(d), "sd": found.sd,
        "mde": st.minimum_detectable(found.sd, found.n), "note": few_note(found.n, 1),
    }  # fmt: skip


def few_note(clusters: int, tests: int) -> str:
    """What too few clusters do to the permutation test; empty where there are enough."""
    needed, smallest = st.clusters_needed(tests), st.smallest_p(clusters)
    if clusters >= needed or smallest is None:
        return "" if smallest is not None else "no pair"
    return f"too few clusters: smallest possible p is {smallest:.3g}, {needed} clusters needed"


def _correct(rows: list[Row]) -> None:
    """Fill `p_holm` for the confirmatory family, and say where it has too few clusters to pass."""
    family = [row for row in rows if row["label"] == "confirmatory"]
    adjusted = st.holm([p if isinstance(p := row["p"], float) else None for row in family])
    tests = sum(p is not None for p in adjusted)
    for row, p in zip(family, adjusted, strict=True):
        row["p_holm"] = p
        row["note"] = few_note(int(str(row["clusters"])), tests)
