"""Figures of a run as PNG (300 dpi) and SVG, one column (89 mm) or both (183 mm) wide, with deterministic bytes.

Knows the tables' data frames and how to draw them; computes no statistic. What all figures share is in
`drawing`, the figures over length are in `length_figures`.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.analysis.bars_figure import bars, places
from harness.analysis.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RC,
    SKY,
    VERMILION,
    WIDTH,
    YELLOW,
    Tables,
    arm_style,
    n_text,
    panels,
    point,
    records,
    rows_axis,
    save,
    wrapped,
)
from harness.analysis.frames import Arm
from harness.analysis.length_figures import FIGURES, length
from harness.analysis.verdict_forest import verdict_forest

SIDE_STYLES = {
    "due": (BLUE, "o", True, "call is due"),
    "forbidden": (VERMILION, "s", False, "call is forbidden"),
}
OUTCOME_STYLES: dict[str, tuple[str, str]] = {
    "compliant": (GREEN, ""), "correct_action": (BLUE, ""), "clarification": (YELLOW, ""),
    "other_action": (SKY, "...."), "over_refusal": (ORANGE, ""), "violation": (VERMILION, ""),
    "claimed_action": (PINK, "////"), "malformed_call": (BLACK, ""), "unknown_tool": (GREY, "xxxx"),
    "truncated": ("#BBBBBB", ""),
}  # fmt: skip
"""Drawing order, colour and hatch. `provider_error` is no answer and is written beside n instead."""
ROW = 0.19
"""Height of one row of a dot plot, in inches."""


class Draw(Protocol):
    """Draws one figure from the tables at a width in inches; None where they have no data for it."""

    def __call__(self, tables: Tables, arms: Sequence[Arm], width: float = WIDTH, /) -> Figure | None: ...


def build_figures(tables: Tables, arms: Sequence[Arm], folder: Path) -> list[Path]:
    """Draw every figure that the tables have data for; returns the files written, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    with mpl.rc_context(RC):
        for name, draw in drawings():
            figure = draw(tables, arms)
            if figure is not None:
                paths += save(figure, folder / name)
    return paths


def drawings() -> tuple[tuple[str, Draw], ...]:
    """The figures of a run by name, in reading order. Draw them inside `mpl.rc_context(RC)`."""
    return (
        ("both_sides", both_sides), ("sensitivity", sensitivity), ("bars", bars), ("places", places),
        ("verdicts", verdict_forest),
        ("prior_calls", prior_calls), ("tokens", tokens),
        *((f"length_{series}", partial(length, series)) for series in FIGURES),
    )  # fmt: skip


def both_sides(tables: Tables, arms: Sequence[Arm], width: float = WIDTH) -> Figure | None:
    """P(call) on both sides of the rule per arm, and how free answers ended."""
    chosen, ended = tables["choose"].data, tables["outcomes"].data
    heights = ([len(chosen) * ROW + 0.75] if len(chosen) else []) + (
        [len(ended.groupby(["condition", "side"])) * ROW + 1.2] if len(ended) else []
    )
    if not heights:
        return None
    figure, axes = panels(heights, width)
    if len(chosen):
        _draw_sides(axes[0], chosen)
    if len(ended):
        _draw_outcomes(axes[-1], ended)
    return figure


def _above(figure: Any) -> str:
    """Where the first panel's legend stands: over that panel also where a second one is beside it."""
    return "outside upper right" if figure.get_figwidth() <= WIDTH else "outside upper left"


def _draw_sides(axis: Any, chosen: pd.DataFrame) -> None:
    for side, (color, marker, filled, label) in SIDE_STYLES.items():
        for y, row in enumerate(records(chosen)):
            keys = (f"p_{side}", f"p_{side}_low", f"p_{side}_high")
            shift = -0.15 if side == "due" else 0.15
            style = {"color": color, "marker": marker, "markerfacecolor": color if filled else "white"}
            point(axis, row, keys, y + shift, style)
        axis.plot([], [], linestyle="none", color=color, marker=marker, label=label,
                  markerfacecolor=color if filled else "white")  # fmt: skip
    rows_axis(axis, [wrapped(name) for name in chosen["condition"]])
    axis.set_xlim(-0.02, 1.02)
    axis.set_xlabel("probability of the asked-for call (95 % interval)")
    axis.set_title(f"forced choice, {n_text(chosen['clusters'], 'clusters')}")
    axis.figure.legend(*axis.get_legend_handles_labels(), loc=_above(axis.figure), ncols=2, handletextpad=0.2)


