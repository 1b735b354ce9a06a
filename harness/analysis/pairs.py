"""Which arms are compared with which: every bar with its placebo, every arm with its control, every further
form of a bar with the first one at the same place, and a compacted control with the plain one.

Knows the arms' roles and nothing of measures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.decisions import Row
from harness.analysis.frames import Arm, control_for, placebo_for


@dataclass(frozen=True, slots=True)
class Pair:
    """`arm` compared with `against`; `kind` names the comparison by the arms' roles."""

    arm: Arm
    against: Arm

    @property
    def kind(self) -> str:
        """For example `bar - placebo`."""
        return f"{self.arm.role} - {self.against.role}"

    def row(self, probe: str, measure: str, unit: str) -> Row:
        """The columns that say what is compared."""
        return {
            "probe": probe, "measure": measure, "unit": unit, "kind": self.kind, "condition": self.arm.name,
            "against": self.against.name, "placement": self.arm.placement,
        }  # fmt: skip


def pairs(arms: Sequence[Arm], cells: pd.DataFrame | None = None) -> list[Pair]:
    """Every comparison that the arms allow, in arm order; with `cells` only those whose arms both have some there."""
    found: list[Pair] = []
    for arm in arms:
        if arm.role in ("bar", "mismatched"):
            placebo = placebo_for(arm, arms)
            found += [Pair(arm, placebo)] if placebo else []
        control = control_for(arm, arms)
        if control and control != arm and (arm.role != "control" or arm.control):
            found.append(Pair(arm, control))
        first = _kin(arm, arms)
        if arm.role == "bar" and first != arm:
            found.append(Pair(arm, first))
    if cells is not None:
        there = set(cells["condition"])
        found = [pair for pair in found if pair.arm.name in there and pair.against.name in there]
    order = {"bar - placebo": 0, "bar - control": 1, "bar - bar": 2, "mismatched - placebo": 3}
    return sorted(found, key=lambda pair: order.get(pair.kind, 4))


def _kin(arm: Arm, arms: Sequence[Arm]) -> Arm:
    """The bar that `arm` is a variant of, else the first of the same bar at its place; `arm` itself where that is it."""
    named = next((other for other in arms if other.name == arm.variant_of), None)
    beside = (arm.role, arm.bar, arm.placement, arm.control)
    same = (o for o in arms if (o.role, o.bar, o.placement, o.control) == beside)
    return named or next(same)


def lost(cells: pd.DataFrame, pair: Pair) -> Row:
    """Cells of either arm that failed for good or have no score, and so are in no difference."""
    gone = cells[cells["excluded"]].groupby("condition").size()
    return {
        "excluded": int(gone.get(pair.arm.name, 0)),
        "excluded_against": int(gone.get(pair.against.name, 0)),
    }


def few_note(clusters: int, tests: int) -> str:
    """What too few clusters do to the permutation test; empty where there are enough."""
    needed, smallest = st.clusters_needed(tests), st.smallest_p(clusters)
    if clusters >= needed or smallest is None:
        return "" if smallest is not None else "no pair"
    return f"too few clusters: smallest possible p is {smallest:.3g}, {needed} clusters needed"
