"""The four corners (and the placebo) of a pair of models as dots with intervals, one panel per measure.

Knows the data of the table of corners and how to draw it; computes nothing.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from harness.analysis.across.pareto import literal
from harness.analysis.across.quads import LARGE, LARGE_BAR, SMALL, SMALL_BAR, SMALL_PLACEBO, TITLES
from harness.analysis.drawing import BLACK, BLUE, VERMILION, panels, point, records, rows_axis, wrapped
from harness.analysis.table import Table

_ROWS = (SMALL, SMALL_PLACEBO, SMALL_BAR, LARGE_BAR, LARGE)
"""From the small model as it is to the large one as it is."""
_STYLES = {
    SMALL: (BLUE, "o", "white"), SMALL_PLACEBO: (BLUE, "s", "white"), SMALL_BAR: (BLUE, "D", BLUE),
    LARGE_BAR: (VERMILION, "D", VERMILION), LARGE: (VERMILION, "o", "white"),
}  # fmt: skip
_LABELS = {
    "sensitivity": "sensitivity in logits, forced choices", "balanced_accuracy": "balanced accuracy, free replies",
}  # fmt: skip


def corner_figures(table: Table) -> dict[str, Figure]:
    """One figure per pair of models and bar, by file stem: `corners`, or `corners_1`, `corners_2` … of several."""
    data = table.data[table.data["measure"].isin(list(_LABELS))]
    groups = [rows for _, rows in data.groupby(["small", "large", "bar"], sort=False)]
    stems = ["corners"] if len(groups) == 1 else [f"corners_{i}" for i in range(1, len(groups) + 1)]
    return {stem: _figure(rows) for stem, rows in zip(stems, groups, strict=True)}


def _figure(rows: pd.DataFrame) -> Figure:
    measures = records(rows)
    there = [corner for corner in _ROWS if rows[corner].notna().any()]
    figure, axes = panels([0.19 * len(there) + 0.75 for _ in measures])
    for axis, row in zip(axes, measures, strict=True):
        _draw(axis, row, there)
    first = measures[0]
    figure.suptitle(
        literal(f"small: {first['small']}\nlarge: {first['large']}\nbar: {wrapped(first['bar'])}"), fontsize=7.5,
        x=0.01, ha="left",
    )  # fmt: skip
    return figure


def _draw(axis: Any, row: dict[str, Any], there: list[str]) -> None:
    for y, corner in enumerate(there):
        color, marker, face = _STYLES[corner]
        style = {"color": color, "marker": marker, "markerfacecolor": face}
        point(axis, row, (corner, f"{corner}_low", f"{corner}_high"), y, style)
    rows_axis(axis, [TITLES[corner] for corner in there])
    axis.set_xlabel(f"{_LABELS[row['measure']]} (95 % interval)")
    small, large = int(row["clusters"]), int(row["clusters_large"])
    episodes = f"n = {small} episodes" if small == large else f"n = {small} and {large} episodes"
    axis.set_title(f"{episodes}, {row['points']}")
    if row["measure"] == "sensitivity":
        axis.axvline(0, color=BLACK, linewidth=0.7)
    else:
        axis.axvline(0.5, color="#BBBBBB", linewidth=0.7)
        axis.set_xlim(-0.02, 1.02)
