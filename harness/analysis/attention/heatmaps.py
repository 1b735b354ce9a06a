"""Heatmaps over regions, layers and heads: where the decision row looks, in which layers, with which heads.

Knows the summaries of a capture and draws their cluster-balanced means; computes no statistic. The sinks have a
strip and a scale of their own, since they dwarf everything else.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness.analysis.attention.arrangement import (
    BAND,
    LIFT_COLORS,
    PROBE_WORDS,
    ROW_WORDS,
    SHARE_COLORS,
    SINK_COLORS,
    SMALL,
    Sheet,
    Trio,
    band,
    layer_axis,
    lift_bar,
    lift_norm,
    log_lift,
    n_clusters,
    picture,
    plain_bar,
    share_norm,
    title,
)
from harness.analysis.attention.frames import (
    SINKS,
    AttentionData,
    CellSummary,
    Floats,
    cluster_values,
    paired_values,
)
from harness.analysis.attention.head_table import BAR as BAR_TARGET
from harness.analysis.attention.labels import group_label, width
from harness.analysis.drawing import BLACK, WIDE, WIDTH, records
from harness.analysis.frames import Arm
from harness.analysis.table import Table
from harness.attention.store import GROUPS

MOST_LINES = 12
"""A bar of more lines is one column."""
BAR = GROUPS.index("bar")


Column = tuple[str, str, int | None]
"""A column of the heatmap: its label, its group, and the bar's line where it is one. `{tail}` in a label stands for
what the arm has there: the bar, its placebo, or nothing."""


def columns_of(data: AttentionData, trio: Trio, probe: str, kind: str) -> list[Column]:
    """The groups that any arm's row can see, in the prompt's order, the bar split into its lines; no sinks."""
    picked = [pair for arm in trio.arms for pair in data.pick(arm.name, probe, kind)]
    there = {group for cell, row in picked for group in np.flatnonzero(cell.seen[:, row].sum(0))} - {SINKS}
    lines = sorted({line for cell, _ in picked for line in cell.line_lift})
    found: list[Column] = []
    for index in sorted(there):
        group = GROUPS[index]
        if group == "bar" and 1 < len(lines) <= MOST_LINES:
            found += [(f"{{tail}}, line {line}", group, line) for line in lines]
        else:
            found.append(("{tail}" if group == "bar" else group_label(group), group, None))
    return found


def region_values(
    data: AttentionData, arm: Arm, probe: str, kind: str, columns: Sequence[Column]
) -> tuple[int, Floats, Floats]:
    """(clusters, (L, columns) lift, (L,) raw mass of the sinks): means over heads, sides, clusters.

    nan where no row of any cluster can see the column.
    """

    def lifts(cell: CellSummary, row: int) -> Floats:
        nothing = np.full((len(cell.layers), len(cell.heads)), np.nan)
        parts = [
            cell.lift[:, :, row, GROUPS.index(group)]
            if line is None
            else (cell.line_lift[line][:, :, row] if line in cell.line_lift else nothing)
            for _, group, line in columns
        ]
        return _known_mean(np.stack(parts, axis=-1), axis=1)

    names, found = cluster_values(data, arm.name, probe, kind, lifts)
    _, sinks = cluster_values(
        data, arm.name, probe, kind, lambda cell, row: cell.mass[:, :, row, SINKS].mean(1)
    )
    if not names:
        return 0, np.zeros((0, len(columns))), np.zeros(0)
    return len(names), _known_mean(found, axis=0), sinks.mean(axis=0)


def _known_mean(values: Floats, axis: int) -> Floats:
    """Mean of what is known; nan where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(count > 0, np.where(known, values, 0).sum(axis=axis) / count, np.nan))


