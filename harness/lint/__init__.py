"""Triage of a bar: does it say only what a decision can hang on, in a form that keeps, and in nobody else's words?

Draws the bar over made-up and recorded trajectories and over changed copies of them, and holds the texts side by side.
Needs no model and no tokenizer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from harness.lint import cases as made
from harness.lint import checks
from harness.lint.cases import Case, of_sample
from harness.lint.drawing import BarError, Drawn, drawings
from harness.lint.finding import CODES, Code, Finding
from harness.statusbar.base import StatusBar

__all__ = ["CODES", "Case", "Code", "Finding", "lint", "of_sample"]


def lint(bar: StatusBar, recorded: Sequence[Case] = (), *, elsewhere: bool = True) -> tuple[Finding, ...]:
    """Every flaw of `bar`, errors first, each kind once with its first example and how often else it was found.

    `recorded`: trajectories beside the made-up ones. `elsewhere`: also draw it in two other processes, which takes most of
    the time.
    """
    examples = made.examples()
    made_up = _collected(lambda: (d for case in examples for d in drawings(bar, case)))
    real = _collected(lambda: (d for case in recorded for d in drawings(bar, case)))
    drawn = [d for d in (*made_up, *real) if isinstance(d, Drawn)]
    steps: tuple[Callable[[], Iterable[Finding | Drawn]], ...] = (
        lambda: (f for f in (*made_up, *real) if isinstance(f, Finding)),
        lambda: checks.empty(bar),
        lambda: checks.clock(bar, [*examples, *recorded]),
        lambda: checks.turn_counter(bar),
        lambda: checks.recorded([d for d in real if isinstance(d, Drawn)]),
        lambda: checks.respelling(drawn),
        lambda: checks.machine(bar, [*examples, *made.arrivals(), made.many(12)], elsewhere),
        lambda: checks.order(bar),
        lambda: checks.hostile(bar, examples),
        lambda: (f for d in drawn for f in (*checks.secrets(d), *checks.control(d))),
        lambda: checks.outside(drawn),
        lambda: checks.frames(bar, drawn),
        lambda: checks.growth(bar),
    )
    return _merged(f for step in steps for f in _collected(step) if isinstance(f, Finding))


def _collected(step: Callable[[], Iterable[Finding | Drawn]]) -> list[Finding | Drawn]:
    """What a step yields; a bar whose code fails there is a finding more."""
    kept: list[Finding | Drawn] = []
    try:
        kept.extend(step())
    except BarError as error:
        kept.append(Finding(CODES["raises"], error.where, detail=str(error)))
    return kept


def _merged(findings: Iterator[Finding]) -> tuple[Finding, ...]:
    first: dict[str, Finding] = {}
    for finding in findings:
        name = finding.code.name
        known = first.get(name)
        first[name] = replace(known, more=known.more + 1) if known else finding
    return tuple(
        sorted(first.values(), key=lambda f: (f.severity != "error", list(CODES).index(f.code.name)))
    )
