"""What all figures share: their two widths, the palette, and how estimates and files are drawn.

Knows sizes, colours and deterministic bytes; knows no table. Uses Figure objects on the Agg canvas and a local rc
context, never pyplot's global state. Colours are Okabe & Ito's (colour-blind safe), and every arm has its own
marker and line style as well.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.analysis.frames import Arm
from harness.analysis.html import visible
from harness.analysis.table import Table

WIDTH = 89 / 25.4
"""One column of a two-column page, in inches."""
WIDE = 183 / 25.4
"""Both columns."""
BESIDE = 0.3
"""Inches that panels side by side need beyond the tallest one: the others' legends stand above and below them."""
BLACK, GREY = "#000000", "#666666"
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PINK, YELLOW = "#56B4E9", "#CC79A7", "#F0E442"
ARM_STYLES = (
    (BLACK, "o", "-"), (ORANGE, "s", "--"), (PINK, "^", ":"), (BLUE, "D", "-"), (GREEN, "v", "--"),
    (VERMILION, "P", "-"), (SKY, "X", "-."), (GREY, "*", ":"),
)  # fmt: skip
RC: dict[str, Any] = {
    "font.size": 7, "axes.titlesize": 7.5, "axes.labelsize": 7, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7, "font.family": "DejaVu Sans", "axes.linewidth": 0.6, "lines.linewidth": 1.1,
    "lines.markersize": 4, "hatch.linewidth": 0.5, "axes.spines.top": False, "axes.spines.right": False,
    "svg.hashsalt": "tailgauge", "svg.fonttype": "path", "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "legend.frameon": False, "axes.titlelocation": "left",
}  # fmt: skip

Tables = Mapping[str, Table]


METADATA: Mapping[str, Mapping[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "tailgauge"},
    "pdf": {"CreationDate": None, "Creator": "tailgauge", "Producer": None},
}
"""What is written into each format beside the picture: no date and no version."""


def save(figure: Figure, stem: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figure in each of the formats of METADATA without dates, so that equal data give equal bytes."""
    FigureCanvasAgg(figure)
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once: all formats alike, and half the time
        for axis in figure.axes:
            # The solver's last digits vary, and an SVG names its clip paths by all of them.
            left, bottom, width, height = (round(edge, 6) for edge in axis.get_position(original=True).bounds)
            axis.set_position((left, bottom, width, height))
    paths = []
    for suffix in formats:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix, dpi=300, metadata=dict(METADATA[suffix]))
        path = stem.with_suffix(f".{suffix}")
        path.write_bytes(buffer.getvalue())
        paths.append(path)
    return paths


def panels(heights: Sequence[float], width: float = WIDTH) -> tuple[Figure, list[Any]]:
    """A figure of panels of these heights in inches: below each other in a column, side by side on a page."""
    if width > WIDTH and len(heights) > 1:
        figure = Figure(figsize=(width, max(heights) + BESIDE), layout="constrained")
        return figure, list(figure.subplots(1, len(heights), squeeze=False)[0])
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), 1, height_ratios=list(heights), squeeze=False)
    return figure, list(grid[:, 0])


def point(
    axis: Any, row: Mapping[str, Any], keys: tuple[str, str, str], y: float, style: Mapping[str, Any]
) -> None:
    """One estimate with its horizontal interval; a missing interval leaves the bare marker."""
    value, low, high = (row[key] for key in keys)
    if pd.isna(value):
        return
    bars = None if pd.isna(low) or pd.isna(high) else [[max(value - low, 0.0)], [max(high - value, 0.0)]]
    form = {"elinewidth": 0.9, "capsize": 1.8, "linestyle": "none", **style}
    axis.errorbar([value], [y], xerr=bars, **form)


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as plain dicts."""
    return [{str(key): value for key, value in row.items()} for row in rows.to_dict("records")]


def rows_axis(axis: Any, labels: Sequence[str]) -> None:
    """A vertical axis with one labelled row per entry, the first on top."""
    axis.set_yticks(range(len(labels)), labels=list(labels))
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axis.set_axisbelow(True)


def n_text(values: "pd.Series[Any]", unit: str) -> str:
    """`n = 12 clusters`, or the range of counts."""
    low, high = int(values.min()), int(values.max())
    return f"n = {low} {unit}" if low == high else f"n = {low}–{high} {unit}"


def wrapped(name: str) -> str:
    """A name as it is read: spaces for underscores, no dollar sign that would open a formula, no control
    character (an SVG with one is not well-formed)."""
    return visible(name).replace("_", " ").replace("$", r"\$")


def arm_style(arms: Sequence[Arm], name: str) -> tuple[str, str, str]:
    """Colour, marker and line style of an arm, by its place in the run."""
    return ARM_STYLES[[arm.name for arm in arms].index(name) % len(ARM_STYLES)]