def _draw_outcomes(axis: Any, ended: pd.DataFrame) -> None:
    """Shares of the answered cells; the class that keeps the rule comes first and carries its interval."""
    groups = list(dict.fromkeys(zip(ended["condition"], ended["side"], strict=True)))
    cells = {(r["condition"], r["side"], r["outcome"]): r for r in records(ended)}
    left = [0.0] * len(groups)
    for outcome in OUTCOME_STYLES:
        rates = [cells[c, s, outcome]["rate"] for c, s in groups]
        shares = [0.0 if pd.isna(rate) else float(rate) for rate in rates]
        if not any(shares):
            continue
        color, hatch = OUTCOME_STYLES[outcome]
        style = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
        axis.barh(range(len(groups)), shares, left=left, height=0.72, label=wrapped(outcome), **style)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    for y, (c, s) in enumerate(groups):
        first = cells[c, s, "compliant" if s == "forbidden" else "correct_action"]
        for color, width in (("white", 2.4), (BLACK, 0.9)):  # white under black: legible on every colour
            style = {"color": color, "marker": "", "elinewidth": width, "capthick": width}
            point(axis, first, ("rate", "low", "high"), y, style)
        lost = cells[c, s, "provider_error"]["count"]
        axis.text(1.01, y, f"n={first['n']}" + (f" (+{lost})" if lost else ""), va="center", ha="left")
    rows_axis(axis, [f"{wrapped(c)}, {s}" for c, s in groups])
    axis.grid(visible=False)
    axis.set_xlim(0, 1.0)
    axis.set_xlabel("share of replies\n(95 % interval: compliant, correct action)")
    axis.set_title("free answers, n replies" + (" (+ failed)" if _failed(ended) else ""))
    legend = axis.get_legend_handles_labels()
    axis.figure.legend(*legend, loc="outside lower center", ncols=3, handlelength=1.4, columnspacing=1.0)


def _failed(ended: pd.DataFrame) -> bool:
    return bool((ended[ended["outcome"] == "provider_error"]["count"] > 0).any())


def sensitivity(tables: Tables, arms: Sequence[Arm], width: float = WIDTH) -> Figure | None:
    """Sensitivity and bias per arm, and the differences between arms as a forest plot."""
    chosen = tables["choose"].data
    if not len(chosen):
        return None
    found = tables["comparisons"].data
    found = found[
        found["measure"].isin(["sensitivity", "bias"])
        & found["kind"].isin(["bar - placebo", "bar - control"])
    ]
    heights = [len(chosen) * ROW + 0.8] + ([len(found) * 0.29 + 0.75] if len(found) else [])
    figure, axes = panels(heights, width)
    marks = (("sensitivity", BLUE, "o", BLUE), ("bias", GREY, "s", "white"))
    for shift, (name, color, marker, face) in zip((-0.15, 0.15), marks, strict=True):
        style = {"color": color, "marker": marker, "markerfacecolor": face}
        for y, row in enumerate(records(chosen)):
            point(axes[0], row, (name, f"{name}_low", f"{name}_high"), y + shift, style)
        axes[0].plot([], [], linestyle="none", label=name, **style)
    rows_axis(axes[0], [wrapped(name) for name in chosen["condition"]])
    axes[0].axvline(0, color=BLACK, linewidth=0.7)
    axes[0].set_xlabel("log odds (95 % interval)")
    axes[0].set_title(f"per condition, {n_text(chosen['clusters'], 'clusters')}")
    figure.legend(*axes[0].get_legend_handles_labels(), loc=_above(figure), ncols=2, handletextpad=0.2)
    if len(found):
        _draw_forest(axes[1], found)
    return figure


def _draw_forest(axis: Any, found: pd.DataFrame) -> None:
    for y, row in enumerate(records(found)):
        sharp = row["measure"] == "sensitivity"
        confirmatory = row["label"] == "confirmatory"
        color = BLUE if sharp else GREY
        style = {"color": color, "marker": "D" if confirmatory else "o" if sharp else "s",
                 "markerfacecolor": color if confirmatory else "white"}  # fmt: skip
        point(axis, row, ("estimate", "low", "high"), y, style)
    rows_axis(axis, [f"{wrapped(r['condition'])}\n− {wrapped(r['against'])}" for r in records(found)])
    split = int((found["measure"] == "sensitivity").sum())
    axis.axhline(split - 0.5, color=GREY, linewidth=0.5)
    axis.plot([], [], linestyle="none", marker="o", color=BLUE, markerfacecolor="white", label="exploratory")
    axis.axvline(0, color=BLACK, linewidth=0.7)
    axis.set_xlabel("difference in log odds (95 % interval)")
    axis.set_title(f"differences, {n_text(found['clusters'], 'clusters')}")
    axis.plot([], [], "D", color=BLUE, label="confirmatory")
    axis.legend(loc="upper right", bbox_to_anchor=(1.02, -0.02 - 0.55 / (len(found) * 0.3)), borderpad=0)


