"""OpenAI's Responses dialect: a conversation is a list of items; calls and their results are items of their own.

Knows no client. Fields are those of the Responses reference. System messages stay items, which the API takes anywhere,
so that no placement becomes another one here. Reasoning of earlier turns is only taken back encrypted, which a `Message`
does not keep: it is left out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.dialects import fields, openai
from harness.dialects.fields import TraceError
from harness.types import Message, Role, ToolCall, ToolSpec

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


# -- out -----------------------------------------------------------------------------------------------


def wire_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A conversation as input items; arguments of calls are JSON text."""
    items: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            items.append(
                {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content}
            )
            continue
        if message.content or not message.tool_calls:
            items.append({"type": "message", "role": message.role, "content": message.content})
        items += [
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
            }
            for call in message.tool_calls
        ]
    return items


def wire_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Offered tools in the API's form. Not strict: a schema is taken as it is."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "strict": False,
        }
        for tool in tools
    ]


# -- in ------------------------------------------------------------------------------------------------


def read_messages(entries: object, where: str = "input") -> tuple[Message, ...]:
    """A conversation from its items, consecutive calls joined with the assistant's text before them. `where` opens every
    error. Reasoning items are passed over. Raises TraceError for what is no conversation."""
    done: list[Message] = []
    for number, entry in enumerate(fields.expect_list(entries, where, "a list of items")):
        at = f"{where}[{number}]"
        entry = fields.expect_object(entry, at, "an item with a type")
        kind = entry.get("type", "message")
        if kind == "message":
            role = _ROLES.get(str(entry.get("role")))
            if role is None:
                raise TraceError(
                    f"{at}.role is {fields.kind(entry.get('role'))}; expected system, user or assistant"
                )
            done.append(Message(role, fields.content(entry.get("content"), f"{at}.content")))
        elif kind == "function_call":
            call = ToolCall(
                fields.name(entry.get("name"), f"{at}.name"),
                fields.arguments(entry.get("arguments"), f"{at}.arguments"),
                fields.text(entry.get("call_id"), f"{at}.call_id"),
            )
            last = done[-1] if done and done[-1].role == "assistant" else None
            if last is None:
                done.append(Message("assistant", "", (call,)))
            else:
                done[-1] = Message("assistant", last.content, (*last.tool_calls, call))
        elif kind == "function_call_output":
            output = fields.content(entry.get("output"), f"{at}.output")
            answered = fields.text(entry.get("call_id"), f"{at}.call_id") or None
            done.append(Message("tool", output, tool_call_id=answered))
        elif kind != "reasoning":
            raise TraceError(
                f"{at}.type is {kind!r:.40}; expected message, function_call or function_call_output"
            )
    return fields.named_results(done)


def read_tools(entries: object, where: str = "tools") -> tuple[ToolSpec, ...]:
    """Offered tools from their wire form."""
    listed = fields.expect_list(entries, where, "a list of tools")
    return tuple(
        fields.tool(fields.expect_object(entry, f"{where}[{i}]", "a tool"), "parameters", f"{where}[{i}]")
        for i, entry in enumerate(listed)
    )


# -- what the API makes of it --------------------------------------------------------------------------


def illegal(messages: Sequence[Message]) -> str | None:
    """The first reason why the API would refuse the conversation; None for a legal one. The rules are the chat API's."""
    return openai.illegal(messages)


def merged(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation as the API takes it in: item for item. Calls are items of their own, so that it makes no
    difference whether the assistant's text before them is a message apart. Reasoning is not sent."""
    done: list[Message] = []
    for message in messages:
        message = replace(message, reasoning=None)
        last = done[-1] if done else None
        if last is not None and last.role == "assistant" and message.tool_calls and not message.content:
            done[-1] = replace(last, tool_calls=(*last.tool_calls, *message.tool_calls))
        else:
            done.append(message)
    return tuple(done)