def region_heatmap(data: AttentionData, trio: Trio, probe: str, kind: str) -> Figure | None:
    """Layers × regions of one kind of row, control | bar | placebo; None where no arm has such a row."""
    columns = columns_of(data, trio, probe, kind)
    shown = [(arm, region_values(data, arm, probe, kind, columns)) for arm in trio.arms]
    shown = [(arm, found) for arm, found in shown if found[0]]
    if not shown or not columns:
        return None
    layers = data.select(shown[0][0].name, probe)[0].layers
    every = np.concatenate([lifts for _, (_, lifts, _) in shown])
    norm = lift_norm(every)
    sink_norm = Normalize(0.0, 1.0)
    names = max(width(text.format(tail="placebo")) for text, _, _ in columns) * SMALL / 72 + 0.06
    tall = max(1.1, 0.068 * len(layers))
    sheet = Sheet(WIDE if len(shown) > 1 else WIDTH, tall + names + 0.97)
    left, gap, strip = 0.34, 0.12, 0.1
    wide = (sheet.width - left - 0.04) / len(shown) - strip - 0.04 - gap
    images: list[Any] = []
    for i, (arm, (_, lifts, sinks)) in enumerate(shown):
        x = left + i * (wide + strip + 0.04 + gap)
        axis = sheet.axes(x, 0.42, wide, tall)
        images += [picture(axis, log_lift(lifts), norm, LIFT_COLORS)]
        axis.set_title(title(arm))
        beside = sheet.axes(x + wide + 0.04, 0.42, strip, tall)
        images += [picture(beside, sinks[:, None], sink_norm, SINK_COLORS)]
        for each, first in ((axis, i == 0), (beside, False)):
            layer_axis(each, layers, named=first)
            each.set_xticks([])
        _name_columns(sheet.axes(x, 0.44 + tall, wide, BAND), columns, arm)
        _name_columns(sheet.axes(x + wide + 0.04, 0.44 + tall, strip, BAND), [("sinks", "sinks", None)], arm)
    y = 0.44 + tall + BAND + names + 0.05
    text = "lift: share of attention outside the sinks ÷ share of tokens" if len(shown) > 1 else "lift"
    place = (left, y, 0.62 * (sheet.width - left - 0.1))
    lift_bar(sheet, place, (norm, every), f"{text} (1: uniform; hatched: not there)")
    x = left + 0.68 * (sheet.width - left - 0.1)
    bar = sheet.figure.colorbar(
        images[1], cax=sheet.axes(x, y, 0.3 * (sheet.width - left - 0.1), 0.07), orientation="horizontal"
    )
    plain_bar(bar, "raw mass in the sinks" if len(shown) > 1 else "sinks, raw mass")
    counts = n_clusters([n for _, (n, _, _) in shown])
    sheet.head(f"{ROW_WORDS.get(kind, kind)}, {PROBE_WORDS.get(probe, probe)}: mean over heads, {counts}")
    return sheet.figure


def _name_columns(axis: Any, columns: Sequence[Column], arm: Arm) -> None:
    band(axis, [group for _, group, _ in columns])
    tail = "" if arm.role == "control" else "placebo" if arm.role == "placebo" else "bar"
    names = [text.format(tail=tail) if tail or "{tail}" not in text else "" for text, _, _ in columns]
    axis.set_xticks(range(len(columns)), labels=names, rotation=90, fontsize=SMALL)


