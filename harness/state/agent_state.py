"""`AgentState`: everything that code can say about a transcript, as one frozen value.

Mappings keep the order of first appearance. A state that a StateBuilder made holds views: it costs the same however
long the transcript is, and never changes. One made by hand may hold plain dicts and tuples instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.state.facts import (
    ActivePath,
    Block,
    CallCount,
    Completion,
    Diagnostic,
    FileRead,
    Latest,
    Plan,
    Recalled,
    TodoList,
)
from harness.state.transcript import Texts
from harness.types import ToolSpec


@dataclass(frozen=True, slots=True)
class AgentState:
    """What code can say about a transcript."""

    calls: Mapping[str, CallCount] = field(default_factory=dict)
    identical: Mapping[str, int] = field(default_factory=dict)
    """argument hash → calls with exactly that tool and those arguments, over the whole transcript."""
    user_turns: int = 0
    requests: int = 0
    """Assistant messages so far: requests that were answered."""
    latest: Latest | None = None
    """What the newest message brought; None before the first."""
    arrived: Sequence[Latest] = ()
    """The same for every message since the last assistant message, oldest first: what is new in this request."""
    failing: Mapping[str, int] = field(default_factory=dict)
    """tool → failures in a row up to now; tools whose last call succeeded are left out."""
    todos: TodoList = field(default_factory=TodoList)
    todos_age: int = 0
    """Requests since the todo list was last written."""
    plan: Plan = field(default_factory=Plan)
    date: str | None = None
    """Day of the newest message that states a time (`2026-03-02`), as written there."""
    time: str | None = None
    """Time of the newest message that states one, ISO 8601."""
    working_set: tuple[ActivePath, ...] = ()
    """At most 16 paths by touches, most first, then by path."""
    reads: tuple[FileRead, ...] = ()
    """At most 12, newest first, one per path."""
    edited: Sequence[str] = ()
    """Paths that were written to since the last request, in order."""
    diagnostics: Mapping[str, tuple[Diagnostic, ...]] = field(default_factory=dict)
    """file → what is wrong there after the newest edit of it; files without complaints are left out."""
    recalled: tuple[Recalled, ...] = ()
    """What a memory gave back for the newest user message, best first."""
    recalled_seconds: float | None = None
    """How long the memory took for `recalled`; None where the record does not say."""
    completions: Sequence[Completion] = ()
    """Sub-agents that finished since the last request."""
    blocks: Sequence[Block] = ()
    """The context message by message, oldest first."""
    tool_calls: int = 0
    """Calls of all tools together."""
    tools: tuple[ToolSpec, ...] = ()
    """The capability list: what the agent is offered, as told to the builder."""
    workspace: str = ""
    """Folder of the work, as the newest message that knows one says; '' when none does."""
    cwd: str = ""
    """Working directory, likewise."""
    texts: Sequence[str] = field(default=(), compare=False, repr=False)
    """What of the transcript costs tokens: contents, and calls in JSON. Reasoning is left out."""

    def tokens(self, count: Callable[[str], int]) -> int:
        """Tokens of the transcript's contents and calls by `count`, without what a chat template adds. A builder's
        states count each text once for each of the last few counting functions."""
        return self.texts.tokens(count) if isinstance(self.texts, Texts) else sum(map(count, self.texts))

    def count(self, tool: str, key: str, value: str) -> int:
        """Calls of `tool` whose argument `key` is exactly `value`."""
        counted = self.calls.get(tool)
        return counted.by_key(key).get(value, 0) if counted else 0