def prior_calls(tables: Tables, arms: Sequence[Arm], width: float = WIDTH) -> Figure | None:
    """Probability of the call against prior calls; one panel per placement, the limit marked."""
    data = tables["prior_calls"].data
    if not len(data):
        return None
    data = data[data["probe"] == ("choose" if (data["probe"] == "choose").any() else "act")]
    placements = [p for p in dict.fromkeys(arm.placement for arm in arms) if p != "none" and
                  (data["placement"] == p).any()] or ["none"]  # fmt: skip
    figure, axes = panels([1.9] * len(placements), width)
    for axis, placement in zip(axes, placements, strict=True):
        here = data[data["placement"].isin([placement, "none"])]
        for name in dict.fromkeys(here["condition"]):
            _draw_curve(axis, here[here["condition"] == name], name, arm_style(arms, name))
        _mark_limit(axis, here)
        axis.set_ylim(-0.02, 1.16)
        axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axis.set_ylabel("P(call), 95 % interval")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        where = "" if placement == "none" else f"placement: {wrapped(placement)}, "
        axis.set_title(f"{where}{n_text(here['clusters'], 'clusters')} a point")
    axes[-1].set_xlabel("prior calls to the target")
    entries: dict[str, Any] = {}
    for axis in axes:
        entries |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=2, handlelength=2.6
    )
    return figure


def _draw_curve(axis: Any, rows: pd.DataFrame, name: str, style: tuple[str, str, str]) -> None:
    color, marker, line = style
    rows = rows.sort_values("x")
    x, y = rows["x"].astype(float), rows["p_call"].astype(float)
    axis.plot(x, y, color=color, marker=marker, linestyle=line, label=wrapped(name))
    axis.fill_between(
        x, rows["low"].astype(float), rows["high"].astype(float), color=color, alpha=0.13, linewidth=0
    )


def _mark_limit(axis: Any, rows: pd.DataFrame) -> None:
    limit, last = float(rows["limit"].min()), float(rows["x"].max())
    axis.axvline(limit, color=BLACK, linewidth=0.8, linestyle=(0, (2, 2)))
    axis.text(limit, 1.14, f" limit {limit:.0f}", ha="left", va="top")
    if last > limit:
        axis.axvspan(limit + 0.5, last + 0.3, color="#EEEEEE", zorder=0, linewidth=0)
        axis.text(last + 0.25, 1.14, "rule already broken", ha="right", va="top", color=GREY)


def tokens(tables: Tables, arms: Sequence[Arm], width: float = WIDTH) -> Figure | None:
    """Prompt tokens with the bar's part, and output tokens with the thinking part, per arm."""
    data = tables["tokens"].data
    data = data[data["series"] == "matched"] if (data["series"] == "matched").any() else data
    if not len(data):
        return None
    data = data[data["prompt"].notna()].drop_duplicates(["probe", "condition"])
    if not len(data):
        return None
    prompts = data[
        data["probe"] == ("choose" if (data["probe"] == "choose").any() else data["probe"].iloc[0])
    ]
    replies = data[(data["probe"] == "act") & data["output"].notna()]
    heights = [len(prompts) * ROW + 0.75] + ([len(replies) * ROW + 0.75] if len(replies) else [])
    figure, axes = panels(heights, width)
    bars = prompts["bar_tokens"].astype(float).fillna(0.0)
    _stack(axes[0], prompts, "prompt", bars, (SKY, ORANGE), ("without the bar", "bar"))
    axes[0].set_xlabel("prompt tokens a cell (95 % interval)")
    axes[0].set_title(f"prompt, {n_text(prompts['clusters'], 'clusters')}")
    if len(replies):
        thought = replies["thinking"].astype(float).fillna(0.0)
        _stack(axes[1], replies, "output", thought, (SKY, PINK), ("answer", "thinking"))
        axes[1].set_xlabel("output tokens a reply (95 % interval)")
        axes[1].set_title(f"free answers, {n_text(replies['clusters'], 'clusters')}")
    for axis, place in zip(axes, (_above(figure), "outside lower right"), strict=False):
        figure.legend(*axis.get_legend_handles_labels(), loc=place, ncols=2, handlelength=1.2)
    return figure


def _stack(
    axis: Any,
    rows: pd.DataFrame,
    key: str,
    part: "pd.Series[float]",
    colors: tuple[str, str],
    names: tuple[str, str],
) -> None:
    """Horizontal bars of `key` with `part` hatched at their end, the value written beside them."""
    total = rows[key].astype(float)
    y = list(range(len(rows)))
    axis.barh(y, total - part, height=0.62, color=colors[0], label=names[0])
    if part.any():
        axis.barh(
            y,
            part,
            left=total - part,
            height=0.62,
            color=colors[1],
            hatch="////",
            edgecolor="white",
            label=names[1],
        )
    rows_axis(axis, [wrapped(name) for name in rows["condition"]])
    reach = rows[f"{key}_high"].astype(float).fillna(total)
    for at, row in zip(y, records(rows), strict=True):
        point(axis, row, (key, f"{key}_low", f"{key}_high"), at, {"color": BLACK, "marker": ""})
    for at, end, value, share in zip(y, reach, total, part, strict=True):
        note = f"{value:.0f}" + (f" ({share:.0f})" if share else "")
        axis.text(end + 0.02 * float(reach.max()), at, note, va="center")
    axis.set_xlim(0, float(reach.max()) * 1.3 or 1.0)
    axis.xaxis.set_major_locator(MaxNLocator(4))
