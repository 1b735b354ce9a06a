"""The figure of a run that sets many bars beside each other, by place or by form: each with its own placebo.

Knows the columns of the tables `choose` and `comparisons` and draws them; computes no statistic.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from harness.analysis.drawing import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    WIDTH,
    Tables,
    n_text,
    panels,
    point,
    records,
    rows_axis,
    wrapped,
)
from harness.analysis.frames import Arm, control_for
from harness.analysis.verdict_forest import MARGIN, SMALL, VERDICTS

FEWEST = 3
"""Bars with a placebo of their own from which on the figure says more than `sensitivity` does."""
ROW, REST = 0.2, 0.75
"""Inches of a row, and of a panel's title and axis."""


def bars(tables: Tables, arms: Sequence[Arm], width: float = WIDTH) -> Figure | None:
    """Sensitivity of each bar, its placebo and the control, and below what each bar's content does with its verdict;
    None for a run of fewer than three bars."""
    found = tables["comparisons"].data
    found = found[
        (found["measure"] == "sensitivity") & (found["kind"] == "bar - placebo") & found["estimate"].notna()
    ]
    chosen = {row["condition"]: row for row in records(tables["choose"].data)}
    if len(found) < FEWEST or not chosen:
        return None
    rows = records(found)
    figure, axes = panels([len(rows) * ROW + REST] * 2, width)
    figure.set_dpi(300)  # laid out at the resolution of the PNG, so that the words at the edge fit
    _levels(axes[0], rows, chosen, arms)
    _differences(axes[1], rows)
    axes[1].set_title(f"bar − its placebo, {n_text(found['clusters'], 'clusters')}")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, handletextpad=0.2
    )
    return figure


def places(tables: Tables, arms: Sequence[Arm], width: float = WIDTH) -> Figure | None:
    """What the same bar's content does elsewhere, against the first place; None for fewer than three such differences."""
    if "places" not in tables:
        return None
    found = tables["places"].data
    rows = records(found[(found["measure"] == "sensitivity") & found["estimate"].notna()])
    if len(rows) < FEWEST:
        return None
    figure, (axis,) = panels([len(rows) * ROW + REST + 0.15], width)
    figure.set_dpi(300)
    _differences(axis, rows)
    against = list(dict.fromkeys(str(row["against"]) for row in rows))
    other = wrapped(against[0]) if len(against) == 1 else "the same bar elsewhere"
    axis.set_title(f"own effect − that of {other}\n{n_text(found['clusters'], 'clusters')}")
    return figure


def _levels(
    axis: Any, rows: Sequence[dict[str, Any]], chosen: dict[str, dict[str, Any]], arms: Sequence[Arm]
) -> None:
    keys = ("sensitivity", "sensitivity_low", "sensitivity_high")
    for name, color, marker, shift in (("condition", BLUE, "o", -0.16), ("against", ORANGE, "s", 0.16)):
        style = {"color": color, "marker": marker, "markerfacecolor": color if shift < 0 else "white"}
        for y, row in enumerate(rows):
            point(axis, chosen[row[name]], keys, y + shift, style)
        axis.plot([], [], linestyle="none", label="bar" if shift < 0 else "its placebo", **style)
    shown = {row["condition"] for row in rows}
    bare = {found.name for arm in arms if arm.name in shown and (found := control_for(arm, arms))}
    control = chosen.get(bare.pop()) if len(bare) == 1 else None  # of several none is that of all
    if control is not None:
        axis.axvline(control[keys[0]], color=GREY, linewidth=0.9, linestyle="--", label="no bar")
    rows_axis(axis, [wrapped(row["condition"]) for row in rows])
    axis.axvline(0, color=BLACK, linewidth=0.7)
    axis.set_xlabel("sensitivity, log odds (95 % interval)")


def _differences(axis: Any, rows: Sequence[dict[str, Any]]) -> None:
    for y, row in enumerate(rows):
        if not (pd.isna(row["margin_low"]) or pd.isna(row["margin_high"])):
            axis.fill_betweenx(
                [y - 0.5, y + 0.5], row["margin_low"], row["margin_high"], color=MARGIN, linewidth=0, zorder=0
            )
        verdict = str(row["verdict"])
        color, marker, filled = VERDICTS.get(verdict, VERDICTS["inconclusive"])
        style = {"color": color, "marker": marker, "markerfacecolor": color if filled else "white"}
        point(axis, row, ("estimate", "low", "high"), y, style)
        axis.text(1.02, y, verdict, transform=axis.get_yaxis_transform(), va="center", fontsize=SMALL,
                  color=BLACK if filled else GREY)  # fmt: skip
    rows_axis(axis, [wrapped(row["condition"]) for row in rows])
    axis.axvline(0, color=BLACK, linewidth=0.7)
    axis.set_xlabel("difference in log odds (95 % interval; grey: margin)")
