"""Pairs of a smaller and a larger model, and the values of their corners: with a bar, with its placebo, without.

Knows which cells a measure is read from and when the points of two models are the same; then every corner is taken at
the points that all of them have. Else each model keeps its own points, and nothing is paired across models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.across.measures import (
    TIMES,
    Measure,
    aligned,
    asked_of,
    at_common_limit,
    cache_states,
    costed_cells,
    decided_cells,
    per_cluster,
    timed_cells,
    valued,
)
from harness.analysis.across.runs import Entry, find, unpaired_because
from harness.analysis.frames import Arm, control_for, placebo_for

SMALL_BAR, SMALL_PLACEBO, SMALL = "small_bar", "small_placebo", "small_without"
LARGE_BAR, LARGE = "large_bar", "large_without"
CORNERS = (SMALL_BAR, SMALL_PLACEBO, SMALL, LARGE_BAR, LARGE)
_SMALLS = (SMALL_BAR, SMALL_PLACEBO, SMALL)
TITLES = {
    SMALL_BAR: "small with bar", SMALL_PLACEBO: "small with placebo", SMALL: "small without",
    LARGE_BAR: "large with bar", LARGE: "large without",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quad:
    """A smaller and a larger model and one bar; `arms`: corner → condition name, for the corners that exist."""

    small: Entry
    large: Entry
    bar: Arm
    arms: dict[str, str]

    def entry(self, corner: str) -> Entry:
        """The model that a corner belongs to."""
        return self.small if corner in _SMALLS else self.large

    def title(self, corner: str) -> str:
        """Model and condition in words, such as `toy-0.5B with agent_status`."""
        condition = self.arms.get(corner, "")
        without = corner in (SMALL, LARGE)
        return (
            f"{self.entry(corner).name} without a bar"
            if without
            else f"{self.entry(corner).name} with {condition}"
        )


@dataclass(frozen=True, slots=True)
class Corners:
    """A measure's values per episode at every corner. `values`: corner → Series by cluster."""

    values: dict[str, "pd.Series[float]"]
    unpaired: str
    """Why the models' points are not the same ones; empty where they are paired."""
    left_out: int
    """Cells that some other corner has no counterpart for."""
    cells: dict[str, pd.DataFrame]
    """The cells that the values are made of."""
    asked: dict[str, pd.DataFrame]
    """All cells of each corner, those that failed for good or have no score too."""
    cache_state: str | None = None

    def lost(self, corner: str) -> int:
        """Cells of a corner that failed for good or have no score."""
        return int(self.asked[corner]["excluded"].sum())

    def paired(self, first: str, second: str) -> bool:
        """Whether two corners' values belong to the same episodes."""
        return not self.unpaired or (first in _SMALLS) == (second in _SMALLS)


def pairs(
    entries: Sequence[Entry], small: Sequence[str] = (), large: Sequence[str] = ()
) -> list[tuple[Entry, Entry]]:
    """(smaller, larger) as named; by default every earlier entry is smaller than every later one."""
    if not small and not large:
        return [(first, second) for i, first in enumerate(entries) for second in entries[i + 1 :]]
    smalls = [find(entries, name) for name in small]
    larges = [find(entries, name) for name in large]
    smalls = smalls or [entry for entry in entries if entry not in larges]
    larges = larges or [entry for entry in entries if entry not in smalls]
    return [(s, b) for s in smalls for b in larges if s is not b]


def quads(pairs_: Sequence[tuple[Entry, Entry]]) -> list[Quad]:
    """One quad per pair and bar of the small model; none where either model has no control of the bar's transcript."""
    found = []
    for small, large in pairs_:
        for bar in (arm for arm in small.run.arms if arm.role == "bar"):
            control = control_for(bar, small.run.arms)
            other = control and _same_control(control, large.run.arms)
            if control is None or other is None or bool(bar.control) != bool(control.control):
                continue
            arms = {SMALL_BAR: bar.name, SMALL: control.name, LARGE: other.name}
            placebo = placebo_for(bar, small.run.arms)
            if placebo:
                arms[SMALL_PLACEBO] = placebo.name
            if any(_alike(bar, arm) for arm in large.run.arms):
                arms[LARGE_BAR] = bar.name
            found.append(Quad(small, large, bar, arms))
    return found


