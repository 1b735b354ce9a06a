"""The figure of a ledger: what each condition has cost up to each request, and what the bar added to it.

Knows curves as plain numbers; knows no transcript, bar or policy.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from harness.analysis.drawing import ARM_STYLES, RC, WIDE, save, wrapped

_HEIGHT = 3.0
_LINE = 120
"""Characters of the heading in a line."""
_MARKS = 8
"""Markers along a line, so that lines on top of each other can be told apart."""
Style = tuple[str, str, str]
_SECOND: Style = ("#AAAAAA", "", ":")


@dataclass(frozen=True, slots=True)
class Curve:
    """Weighed prompt tokens up to each request, and how many of them are more than the control's; None: it is one."""

    name: str
    total: Sequence[float]
    extra: Sequence[float] | None


def draw(
    curves: Sequence[Curve], stem: Path, *, weight: float, block: int, title: str, note: str = ""
) -> list[Path]:
    """PNG and SVG beside `stem`; equal curves give equal bytes. `note`: below the title, such as the crossover."""
    from matplotlib import rc_context

    with rc_context(RC):
        figure = Figure(figsize=(WIDE, _HEIGHT), layout="constrained")
        left, right = figure.subplots(1, 2)
        unit = f"tokens: uncached + {weight:g} × cached, blocks of {block}"
        styles = _styles(curves)
        _lines(left, [(curve.name, curve.total, style) for curve, style in zip(curves, styles, strict=True)])
        extra = [
            (c.name, c.extra, style) for c, style in zip(curves, styles, strict=True) if c.extra is not None
        ]
        _lines(right, extra)
        right.axhline(0, color="#BBBBBB", linewidth=0.6, zorder=0)
        left.set_title("Prompts up to each request")
        right.set_title("Beyond the control without the bar")
        left.set_ylabel(unit)
        for axis in (left, right):
            axis.set_xlabel("request")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", handlelength=2.6)
        lines = [wrapped(title), *textwrap.wrap(wrapped(note), _LINE)]
        figure.suptitle("\n".join(lines), fontsize=7.5, x=0.01, ha="left")
        return save(figure, stem)


def _styles(curves: Sequence[Curve]) -> list[Style]:
    """Every condition its own; a control beside the first one is a thin grey line."""
    own = iter(ARM_STYLES * (len(curves) // len(ARM_STYLES) + 1))
    return [_SECOND if number and curve.extra is None else next(own) for number, curve in enumerate(curves)]


def _lines(axis: Any, curves: Sequence[tuple[str, Sequence[float], Style]]) -> None:
    for place, (name, values, (colour, marker, line)) in enumerate(curves):
        step = max(len(values) // _MARKS, 1)
        axis.plot(
            range(1, len(values) + 1), values, label=wrapped(name), color=colour, linestyle=line, marker=marker,
            markersize=3, markevery=(place * step // _MARKS, step),
        )  # fmt: skip
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_formatter(EngFormatter(sep=""))
    axis.grid(color="#E5E5E5", linewidth=0.4)
    axis.set_axisbelow(True)
