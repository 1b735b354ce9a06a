"""Token-level figures of one sample: the running text shaded by lift, and the bar's tokens by layer.

Knows wrapped lines of tokens (`tokens`) and how to draw them; computes no measure.
"""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness.analysis.attention import tokens as tk
from harness.analysis.attention.arrangement import (
    BAND,
    LIFT_COLORS,
    PROBE_WORDS,
    ROW_WORDS,
    SHARE_COLORS,
    SMALL,
    Sheet,
    Trio,
    group_handles,
    layer_axis,
    lift_bar,
    lift_norm,
    log_lift,
    picture,
    plain_bar,
    title,
    token_norm,
)
from harness.analysis.attention.frames import AttentionData, Floats
from harness.analysis.attention.groups import GROUP_COLORS
from harness.analysis.attention.labels import escaped, ink, label, width
from harness.analysis.drawing import BLACK, WIDE, WIDTH
from harness.attention.store import CellAttention

LEADING = 1.32
"""Distance of lines in units of the type size."""
MOST_LINES = 78
MOST_COLUMNS = 72
"""Most tokens in one panel."""
MOST_PARTS = 3
"""Most panels of one bar; longer bars are cut there, and the figure says so."""


def token_heatmap(data: AttentionData, trio: Trio, probe: str, kind: str = "decision") -> Figure | None:
    """The text that the row sees, each token shaded by its lift, one column per arm; None without token rows."""
    cells = _cells(data, trio, probe, kind)
    if not cells:
        return None
    unit = SMALL / 72
    sheet_width = WIDE if len(cells) > 1 else WIDTH
    gap = 0.12
    column = (sheet_width - 0.08 - gap * (len(cells) - 1)) / len(cells)
    room = (column - BAND - 0.04) / unit
    rows = [_row(cell, kind) for cell in cells]
    texts = [tk.blocks(cell, row) for cell, row in zip(cells, rows, strict=True)]
    wrapped = tk.fitted(texts, room, MOST_LINES)
    tall = max(map(len, wrapped)) * unit * LEADING
    lifts = np.array(
        [t.lift for lines in wrapped for line in lines for _, _, t in line.items if not t.elided]
    )
    norm = token_norm(lifts)
    sheet = Sheet(sheet_width, tall + 1.18)
    for i, (cell, lines) in enumerate(zip(cells, wrapped, strict=True)):
        left = 0.04 + i * (column + gap)
        axis = sheet.axes(left, 0.44, column, tall)
        _draw_text(axis, lines, norm, column / unit, tall / unit)
        arm = next(arm for arm in trio.arms if arm.name == cell.cell.condition)
        axis.set_title(f"{title(arm)}{_chance(cell)}", pad=4)
    _foot(sheet, tall + 0.56, norm, [line.group for lines in wrapped for line in lines])
    what = label(cells[0].rows[rows[0]].name, 24)
    first = cells[0].cell
    sheet.head(
        f"{ROW_WORDS[kind]} ({PROBE_WORDS.get(probe, probe)}, call is {first.side}), "
        f"mean over layers and heads, one sample" + (f", predicts {what}" if len(cells) == 1 else "")
    )
    return sheet.figure


def _cells(data: AttentionData, trio: Trio, probe: str, kind: str) -> list[CellAttention]:
    def fit(cell: CellAttention) -> bool:
        return cell.token_rows is not None and tk.row_number(cell, kind) is not None

    return tk.shown_cells(data, trio, probe, fit)


def _row(cell: CellAttention, kind: str) -> int:
    found = tk.row_number(cell, kind)
    assert found is not None
    return found


def _chance(cell: CellAttention) -> str:
    """The replayed probability of the asked-for call, where the masking check has it."""
    plain = next((m for m in cell.masking if m.mask == "none"), None)
    return f" · P(call) {plain.p_act_norm:.2f}" if plain else ""


def _draw_text(axis: Any, lines: Sequence[tk.Line], norm: Any, wide: float, tall: float) -> None:
    """Running text in units of the type size, the first line on top, with the region band at its left."""
    axis.set_xlim(0, wide)
    axis.set_ylim(tall, 0)
    axis.set_axis_off()
    start = wide - (wide - (BAND + 0.04) * 72 / SMALL)
    colors = mpl.colormaps[SHARE_COLORS]
    shades: list[Rectangle] = []
    fills: list[Any] = []
    for i, line in enumerate(lines):
        y = i * LEADING
        shades.append(Rectangle((0, y), BAND * 72 / SMALL, LEADING))
        fills.append(GROUP_COLORS[line.group])
        base = y + 0.97
        if line.heading:
            axis.text(
                start,
                base,
                line.heading,
                fontsize=SMALL,
                fontstyle="italic",
                color="#444444",
                va="baseline",
                parse_math=False,
            )
        for x, wide_token, token in line.items:
            known = np.isfinite(token.lift)
            fill = colors(norm(token.lift)) if known else (0.55, 0.55, 0.55, 1.0)
            shades.append(Rectangle((start + x, y + 0.02), wide_token, LEADING - 0.04))
            fills.append(fill)
            _write(axis, start + x, base, token, ink(fill))
    axis.add_collection(PatchCollection(shades, facecolors=fills, linewidths=0, zorder=0, antialiased=False))


