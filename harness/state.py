"""messages → AgentState: the distillation layer.

Knows what any agent framework could compute from its own transcript and nothing else: no rule, no
scenario truth, no model. Pure and deterministic; `advance` adds one message in constant time, and
`derive` is its fold, so the incremental and the batch computation cannot drift apart.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from harness.types import Message


def argument_hash(name: str, arguments: Mapping[str, Any]) -> str:
    """Identity of a call: SHA-256 over canonical JSON (keys sorted at every depth, array order and
    the spelling of numbers kept). Lone surrogates, which JSON can carry, are taken as they are."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(f"{name}\0{canonical}".encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class CallCount:
    """Calls of one tool: in all, and by the value of each string argument."""

    total: int = 0
    by_argument: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """argument name → value → calls, values in order of first appearance."""

    def by_key(self, key: str) -> Mapping[str, int]:
        """Calls per value of the argument `key`; empty when no call had it."""
        return self.by_argument.get(key, {})


@dataclass(frozen=True, slots=True)
class AgentState:
    """What code can say about a transcript. Mappings keep the order of first appearance."""

    calls: Mapping[str, CallCount] = field(default_factory=dict)
    identical: Mapping[str, int] = field(default_factory=dict)
    """argument hash → calls with exactly that tool and those arguments."""
    user_turns: int = 0

    def count(self, tool: str, key: str, value: str) -> int:
        """Calls of `tool` whose argument `key` is exactly `value`."""
        counted = self.calls.get(tool)
        return counted.by_key(key).get(value, 0) if counted else 0


class StateBuilder:
    """Folds messages into an AgentState; amortised constant time per message."""

    def __init__(self) -> None:
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


def derive(messages: Iterable[Message]) -> AgentState:
    """The state of a whole transcript."""
    builder = StateBuilder()
    for message in messages:
        builder.advance(message)
    return builder.state()
