"""Legal conversations made by hypothesis, and small bars for them: what placements and dialects are tested on."""

from dataclasses import dataclass, replace
from typing import ClassVar

from hypothesis import strategies as st

from harness.state import AgentState
from harness.statusbar.base import BarContext, Moment, StatusText
from harness.types import Message, ToolCall

TEXT = st.sampled_from(
    (
        "Call A.",
        "é 日本 🙂",
        "a\n\nb",
        '{"a": 1}',
        "</seen>",
        "<|im_end|>",
        "'\"\\",
        "[x]",
        "<think>",
        "0",
        "a\u2028b",
    )
)
ARGUMENTS = st.sampled_from(
    (
        {},
        {"query": "q"},
        {"merchant": "A", "list": [1, None, {"b": []}]},
        {"": "é\n", "n": 0.5},
        {"a": {"b": True}},
    )
)


@st.composite
def conversations(draw: st.DrawFn, system: bool | None = None) -> tuple[Message, ...]:
    """A conversation that both APIs take and that ends where the model is asked: with the user or with results."""
    done: list[Message] = []
    if system if system is not None else draw(st.booleans()):
        done.append(Message("system", draw(TEXT)))
    thinking = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        done += [Message("user", draw(TEXT)) for _ in range(draw(st.integers(1, 2)))]
        for _ in range(draw(st.integers(0, 2))):
            done += draw(exchanges(len(done), thinking))
        if draw(st.booleans()):
            done.append(Message("assistant", draw(TEXT), reasoning=draw(TEXT) if thinking else None))
    if done[-1].role == "assistant":
        done.append(Message("user", draw(TEXT)))
    return tuple(done)


@st.composite
def exchanges(draw: st.DrawFn, number: int, thinking: bool) -> list[Message]:
    """An assistant message with calls, and all results in any order."""
    calls = [
        ToolCall(draw(st.sampled_from(("search", "phone_call"))), draw(ARGUMENTS), id=f"id{number}_{i}")
        for i in range(draw(st.integers(1, 3)))
    ]
    said = draw(TEXT | st.just(""))
    asked = Message("assistant", said, tuple(calls), draw(TEXT) if thinking else None)
    results = [
        Message("tool", draw(TEXT | st.just("")), tool_call_id=call.id, name=call.name)
        for call in draw(st.permutations(calls))
    ]
    return [asked, *results]


@dataclass(frozen=True, slots=True)
class Counter:
    """Says how many messages came from the user."""

    name: ClassVar[str] = "counter"

    def draw(self, state: AgentState, context: BarContext) -> StatusText:
        return StatusText("seen", (f"- user messages: {state.user_turns}",))


@dataclass(frozen=True, slots=True)
class OnResult(Counter):
    """The same for each result as it comes in."""

    moment: ClassVar[Moment] = "result"


@dataclass(frozen=True, slots=True)
class OnInput(Counter):
    """The same for each user message and result."""

    moment: ClassVar[Moment] = "input"


def without_ids(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages without the ids of calls."""
    return tuple(
        replace(m, tool_call_id=None, tool_calls=tuple(replace(call, id="") for call in m.tool_calls))
        for m in messages
    )