def _write(axis: Any, x: float, y: float, token: tk.Token, color: str) -> None:
    text = token.text
    if not text.strip():
        return
    blank = len(text) - len(text.lstrip(" "))
    shift = sum(width(char) for char in text[:blank])
    style = "italic" if token.elided else "normal"
    axis.text(
        x + shift,
        y,
        text[blank:],
        fontsize=SMALL,
        color=color,
        va="baseline",
        parse_math=False,
        fontstyle=style,
    )


def _foot(sheet: Sheet, top: float, norm: Any, groups: Sequence[str]) -> None:
    """The colour bar and the names of the band's colours."""
    wide = min(2.4, sheet.width - 0.5)
    bar = sheet.figure.colorbar(
        ScalarMappable(norm, SHARE_COLORS), cax=sheet.axes(0.12, top, wide, 0.07), orientation="horizontal"
    )
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100) if t <= norm.vmax]
    bar.set_ticks(ticks, labels=["≤ 1", *[str(t) for t in ticks[1:]]], minor=False)
    bar.ax.minorticks_off()
    plain_bar(bar, "lift of a token (1: uniform; grey: sink)")
    used = group_handles(groups)
    beside = sheet.width > WIDTH + 0.1
    corner = (wide + 0.45, top - 0.02) if beside else (0.0, top + 0.36)
    sheet.figure.legend(
        handles=used, loc="upper left", fontsize=SMALL, ncols=5 if beside else 4, handlelength=1.2, handleheight=0.9,
        columnspacing=0.9, handletextpad=0.4, borderpad=0.0,
        bbox_to_anchor=(corner[0] / sheet.width, 1 - corner[1] / sheet.height),
    )  # fmt: skip


def bar_layers(data: AttentionData, trio: Trio, probe: str, kind: str = "decision") -> Figure | None:
    """The bar's tokens × layers, and its placebo's below; None where no arm has a bar with token rows."""
    cells = _cells(data, trio, probe, kind)
    found = [(cell, *tk.bar_tokens(cell, _row(cell, kind))) for cell in cells]
    longest = max((len(tokens) for _, tokens, _ in found), default=0)
    found = [part for cell, tokens, lifts in found for part in _parts(cell, tokens, lifts)]
    if not found:
        return None
    every = np.concatenate([lifts for _, _, lifts in found], axis=1)
    norm = lift_norm(every, tail=0.005)
    names = [[_short(token.text) for token in tokens] for _, tokens, _ in found]
    below = [max(width(name) for name in each) * SMALL / 72 + 0.1 for each in names]
    tall = max(0.8, 0.045 * len(found[0][0].layers))
    sheet = Sheet(WIDE, sum(below) + len(found) * (tall + BAND + 0.3) + 0.7)
    top, begun = 0.44, ""
    for (cell, tokens, lifts), each, room in zip(found, names, below, strict=True):
        wide = (WIDE - 0.42) * len(tokens) / max(len(t) for _, t, _ in found)
        axis = sheet.axes(0.36, top, wide, tall)
        picture(axis, log_lift(lifts), norm, LIFT_COLORS)
        layer_axis(axis, cell.layers)
        axis.set_xticks([])
        arm = next(arm for arm in trio.arms if arm.name == cell.cell.condition)
        axis.set_title(title(arm) + ("" if begun != cell.cell.condition else " (continued)"))
        begun = cell.cell.condition
        _bar_lines(sheet.axes(0.36, top + tall + 0.02, wide, BAND), tokens, each)
        top += tall + BAND + room + 0.3
    lift_bar(sheet, (0.36, top - 0.16, 3.6), (norm, every), "lift of a token (1: uniform)")
    where = f"{ROW_WORDS[kind]} ({PROBE_WORDS.get(probe, probe)}, call is {cells[0].cell.side})"
    most = MOST_PARTS * MOST_COLUMNS
    part = f"first {most} of {longest} " if longest > most else ""
    sheet.head(f"the bar's {part}tokens by layer: {where}, mean over heads, one sample")
    return sheet.figure


def _parts(
    cell: CellAttention, tokens: list[tk.Token], lifts: Floats
) -> list[tuple[CellAttention, list[tk.Token], Floats]]:
    """A bar's tokens in parts of about equal length, none wider than a panel."""
    kept = min(len(tokens), MOST_PARTS * MOST_COLUMNS)
    size = math.ceil(kept / max(1, math.ceil(kept / MOST_COLUMNS)))
    return [
        (cell, tokens[at : min(at + size, kept)], lifts[:, at : min(at + size, kept)])
        for at in range(0, kept, max(size, 1))
    ]


def _short(text: str) -> str:
    return text if len(text) <= 14 else text[:13] + "…"


def _bar_lines(axis: Any, tokens: Sequence[tk.Token], names: Sequence[str]) -> None:
    """The bar's lines as stripes of two shades, and the tokens' names below."""
    order = list(dict.fromkeys(token.line for token in tokens))
    for i, token in enumerate(tokens):
        shade = GROUP_COLORS["bar"] if order.index(token.line) % 2 == 0 else "#7A5200"
        axis.axvspan(i - 0.5, i + 0.5, color=shade, linewidth=0)
    axis.set_xlim(-0.5, len(tokens) - 0.5)
    axis.set_yticks([])
    axis.tick_params(axis="x", length=0, pad=1.5)
    axis.set_xticks(
        range(len(tokens)), labels=[escaped(n) for n in names], rotation=90, fontsize=SMALL, color=BLACK
    )
    for spine in axis.spines.values():
        spine.set_visible(False)
