"""What an AgentState consists of: frozen data with the arithmetic that belongs to it.

Knows no message and no bar. Every mapping keeps the order of first appearance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from harness.types import Role, ToolCall

TodoStatus = Literal["pending", "in_progress", "completed"]
ATTEMPTS = 16
"""Calls of one tool that a result looks back at."""


@dataclass(frozen=True, slots=True)
class CallCount:
    """Calls of one tool: in all, and by the value of each string argument."""

    total: int = 0
    by_argument: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """argument name → value → calls."""

    def by_key(self, key: str) -> Mapping[str, int]:
        """Calls per value of the argument `key`; empty when no call had it."""
        return self.by_argument.get(key, {})


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One item; ids count from 1."""

    id: int
    content: str
    status: TodoStatus = "pending"


@dataclass(frozen=True, slots=True)
class TodoList:
    """The todo list. At most one item is in progress: setting one demotes the others to pending."""

    items: tuple[TodoItem, ...] = ()

    @property
    def percent(self) -> int:
        """floor((100·done + floor(n/2)) / n); 0 for an empty list. 199 of 200 give 100."""
        total = len(self.items)
        done = sum(item.status == "completed" for item in self.items)
        return (100 * done + total // 2) // total if total else 0

    @property
    def in_progress_id(self) -> int | None:
        return next((item.id for item in self.items if item.status == "in_progress"), None)

    @classmethod
    def written(cls, items: Sequence[tuple[str, TodoStatus]]) -> "TodoList":
        """A list written as a whole, numbered from 1. Of several in progress the last one stays so."""
        todos = cls()
        for content, status in items:
            todos = todos.add(content, status)
        return todos

    def add(self, content: str, status: TodoStatus = "pending") -> "TodoList":
        """One item more, numbered after the highest id."""
        new = TodoItem(max((item.id for item in self.items), default=0) + 1, content, status)
        before = self._demoted() if status == "in_progress" else self.items
        return TodoList((*before, new))

    def update(self, id: int, status: TodoStatus) -> "TodoList":
        """The item `id` with another status; the list itself when there is no such item."""
        if all(item.id != id for item in self.items):
            return self
        before = self._demoted() if status == "in_progress" else self.items
        return TodoList(tuple(replace(i, status=status) if i.id == id else i for i in before))

    def _demoted(self) -> tuple[TodoItem, ...]:
        return tuple(replace(i, status="pending") if i.status == "in_progress" else i for i in self.items)


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of a plan."""

    text: str
    status: TodoStatus = "pending"


@dataclass(frozen=True, slots=True)
class Plan:
    """Strategy beside the list: what for, within what, how, and how it will be checked. '' is not stated."""

    objective: str = ""
    context: str = ""
    constraint: str = ""
    approach: str = ""
    verification: str = ""
    phases: tuple[Phase, ...] = ()

    @property
    def empty(self) -> bool:
        return self == Plan()


@dataclass(frozen=True, slots=True)
class ActivePath:
    """A path that messages and calls have touched."""

    path: str
    kind: Literal["file", "folder"]
    touches: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One complaint of a compiler or language server. Line and column count from 1."""

    file: str
    severity: str
    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class FileRead:
    """What a file-reading call brought back."""

    path: str
    text: str
    message: int
    """Number of the message that holds the result, from 0."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """One item that a memory gave back for this turn."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A sub-agent that has finished since the last request."""

    agent: str
    status: str
    summary: str


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of the context: one message, or what stands for it."""

    id: int
    kind: str
    """Role, or for a result the tool's name."""
    characters: int
    """Of its content, and of the calls that it makes: name and arguments in JSON, as `AgentState.tokens` counts them."""
    age: int
    """Requests since it came in."""
    uses: int
    """Later calls that name a value which first came in with it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one call stood when its result came in. The counts include it."""

    failed: bool
    identical: int
    """Calls with the same tool and the same canonical arguments since the last user message."""
    same_result: int
    """Of these, how many brought this very text back."""
    identical_ever: int
    """The same two over the whole transcript."""
    same_result_ever: int


@dataclass(frozen=True, slots=True)
class Latest:
    """What the newest message brought; for a result the call that it answers and how that call stands."""

    role: Role
    text: str
    number: int
    """Messages before it."""
    time: str | None = None
    known: Mapping[str, Any] = field(default_factory=dict)
    call: ToolCall | None = None
    failed: bool = False
    """Whether the call failed, by the rule of harness/state/results.py."""
    error: str = ""
    """The kind of error, where the framework or the text states one."""
    calls: int = 0
    """Calls of this tool so far, this one included."""
    identical: int = 0
    """Calls with the same tool and the same canonical arguments since the last user message, this one included."""
    same_result: int = 0
    """Of these, how many brought this very text back, this one included."""
    identical_ever: int = 0
    """Like `identical`, over the whole transcript."""
    same_result_ever: int = 0
    """Like `same_result`, over the whole transcript."""
    streak: int = 0
    """Failures of this tool in a row up to now, whatever other tools did."""
    attempts: tuple[Attempt, ...] = ()
    """The newest calls of this tool that were answered, oldest first, at most ATTEMPTS, this one last."""
