"""Figures over length: sensitivity, thinking and time to the answer against context tokens or prior calls.

Knows the tables `length` and `slopes` and draws them; computes no statistic. One figure per series, its panels
below each other with a common x axis; beside each panel stand the slopes of its lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from harness.analysis.drawing import BLACK, GREY, WIDTH, Tables, arm_style, n_text, records, wrapped
from harness.analysis.frames import Arm
from harness.analysis.lengths import CONTEXT
from harness.analysis.table import fixed, with_interval

FIGURES = {
    "filler": ("tokens of context, thousands", "per 1,000 tokens"),
    "moved_limit": ("prior calls N\n(limit N: forbidden, limit N + 1: due)", "per prior call"),
}
"""Series → label of the x axis, and what a slope is per."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One measure: the probes that it is drawn of, the first that has it, and the decimals of its slope."""

    measure: str
    title: str
    probes: tuple[str, ...]
    decimals: int
    zero: bool
    """Whether 0 is drawn as a line (a measure that can be negative)."""


PANELS = (
    Panel("sensitivity", "sensitivity, log odds", ("choose",), 3, True),
    Panel("thinking", "thinking tokens", ("act", "choose"), 1, False),
    Panel("first_answer_token", "seconds to the first answer token", ("act", "choose"), 3, False),
)
HEIGHT, FOOT = 1.25, 0.8
"""Inches of a panel, and of the axis label and legend below the last one."""
MOST_TICKS = 10


def length(series: str, tables: Tables, arms: Sequence[Arm], width: float = WIDTH) -> Figure | None:
    """The figure of one series; None where no panel has an estimate."""
    data, fitted = (tables[name].data for name in ("length", "slopes"))
    data = data[data["series"] == series]
    shown = [(panel, rows) for panel in PANELS if len(rows := _rows(data, panel))]
    if not shown:
        return None
    names = [arm.name for arm in arms if any((rows["condition"] == arm.name).any() for _, rows in shown)]
    legend = 0.16 * -(-len(names) // 3)
    figure = Figure(figsize=(width, HEIGHT * len(shown) + FOOT + legend), layout="constrained")
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    label, unit = FIGURES[series]
    for axis, (panel, rows) in zip(axes, shown, strict=True):
        _draw(axis, panel, rows, series, arms)
        mine = fitted[(fitted["series"] == series) & (fitted["measure"] == panel.measure)]
        mine = mine[(mine["probe"] == rows["probe"].iloc[0]) & (mine["against"].isna())]
        _write_slopes(axis, panel, mine, arms)
    axes[0].text(1.04, 1.03, f"slope {unit}\n[95 % interval]", transform=axes[0].transAxes, va="bottom")
    axes[-1].set_xlabel(label)
    if series == "moved_limit":
        calls = sorted({float(x) for x in data["x"]})
        axes[-1].xaxis.set_major_locator(FixedLocator(calls) if len(calls) <= MOST_TICKS else MaxNLocator(8))
    handles = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    for axis in axes[1:]:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3, handlelength=2.4,
                  columnspacing=1.2)  # fmt: skip
    return figure


def _rows(data: pd.DataFrame, panel: Panel) -> pd.DataFrame:
    """The rows of the first probe that has this measure; none of a thinking that never happened."""
    known = data[data[panel.measure].notna()]
    if panel.measure == "thinking" and (known[panel.measure] == 0).all():
        return known[:0]
    probe = next((name for name in panel.probes if (known["probe"] == name).any()), None)
    return known[known["probe"] == probe]


def _draw(axis: Any, panel: Panel, rows: pd.DataFrame, series: str, arms: Sequence[Arm]) -> None:
    """One line per arm, its points moved apart a little so that the bars can be told."""
    at = rows[CONTEXT].astype(float) / 1000 if series == "filler" else rows["x"].astype(float)
    names = list(dict.fromkeys(rows["condition"]))
    step = (float(at.max()) - float(at.min())) * 0.024 / max(len(names) - 1, 1)
    for i, name in enumerate(names):
        mine = rows["condition"] == name
        color, marker, line = arm_style(arms, name)
        x = at[mine] + step * (i - (len(names) - 1) / 2)
        y, low, high = (rows.loc[mine, panel.measure + end].astype(float) for end in ("", "_low", "_high"))
        bars = [(y - low).fillna(0.0).clip(lower=0.0), (high - y).fillna(0.0).clip(lower=0.0)]
        axis.errorbar(x, y, yerr=bars, color=color, marker=marker, linestyle=line, elinewidth=0.8, capsize=1.5,
                      label=wrapped(name))  # fmt: skip
    if panel.zero:
        axis.axhline(0, color=BLACK, linewidth=0.6)
    else:
        axis.set_ylim(bottom=0)
    axis.grid(axis="y", color="#DDDDDD", linewidth=0.5)
    axis.set_axisbelow(True)
    axis.yaxis.set_major_locator(MaxNLocator(4))
    axis.set_title(f"{panel.title}{_limit(panel, rows)}\n{n_text(rows['clusters'], 'clusters')}, 95 % bars")


def _limit(panel: Panel, rows: pd.DataFrame) -> str:
    """What thinking is restricted to, and how much of it the limit cut at most."""
    if panel.measure != "thinking":
        return ""
    cut = float(rows["censored_share"].astype(float).max())
    return f" to τ = {fixed(rows['tau'].max(), 0)}" + (
        f" (censored: up to {100 * cut:.0f} %)" if cut else " (none censored)"
    )


def _write_slopes(axis: Any, panel: Panel, fitted: pd.DataFrame, arms: Sequence[Arm]) -> None:
    """The slope of each line to the right of its panel, with the line's marker."""
    lines = records(fitted)
    if not lines:
        axis.text(1.04, 0.9, "no slope", transform=axis.transAxes, va="top", color=GREY)
    for i, row in enumerate(lines):
        y = 0.93 - i * min(0.17, 0.95 / len(lines))
        color, marker, _ = arm_style(arms, str(row["condition"]))
        axis.plot(
            [1.05], [y], marker=marker, color=color, transform=axis.transAxes, clip_on=False, linestyle="none"
        )
        text = with_interval([fixed(row[key], panel.decimals) for key in ("slope", "low", "high")])
        axis.text(1.09, y, text.replace("-", "−"), transform=axis.transAxes, va="center")
