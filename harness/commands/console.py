"""What the verbs say on the terminal: notes on stderr, results on stdout, progress with an ETA."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from harness.runner import Progress as CellProgress
from harness.weights import Progress as ByteProgress

LINE_EVERY = 30.0
"""Seconds between two progress lines where the output is no terminal."""

PIPED_WIDTH = 160
"""Columns where the output is no terminal: room for the headline table, whose cells rich would cut at 80."""

out = Console(
    highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else PIPED_WIDTH
)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    err.print(text, markup=False)


@contextmanager
def cells(what: str = "cells") -> Iterator[CellProgress]:
    """Progress over cells, or what else is counted."""
    if not err.is_terminal:
        yield _lines(what)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=err) as bar:
        task = bar.add_task(what, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update


@contextmanager
def weights() -> Iterator[ByteProgress]:
    """Progress over the steps that bring weights here, in bytes or files."""
    if not err.is_terminal:
        told: dict[str, CellProgress] = {}

        def line(what: str, done: int, total: int) -> None:
            told.setdefault(what, _lines(what))(done, total)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bar:
        tasks: dict[str, int] = {}

        def update(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total or None)
            bar.update(tasks[what], completed=done, total=total or None)  # type: ignore[arg-type]

        yield update


def _lines(what: str) -> CellProgress:
    """A plain line now and then, with the time that is left."""
    begun: list[float] = []
    first: list[int] = []
    last = [-LINE_EVERY]

    def update(done: int, total: int) -> None:
        now = monotonic()
        if not begun:
            begun.append(now)
            first.append(done)
        if now - last[0] < LINE_EVERY and done != total:
            return
        last[0] = now
        fresh, spent = done - first[0], now - begun[0]
        left = (
            f", about {(total - done) * spent / fresh / 60:.1f} min left"
            if fresh > 0 and total > done
            else ""
        )
        note(f"{what}: {done}/{total}{left}")

    return update
