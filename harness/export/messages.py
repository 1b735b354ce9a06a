"""A recorded prompt (token ids and spans) → the conversation it was rendered from.

Knows the region names that spans carry (harness/prompt.py) and how the bytes of tokens are joined; knows no
tokenizer, no chat template and no exporter. What a template prints between the contents is dropped, but for two
things that are read there: the bar's role and reasoning kept in the history. Two assistant messages in a row
cannot be told from one and become one; a call whose arguments cannot be read keeps its text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from harness.runlog import text_of
from harness.types import EvalRecord, Role, Span

BAR, STALE_BAR = "bar", "stale_bar"
_BARS = (BAR, STALE_BAR)
_ROLES: tuple[str, ...] = get_args(Role)
_ROLE = re.compile("|".join(_ROLES))
_THOUGHT = re.compile(r"<think>\s*(.*?)\s*</think>", re.DOTALL)
_ENDS = ("", "}", '"}')
"""What a call's span may lack to be JSON: it ends with the last text argument."""


@dataclass(frozen=True, slots=True)
class PromptCall:
    """A tool call of the transcript. `unread`: its text, where the arguments could not be read from it."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    unread: str | None = None


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message as it stood in the prompt. `regions`: what is in it, such as `bar` and `follow_up`."""

    role: Role
    content: str
    regions: tuple[str, ...]
    calls: tuple[PromptCall, ...] = ()
    reasoning: str | None = None
    answers: str | None = None
    """Role `tool`: the id of the call that this is the result of, where there is one."""
    tool: str | None = None


def prompt_messages(record: EvalRecord, pieces: Mapping[int, bytes]) -> list[PromptMessage]:
    """The conversation of a cell, the bar in its place; empty for a record without spans.

    `pieces`: bytes per token id, as `harness.runlog.read_pieces` gives them.
    """
    found: list[PromptMessage] = []
    open_calls: list[tuple[str, PromptCall]] = []
    position = number = 0
    for span in _contents(record.spans):
        gap = text_of(record.prompt_ids[position : span.start], pieces)
        text = text_of(record.prompt_ids[span.start : span.end], pieces)
        position = max(position, span.end)
        last = found[-1] if found else None
        kind, _, rest = span.region.partition(":")
        if kind == "call":
            number += 1
            call = _call(f"call_{number}", _tool(rest, record.tool_names), text)
            open_calls.append((rest, call))
            found = _with_call(found, call, span.region, gap)
        elif last and not gap.strip() and set(_BARS) & {*last.regions, span.region}:
            joined = last.content + gap + text
            found[-1] = replace(last, content=joined, regions=(*last.regions, span.region))
        else:
            found.append(_message(span, gap, text, open_calls, record.tool_names))
    # A token may hold the end of a content and the line breaks after it.
    return [replace(message, content=message.content.strip()) for message in found]


def _contents(spans: Sequence[Span]) -> list[Span]:
    """The spans of messages in reading order; the tools' region is part of the system prompt's frame."""
    return sorted((span for span in spans if span.region != "tools"), key=lambda s: (s.start, s.end))


def _message(
    span: Span, gap: str, text: str, open_calls: list[tuple[str, PromptCall]], tools: Sequence[str]
) -> PromptMessage:
    kind, _, rest = span.region.partition(":")
    if kind == "result":
        at = next((i for i, (key, _) in enumerate(open_calls) if key == rest), None)
        answers = open_calls.pop(at)[1].id if at is not None else None
        return PromptMessage("tool", text, (span.region,), answers=answers, tool=_tool(rest, tools))
    if kind in _BARS:
        return PromptMessage(_role_in(gap), text, (kind,))
    role: Role = "user" if kind not in _ROLES else kind  # type: ignore[assignment]
    thought = _thought(gap) if role == "assistant" else None
    return PromptMessage(role, text, (span.region,), reasoning=thought)


def _with_call(found: list[PromptMessage], call: PromptCall, region: str, gap: str) -> list[PromptMessage]:
    last = found[-1] if found else None
    if last and last.role == "assistant":
        calls, regions = (*last.calls, call), (*last.regions, region)
        return [*found[:-1], replace(last, calls=calls, regions=regions)]
    return [*found, PromptMessage("assistant", "", (region,), (call,), reasoning=_thought(gap))]


def _role_in(gap: str) -> Role:
    """The role that the text before a message names last; a bar's default is the user's."""
    named = _ROLE.findall(gap)
    return named[-1] if named else "user"


def _thought(gap: str) -> str | None:
    found = _THOUGHT.findall(gap)
    return found[-1] if found and found[-1] else None


def _tool(rest: str, tools: Sequence[str]) -> str:
    """The tool in `phone_call:Xfinity`; the longest offered name that fits, else all before the colon."""
    fitting = [name for name in tools if rest == name or rest.startswith(f"{name}:")]
    return max(fitting, key=len) if fitting else rest.partition(":")[0]


def _call(call_id: str, name: str, text: str) -> PromptCall:
    """A call from its span, which runs from the name into the arguments' JSON."""
    start = text.find("{", text.find(name) + len(name))
    for end in _ENDS if start >= 0 else ():
        try:
            arguments, _ = json.JSONDecoder().raw_decode(text[start:] + end)
        except ValueError:
            continue
        if isinstance(arguments, dict):
            return PromptCall(call_id, name, arguments)
    return PromptCall(call_id, name, {}, unread=text)
