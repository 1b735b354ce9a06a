"""How attention figures are laid out: which arms stand beside each other, colour scales, region bands, leaders.

Knows the arms of a capture and matplotlib's axes; computes no measure. A lift's scale is logarithmic and parts
at 1 (uniform), so that red is read more and blue less than its length would have it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.analysis.attention.frames import AttentionData, Floats, arms
from harness.analysis.attention.groups import GROUP_COLORS
from harness.analysis.attention.labels import group_label, label
from harness.analysis.frames import Arm, control_for, control_of, placebo_for
from harness.attention.store import GROUPS

SMALL = 6.0
"""The smallest type in a figure, in points; figures are drawn at the size they are printed."""
BAND = 0.055
"""Width of a region band, inches: 16 px at 300 dpi."""
SCALE = 0.07
"""Height of a colour bar, inches."""
ABSENT = "#EFEFEF"
LIFT_COLORS, SHARE_COLORS, SINK_COLORS = "RdBu_r", "YlOrBr", "Greys"
LIFT_LIMITS = (0.1, 100.0)
LIFT_TICKS = (0.1, 0.2, 1 / 3, 0.5, 1, 2, 3, 5, 10, 30, 100)
PROBE_WORDS = {"choose": "forced choice", "act": "free reply"}
ROW_WORDS = {"decision": "decision row", "value": "value row"}


@dataclass(slots=True)
class Sheet:
    """A figure whose axes are placed by hand, in inches from its upper left corner: no panel can ever collapse."""

    width: float
    height: float
    figure: Figure = field(init=False)

    def __post_init__(self) -> None:
        self.figure = Figure(figsize=(self.width, self.height))

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        """Axes of this size, inches."""
        bottom = self.height - top - height
        return self.figure.add_axes(
            (left / self.width, bottom / self.height, width / self.width, height / self.height)
        )

    def head(self, text: str) -> None:
        """The figure's own title, above all panels."""
        self.write(0.04, 0.14, text, fontsize=7.5)

    def shade(self, left: float, top: float, width: float, height: float, color: str) -> None:
        """A filled rectangle behind everything, inches."""
        corner = (left / self.width, 1 - (top + height) / self.height)
        size = (width / self.width, height / self.height)
        box = Rectangle(
            corner, *size, facecolor=color, linewidth=0, transform=self.figure.transFigure, zorder=-5
        )
        self.figure.add_artist(box)

    def write(self, left: float, top: float, text: str, **style: Any) -> None:
        """Text with its base line at this place, inches."""
        self.figure.text(left / self.width, 1 - top / self.height, text, **style)


@dataclass(frozen=True, slots=True)
class Trio:
    """A bar between the control and the placebo of the same placement, as far as they were captured."""

    bar: Arm | None
    control: Arm | None
    placebo: Arm | None
    suffix: str
    """Ends the name of the figure; empty for the first bar of the run."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """In the order they are drawn: control, bar, placebo."""
        return tuple(arm for arm in (self.control, self.bar, self.placebo) if arm is not None)


def trios(data: AttentionData, probe: str) -> list[Trio]:
    """One trio for each bar that has cells of the probe; without any bar, the control with the first placebo."""
    there = set(data.conditions(probe))
    found = [arm for arm in arms(data) if arm.name in there]
    control = control_of(found)
    bars = [arm for arm in found if arm.role not in ("control", "placebo")]
    if not bars:
        placebo = next((arm for arm in found if arm.role == "placebo"), None)
        return [Trio(None, control, placebo, "")] if control or placebo else []
    return [
        Trio(arm, control_for(arm, found), placebo_for(arm, found), f"_{slug(arm.name)}" if i else "")
        for i, arm in enumerate(bars)
    ]


def slug(name: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "x"


def title(arm: Arm) -> str:
    """An arm's name over its panel, with its role where the name does not say it."""
    name = label(arm.name.replace("_", " "), 26)
    role = "bar" if arm.role == "bar" else arm.role
    return name if role in arm.name.lower() else f"{role}: {name}"


def n_clusters(counts: Sequence[int]) -> str:
    """`n = 8 clusters`, or the range over the panels."""
    low, high = min(counts), max(counts)
    return f"n = {low} cluster{'s' if high != 1 else ''}" if low == high else f"n = {low}–{high} clusters"


def lift_norm(values: Floats, tail: float = 0.0) -> TwoSlopeNorm:
    """Scale of log10(lift) around 0, as wide as the values need but never wider than LIFT_LIMITS.

    `tail`: the share of values at either end that may lie beyond the scale, for grids of many small cells.
    """
    known = values[np.isfinite(values) & (values > 0)]
    low, high = np.quantile(known, [tail, 1 - tail]) if known.size else (1.0, 1.0)
    top = next((step for step in (3.0, 10.0, 30.0) if high <= step), LIFT_LIMITS[1])
    bottom = next((step for step in (1 / 3, 0.2) if low >= step), LIFT_LIMITS[0])
    return TwoSlopeNorm(0.0, float(np.log10(bottom)), float(np.log10(top)))


