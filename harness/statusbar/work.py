"""Todos and plan → lines: the one formatter of work state.

Parent turn, fork, relay, compaction, cycle seed and recitation all show the work through `work_lines`, so that they
cannot drift apart. Knows no wrapper and no moment; what differs between the forms is a `WorkStyle`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from harness.errors import ConfigError
from harness.state import Plan, TodoItem, TodoList, TodoStatus
from harness.statusbar.base import LIST_ITEM, Frame, StatusText
from harness.statusbar.escape import flatten

Spelling = Literal["box", "tick", "snake", "camel", "words", "mixed"]
Percent = Literal["off", "rule", "floor"]
Line = tuple[str, Frame | None]
"""A line and the frame in which the placebo's line stands."""
BLANK: Line = ("", None)
STATUSES: tuple[TodoStatus, ...] = ("pending", "in_progress", "completed")
SPELLINGS: dict[str, tuple[str, str, str]] = {
    "box": ("[ ]", "[~]", "[x]"),
    "tick": ("[ ]", "[~]", "[✓]"),
    "snake": ("pending", "in_progress", "completed"),
    "camel": ("Pending", "InProgress", "Completed"),
    "words": ("Pending", "In progress", "Completed"),
}
"""How pending, in progress and completed are written."""
MIXTURE = ("snake", "camel", "box", "words")
PRIORITY: tuple[TodoStatus, ...] = ("in_progress", "pending", "completed")
"""Who stays when not all fit."""
STRATEGY = "Strategy metadata"
FIELDS = (
    ("Objective", "objective"),
    ("Context", "context"),
    ("Constraint", "constraint"),
    ("Recommended approach", "approach"),
    ("Verification plan", "verification"),
)
"""Label of each field of a plan, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class WorkStyle:
    """Form, extent and bounds. The defaults are the form with boxes and strategy, in the order of the list."""

    spelling: Spelling = "box"
    """`mixed`: the spellings take turns from item to item."""
    ids: bool = False
    title: str = "Checklist"
    """The checklist's own heading; '' for none, then no percent either."""
    percent: Percent = "rule"
    """`rule`: rounded as the list's own rule has it, so that 199 of 200 read 100 %. `floor`: 100 % means all."""
    wording: str = "complete"
    """What the percent says of the items."""
    strategy: bool = True
    unfinished: bool = False
    """Completed items are left out, without a word about them."""
    active_first: bool = False
    advice: str = ""
    """A last line that says what to do; '' for none."""
    max_lines: int | None = 24
    max_chars: int | None = 2000
    max_item: int = 160

    def __post_init__(self) -> None:
        if self.spelling != "mixed" and self.spelling not in SPELLINGS:
            raise ConfigError(f"spelling={self.spelling!r}: expected one of {', '.join(SPELLINGS)}, mixed")
        if self.percent not in ("off", "rule", "floor"):
            raise ConfigError(f"percent={self.percent!r}: expected off, rule or floor")
        if self.max_item < 2 or any(
            bound is not None and bound < 1 for bound in (self.max_lines, self.max_chars)
        ):
            raise ConfigError(
                "bounds of a work state: max_lines and max_chars from 1 or null, max_item from 2"
            )


DEFAULT = WorkStyle()


@lru_cache(maxsize=1024)
def work_lines(todos: TodoList, plan: Plan, style: WorkStyle = DEFAULT) -> tuple[Line, ...]:
    """The lines of the work state; none when there is neither an item nor, where it is asked for, a plan.

    Lines and characters stay within the style's bounds. What does not fit is left out from the end of this order and
    counted in one line: the item in progress, pending items, strategy, completed items. The item in progress stands
    in any case, however narrow the bounds.
    """
    items = tuple(item for item in todos.items if not (style.unfinished and item.status == "completed"))
    fields = tuple(_fields(plan)) if style.strategy else ()
    if not items and not fields:
        return ()
    page = _Page(todos, style)
    if style.max_lines is None or len(items) + len(fields) <= style.max_lines:
        whole = page.lines(items, fields, 0, 0)
        if page.fits(whole):
            return whole
    ranked: list[TodoItem | _Field] = [*_ranked(items, ("in_progress", "pending"))]
    ranked += [*fields, *_ranked(items, ("completed",))]
    kept = 1 if todos.in_progress_id is not None else 0
    best = page.cut(items, fields, ranked[:kept])
    while kept < len(ranked):
        longer = page.cut(items, fields, ranked[: kept + 1])
        if not page.fits(longer):
            break
        best, kept = longer, kept + 1
    return best


def framed(lines: Iterable[Line], *, tag: str = "", heading: str = "", attributes: str = "") -> StatusText:
    """A bar of these lines."""
    texts, frames = zip(*lines, strict=True)
    return StatusText(tag, texts, heading=heading, attributes=attributes, frames=frames)


