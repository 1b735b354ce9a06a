"""Accuracy against what it costs: the points of models × conditions, which of them nothing beats, and the figure.

Knows the data of the table of models and how to draw it. A point is dominated when another is at least as accurate and
at least as cheap, and better in one of the two; that is said of the estimates, whatever their intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.analysis.decisions import Row
from harness.analysis.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    VERMILION,
    WIDTH,
    n_text,
    records,
    wrapped,
)
from harness.analysis.table import Shown, Table, frame

COLUMNS: dict[str, int | None] = {
    "x_measure": None, "x_unit": None, "cache_state": None, "y_measure": None, "model": None, "condition": None,
    "x": 4, "x_low": 4, "x_high": 4, "x_clusters": 0, "y": 4, "y_low": 4, "y_high": 4, "y_clusters": 0,
    "on_front": None,
}  # fmt: skip
ACCURACIES = ("balanced_accuracy", "auc_within")
_Y_LABELS = {
    "balanced_accuracy": "balanced accuracy, free replies", "auc_within": "AUC within episodes, forced choices",
}  # fmt: skip
_X_LABELS = {
    "cost": "cost", "total": "seconds for a whole reply", "thinking": "thinking tokens a reply",
    "prompt": "prompt tokens",
}  # fmt: skip
MODEL_STYLES = (
    (BLUE, "full"), (VERMILION, "none"), (GREEN, "left"), (ORANGE, "bottom"), (PINK, "right"), (SKY, "top"),
    (GREY, "full"),
)  # fmt: skip
"""Colour and filling of a model's markers; the marker's shape is the condition's."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_TOKENS = ("thinking", "prompt")
_DASHES = (0, (4, 2))
_LOG_FROM = 20.0
"""Ratio of the largest x to the smallest from which the axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What a panel's x axis is: the measure and, for seconds, the cache state."""

    measure: str
    cache_state: str = ""


def pareto_table(models: Table, notes: Sequence[str] = ()) -> Table:
    """The points of every panel, with `on_front`; the notes name what had to be left out, after those given."""
    data = models.data
    accuracy = _accuracy(data)
    axes, said = _axes(data, accuracy)
    rows = [row for axis in axes for row in _front(_points(data, accuracy, axis), axis.measure in _TOKENS)]
    said += [text for axis in axes if (text := _without(data, accuracy, axis))]
    return Table(
        name="pareto",
        title="Accuracy against cost",
        how_to_read=(
            "One point per model and condition. `on the front`: no other point is at least as accurate and at least as "
            "cheap and better in one of the two; by the estimates alone, so look at the intervals. Exploratory."
        ),
        columns=COLUMNS,
        shown=(
            Shown("x", ("x_measure",)), Shown("cache", ("cache_state",), rare=True), Shown("model", ("model",)),
            Shown("condition", ("condition",)), Shown("x value", ("x", "x_low", "x_high")), Shown("unit", ("x_unit",)),
            Shown("accuracy", ("y_measure",)), Shown("accuracy value", ("y", "y_low", "y_high")),
            Shown("episodes", ("y_clusters",)), Shown("on the front", ("on_front",)),
        ),
        data=frame(COLUMNS, rows),
        absent="no model has an accuracy and something that it costs at the same condition.",
        notes=(*notes, *said),
    )  # fmt: skip


def _accuracy(data: pd.DataFrame) -> str:
    """The accuracy that most models have, of free replies before forced choices."""
    counts = {name: data[data["measure"] == name]["model"].nunique() for name in ACCURACIES}
    return max(ACCURACIES, key=lambda name: (counts[name], -ACCURACIES.index(name)))