def head_map(data: AttentionData, tables: Mapping[str, Table], trio: Trio, probe: str) -> Figure | None:
    """Layers × heads: the share on the bar, on the placebo, and their difference at the same decision points.

    A square marks the heads that passed the test of the table `heads`. None where no arm has a bar or placebo.
    """
    shown = _head_panels(data, trio, probe)
    if not shown:
        return None
    cell = data.select(shown[0][1], probe)[0]
    norm = share_norm(np.concatenate([values.ravel() for *_, kind, values in shown if kind == "share"]))
    count = len(shown)
    sheet_width = WIDE if count > 2 else WIDTH
    left, gap = 0.34, 0.16
    tall = max(1.1, 0.068 * len(cell.layers))
    wide = (sheet_width - left - 0.06 - gap * (count - 1)) / count
    sheet = Sheet(sheet_width, 0.42 + tall + 0.98)
    for i, (name, _, kind, values) in enumerate(shown):
        axis = sheet.axes(left + i * (wide + gap), 0.42, wide, tall)
        limit = float(np.nanmax(np.abs(values))) or 1.0
        image = picture(
            axis,
            100 * values,
            *(
                (_percent(norm), SHARE_COLORS)
                if kind == "share"
                else (CenteredNorm(0, 100 * limit), LIFT_COLORS)
            ),
        )
        layer_axis(axis, cell.layers, named=i == 0)
        step = next(s for s in (1, 2, 4, 5, 10, 20) if len(cell.heads) / s <= 9)
        axis.set_xticks(
            range(0, len(cell.heads), step), labels=[str(h) for h in cell.heads[::step]], fontsize=SMALL
        )
        axis.set_xlabel("head")
        axis.set_title(name)
        if kind == "difference" or count == 1:
            _mark(axis, tables, trio, probe, cell)
        if kind == "difference" or i == 0:
            scale = sheet.axes(left + i * (wide + gap), 0.42 + tall + 0.46, wide, 0.07)
            bar = sheet.figure.colorbar(image, cax=scale, orientation="horizontal")
            plain_bar(bar, "share outside the sinks, %" if kind == "share" else "difference, points")
    names = _clusters_of(data, trio, probe)
    marked = "; squares: passed, of few tested (table heads)" if _passed(tables, trio, probe) else ""
    sheet.head(
        f"share on the bar, decision row ({PROBE_WORDS.get(probe, probe)}), {n_clusters([names])}{marked}"
    )
    return sheet.figure


def _percent(norm: Normalize) -> Normalize:
    return Normalize(0.0, 100 * float(norm.vmax or 1.0))


def _head_panels(data: AttentionData, trio: Trio, probe: str) -> list[tuple[str, str, str, Floats]]:
    """(title, condition, `share` or `difference`, (L, H)) of each panel."""
    panels = []
    for arm in (trio.bar, trio.placebo):
        if arm is None:
            continue
        names, values = cluster_values(data, arm.name, probe, "decision", _bar_share)
        if names:
            panels.append((title(arm), arm.name, "share", _known_mean(values, axis=0)))
    if len(panels) == 2 and trio.bar and trio.placebo:
        names, mine, other = paired_values(
            data, trio.bar.name, trio.placebo.name, probe, "decision", _bar_share
        )
        if names:
            panels.append(("bar − placebo", trio.bar.name, "difference", _known_mean(mine - other, axis=0)))
    return panels


def _bar_share(cell: CellSummary, row: int) -> Floats:
    return np.asarray(cell.share[:, :, row, BAR])


def _clusters_of(data: AttentionData, trio: Trio, probe: str) -> int:
    arm = trio.bar or trio.placebo
    assert arm is not None
    return len(cluster_values(data, arm.name, probe, "decision", _bar_share)[0])


def _passed(tables: Mapping[str, Table], trio: Trio, probe: str) -> list[tuple[int, int]]:
    """(layer, head) of the heads that passed the test for the bar's content."""
    if "heads" not in tables or trio.bar is None:
        return []
    return [
        (int(row["layer"]), int(row["head"]))
        for row in records(tables["heads"].data)
        if (row["target"], row["probe"], row["condition"], row["passed"])
        == (BAR_TARGET, probe, trio.bar.name, "yes")
    ]


def _mark(axis: Any, tables: Mapping[str, Table], trio: Trio, probe: str, cell: CellSummary) -> None:
    for layer, head in _passed(tables, trio, probe):
        corner = (cell.heads.index(head) - 0.5, cell.layers.index(layer) - 0.5)
        axis.add_patch(
            Rectangle(corner, 1, 1, fill=False, edgecolor=BLACK, linewidth=0.9, clip_on=False, zorder=5)
        )
