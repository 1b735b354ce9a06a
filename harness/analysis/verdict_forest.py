"""The verdict forest: every paired comparison with its intervals, its equivalence margin and its verdict.

Knows the columns of the table `comparisons` and draws them; computes no statistic. One panel per unit, because a
log odds and a ratio share no axis.
"""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from harness.analysis.comparisons import drawn
from harness.analysis.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    VERMILION,
    WIDTH,
    Tables,
    n_text,
    records,
    wrapped,
)
from harness.analysis.frames import Arm

UNITS = {
    "logit": ("log odds", 0.0),
    "probability": ("probability", 0.0),
    "share": ("share of replies", 0.0),
    "ratio": ("ratio, log scale", 1.0),
}
"""Unit → what the axis says, and the value of no difference."""
VERDICTS = {
    "better": (GREEN, "^", True), "worse": (VERMILION, "v", True), "more cautious": (ORANGE, ">", True),
    "less cautious": (PINK, "<", True), "equivalent": (BLUE, "s", True), "inconclusive": (GREY, "o", False),
}  # fmt: skip
"""Verdict → colour, marker and whether it is filled: told apart without colour as well."""
MARGIN = "#E6E6E6"
ROW, HEAD, FOOT = 0.125, 0.42, 0.5
"""Inches of a line of labels, of a panel's title and axis, and of the legend."""
LONG = 39
"""Characters of a label beyond which every comparison of its panel takes two lines."""
SMALL = 6.0
RATIO_TICKS = (0.1, 0.2, 0.5, 0.8, 1.25, 2.0, 5.0, 10.0)
"""Without 1, which is the black line."""


def verdict_forest(tables: Tables, arms: Sequence[Arm], width: float = WIDTH) -> Figure | None:
    """The rows of `comparisons` that are `drawn`, grouped by measure; None where there are none."""
    data = drawn(tables["comparisons"].data)
    parts = [part for unit in UNITS if len(part := data[data["unit"] == unit])]
    if not parts:
        return None
    columns = _columns(parts, 2 if width > WIDTH and len(parts) > 1 else 1)
    tall = [[_lines(part) * ROW + HEAD for part in column] for column in columns]
    size = (width, max(sum(column) for column in tall) + FOOT)
    # Laid out at the resolution of the PNG: at 100 dpi hinting makes small bold labels narrower than they are.
    figure = Figure(figsize=size, layout="constrained", dpi=300)
    outer = figure.add_gridspec(1, len(columns))
    for place, (column, heights) in enumerate(zip(columns, tall, strict=True)):
        spare = max(sum(heights) for heights in tall) - sum(heights)
        ratios = [*heights, spare] if spare > ROW else heights
        grid = outer[0, place].subgridspec(len(ratios), 1, height_ratios=ratios)
        for row, part in enumerate(column):
            _draw(figure.add_subplot(grid[row, 0]), part)
    figure.legend(handles=_legend(data), loc="outside lower center", ncols=3 if width <= WIDTH else 7,
                  fontsize=SMALL, handletextpad=0.4, columnspacing=1.0)  # fmt: skip
    return figure


def _lines(part: pd.DataFrame) -> float:
    """Lines of labels in a panel: its comparisons and one heading per measure, all as high as a label of two lines
    where one is long."""
    return (len(part) + part["measure"].nunique()) * (1.6 if _long(part) else 1)


def _long(part: pd.DataFrame) -> bool:
    return any(len(_label(row, " ")) > LONG for row in records(part))


def _label(row: dict[str, Any], between: str) -> str:
    sign = "÷" if row["unit"] == "ratio" else "−"
    return f"{wrapped(row['condition'])}{between}{sign} {wrapped(row['against'])}"


def _columns(parts: list[pd.DataFrame], count: int) -> list[list[pd.DataFrame]]:
    """The panels in reading order, broken where the halves are most alike."""
    if count == 1:
        return [parts]
    total = sum(_lines(part) + 3 for part in parts)
    cuts = [abs(2 * sum(_lines(part) + 3 for part in parts[:i]) - total) for i in range(1, len(parts))]
    cut = cuts.index(min(cuts)) + 1
    return [parts[:cut], parts[cut:]]


def _draw(axis: Any, part: pd.DataFrame) -> None:
    unit = str(part["unit"].iloc[0])
    words, nothing = UNITS[unit]
    between = "\n" if _long(part) else " "
    labels: list[str] = []
    for measure, rows in part.groupby("measure", sort=False):
        labels.append(wrapped(str(measure)))
        for row in records(rows):
            _draw_row(axis, row, len(labels))
            labels.append(_label(row, between))
    if unit == "ratio":
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(FixedLocator(RATIO_TICKS))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.axvline(nothing, color=BLACK, linewidth=0.6, zorder=1)
    axis.set_yticks(range(len(labels)), labels=labels, fontsize=SMALL)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", labelsize=SMALL, pad=2)
    _mark_labels(axis, part)
    axis.set_title(f"{words}, {n_text(part['clusters'], 'clusters')}")
    axis.spines["left"].set_visible(False)


def _mark_labels(axis: Any, part: pd.DataFrame) -> None:
    """Measures in italics as headings, confirmatory comparisons in bold."""
    marks: list[str] = []
    for _, rows in part.groupby("measure", sort=False):
        marks += ["heading", *(str(label) for label in rows["label"])]
    for text, mark in zip(axis.get_yticklabels(), marks, strict=True):
        if mark == "heading":
            text.set_fontstyle("italic")
        elif mark == "confirmatory":
            text.set_fontweight("bold")


def _draw_row(axis: Any, row: dict[str, Any], y: int) -> None:
    """Margin, 95 % interval (thin), interval of the equivalence test (thick), estimate, and the verdict in words."""
    low, high = row["margin_low"], row["margin_high"]
    if not (pd.isna(low) or pd.isna(high)):
        axis.fill_betweenx([y - 0.5, y + 0.5], low, high, color=MARGIN, linewidth=0, zorder=0)
    color, marker, filled = VERDICTS.get(str(row["verdict"]), VERDICTS["inconclusive"])
    for ends, thickness in ((("low", "high"), 0.7), (("equivalence_low", "equivalence_high"), 2.0)):
        values = [row[end] for end in ends]
        if not any(pd.isna(value) or not math.isfinite(value) for value in values):
            axis.plot(values, [y, y], color=color, linewidth=thickness, solid_capstyle="butt", zorder=2)
    axis.plot([row["estimate"]], [y], marker=marker, color=color, markersize=3.6, linestyle="none",
              markerfacecolor=color if filled else "white", zorder=3)  # fmt: skip
    axis.text(1.02, y, str(row["verdict"]), transform=axis.get_yaxis_transform(), va="center", fontsize=SMALL,
              color=BLACK if filled else GREY)  # fmt: skip


def _legend(data: pd.DataFrame) -> list[Any]:
    there = {str(verdict) for verdict in data["verdict"]}
    handles: list[Any] = [
        Line2D([], [], linestyle="none", marker=marker, color=color, label=verdict, markersize=3.6,
               markerfacecolor=color if filled else "white")
        for verdict, (color, marker, filled) in VERDICTS.items() if verdict in there
    ]  # fmt: skip
    return [
        *handles,
        Patch(facecolor=MARGIN, label="equivalence margin"),
        Line2D([], [], color=GREY, linewidth=0.7, label="95 % interval"),
        Line2D([], [], color=GREY, linewidth=2.0, label="90 % interval"),
    ]
