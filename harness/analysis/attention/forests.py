"""Estimates with their intervals: paired differences between arms, and the bar line by line.

Knows the attention tables' columns and draws them; computes no statistic.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from harness.analysis.attention.arrangement import BAND, PROBE_WORDS, ROW_WORDS, SMALL, Sheet, Trio
from harness.analysis.attention.groups import GROUP_COLORS
from harness.analysis.attention.labels import escaped, group_label, label, readable, width
from harness.analysis.drawing import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PINK,
    VERMILION,
    WIDTH,
    n_text,
    point,
    records,
)
from harness.analysis.table import Table

COMPARISONS = (
    ("placebo", BLUE, "D", "bar − placebo"),
    ("control", VERMILION, "o", "bar − control"),
    ("noise", GREY, "^", "placebo − control"),
)
"""What is compared: the bar's content, the bar, and the placebo, each with its colour, marker and words."""
GAP, STRIPE = 0.084, "#F4F4F4"
"""Between two estimates of a row, inches; and the faint stripes that keep an eye in its row."""
ENDS = ("estimate", "low", "high")
MOST_LINES = 40
ALPHA = 0.05
LINE_PARTS = (
    ("bar", ("lift", "lift_low", "lift_high"), ORANGE, "s", -0.035),
    ("placebo's line", ("placebo_lift", "placebo_low", "placebo_high"), PINK, "^", 0.035),
)


def differences(tables: Mapping[str, Table], trio: Trio, probe: str, kind: str = "decision") -> Figure | None:
    """Paired differences of each region's share, in percentage points; None where nothing can be compared."""
    data = rows_of(tables, "differences", probe)
    data = data[data["row"] == kind] if len(data) else data
    parts = [(style, _compared(data, trio, style[0])) for style in COMPARISONS if len(data)]
    parts = [(style, rows) for style, rows in parts if len(rows)]
    if not parts:
        return None
    groups = list(dict.fromkeys(str(group) for _, rows in parts for group in rows["group"]))
    groups.sort(key=list(GROUP_COLORS).index)
    pitch = GAP * len(parts) + 0.06
    left = max(width(group_label(g)) for g in groups) * 7 / 72 + BAND + 0.16
    tall = pitch * len(groups)
    sheet = Sheet(WIDTH, 0.24 + tall + 0.5 + 0.115 * len(parts))
    axis = sheet.axes(left, 0.24, WIDTH - left - 0.1, tall)
    for place, (style, rows) in enumerate(parts):
        _draw_differences(axis, groups, style, rows, (place - (len(parts) - 1) / 2) * GAP / pitch)
    axis.axvline(0, color=BLACK, linewidth=0.6, zorder=0)
    axis.set_yticks(range(len(groups)), labels=[group_label(group) for group in groups])
    axis.set_ylim(len(groups) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0, pad=BAND * 72 + 5)
    for i in range(0, len(groups), 2):
        axis.axhspan(i - 0.5, i + 0.5, color=STRIPE, linewidth=0, zorder=-1)
    axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.set_xlabel(
        "share outside the sinks, percentage points\n(95 % interval; filled diamond: p (Holm) ≤ .05)",
        fontsize=SMALL,
    )
    strip = sheet.axes(left - BAND - 0.04, 0.24, BAND, tall)
    for i, group in enumerate(groups):
        strip.axhspan(i - 0.5, i + 0.5, color=GROUP_COLORS[group], linewidth=0)
    strip.set_ylim(len(groups) - 0.5, -0.5)
    strip.set_axis_off()
    axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.47 / tall), fontsize=SMALL, borderpad=0.0, handletextpad=0.3,
                labelspacing=0.25)  # fmt: skip
    sheet.head(f"{bar_name(trio)}{ROW_WORDS.get(kind, kind)}, {PROBE_WORDS.get(probe, probe)} (exploratory)")
    return sheet.figure


def _draw_differences(
    axis: Any, groups: Sequence[str], style: tuple[str, str, str, str], rows: pd.DataFrame, shift: float
) -> None:
    """One comparison of every region; a diamond (bar − placebo) is filled where Holm's p lets it pass."""
    what, color, marker, words = style
    for row in records(rows):
        scaled = {key: 100 * row[key] for key in ENDS if not pd.isna(row[key])}
        filled = what != "placebo" or (not pd.isna(row["p_holm"]) and row["p_holm"] <= ALPHA)
        form = {
            "color": color,
            "marker": marker,
            "markerfacecolor": color if filled else "white",
            "markersize": 3,
        }
        point(
            axis,
            {"low": math.nan, "high": math.nan, **scaled},
            ENDS,
            groups.index(row["group"]) + shift,
            form,
        )
    words = f"{words}, {n_text(rows['clusters'], 'clusters')}"
    axis.plot([], [], linestyle="none", color=color, marker=marker, markersize=3.5, label=words)


