"""Transcripts for the tests of the alerts: calls of one tool or of several with what came back."""

from collections.abc import Mapping, Sequence
from typing import Any

from core_samples import context

from harness.state import StateBuilder
from harness.statusbar.base import StatusBar
from harness.types import Message, ToolCall


def turns(
    *made: tuple[str, Mapping[str, Any], str], start: int = 0, time: str | None = None, **result: Any
) -> list[Message]:
    """One assistant message and its result for each (tool, arguments, text that came back)."""
    messages = []
    for number, (tool, arguments, text) in enumerate(made, start=start):
        call = ToolCall(tool, arguments, id=f"call{number:05d}")
        messages.append(Message("assistant", tool_calls=(call,)))
        messages.append(Message("tool", text, tool_call_id=call.id, name=tool, time=time, **result))
    return messages


def said(bar: StatusBar, messages: Sequence[Message], **options: Any) -> list[str | None]:
    """What `bar` says after each message."""
    builder = StateBuilder()
    texts = []
    for message in messages:
        builder.advance(message)
        drawn = bar.draw(builder.state(), context(**options))
        texts.append(drawn.text if drawn else None)
    return texts


def last(bar: StatusBar, messages: Sequence[Message], **options: Any) -> str | None:
    """What `bar` says after the last of the messages."""
    return said(bar, messages, **options)[-1]
