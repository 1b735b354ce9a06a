"""What the APIs agree on: every call has its results directly after it, and every result its call.

Knows messages alone. Messages are counted from 1 in what is said about them.
"""

import re
from collections.abc import Sequence

from harness.types import Message, ToolCall


def unpaired(messages: Sequence[Message], longest_name: int) -> str | None:
    """The first reason why calls and results do not fit each other; None when they do."""
    names = re.compile(rf"[a-zA-Z0-9_-]{{1,{longest_name}}}")
    waiting: dict[str, ToolCall] = {}
    for number, message in enumerate(messages, start=1):
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return f"message {number}: a tool result without its call in the assistant message before"
            del waiting[message.tool_call_id]
            continue
        if waiting:
            return f"message {number}: stands between a call of {next(iter(waiting.values())).name} and its result"
        for call in message.tool_calls:
            if message.role != "assistant":
                return f"message {number}: a call in a message of role {message.role}"
            if not call.id or call.id in waiting:
                return f"message {number}: a call of {call.name} without an id of its own"
            if not names.fullmatch(call.name):
                return (
                    f"message {number}: the tool name {call.name[:40]!r} is not 1 to {longest_name} letters, digits, "
                    "underscores and dashes"
                )
            waiting[call.id] = call
    if waiting:
        return f"message {len(messages)}: a call of {next(iter(waiting.values())).name} has no result"
    return None
