"""OpenAI's chat dialect: arguments of calls are JSON text, each result is a message of role `tool`.

Knows no client and no server; what differs between servers is in harness/models/server_dialects.py. Fields are those
of the Chat Completions reference, and `reasoning_content` or `reasoning` as the servers for open weights name it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.dialects import fields
from harness.dialects.fields import TraceError
from harness.dialects.pairing import unpaired
from harness.types import Message, Role, ToolCall, ToolSpec

LONGEST_NAME = 64
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


# -- out -----------------------------------------------------------------------------------------------


def wire_messages(
    messages: Sequence[Message], reasoning_field: str = "reasoning_content", *, keep_reasoning: bool = True
) -> list[dict[str, Any]]:
    """A conversation as OpenAI's chat API takes it: arguments of calls are JSON text."""
    wire = []
    for message in messages:
        entry: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            entry["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
        if message.reasoning is not None and keep_reasoning:
            entry[reasoning_field] = message.reasoning
        if message.role == "tool":
            entry["tool_call_id"] = message.tool_call_id
            if message.name is not None:
                entry["name"] = message.name
        wire.append(entry)
    return wire


def _wire_call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    return {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}}


def wire_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Offered tools in OpenAI's form."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]


# -- in ------------------------------------------------------------------------------------------------


def read_messages(entries: object, where: str = "messages") -> tuple[Message, ...]:
    """A conversation from its wire form. `where` opens every error.

    Null content is '', parts are joined as blocks, results get the name of the call that they answer, and a
    `timestamp` of a message becomes its time. A result has failed where `error` names an error or is true, where
    `is_error` is true (MCP, Anthropic) and where `status` is `error` (LangChain). `known` of a message is kept as it
    is. Raises TraceError for what is no conversation.
    """
    listed = fields.expect_list(entries, where, "a list of messages")
    return fields.named_results([_message(entry, f"{where}[{i}]") for i, entry in enumerate(listed)])


def _message(entry: object, where: str) -> Message:
    entry = fields.expect_object(entry, where, "a message with role and content")
    role = _ROLES.get(str(entry.get("role")))
    if role is None:
        raise TraceError(
            f"{where}.role is {fields.kind(entry.get('role'))}; expected system, user, assistant or tool"
        )
    calls = fields.expect_list(entry.get("tool_calls"), f"{where}.tool_calls", "a list of calls")
    reasoning = entry.get("reasoning_content")
    reasoning = entry.get("reasoning") if reasoning is None else reasoning
    is_result = role == "tool"
    return Message(
        role,
        fields.content(entry.get("content"), f"{where}.content"),
        tuple(_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)),
        None if reasoning is None else fields.text(reasoning, f"{where}.reasoning"),
        fields.text(entry.get("tool_call_id"), f"{where}.tool_call_id") or None if is_result else None,
        fields.text(entry.get("name"), f"{where}.name") or None if is_result else None,
        fields.time(entry.get("timestamp"), f"{where}.timestamp"),
        _error(entry) if is_result else None,
        fields.known(entry.get("known"), f"{where}.known"),
    )


def _call(entry: object, where: str) -> ToolCall:
    entry = fields.expect_object(entry, where, "a call with its function")
    function = fields.expect_object(entry.get("function", entry), f"{where}.function", "a name and arguments")
    return ToolCall(
        fields.name(function.get("name"), f"{where}.function.name"),
        fields.arguments(function.get("arguments"), f"{where}.function.arguments"),
        fields.text(entry.get("id"), f"{where}.id"),
    )


def _error(entry: Mapping[str, Any]) -> str | None:
    """The kind of error that some frameworks write into a result beside its text."""
    value = entry.get("error")
    if isinstance(value, dict):
        value = value.get("type") or True
    if isinstance(value, str) and value:
        return value
    failed = value is True or entry.get("is_error") is True or entry.get("status") == "error"
    return "error" if failed else None


def read_tools(entries: object, where: str = "tools") -> tuple[ToolSpec, ...]:
    """Offered tools from their wire form, with or without the `function` wrapper."""
    listed = fields.expect_list(entries, where, "a list of tools")
    tools = []
    for number, entry in enumerate(listed):
        at = f"{where}[{number}]"
        entry = fields.expect_object(entry, at, "a tool")
        function = fields.expect_object(
            entry.get("function", entry), f"{at}.function", "a name and parameters"
        )
        tools.append(fields.tool(function, "parameters", at))
    return tuple(tools)


# -- what the API makes of it --------------------------------------------------------------------------


def illegal(messages: Sequence[Message]) -> str | None:
    """The first reason why the API would refuse the conversation; None for a legal one."""
    if not messages:
        return "there is no message"
    for number, message in enumerate(messages, start=1):
        if message.role == "assistant" and not message.content and not message.tool_calls:
            return f"message {number}: an assistant message with neither content nor a call"
    return unpaired(messages, LONGEST_NAME)


def merged(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation as the API takes it in: message for message."""
    return tuple(messages)
