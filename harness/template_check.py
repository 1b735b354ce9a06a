"""What a chat template does to bars, found by rendering small conversations. Needs no model.

Each question is one of the ways in which a template makes two arms differ by more than the bar.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from harness.conditions import Condition
from harness.dialects import one_condition
from harness.errors import ConfoundError, TemplateError
from harness.prompt import render_arms
from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.placements import (
    BeforeFollowUp,
    Both,
    Front,
    LastBlock,
    LastResult,
    OwnAction,
    OwnBefore,
    Placement,
    PrefixLast,
    SystemHead,
    SystemTail,
    Tail,
)
from harness.template import ChatTemplate
from harness.traces import unjudged
from harness.types import Message, ToolCall, ToolSpec

_TOOL = ToolSpec("probe_tool", "A tool.", {"type": "object", "properties": {"value": {"type": "string"}}})
_TOOLS = (_TOOL,)
_SYSTEM = Message("system", "SYSTEM-TEXT")
_USER = Message("user", "USER-TEXT")
_CALL = Message("assistant", tool_calls=(ToolCall("probe_tool", {"value": "CALL-VALUE"}, id="call00001"),))
_THINKING_CALL = Message(
    "assistant",
    reasoning="REASONING-TEXT",
    tool_calls=(ToolCall("probe_tool", {"value": "CALL-VALUE"}, id="call00001"),),
)
_RESULT = Message("tool", "RESULT-TEXT", tool_call_id="call00001", name="probe_tool")
_BAR = Message("user", "BAR-TEXT")
_PLACEMENTS: tuple[Placement, ...] = (
    Tail(),
    SystemTail(),
    OwnBefore(),
    Front(),
    OwnAction(tool="probe_tool", argument="value"),
    BeforeFollowUp(),
    LastBlock(),
    LastResult(),
    Both(),
    PrefixLast(),
    SystemHead(),
)
_WHEN = {
    "a follow-up": (_SYSTEM, _USER, _THINKING_CALL, _RESULT, Message("assistant", "ANSWER-TEXT"), _USER),
    "a tool result": (_SYSTEM, _USER, _THINKING_CALL, _RESULT),
}
"""The two moments of a request: after what newest message it is made."""


class Finding(NamedTuple):
    """One question, its answer, and what the answer means for an experiment."""

    question: str
    answer: str
    meaning: str


def check_template(template: ChatTemplate) -> list[Finding]:
    """All findings, in a fixed order. Never raises for what a template refuses: that is a finding."""
    return [
        _offers_tools(template),
        _prints_calls(template),
        _late_system(template),
        _user_after_user(template),
        _strips_reasoning(template),
        _thinks(template),
        *_placements(template),
    ]


def _text(template: ChatTemplate, *messages: Message) -> str | None:
    try:
        return template.text(messages, _TOOLS)
    except TemplateError:
        return None


def _yes(condition: bool) -> str:
    return "yes" if condition else "no"


def _offers_tools(template: ChatTemplate) -> Finding:
    text = _text(template, _SYSTEM, _USER)
    shown = text is not None and "probe_tool" in text
    return Finding(
        "does it print the tools that are offered?", _yes(shown),
        "act and choose are possible" if shown else "the model never sees its tools: choose another model",
    )  # fmt: skip


def _prints_calls(template: ChatTemplate) -> Finding:
    text = _text(template, _SYSTEM, _USER, _CALL, _RESULT, _USER)
    shown = text is not None and "CALL-VALUE" in text and "RESULT-TEXT" in text
    return Finding(
        "does it print earlier calls and results?", _yes(shown),
        "the model can count them" if shown else "the history is dropped: nothing to measure here",
    )  # fmt: skip


def _late_system(template: ChatTemplate) -> Finding:
    text = _text(template, _SYSTEM, _USER, Message("system", "BAR-TEXT"))
    taken = text is not None and "BAR-TEXT" in text
    return Finding(
        "does it accept a system message at the tail?", _yes(taken),
        "a system-role bar would be possible" if taken else "keep the bar in the user role",
    )  # fmt: skip


def _user_after_user(template: ChatTemplate) -> Finding:
    """Own message, or merged into the one before? Merged, two placements are one condition."""
    own = _text(template, _SYSTEM, _USER, _BAR)
    if own is None or "BAR-TEXT" not in own:
        return Finding(
            "does it accept two user messages in a row?", "no", "use the placement before the follow-up"
        )
    between = own.partition("USER-TEXT")[2].partition("BAR-TEXT")[0]
    merged = not between.strip()
    return Finding(
        "does it accept two user messages in a row?", "merged into one" if merged else "yes",
        "the tail is not a message of its own" if merged else "the tail is a message of its own",
    )  # fmt: skip


def _strips_reasoning(template: ChatTemplate) -> Finding:
    question = "does a user-role tail after a tool result strip the history's reasoning?"
    without = _text(template, _SYSTEM, _USER, _THINKING_CALL, _RESULT)
    with_bar = _text(template, _SYSTEM, _USER, _THINKING_CALL, _RESULT, _BAR)
    has: Callable[[str | None], bool] = lambda text: text is not None and "REASONING-TEXT" in text  # noqa: E731
    if not has(without):
        return Finding(question, "it prints no reasoning at all", "nothing to strip")
    if has(with_bar):
        return Finding(question, "no", "arms stay comparable")
    return Finding(
        question, "yes",
        "a bar right after a tool result is refused as confounded; set model.keep_reasoning=false",
    )  # fmt: skip


def _thinks(template: ChatTemplate) -> Finding:
    tokenizer = template.tokenizer
    texts = {mode: _text(ChatTemplate(tokenizer, mode), _SYSTEM, _USER) for mode in ("native", "off")}
    native = texts["native"] != texts["off"]
    opened = texts["native"] is not None and template.opens_thinking(texts["native"])
    return Finding(
        "does it know thinking on and off?", _yes(native) + (", and opens the block itself" if opened else ""),
        "model.thinking=native is possible" if native else "use model.thinking=off or prompted",
    )  # fmt: skip


# -- placements ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mark:
    """A bar that says the same always."""

    name: ClassVar[str] = "mark"

    def draw(self, state: AgentState, context: BarContext) -> StatusText:
        return StatusText("", ("BAR-TEXT",), heading="")


def _placements(template: ChatTemplate) -> list[Finding]:
    """One finding for each placement, by the very proof that a run makes before it starts."""
    seen: dict[str, dict[str, str]] = {when: {} for when in _WHEN}
    refused: dict[str, str] = {}
    for placement in _PLACEMENTS:
        for when, messages in _WHEN.items():
            try:
                seen[when][placement.name] = _arm(template, placement, messages)
            except (TemplateError, ConfoundError) as error:
                refused.setdefault(placement.name, str(error).removeprefix(_WHERE))
    alike = {when: one_condition(shown) for when, shown in seen.items()}
    return [_placement(placement.name, seen, refused, alike) for placement in _PLACEMENTS]


def _placement(
    name: str,
    seen: dict[str, dict[str, str]],
    refused: dict[str, str],
    alike: dict[str, list[tuple[str, ...]]],
) -> Finding:
    taken = [when for when in _WHEN if name in seen[when]]
    answer = {0: "no", 1: f"after {taken[0]} alone" if taken else "", 2: "yes"}[len(taken)]
    meaning = [f"refused: {refused[name]}"] if name in refused else []
    for when in taken:
        others = [other for group in alike[when] if name in group for other in group if other != name]
        if others:
            meaning.append(f"after {when} one condition with {', '.join(others)}")
    return Finding(
        f"does it take a bar at placement {name}?",
        answer,
        "; ".join(meaning) or "a condition of its own",
    )


_WHERE = "condition bar, sample template: "


def _arm(template: ChatTemplate, placement: Placement, messages: tuple[Message, ...]) -> str:
    """The prompt's text; raises what refuses it."""
    sample = unjudged("template", messages, _TOOLS, scenario="template", cluster="template")
    return render_arms(template, sample, [Condition("bar", _Mark(), placement)])["bar"].prompt.text