def marked(item: TodoItem, style: WorkStyle) -> str:
    """One item without its bullet: `[~] #2 text`, or with a spelt status `#2 InProgress: text`."""
    spelling = MIXTURE[item.id % len(MIXTURE)] if style.spelling == "mixed" else style.spelling
    status = SPELLINGS[spelling][STATUSES.index(item.status)]
    number = f"#{item.id} " if style.ids else ""
    content = flatten(item.content, style.max_item) or "–"
    return f"{status} {number}{content}" if status.startswith("[") else f"{number}{status}: {content}"


def percent(todos: TodoList, by: Percent = "rule") -> int:
    """Share of completed items in whole percent; 0 for an empty list."""
    if by == "rule" or not todos.items:
        return todos.percent
    return 100 * sum(item.status == "completed" for item in todos.items) // len(todos.items)


def foremost(items: Iterable[TodoItem], most: int) -> tuple[TodoItem, ...]:
    """At most `most` items, in the order of the list: the one in progress, then pending, then completed ones."""
    everything = tuple(items)
    kept = {item.id for item in _ranked(everything, PRIORITY)[:most]}
    return tuple(item for item in everything if item.id in kept)


@dataclass(frozen=True, slots=True)
class _Field:
    """One line of the strategy."""

    label: str
    text: str
    status: TodoStatus | None = None


def _fields(plan: Plan) -> Iterator[_Field]:
    for label, name in FIELDS:
        text: str = getattr(plan, name)
        if text.strip():
            yield _Field(label, text)
    for phase in plan.phases:
        yield _Field("", phase.text, phase.status)


def _ranked(items: Iterable[TodoItem], statuses: tuple[TodoStatus, ...]) -> list[TodoItem]:
    return sorted((i for i in items if i.status in statuses), key=lambda item: statuses.index(item.status))


@dataclass(frozen=True, slots=True)
class _Page:
    """How chosen items and fields are laid out under one style."""

    todos: TodoList
    style: WorkStyle

    def cut(
        self, items: tuple[TodoItem, ...], fields: tuple[_Field, ...], chosen: list[TodoItem | _Field]
    ) -> tuple[Line, ...]:
        """The page with the chosen ones and a line that counts the others."""
        ids = {entry.id for entry in chosen if isinstance(entry, TodoItem)}
        kept = tuple(item for item in items if item.id in ids)
        told = tuple(entry for entry in chosen if isinstance(entry, _Field))
        return self.lines(kept, told, len(items) - len(kept), len(fields) - len(told))

    def lines(
        self, items: tuple[TodoItem, ...], fields: tuple[_Field, ...], items_out: int, fields_out: int
    ) -> tuple[Line, ...]:
        lines: list[Line] = []
        if self.todos.items:
            lines += self._header()
            lines += [(f"- {marked(item, self.style)}", LIST_ITEM) for item in self._ordered(items)]
        if fields:
            lines += [BLANK, (STRATEGY, None)] if lines else [(STRATEGY, None)]
            lines += [self._strategy(entry) for entry in fields]
        out = [_counted(items_out, "item"), _counted(fields_out, "line") + " of strategy"]
        omitted = " and ".join(text for text, n in zip(out, (items_out, fields_out), strict=True) if n)
        if omitted:
            lines.append((f"- … {omitted} not shown", LIST_ITEM))
        if self.style.advice:
            lines.append((self.style.advice, None))
        return tuple(lines)

    def fits(self, lines: tuple[Line, ...]) -> bool:
        most, chars = self.style.max_lines, self.style.max_chars
        if most is not None and len(lines) > most:
            return False
        return chars is None or sum(len(text) for text, _ in lines) + len(lines) - 1 <= chars

    def _header(self) -> list[Line]:
        style = self.style
        if not style.title:
            return []
        if style.percent == "off":
            return [(style.title, None)]
        share = f"{percent(self.todos, style.percent)}% {style.wording}"
        return [(f"{style.title} ({share})", (f"{style.title} (", ")"))]

    def _ordered(self, items: tuple[TodoItem, ...]) -> Iterable[TodoItem]:
        if not self.style.active_first:
            return items
        return sorted(items, key=lambda item: item.status != "in_progress")

    def _strategy(self, entry: _Field) -> Line:
        if entry.status is None:
            label = f"- {entry.label}: "
            return label + (flatten(entry.text, self.style.max_item) or "–"), (label, "")
        return f"- {marked(TodoItem(0, entry.text, entry.status), _phases(self.style))}", LIST_ITEM


@lru_cache(maxsize=64)
def _phases(style: WorkStyle) -> WorkStyle:
    """Phases have no numbers."""
    return WorkStyle(spelling="box" if style.spelling == "mixed" else style.spelling, max_item=style.max_item)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
