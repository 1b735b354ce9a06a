"""messages → AgentState: the distillation layer.

Knows what any agent framework could compute from its own transcript and nothing else: no rule, no
scenario truth, no model. Pure and deterministic; `advance` adds one message in constant time, and
`derive` is its fold, so the incremental and the batch computation cannot drift apart.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

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
from harness.types import Message, ToolSpec


def argument_hash(name: str, arguments: Mapping[str, Any]) -> str:
    """Identity of a call: SHA-256 over canonical JSON (keys sorted at every depth, array order and
    the spelling of numbers kept). Lone surrogates, which JSON can carry, are taken as they are."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(f"{name}\0{canonical}".encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class AgentState:
    """What code can say about a transcript. Mappings keep the order of first appearance."""

    calls: Mapping[str, CallCount] = field(default_factory=dict)
    identical: Mapping[str, int] = field(default_factory=dict)
    """argument hash → calls with exactly that tool and those arguments."""
    user_turns: int = 0
    requests: int = 0
    """Assistant messages so far: requests that were answered."""
    latest: Latest | None = None
    """What the newest message brought; None before the first."""
    arrived: tuple[Latest, ...] = ()
    """The same for every message since the last assistant message, oldest first: what is new in this request."""
    failing: Mapping[str, int] = field(default_factory=dict)
    """tool → failures in a row up to now; tools whose last call succeeded are left out."""
    todos: TodoList = field(default_factory=TodoList)
    todos_age: int = 0
    """Requests since the todo list was last written."""
    plan: Plan = field(default_factory=Plan)
    date: str | None = None
    """Day of the newest message that states a time (`2026-03-02`)."""
    time: str | None = None
    """Time of the newest message that states one, ISO 8601."""
    working_set: tuple[ActivePath, ...] = ()
    """At most 16 paths by touches, most first, then by path."""
    reads: tuple[FileRead, ...] = ()
    """At most 12, newest first, one per path."""
    edited: tuple[str, ...] = ()
    """Paths that were written to since the last request, in order."""
    diagnostics: Mapping[str, tuple[Diagnostic, ...]] = field(default_factory=dict)
    """file → what is wrong there after the newest edit of it; files without complaints are left out."""
    recalled: tuple[Recalled, ...] = ()
    """What a memory gave back for the newest user message, best first."""
    completions: tuple[Completion, ...] = ()
    """Sub-agents that finished since the last request."""
    blocks: tuple[Block, ...] = ()
    """The context message by message, oldest first."""
    tool_calls: int = 0
    """Calls of all tools together."""
    tools: tuple[ToolSpec, ...] = ()
    """The capability list: what the agent is offered, as told to the builder."""

    def tokens(self, count: Callable[[str], int]) -> int:
        """Tokens of the transcript's contents by `count`, without what a chat template adds."""
        raise NotImplementedError

    def count(self, tool: str, key: str, value: str) -> int:
        """Calls of `tool` whose argument `key` is exactly `value`."""
        counted = self.calls.get(tool)
        return counted.by_key(key).get(value, 0) if counted else 0


class StateBuilder:
    """Folds messages into an AgentState; amortised constant time per message."""

    def __init__(self, tools: tuple[ToolSpec, ...] = ()) -> None:
        self._tools = tools
        self._total: dict[str, int] = {}
        self._by_argument: dict[str, dict[str, dict[str, int]]] = {}
        self._identical: dict[str, int] = {}
        self._user_turns = 0

    def advance(self, message: Message) -> None:
        """Add one message. A call counts when the assistant makes it, whatever came back."""
        if message.role == "user":
            self._user_turns += 1
        if message.role != "assistant":
            return
        for call in message.tool_calls:
            self._total[call.name] = self._total.get(call.name, 0) + 1
            arguments = self._by_argument.setdefault(call.name, {})
            for name, value in call.arguments.items():
                if isinstance(value, str):
                    values = arguments.setdefault(name, {})
                    values[value] = values.get(value, 0) + 1
            identity = argument_hash(call.name, call.arguments)
            self._identical[identity] = self._identical.get(identity, 0) + 1

    def state(self) -> AgentState:
        """The state so far, as a copy that later messages do not touch."""
        calls = {
            tool: CallCount(
                total=total,
                by_argument={name: dict(values) for name, values in self._by_argument[tool].items()},
            )
            for tool, total in self._total.items()
        }
        return AgentState(calls=calls, identical=dict(self._identical), user_turns=self._user_turns)


def derive(messages: Iterable[Message], tools: tuple[ToolSpec, ...] = ()) -> AgentState:
    """The state of a whole transcript of an agent that is offered `tools`."""
    builder = StateBuilder(tools)
    for message in messages:
        builder.advance(message)
    return builder.state()
