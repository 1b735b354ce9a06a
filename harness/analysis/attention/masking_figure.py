"""The masking check drawn: P(call) on both sides with a span hidden and not, and the changes of sensitivity and bias.

Knows the tables `masking` and `masking_differences` and draws them; computes no statistic.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.analysis.attention.arrangement import SMALL, Sheet, Trio
from harness.analysis.attention.forests import ENDS, bar_name, rows_of
from harness.analysis.attention.labels import group_label, label, width
from harness.analysis.drawing import BLACK, BLUE, ORANGE, PINK, VERMILION, WIDE, n_text, point, records
from harness.analysis.table import Table

ROW_HEIGHT, HEADING = 0.15, "#E8E8E8"
SIDES = (("due", BLUE, "o", "call is due"), ("forbidden", VERMILION, "s", "call is forbidden"))
MASK_ROLES = {"control": (BLACK, "o"), "bar": (ORANGE, "s"), "placebo": (PINK, "^")}


def masking(tables: Mapping[str, Table], trio: Trio, probe: str) -> Figure | None:
    """P(act) on both sides with and without each mask, and the changes of sensitivity and bias."""
    data, changes = rows_of(tables, "masking", probe), rows_of(tables, "masking_differences", probe)
    rows = _mask_rows(data, changes, trio)
    if not rows:
        return None
    names = [_mask_name(row) for row in rows]
    left = max(width(name) for name in names) * SMALL / 72 + 0.14
    tall = ROW_HEIGHT * len(rows)
    sheet = Sheet(WIDE, 0.42 + tall + 0.36)
    gap = 0.16
    wide = (WIDE - left - 0.14 - 2 * gap) / 3
    axes = [sheet.axes(left + i * (wide + gap), 0.42, wide, tall) for i in range(3)]
    for axis in axes:
        axis.set_facecolor("none")
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_yticks(range(len(rows)), labels=names if axis is axes[0] else [], fontsize=SMALL)
        axis.tick_params(axis="y", length=0)
    for y, row in enumerate(rows):
        if "condition" in row:
            _draw_mask(axes, row, y)
            continue
        sheet.shade(0.04, 0.42 + y * ROW_HEIGHT, WIDE - 0.12, ROW_HEIGHT, HEADING)
    axes[0].set_xlim(-0.03, 1.03)
    axes[0].set_xlabel("P(call), hollow: unmasked, filled: masked", fontsize=SMALL)
    for _, color, marker, words in SIDES:
        axes[0].plot([], [], linestyle="none", color=color, marker=marker, markersize=3.5, label=words)
    axes[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=SMALL, borderpad=0.1,
                   handletextpad=0.2, columnspacing=1.0)  # fmt: skip
    for axis, words in ((axes[1], "change of sensitivity, log odds"), (axes[2], "change of bias, log odds")):
        axis.axvline(0, color=BLACK, linewidth=0.6, zorder=0)
        axis.set_xlabel(words, fontsize=SMALL)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.grid(axis="x", color="#DDDDDD", linewidth=0.5)
        axis.set_axisbelow(True)
    counts = n_text(pd.Series([row["clusters"] for row in rows if "condition" in row]), "clusters")
    what = "a span hidden from attention, masked − unmasked, 95 % intervals"
    sheet.head(f"{bar_name(trio)}{what}, {counts} (exploratory)")
    return sheet.figure


def _mask_rows(data: pd.DataFrame, changes: pd.DataFrame, trio: Trio) -> list[dict[str, Any]]:
    """A heading for each mask, then its arms, then bar − placebo."""
    rows: list[dict[str, Any]] = []
    roles = {arm.name: "bar" if arm is trio.bar else arm.role for arm in trio.arms}
    if data.empty:
        return rows
    keys = ["mask", "scope", "layers"]
    for values, part in data.groupby(keys, sort=False):
        mine = [
            {**row, "role": roles[row["condition"]]} for row in records(part) if row["condition"] in roles
        ]
        if not mine:
            continue
        rows.append(dict(zip(keys, values, strict=True)))
        rows += sorted(mine, key=lambda row: list(MASK_ROLES).index(row["role"]))
        if trio.bar and trio.placebo and len(changes):
            same = changes[(changes[keys] == list(values)).all(axis=1)]
            same = same[(same["condition"] == trio.bar.name) & (same["against"] == trio.placebo.name)]
            by = {row["measure"]: row for row in records(same)}
            if by:
                clusters = max(row["clusters"] for row in by.values())
                rows.append({"condition": "bar − placebo", "by": by, "clusters": clusters})
    return rows


def _mask_name(row: Mapping[str, Any]) -> str:
    if "condition" in row:
        return label(str(row["condition"]).replace("_", " "), 26)
    words = "bar or placebo" if row["mask"] == "bar" else group_label(str(row["mask"]))
    where = "all later rows" if row["scope"] == "later" else "choice rows only"
    layers = "" if row["layers"] == "all" else f", layers {row['layers']}"
    return f"{words}: {where}{layers}"


def _draw_mask(axes: Sequence[Any], row: Mapping[str, Any], y: int) -> None:
    if "by" in row:
        for axis, measure in zip(axes[1:], ("sensitivity", "bias"), strict=True):
            if measure in row["by"]:
                style = {"color": BLUE, "marker": "D", "markersize": 3}
                point(axis, row["by"][measure], ENDS, y, style)
        return
    color, marker = MASK_ROLES[row["role"]]
    for side, side_color, side_marker, _ in SIDES:
        shift = -0.17 if side == "due" else 0.17
        before, after = row[f"p_{side}"], row[f"p_{side}_masked"]
        axes[0].plot([before, after], [y + shift] * 2, color=side_color, linewidth=0.7)
        for value, fill in ((before, "white"), (after, side_color)):
            form = {"marker": side_marker, "markersize": 2.8, "markerfacecolor": fill, "markeredgewidth": 0.6}
            axes[0].plot([value], [y + shift], color=side_color, **form)
    for axis, measure in zip(axes[1:], ("sensitivity", "bias"), strict=True):
        keys = (f"{measure}_change", f"{measure}_change_low", f"{measure}_change_high")
        point(axis, row, keys, y, {"color": color, "marker": marker, "markersize": 3})
