"""The whole prompt in bins: which part of the text each part of it reads, in one sample, control | bar | placebo.

Knows a capture's bins and its regions; the lift of a bin holds its mass against what even attention to every
visible key would give it, so that the triangle's corner is no brighter than its base.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from harness.analysis.attention import tokens as tk
from harness.analysis.attention.arrangement import (
    ABSENT,
    BAND,
    LIFT_COLORS,
    PROBE_WORDS,
    SMALL,
    Sheet,
    Trio,
    colors_with_absent,
    dodge,
    group_handles,
    lift_bar,
    lift_norm,
    log_lift,
    title,
)
from harness.analysis.attention.frames import AttentionData, Floats
from harness.analysis.attention.groups import GROUP_COLORS
from harness.analysis.attention.labels import group_label
from harness.analysis.drawing import WIDE, WIDTH
from harness.attention.store import CellAttention

LABELS = 12
"""Most regions that are named at the side of a map; the others have their colour alone."""
LEFT = 0.8


def even_mass(captured: CellAttention) -> Floats:
    """(L, B, C) the mass that each bin of keys would get from a bin of rows if every visible key got alike."""
    assert captured.bins is not None
    rows, keys = captured.bins.row_edges, captured.bins.key_edges
    found: dict[int | None, Floats] = {}
    for window in set(captured.windows):
        queries = np.arange(rows[0], rows[-1])
        first = np.zeros_like(queries) if window is None else np.maximum(0, queries + 1 - window)
        reach = np.clip(keys[None, :], first[:, None], (queries + 1)[:, None])
        part = np.diff(reach, axis=1) / (queries + 1 - first)[:, None]
        sums = np.add.reduceat(part, (rows[:-1] - rows[0]).astype(np.intp), axis=0)
        found[window] = np.asarray(sums / np.diff(rows)[:, None], dtype=np.float64)
    return np.stack([found[window] for window in captured.windows])


def bin_lift(captured: CellAttention, layers: Sequence[int]) -> Floats:
    """(B, C) lift over these layers (by index), sinks included; nan where no key of the bin is visible."""
    assert captured.bins is not None
    even = even_mass(captured)[list(layers)].mean(0)
    mass = np.asarray(captured.bins.mass, dtype=np.float64)[list(layers)].mean(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(even > 0, mass / even, np.nan)


def thirds(count: int) -> list[tuple[str, list[int]]]:
    """Early, middle and late layers, as far as there are so many."""
    parts = [list(map(int, part)) for part in np.array_split(np.arange(count), 3) if len(part)]
    return list(zip(("early", "middle", "late"), parts, strict=False))


def prompt_map(data: AttentionData, trio: Trio, probe: str, by_thirds: bool = False) -> Figure | None:
    """Rows × keys of the first sample with bins; `by_thirds`: a row of panels for each third of the layers."""
    cells = tk.shown_cells(data, trio, probe, lambda cell: cell.bins is not None)
    if not cells or (by_thirds and len(cells[0].layers) < 3):
        return None
    count = len(cells[0].layers)
    parts = thirds(count) if by_thirds else [("all", list(range(count)))]
    values = [[bin_lift(cell, part) for cell in cells] for _, part in parts]
    every = np.concatenate([value.ravel() for row in values for value in row])
    norm = lift_norm(every, tail=0.005)
    gap = 0.14
    sheet_width = WIDE if len(cells) > 1 else WIDTH
    side = min(2.3, (sheet_width - LEFT - 0.06 - gap * (len(cells) - 1)) / len(cells) - BAND)
    used = [cell.regions[k].group for cell in cells for k in np.unique(cell.key_region)]
    names = 0.13 * -(-len(group_handles(used)) // 4)
    sheet = Sheet(
        sheet_width,
        0.44 + len(parts) * (side + 0.34) + 0.24 + (max(0.36, names) if len(cells) > 1 else 0.4 + names),
    )
    for i, ((name, part), row) in enumerate(zip(parts, values, strict=True)):
        top = 0.44 + i * (side + 0.34)
        for j, (cell, value) in enumerate(zip(cells, row, strict=True)):
            left = LEFT + j * (side + BAND + gap)
            _draw(sheet, (left, top, side), cell, (value, norm), (j == 0, i == len(parts) - 1))
            arm = next(arm for arm in trio.arms if arm.name == cell.cell.condition)
            layers = f"layers {cell.layers[part[0]]}–{cell.layers[part[-1]]}"
            words = f"{title(arm)}, {name} {layers}" if by_thirds else title(arm)
            sheet.write(left, top - 0.05, words, fontsize=7.5 if not by_thirds else SMALL)
    top = 0.44 + len(parts) * (side + 0.34) + 0.16
    place = (LEFT, top, min(2.4, sheet_width - LEFT - 0.3))
    lift_bar(sheet, place, (norm, every), "lift of a bin (1: uniform), sinks included")
    corner = (LEFT + 2.75, top - 0.04) if len(cells) > 1 else (0.0, top + 0.36)
    sheet.figure.legend(
        handles=group_handles(used), loc="upper left", fontsize=SMALL, ncols=4, handlelength=1.2, handleheight=0.9,
        columnspacing=0.9, handletextpad=0.4, borderpad=0.0,
        bbox_to_anchor=(corner[0] / sheet_width, 1 - corner[1] / sheet.height),
    )  # fmt: skip
    bins = cells[0].bins
    size = int(np.median(np.diff(bins.key_edges))) if bins is not None else 0
    sheet.head(
        f"whole prompt, bins of {size} tokens, mean over layers and heads, one sample ({PROBE_WORDS.get(probe, probe)})"
        if not by_thirds
        else f"whole prompt by thirds of the layers, mean over heads, one sample ({PROBE_WORDS.get(probe, probe)})"
    )
    return sheet.figure


def _draw(
    sheet: Sheet, place: tuple[float, float, float], cell: CellAttention, shown: tuple[Floats, Any],
    ends: tuple[bool, bool],
) -> None:  # fmt: skip
    """One map with its bands; `ends`: whether it is the leftmost (region names) and the lowest (numbers)."""
    assert cell.bins is not None
    left, top, side = place
    values, norm = shown
    rows, keys = cell.bins.row_edges, cell.bins.key_edges
    axis = sheet.axes(left + BAND, top, side, side)
    axis.set_facecolor(ABSENT)
    axis.pcolormesh(
        keys, rows, np.ma.masked_invalid(log_lift(values)), norm=norm, cmap=colors_with_absent(LIFT_COLORS),
        rasterized=True,
    )  # fmt: skip
    axis.set_xlim(keys[0], keys[-1])
    axis.set_ylim(rows[-1], rows[0])
    axis.set_yticks([])
    axis.set_xticks([])
    runs = _runs(cell)
    for edge in {edge for group, *edges in runs if group == "bar" for edge in edges}:
        for line in (axis.axvline, axis.axhline):
            line(edge, color=GROUP_COLORS["bar"], linewidth=0.5)
    for across in (True, False):
        box = (left + BAND, top + side, side, BAND) if across else (left, top, BAND, side)
        strip = sheet.axes(*box)
        for group, start, stop in runs:
            span = strip.axvspan if across else strip.axhspan
            span(start, stop, color=GROUP_COLORS[group], linewidth=0)
        low, high = (keys[0], keys[-1]) if across else (rows[-1], rows[0])
        (strip.set_xlim if across else strip.set_ylim)(low, high)
        (strip.set_ylim if across else strip.set_xlim)(0, 1)
        strip.set_yticks([])
        for spine in strip.spines.values():
            spine.set_visible(False)
        if across and ends[1]:
            strip.tick_params(axis="x", labelsize=SMALL, width=0.5, length=2)
            strip.set_xlabel("token read", fontsize=SMALL)
        else:
            strip.set_xticks([])
        if not across and ends[0]:
            _name_runs(strip, runs, (int(rows[0]), int(rows[-1])), side)


def _runs(cell: CellAttention) -> list[tuple[str, int, int]]:
    """(group, start, stop) of consecutive tokens of a group."""
    groups = [cell.regions[i].group for i in cell.key_region]
    edges = [0, *[i for i in range(1, len(groups)) if groups[i] != groups[i - 1]], len(groups)]
    return [(groups[a], a, b) for a, b in pairwise(edges)]


def _name_runs(axis: Any, runs: Sequence[tuple[str, int, int]], ends: tuple[int, int], side: float) -> None:
    """The longest regions named at the left, with leader lines where the names had to give way."""
    inside = [
        run
        for run in runs
        if run[0] not in ("template", "sinks") and ends[0] <= (run[1] + run[2]) / 2 < ends[1]
    ]
    tail = [run for run in inside if run[0] in ("follow_up", "bar")]
    others = sorted((run for run in inside if run not in tail), key=lambda run: run[1] - run[2])
    most = min(LABELS, int(side / (1.25 * SMALL / 72)))
    chosen = sorted([*tail, *others][:most], key=lambda run: run[1])
    unit = (ends[1] - ends[0]) / side
    middles = [(run[1] + run[2]) / 2 for run in chosen]
    places = dodge(middles, 1.2 * SMALL / 72 * unit, ends[0], ends[1])
    for (group, _, _), middle, place in zip(chosen, middles, places, strict=True):
        axis.annotate(
            group_label(group), xy=(0, middle), xytext=(-0.14 / BAND, place), fontsize=SMALL, ha="right", va="center",
            textcoords=axis.transData, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": "#888888", "shrinkA": 0.5, "shrinkB": 0,
                        "relpos": (1, 0.5)},
        )  # fmt: skip