def log_lift(values: Floats) -> Floats:
    """log10 of lifts for `lift_norm`; a lift of 0 lies below every scale."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log10(np.where(values == 0, 1e-6, values)))


def lift_bar(
    sheet: Sheet, place: tuple[float, float, float], shown: tuple[TwoSlopeNorm, Floats], text: str
) -> None:
    """A colour bar for log10(lift) at (left, top, width), its ticks written as lifts.

    `shown`: the scale and all lifts drawn with it; arrows where some lie beyond its ends.
    """
    norm, values = shown
    ends = float(norm.vmin or 0), float(norm.vmax or 0)
    below, above = bool((log_lift(values) < ends[0]).any()), bool((log_lift(values) > ends[1]).any())
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    axis = sheet.axes(*place, SCALE)
    image = ScalarMappable(norm, LIFT_COLORS)
    bar = sheet.figure.colorbar(image, cax=axis, orientation="horizontal", extend=extend)
    ticks = [float(np.log10(t)) for t in LIFT_TICKS if ends[0] - 1e-9 <= np.log10(t) <= ends[1] + 1e-9]
    bar.ax.xaxis.set_major_locator(FixedLocator(ticks))
    bar.ax.xaxis.set_minor_locator(NullLocator())
    bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{float(f'{10**value:.2g}'):g}"))
    plain_bar(bar, text)


def plain_bar(bar: Any, text: str) -> None:
    """A colour bar's label and frame."""
    bar.set_label(text, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL, width=0.5, length=2)
    bar.outline.set_linewidth(0.4)


def share_norm(values: Floats) -> Normalize:
    """Linear from 0 to the largest value."""
    known = values[np.isfinite(values)]
    return Normalize(0.0, float(known.max()) if known.size and known.max() > 0 else 1.0)


def token_norm(values: Floats) -> LogNorm:
    """Log scale of a token's lift from 1 (uniform) upwards; single tokens reach higher than regions."""
    known = values[np.isfinite(values)]
    high = float(np.quantile(known, 0.995)) if known.size else 1.0
    return LogNorm(1.0, next((step for step in (10.0, 30.0) if high <= step), LIFT_LIMITS[1]), clip=True)


def colors_with_absent(name: str) -> Colormap:
    """A colour map in which nan is a grey of its own."""
    return mpl.colormaps[name].with_extremes(bad=ABSENT)


def picture(axis: Any, values: Floats, norm: Normalize, colors: str) -> Any:
    """A grid of values, first row at the bottom, cells of size 1 around whole numbers; nan hatched."""
    axis.set_facecolor(ABSENT)
    masked = np.ma.masked_invalid(values)
    image = axis.imshow(
        masked,
        norm=norm,
        cmap=colors_with_absent(colors),
        aspect="auto",
        origin="lower",
        interpolation="nearest",
    )
    for column in np.flatnonzero(~np.isfinite(values).any(axis=0)):
        axis.axvspan(
            column - 0.5, column + 0.5, facecolor="none", edgecolor="#BBBBBB", hatch="/////", linewidth=0
        )
    for spine in axis.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.4)
    axis.tick_params(width=0.5, length=2)
    return image


def layer_axis(axis: Any, layers: Sequence[int], named: bool = True) -> None:
    """Layers upwards, every so many numbered."""
    step = next(s for s in (1, 2, 4, 5, 10, 20, 50, 100) if len(layers) / s <= 9)
    ticks = list(range(0, len(layers), step))
    axis.set_yticks(ticks, labels=[str(layers[i]) for i in ticks] if named else [], fontsize=SMALL)
    if named:
        axis.set_ylabel("layer")


def band(axis: Any, groups: Sequence[str]) -> None:
    """The coloured region band of a heatmap's columns, in an axis of its own below it."""
    for i, group in enumerate(groups):
        axis.axvspan(i - 0.5, i + 0.5, color=GROUP_COLORS[group], linewidth=0)
    axis.set_xlim(-0.5, len(groups) - 0.5)
    axis.set_yticks([])
    axis.tick_params(axis="x", length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def group_handles(groups: Sequence[str]) -> list[Patch]:
    """Legend entries of the groups that are there, in GROUPS' order."""
    used = [group for group in GROUPS if group in set(groups)]
    return [
        Patch(facecolor=GROUP_COLORS[group], edgecolor="#777777", linewidth=0.3, label=group_label(group))
        for group in used
    ]


def dodge(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels near the wanted ones (ascending), at least `gap` apart, within [low, high] where they fit."""
    placed: list[float] = []
    for value in wanted:
        placed.append(max(value, low, placed[-1] + gap if placed else low))
    limit = high
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - gap
    return placed