def _axes(data: pd.DataFrame, accuracy: str) -> tuple[list[Axis], list[str]]:
    """The panels that can be drawn, and in words those that cannot. Tokens stand in for a model that is in none."""
    axes, said = [], []
    costs = data[data["measure"] == "cost"]
    if costs["unit"].nunique() > 1:
        said.append("Left out, accuracy against cost: the prices are in different currencies.")
    elif len(costs):
        axes.append(Axis("cost"))
    else:
        said.append("Left out, accuracy against cost: it is known of no model.")
    times = data[data["measure"] == "total"]
    if len(times):
        # One state for all, since a cold and a warm prompt are not the same question.
        counts = times.groupby("cache_state")["model"].nunique()
        axes.append(
            Axis("total", max(counts.index, key=lambda state: (counts[state], state == "cold", state)))
        )
    else:
        said.append("Left out, accuracy against seconds: no latency run among these.")
    shown = {point["model"] for axis in axes for point in _points(data, accuracy, axis)}
    if shown < set(data[data["measure"] == accuracy]["model"]):
        thinking = data[(data["measure"] == "thinking") & (data["estimate"] > 0)]
        axes.append(Axis("thinking" if len(thinking) else "prompt"))
        said.append(
            "Tokens stand in where neither money nor seconds are known of a model. A token of one model does not cost what "
            "one of another does, so there each model is compared with itself alone."
        )
    return axes, said


def _points(data: pd.DataFrame, accuracy: str, axis: Axis) -> list[Row]:
    """The models × conditions that have both values. The x is of free replies where those were measured."""
    xs = data[(data["measure"] == axis.measure) & (data["cache_state"] == axis.cache_state)]
    xs = xs.sort_values("probe", key=lambda probe: probe != "act", kind="stable")
    xs = xs.drop_duplicates(["model", "condition"])
    ys = data[data["measure"] == accuracy]
    both = ys.merge(xs, on=["model", "condition"], suffixes=("", "_x"), how="inner")
    return [
        {
            "x_measure": axis.measure, "x_unit": row["unit_x"], "cache_state": axis.cache_state,
            "y_measure": accuracy, "model": row["model"], "condition": row["condition"], "x": row["estimate_x"],
            "x_low": row["low_x"], "x_high": row["high_x"], "x_clusters": row["clusters_x"], "y": row["estimate"],
            "y_low": row["low"], "y_high": row["high"], "y_clusters": row["clusters"],
        }
        for row in records(both)
    ]  # fmt: skip


def _front(points: Sequence[Row], by_model: bool) -> list[Row]:
    """Marks the points that nothing beats, among all or among those of the same model."""
    found: list[Row] = []
    for point in points:
        rivals = [other for other in points if not by_model or other["model"] == point["model"]]
        found.append(point | {"on_front": "no" if any(_beats(rival, point) for rival in rivals) else "yes"})
    return found


def _beats(other: Row, mine: Row) -> bool:
    (x, y), (own_x, own_y) = ((float(str(p["x"])), float(str(p["y"]))) for p in (other, mine))
    return (x, y) != (own_x, own_y) and x <= own_x and y >= own_y


def _without(data: pd.DataFrame, accuracy: str, axis: Axis) -> str:
    there = {str(point["model"]) for point in _points(data, accuracy, axis)}
    gone = [name for name in dict.fromkeys(data["model"]) if name not in there]
    what = _label(axis, "")
    return f"Not in the panel against {what}, for want of either value: {', '.join(gone)}." if gone else ""


def _label(axis: Axis, unit: str) -> str:
    state = f", {axis.cache_state} cache" if axis.cache_state else ""
    return _X_LABELS[axis.measure] + (f", {unit}" if axis.measure == "cost" and unit else "") + state


