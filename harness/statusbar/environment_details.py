"""`<environment_details>`: open and active files, time, context used, mode, todos; whole, or what has changed of it.

Knows the state, and for the difference the copies of itself that stand in the transcript. Every line of content begins
with `- `, `| ` or `~ `, every section with `# `, so that no content can pass for a section.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import LIST_ITEM, BarContext, Frame, StatusText
from harness.statusbar.context_table import ROW, row
from harness.statusbar.escape import flatten
from harness.statusbar.surroundings import (
    Granularity,
    Line,
    check_choice,
    check_positive,
    drawn,
    item,
    known,
    moment,
)

TAG = "environment_details"
SECTION = "# "
GONE: Frame = ("~ off the list: ", "")
LISTS = ("Open Files", "Active Files")
"""Sections with several items; of the others each has one, and the table its rows."""
TODO_HEAD = (row("id", "task", "status"), row("---", "---", "---"))
Section = tuple[str, tuple[Line, ...]]


@dataclass(frozen=True, slots=True)
class EnvironmentDetails:
    """`files`: how many of the open files (read so far, newest first) and of the active paths are named. `time`: how
    fine. `window`: tokens of the context window, 0 for no line. `mode`: '' for no line. `todos`: at most so many rows
    of the table, the item in progress among them. `cost`: say it where the framework states it (`known["cost"]`)."""

    name: ClassVar[str] = "environment_details"
    files: int = 8
    time: Granularity = "minute"
    window: int = 128_000
    mode: str = "act"
    todos: int = 20
    cost: bool = False

    def __post_init__(self) -> None:
        check_choice("time", self.time, Granularity)
        check_positive("files", self.files)
        check_positive("todos", self.todos)

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """Every section that has something to say; None before the first message."""
        return drawn(TAG, _lines(self.sections(state, context)))

    def sections(self, state: AgentState, context: BarContext) -> tuple[Section, ...]:
        """Title and lines of every section, in order; those without a line too."""
        if state.latest is None:
            return ()
        reads = sorted(state.reads, key=lambda read: -read.message)[: self.files]
        active = sorted(state.working_set, key=lambda path: (-path.touches, path.path))[: self.files]
        now = moment(state.time or state.date, self.time)
        cost = known(state, "cost") if self.cost else None
        return (
            ("Open Files", tuple(item(flatten(read.path, 160)) for read in reads)),
            ("Active Files", tuple(item(f"{flatten(p.path, 160)} ({p.kind})") for p in active)),
            ("Current Time", (item(now),) if now else ()),
            ("Context Window", (self._used(state, context),) if self.window else ()),
            ("Current Cost", (item(flatten(str(cost))),) if cost is not None else ()),
            ("Current Mode", (item(flatten(self.mode)),) if self.mode else ()),
            ("Todos", tuple(self._todos(state))),
        )

    def _used(self, state: AgentState, context: BarContext) -> Line:
        used = state.tokens(context.count_tokens)
        return item(f"{used} of {self.window} tokens used ({100 * used // self.window}%)")

    def _todos(self, state: AgentState) -> Iterator[Line]:
        """Rows of the first items; the one in progress takes the last row where it stands further down."""
        todos = state.todos.items
        kept = todos[: self.todos]
        active = state.todos.in_progress_id
        if active is not None and all(todo.id != active for todo in kept):
            kept = (*kept[:-1], next(todo for todo in todos if todo.id == active))
        if not kept:
            return
        yield from ((line, None) for line in TODO_HEAD)
        for todo in kept:
            yield row(str(todo.id), flatten(todo.content, 160), todo.status), ROW
        if len(todos) > len(kept):
            yield item(f"{len(todos) - len(kept)} more not listed")


@dataclass(frozen=True, slots=True)
class EnvironmentDifference(EnvironmentDetails):
    """The same, of which only the lines are said that no copy in the transcript says; the first time the whole.

    A line that has left its list is named as such. What the copies say together is what counts, not the last one alone:
    a line that was said once and still holds is not said again. Under a policy that takes the copy before out of the
    transcript, what only that copy said is said again.
    """

    name: ClassVar[str] = "environment_difference"
    looks_back: ClassVar[bool] = True

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None when nothing has changed."""
        copies = context.earlier
        sections = self.sections(state, context)
        if not copies:
            return drawn(TAG, _lines(sections))
        said = _said(copies)
        changed = [(title, tuple(_changed(lines, said.get(title, {}), title))) for title, lines in sections]
        lines = tuple(_lines(changed))
        return drawn(TAG, (("Changed:", None), *lines)) if lines else None


def _lines(sections: Iterable[Section]) -> Iterator[Line]:
    for title, lines in sections:
        if lines:
            yield f"{SECTION}{title}", None
            yield from lines


def _changed(lines: tuple[Line, ...], said: Mapping[str, str], title: str) -> Iterator[Line]:
    """The lines that the copies do not say, and the names of those that they say and that are no more."""
    now = {_label(title, text) for text, _ in lines}
    for text, frame in lines:
        # The head of a table is said with its first row.
        if (not said) if frame is None else (said.get(_label(title, text)) != text):
            yield text, frame
    for label in said:
        if label and label not in now:
            yield f"{GONE[0]}{label}", GONE


def _label(title: str, line: str) -> str:
    """What a line is about: the id of a row, the path of an item; '' where a section has one such line only."""
    if line.startswith(ROW[0]):
        return line.removeprefix(ROW[0]).split(" | ", 1)[0]
    return line.removeprefix(LIST_ITEM[0]) if title in LISTS else ""


Said = dict[str, dict[str, str]]
_REMEMBERED: deque[tuple[tuple[str, ...], Said]] = deque(maxlen=8)
"""What the copies of the last transcripts say, newest first; few, for each holds all the copies of a transcript."""


def _said(copies: tuple[str, ...]) -> Said:
    """Section → label → line, as copies of the bar say them together, the newest word for each. A transcript gains one
    copy at a time, so what the copies before the last say together is remembered."""
    near = (each for each in _REMEMBERED if len(copies) - len(each[0]) in (0, 1))
    before, said = next((each for each in near if copies[: len(each[0])] == each[0]), ((), {}))
    if len(before) == len(copies):
        return said
    said = _told(said, copies[len(before) :])
    _REMEMBERED.appendleft((copies, said))
    return said


def _told(before: Said, copies: Iterable[str]) -> Said:
    """What `copies` say after what was said `before`."""
    said = {title: dict(lines) for title, lines in before.items()}
    title = ""
    for line in (line for copy in copies for line in copy.split("\n")):
        section = said.setdefault(title, {})
        if line.startswith(SECTION):
            title = line.removeprefix(SECTION)
        elif line.startswith(GONE[0]):
            section.pop(line.removeprefix(GONE[0]), None)
        elif line.startswith((ROW[0], LIST_ITEM[0])) and line not in TODO_HEAD:
            section[_label(title, line)] = line
    return said
