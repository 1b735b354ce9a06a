"""Trajectories, bars and the plain way to bill them, for the ledger's tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from core_samples import sample

from harness.cache import PrefixLedger
from harness.conditions import Condition, unfold
from harness.ledger.made_up import made_up
from harness.statusbar import Placement, StatusBar, StatusText, Tail
from harness.statusbar.policies import (
    Append,
    Boundary,
    Event,
    EveryN,
    Never,
    OnChange,
    Replace,
    Staleness,
    UpdatePolicy,
)
from harness.template import ChatTemplate
from harness.types import Message, Sample, ToolCall

POLICIES: Mapping[str, UpdatePolicy] = {
    "never": Never(),
    "replace": Replace(),
    "append": Append(),
    "on_change": OnChange(),
    "every_n": EveryN(3),
    "staleness": Staleness(2),
    "event": Event(),
    "boundary": Boundary(9),
}


@dataclass(frozen=True, slots=True)
class Turns:
    """Says how many user messages there were: its text changes seldom."""

    name: ClassVar[str] = "turns"

    def draw(self, state: object, context: object) -> StatusText | None:
        return StatusText("turns", (f"- User messages: {state.user_turns}",))  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Requests:
    """Says how many requests were answered: its text changes with every request."""

    name: ClassVar[str] = "requests"

    def draw(self, state: object, context: object) -> StatusText | None:
        return StatusText("requests", (f"- Requests answered: {state.requests}",))  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Counted:
    """Says in each tool result which call of its tool it was."""

    name: ClassVar[str] = "counted"
    moment: ClassVar[str] = "result"

    def draw(self, state: object, context: object) -> StatusText | None:
        return StatusText("counted", (f"- Call {state.latest.calls}",))  # type: ignore[attr-defined]


def conversation(*words: str, results: bool = True) -> Sample:
    """A system prompt and a user message for each word; the agent makes two calls about it and then says so."""
    messages = [Message("system", "You help.")]
    for number, word in enumerate(words):
        messages.append(Message("user", f"Tell me about {word}."))
        for which in range(2 if results else 0):
            call = ToolCall("web_search", {"query": f"{word} {which}"}, id=f"c{number}{which}")
            messages.append(Message("assistant", "I look.", tool_calls=(call,)))
            messages.append(
                Message("tool", f"{word} is known {which}.", tool_call_id=call.id, name="web_search")
            )
        messages.append(Message("assistant", f"{word.title()} is known."))
    return sample(messages)


def long(requests: int) -> Sample:
    return made_up(requests)


def conditions(
    bar: StatusBar, placement: Placement | None = None, policies: Sequence[str] = tuple(POLICIES)
) -> list[Condition]:
    return [Condition(name, bar, placement or Tail(), POLICIES[name]) for name in policies]


@dataclass(frozen=True, slots=True)
class Plain:
    """What the naive way says of one request."""

    ids: tuple[int, ...]
    shared: int
    cached: int


def plainly(each: Sample, condition: Condition, template: ChatTemplate, block: int) -> list[Plain]:
    """Every prompt rendered and encoded as one by the tokenizer itself, compared with every one before it."""
    cache, seen, found = PrefixLedger(block), [], []
    for delivered in unfold(each, condition, template.count):
        text = template.text(delivered.messages, each.tools)
        ids = tuple(template.tokenizer(text, add_special_tokens=False)["input_ids"])
        shared = max((_common(ids, other) for other in seen), default=0)
        found.append(Plain(ids, shared, cache.visit(ids)))
        seen.append(ids)
    return found


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def with_reasoning(each: Sample) -> Sample:
    """The same with a thought in every reply."""
    messages = tuple(
        replace(message, reasoning="Hm, let me see.") if message.role == "assistant" else message
        for message in each.messages
    )
    return replace(each, messages=messages)