def pareto_figure(points: Table) -> Figure | None:
    """One panel per x, below each other, one column wide; None where there is no point."""
    data = points.data
    if not len(data):
        return None
    models, conditions = (list(dict.fromkeys(data[key])) for key in ("model", "condition"))
    panels = list(data.groupby(["x_measure", "cache_state"], sort=False))
    legend = 0.16 * (len(models) + (len(conditions) + 2) // 2)
    figure = Figure(figsize=(WIDTH, 2.3 * len(panels) + legend + 0.25), layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axis, ((measure, state), rows) in zip(grid, panels, strict=True):
        _draw(axis, rows, models, conditions)
        axis.set_xlabel(
            f"{_label(Axis(str(measure), str(state)), str(rows['x_unit'].iloc[0]))} (95 % interval)"
        )
    _legend(figure, models, conditions)
    return figure


def literal(name: str) -> str:
    """A name as matplotlib is to draw it: a dollar sign in it begins no formula."""
    return name.replace("$", r"\$")


def _draw(axis: Any, rows: pd.DataFrame, models: list[Any], conditions: list[Any]) -> None:
    by_model = str(rows["x_measure"].iloc[0]) in _TOKENS
    front = rows[rows["on_front"] == "yes"].sort_values(["x", "y"])
    for name, mine in front.groupby(rows["model"] if by_model else rows["x_measure"]):
        color = MODEL_STYLES[models.index(name) % len(MODEL_STYLES)][0] if by_model else "#444444"
        x, y = [*mine["x"], rows["x"].max()], [*mine["y"], mine["y"].max()]
        axis.plot(
            x,
            y,
            color=color,
            linewidth=0.9,
            linestyle=_DASHES,
            drawstyle="steps-post",
            zorder=1,
        )
    for row in records(rows):
        color, fill = MODEL_STYLES[models.index(row["model"]) % len(MODEL_STYLES)]
        marker = MARKERS[conditions.index(row["condition"]) % len(MARKERS)]
        axis.errorbar(
            [row["x"]], [row["y"]], xerr=_ends(row, "x"), yerr=_ends(row, "y"), color=color, marker=marker,
            fillstyle=fill, markersize=5, elinewidth=0.6, capsize=1.5, capthick=0.6, linestyle="none", zorder=2,
        )  # fmt: skip
    if float(rows["x"].max()) > _LOG_FROM * float(rows["x"].min()) > 0:
        axis.set_xscale("log")
    else:
        axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.set_title(f"{n_text(rows['y_clusters'], 'episodes')}; x: {n_text(rows['x_clusters'], 'episodes')}")
    axis.set_ylim(-0.03, 1.03)
    axis.set_ylabel(_Y_LABELS[str(rows["y_measure"].iloc[0])])
    axis.axhline(0.5, color="#BBBBBB", linewidth=0.6, zorder=0)
    axis.grid(color="#EEEEEE", linewidth=0.5)
    axis.set_axisbelow(True)


def _ends(row: dict[str, Any], key: str) -> list[list[float]] | None:
    value, low, high = (float(row[name]) for name in (key, f"{key}_low", f"{key}_high"))
    if math.isnan(low) or math.isnan(high):
        return None
    return [[max(value - low, 0.0)], [max(high - value, 0.0)]]


def _legend(figure: Figure, models: list[Any], conditions: list[Any]) -> None:
    handles = [
        Line2D(
            [], [], linestyle="none", marker="o", color=color, fillstyle=fill, markersize=5, label=str(name)
        )
        for name, (color, fill) in zip(models, _styles(len(models)), strict=True)
    ]
    shapes = []
    for i, name in enumerate(conditions):
        style: dict[str, Any] = {"marker": MARKERS[i % len(MARKERS)], "color": GREY, "markersize": 5}
        shapes.append(Line2D([], [], linestyle="none", label=literal(wrapped(name)), **style))
    front = Line2D(
        [], [], color="#444444", linestyle=_DASHES, linewidth=0.9, label="nothing beats these estimates"
    )
    figure.legend(handles=handles, loc="outside upper left", ncols=1, handletextpad=0.3)
    figure.legend(
        handles=[*shapes, front], loc="outside lower left", ncols=2, handletextpad=0.3, columnspacing=1.0
    )


def _styles(count: int) -> list[tuple[str, str]]:
    return [MODEL_STYLES[i % len(MODEL_STYLES)] for i in range(count)]