def rows_of(tables: Mapping[str, Table], name: str, probe: str) -> pd.DataFrame:
    """A table's rows of a probe; an empty frame where there is no such table."""
    data = tables[name].data if name in tables else pd.DataFrame()
    return data[data["probe"] == probe] if len(data) else data


def _compared(data: pd.DataFrame, trio: Trio, what: str) -> pd.DataFrame:
    first, second = {
        "placebo": (trio.bar, trio.placebo), "control": (trio.bar, trio.control), "noise": (trio.placebo, trio.control),
    }[what]  # fmt: skip
    if first is None or second is None:
        return data.iloc[:0]
    return data[(data["condition"] == first.name) & (data["against"] == second.name)]


def bar_name(trio: Trio) -> str:
    return f"{label(trio.bar.name.replace('_', ' '), 26)}: " if trio.bar else ""


def lines(tables: Mapping[str, Table], trio: Trio, probe: str, kind: str = "decision") -> Figure | None:
    """Lift of each line of the bar, and of the placebo's line of the same number."""
    data = rows_of(tables, "lines", probe)
    if data.empty or trio.bar is None:
        return None
    every = records(data[(data["row"] == kind) & (data["condition"] == trio.bar.name)])
    found = every[:MOST_LINES]
    if not found:
        return None
    names = [_line_name(row) for row in found]
    edges = [0.0, *accumulate(0.23 + 0.105 * name.count("\n") for name in names)]
    middles = [(a + b) / 2 for a, b in pairwise(edges)]
    left = max(width(part) for name in names for part in name.split("\n")) * SMALL / 72 + 0.12
    tall = edges[-1]
    sheet = Sheet(WIDTH, 0.42 + tall + 0.42)
    axis = sheet.axes(left, 0.42, WIDTH - left - 0.1, tall)
    _log_axis(
        axis,
        [row[key] for row in found for _, keys, *_ in LINE_PARTS for key in keys if not pd.isna(row[key])],
    )
    for words, keys, color, marker, shift in LINE_PARTS:
        form = {"color": color, "marker": marker, "markersize": 3.2}
        for y, row in zip(middles, found, strict=True):
            point(axis, row, keys, y + shift, form)
        if any(not pd.isna(row[keys[0]]) for row in found):
            axis.plot([], [], linestyle="none", label=words, **form)
    axis.axvline(1, color=BLACK, linewidth=0.6, zorder=0)
    for i in range(0, len(found), 2):
        axis.axhspan(edges[i], edges[i + 1], color=STRIPE, linewidth=0, zorder=-1)
    axis.set_ylim(tall, 0)
    axis.set_yticks(middles, labels=[escaped(name) for name in names], fontsize=SMALL, linespacing=1.1)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("lift (1: uniform; 95 % interval)", fontsize=SMALL)
    axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=SMALL, borderpad=0.1, handletextpad=0.2,
                columnspacing=1.0)  # fmt: skip
    counts = n_text(pd.Series([row["cells_clusters"] for row in found]), "clusters")
    part = "line by line" if len(found) == len(every) else f"the first {len(found)} of {len(every)} lines"
    sheet.head(f"{bar_name(trio)}{part}, {ROW_WORDS.get(kind, kind)}, {counts}")
    return sheet.figure


def _line_name(row: Mapping[str, Any]) -> str:
    """Number and text of a line on at most three lines; wide characters get fewer to a line."""
    text = f"{row['line']:.0f}  {readable(str(row['text']))}"
    room = max(6, min(33, int(17 * len(text) / max(width(text), 1))))
    return "\n".join(textwrap.wrap(text, room)[:3])


def _log_axis(axis: Any, values: Sequence[float]) -> None:
    """A log axis with plain numbers, around 1 and all values; linear where an interval reaches 0."""
    if min(values) <= 0.02:
        return
    low, high = min(*values, 0.9) / 1.1, max(*values, 1.1) * 1.1
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    ticks = [t for t in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    if len(ticks) < 3:
        ticks = [t for t in (0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3) if low <= t <= high]
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
