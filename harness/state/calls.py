"""Calls and their results: how often, how often the same, answered by what, failed how many times in a row.

Knows no tool by name. A call counts when the assistant makes it; a failure when its result comes in.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from harness.state.facts import ATTEMPTS, Attempt, CallCount, Latest
from harness.state.results import failure
from harness.state.views import History, Lookup, View
from harness.types import Message, ToolCall


def argument_hash(name: str, arguments: Mapping[str, Any]) -> str:
    """Identity of a call: SHA-256 over canonical JSON (keys sorted at every depth, array order and
    the spelling of numbers kept). Lone surrogates, which JSON can carry, are taken as they are."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(f"{name}\0{canonical}".encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Made:
    """A call that waits for its result, and how it stood when it was made."""

    call: ToolCall
    identity: str
    calls: int
    identical: int
    identical_ever: int


class Calls:
    """The fold over calls and results. `version` is the number of messages, the current one included."""

    def __init__(self) -> None:
        self.total: History[int] = History()
        self.identical: History[int] = History()
        self.failing: History[int] = History()
        self.made = 0
        self._by_argument: dict[str, dict[str, History[int]]] = {}
        self._names: dict[str, History[int]] = {}
        """For each tool its arguments with string values in order of first appearance; the values are no matter."""
        self._turn: dict[str, int] = {}
        self._results: dict[tuple[str, str], int] = {}
        self._results_of_turn: dict[tuple[str, str], int] = {}
        self._attempts: dict[str, tuple[Attempt, ...]] = {}
        self._waiting: dict[int, Made] = {}
        self._by_id: dict[str, deque[int]] = {}
        self._by_name: dict[str, deque[int]] = {}

    def user_turn(self) -> None:
        """A user message: what counts per turn begins again."""
        self._turn, self._results_of_turn = {}, {}

    def make(self, message: Message, version: int) -> None:
        """The calls of an assistant message. Calls before them that were not answered no longer wait."""
        if not message.tool_calls:
            return
        self._waiting, self._by_id, self._by_name = {}, {}, {}
        for number, call in enumerate(message.tool_calls):
            self._waiting[number] = self._counted(call, version)
            self._by_id.setdefault(call.id, deque()).append(number)
            self._by_name.setdefault(call.name, deque()).append(number)

    def _counted(self, call: ToolCall, version: int) -> Made:
        self.made += 1
        calls = (self.total.now(call.name) or 0) + 1
        self.total.put(call.name, calls, version)
        arguments = self._by_argument.setdefault(call.name, {})
        names = self._names.setdefault(call.name, History())
        for name, value in call.arguments.items():
            if isinstance(value, str):
                counts = arguments.setdefault(name, History())
                counts.put(value, (counts.now(value) or 0) + 1, version)
                if names.now(name) is None:
                    names.put(name, 1, version)
        identity = argument_hash(call.name, call.arguments)
        ever = (self.identical.now(identity) or 0) + 1
        self.identical.put(identity, ever, version)
        turn = self._turn[identity] = self._turn.get(identity, 0) + 1
        return Made(call, identity, calls, turn, ever)

    def answered(self, message: Message) -> Made | None:
        """The call that a result answers: by its id; where result or calls have no ids, the oldest of that tool, or
        the oldest of all where no tool is named. Each is answered once."""
        id = message.tool_call_id
        if id and (id in self._by_id or "" not in self._by_id):
            number = self._take(self._by_id, id)
        elif message.name is not None:
            number = self._take(self._by_name, message.name)
        else:
            number = next(iter(self._waiting), None)
        return None if number is None else self._waiting.pop(number)

    def _take(self, lines: dict[str, deque[int]], key: str) -> int | None:
        line = lines.get(key)
        while line:
            number = line.popleft()
            if number in self._waiting:
                return number
        return None

    def result(self, message: Message, number: int, made: Made | None) -> Latest:
        """The facts about a result, message `number` from 0; `made` is the call that it answers."""
        failed, error = failure(message)
        tool = made.call.name if made else message.name or ""
        streak = 0
        if tool:
            streak = (self.failing.now(tool) or 0) + 1 if failed else 0
            self.failing.put(tool, streak or None, number + 1)
        same, same_ever = 0, 0
        attempts: tuple[Attempt, ...] = ()
        if made:
            key = (made.identity, message.content)
            same = self._results_of_turn[key] = self._results_of_turn.get(key, 0) + 1
            same_ever = self._results[key] = self._results.get(key, 0) + 1
            now = Attempt(failed, made.identical, same, made.identical_ever, same_ever)
            attempts = self._attempts[tool] = (*self._attempts.get(tool, ())[1 - ATTEMPTS :], now)
        return Latest(
            role="tool",
            text=message.content,
            number=number,
            time=message.time,
            known=message.known,
            call=made.call if made else None,
            failed=failed,
            error=error,
            calls=made.calls if made else 0,
            identical=made.identical if made else 0,
            same_result=same,
            identical_ever=made.identical_ever if made else 0,
            same_result_ever=same_ever,
            streak=streak,
            attempts=attempts,
        )

    def view(self, version: int) -> Mapping[str, CallCount]:
        """Calls by tool as of `version`."""
        totals = self.total.view(version)
        return Lookup(totals, lambda tool: CallCount(totals[tool], self._arguments(tool, version)))

    def _arguments(self, tool: str, version: int) -> Mapping[str, View[int]]:
        values = self._by_argument[tool]
        return Lookup(self._names[tool].view(version), lambda name: values[name].view(version))
