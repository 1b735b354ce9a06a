"""Where the attention of the generated tokens goes, along the thinking and the reply.

Knows the path rows of the summaries; averages them within cells into steps, then over sides and clusters like
everything else, with a t interval over clusters at each step.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from harness.analysis import statistics as st
from harness.analysis.attention.arrangement import PROBE_WORDS, SMALL, Sheet, Trio, n_clusters, title
from harness.analysis.attention.frames import AttentionData, CellSummary, Floats
from harness.analysis.attention.groups import GROUP_COLORS
from harness.analysis.attention.labels import group_label
from harness.analysis.drawing import BLACK, GREY, ORANGE, PINK, WIDTH
from harness.analysis.frames import Arm
from harness.attention.store import GROUPS

SHOWN = ("bar", "target_calls", "other_calls", "follow_up", "system", "tools", "thinking", "answer")
STEPS = {"thinking": 24, "answer": 12}
"""Steps that each stretch of tokens is cut into; positions are relative, since lengths differ."""
STYLES = {"control": (BLACK, "-"), "bar": (ORANGE, "-"), "placebo": (PINK, "--")}


@dataclass(frozen=True, slots=True)
class Course:
    """Shares along the steps, over clusters: `mean`, `low`, `high` (steps, GROUPS), and the clusters behind it."""

    mean: Floats
    low: Floats
    high: Floats
    clusters: int
    tokens: float
    """Median number of path rows of a cell."""


def along(data: AttentionData, trio: Trio, probe: str) -> Figure | None:
    """A panel per region: its share along the generated tokens, one line per arm; None without path rows."""
    kinds = [
        kind
        for kind in STEPS
        if any(_rows_of(cell, kind) for arm in trio.arms for cell in data.select(arm.name, probe))
    ]
    found = [(arm, course) for arm in trio.arms if (course := course_of(data, arm, probe, kinds)) is not None]
    if not kinds or not found:
        return None
    groups = [g for g in SHOWN if any(np.nanmax(c.mean[:, GROUPS.index(g)], initial=0) > 0 for _, c in found)]
    lines = -(-len(groups) // 2)
    tall, wide, left = 0.82, 1.26, 0.36
    sheet = Sheet(WIDTH, 0.5 + lines * (tall + 0.28) + 0.14)
    edges = np.concatenate([[0], np.cumsum([STEPS[kind] for kind in kinds])])
    for i, group in enumerate(groups):
        axis = sheet.axes(left + (i % 2) * (wide + 0.42), 0.5 + (i // 2) * (tall + 0.28), wide, tall)
        for arm, course in found:
            _draw(axis, trio, arm, course, group)
        for edge in edges[1:-1]:
            axis.axvline(edge, color=GREY, linewidth=0.5, linestyle=":")
        axis.set_xlim(0, edges[-1])
        axis.set_ylim(bottom=0)
        axis.locator_params(axis="y", nbins=4)
        axis.tick_params(labelsize=SMALL, width=0.5, length=2)
        axis.set_title(group_label(group) if group != "bar" else "bar or placebo", pad=5, color=BLACK)
        axis.plot(
            [0.0, 0.1],
            [1.02, 1.02],
            transform=axis.transAxes,
            color=GROUP_COLORS[group],
            linewidth=2.2,
            clip_on=False,
            solid_capstyle="butt",
        )
        _steps_axis(axis, kinds, edges, i >= len(groups) - 2)
    sheet.write(
        0.1,
        0.5 + lines * (tall + 0.28) / 2,
        "share outside the sinks, %",
        rotation=90,
        va="center",
        ha="center",
        fontsize=7,
    )
    _legend(sheet, trio, found)
    where = {"thinking": "the thinking", "answer": "the reply"}
    counts = n_clusters([course.clusters for _, course in found])
    sheet.head(
        f"along {' and '.join(where[kind] for kind in kinds)} ({PROBE_WORDS.get(probe, probe)}), {counts}"
    )
    return sheet.figure


def course_of(data: AttentionData, arm: Arm, probe: str, kinds: list[str]) -> Course | None:
    """The course of an arm; cells within a side, sides within a cluster and then clusters are averaged."""
    sides: dict[str, dict[str, list[Floats]]] = {}
    lengths = []
    for cell in data.select(arm.name, probe):
        if not any(_rows_of(cell, kind) for kind in kinds):
            continue
        lengths.append(sum(len(_rows_of(cell, kind)) for kind in kinds))
        steps = np.concatenate([_stepped(cell, kind) for kind in kinds])
        sides.setdefault(cell.cell.cluster, {}).setdefault(cell.cell.side, []).append(steps)
    if not sides:
        return None
    values = np.stack([
        _known_mean(np.stack([_known_mean(np.stack(cells)) for cells in found.values()])) for found in sides.values()
    ])  # fmt: skip
    shape = values.shape[1:]
    parts = [st.t_interval(values[(slice(None), *index)]) for index in np.ndindex(shape)]
    mean, low, high = (
        np.array([np.nan if x is None else x for x in column], dtype=np.float64).reshape(shape)
        for column in ([p.value for p in parts], [p.low for p in parts], [p.high for p in parts])
    )
    return Course(mean, low, high, len(sides), float(np.median(lengths)))


def _rows_of(cell: CellSummary, kind: str) -> list[int]:
    return [i for i, row in enumerate(cell.path) if row.kind == kind]


def _stepped(cell: CellSummary, kind: str) -> Floats:
    """(steps, GROUPS) shares of a stretch, mean over layers, by relative position; nan where the cell has no such
    stretch. Where a step has no row of its own, the rows beside it are interpolated."""
    rows, steps = _rows_of(cell, kind), STEPS[kind]
    if not rows:
        return np.full((steps, len(GROUPS)), np.nan)
    shares = _known_mean(np.asarray(cell.path_share[:, rows], dtype=np.float64))
    positions = np.array([cell.path[i].position for i in rows], dtype=np.float64)
    relative = (positions - positions[0] + 0.5) / (positions[-1] - positions[0] + 1)
    place = np.minimum((relative * steps).astype(np.intp), steps - 1)
    if len(set(place)) < steps:
        middles = (np.arange(steps) + 0.5) / steps
        return np.stack([np.interp(middles, relative, shares[:, i]) for i in range(len(GROUPS))], axis=1)
    return np.stack([_known_mean(shares[place == step]) for step in range(steps)])


def _known_mean(values: Floats) -> Floats:
    """Mean over the first axis of what is known; nan where nothing is."""
    known = np.isfinite(values)
    count = known.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(count > 0, np.where(known, values, 0).sum(0) / count, np.nan))


def _draw(axis: Any, trio: Trio, arm: Arm, course: Course, group: str) -> None:
    index = GROUPS.index(group)
    if group == "bar" and arm.role == "control":
        return
    color, line = STYLES["bar" if arm is trio.bar else arm.role]
    x = np.arange(len(course.mean)) + 0.5
    axis.fill_between(
        x,
        100 * np.maximum(course.low[:, index], 0),
        100 * course.high[:, index],
        color=color,
        alpha=0.18,
        linewidth=0,
    )
    axis.plot(x, 100 * course.mean[:, index], color=color, linestyle=line, linewidth=1.0)


def _steps_axis(axis: Any, kinds: list[str], edges: Any, lowest: bool) -> None:
    words = {"thinking": "thinking", "answer": "reply"}
    ticks = [(edges[i] + edges[i + 1]) / 2 for i in range(len(kinds))]
    if len(kinds) == 1:
        last = float(edges[-1])
        axis.set_xticks([0, last / 2, last], labels=["0 %", "50 %", "100 %"] if lowest else [])
        if lowest:
            axis.set_xlabel(f"place in the {words[kinds[0]]}", fontsize=SMALL)
        return
    axis.set_xticks(ticks, labels=[words[kind] for kind in kinds] if lowest else [])
    axis.tick_params(axis="x", length=0)


def _legend(sheet: Sheet, trio: Trio, found: list[tuple[Arm, Course]]) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for arm, course in found:
        color, line = STYLES["bar" if arm is trio.bar else arm.role]
        handles.append(
            Line2D([], [], color=color, linestyle=line, label=f"{title(arm)} ({course.tokens:.0f} rows)")
        )
    sheet.figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.0, 1 - 0.17 / sheet.height), ncols=len(found),
                        fontsize=SMALL, borderpad=0.1, handlelength=1.6, handletextpad=0.4, columnspacing=0.9)  # fmt: skip