_SAME = ("name", "bar", "form", "placement", "at", "policy")
"""What must agree, by the manifests, before two models count as having been given the same bar."""


def _same_control(control: Arm, arms: Sequence[Arm]) -> Arm | None:
    """The control among `arms` that has the transcript of `control`: whole, or compacted by the same policy with the
    same options; of several the one of its name."""
    bare = [arm for arm in arms if arm.role == "control" and bool(arm.control) == bool(control.control)]
    same = [arm for arm in bare if not control.control or arm.policy == control.policy]
    return next((arm for arm in same if arm.name == control.name), next(iter(same), None))


def _alike(bar: Arm, arm: Arm) -> bool:
    """Is it the same bar in the same form, at the same place, under the same policy, on the same kind of transcript?"""
    return all(getattr(arm, key) == getattr(bar, key) for key in _SAME) and (
        bool(arm.control) == bool(bar.control)
    )


def corner_values(quad: Quad, measure: Measure) -> Corners | None:
    """The measure's values at the corners; None unless at least `small with bar` and `large without` have some."""
    state = common_state(quad.small, quad.large) if measure.name in TIMES else None
    if measure.name in TIMES and state is None:
        return None
    if measure.name == "cost" and len(_currencies(quad)) > 1:
        return None
    sources = dict(zip(
        (quad.small.name, quad.large.name),
        at_common_limit(_cells(quad.small, measure, state), _cells(quad.large, measure, state), measure), strict=True,
    ))  # fmt: skip
    asked = {
        corner: asked_of(sources[quad.entry(corner).name], quad.arms[corner], measure)
        for corner in CORNERS if corner in quad.arms
    }  # fmt: skip
    parts = {corner: valued(cells, measure) for corner, cells in asked.items()}
    parts = {corner: cells for corner, cells in parts.items() if len(per_cluster(cells, measure))}
    if SMALL_BAR not in parts or LARGE not in parts:
        return None
    why = _unpaired(quad, measure)
    found = [] if why else [aligned(parts, measure)]
    if found and found[0].values.empty:
        why, found = "no decision point of this measure is in both", []
    found = found or [aligned(group, measure) for group in _apart(parts)]
    values = {str(name): one.values[name] for one in found for name in one.values}
    if not len(values[SMALL_BAR]) or not len(values[LARGE]):
        return None
    kept = {name: cells for one in found for name, cells in one.cells.items()}
    left = sum(len(cells) for cells in parts.values()) - sum(len(cells) for cells in kept.values())
    return Corners(values, why, left, kept, asked, state)


def _currencies(quad: Quad) -> set[str | None]:
    return {entry.price.currency for entry in (quad.small, quad.large) if entry.price}


def common_state(small: Entry, large: Entry) -> str | None:
    """The cache state in which both were timed, `cold` before others."""
    both = set(cache_states(small)) & set(cache_states(large))
    return min(both, key=lambda state: (state != "cold", state), default=None)


def _apart(parts: dict[str, pd.DataFrame]) -> list[dict[str, pd.DataFrame]]:
    return [
        {name: cells for name, cells in parts.items() if (name in _SMALLS) == mine} for mine in (True, False)
    ]


def _cells(entry: Entry, measure: Measure, state: str | None) -> pd.DataFrame:
    if state is not None:
        return timed_cells(entry, state)
    return costed_cells(entry) if measure.name == "cost" else decided_cells(entry.run)


def _unpaired(quad: Quad, measure: Measure) -> str:
    if measure.name not in TIMES:
        return unpaired_because(quad.small.run, quad.large.run)
    reasons = [unpaired_because(s, b) for s in quad.small.timed for b in quad.large.timed]
    return next((reason for reason in reasons if reason), "")
