"""Anthropic's dialect: the system prompt stands apart, results are blocks of user messages, thinking is a block.

Knows no client. Rules are those of the Messages API reference and of its "extended thinking" and "tool use" guides:
consecutive messages of one role are taken as one, `tool_result` blocks come first in the user message directly after
their `tool_use`, and where thinking is on the newest assistant message with calls begins with its thinking.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.dialects import fields
from harness.dialects.fields import BLOCK_SEPARATOR, TraceError
from harness.dialects.pairing import unpaired
from harness.types import Message, ToolCall, ToolSpec

LONGEST_NAME = 128
_ID = re.compile(r"[a-zA-Z0-9_-]+")


# -- out -----------------------------------------------------------------------------------------------


def wire_messages(messages: Sequence[Message], *, keep_reasoning: bool = True) -> dict[str, Any]:
    """A conversation as the fields `system` (left out where there is none) and `messages` of a request.

    Leading system messages are the system prompt; a later one raises TraceError. The signatures of thinking blocks
    are not kept by a `Message`, so they are empty: the API takes back only signed ones, send it without reasoning.
    """
    start = _system_end(messages)
    turns: list[dict[str, Any]] = []
    for number, message in enumerate(messages[start:], start=start + 1):
        if message.role == "system":
            raise TraceError(f"message {number}: a system message after the first message")
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message, keep_reasoning)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": blocks})
    system = BLOCK_SEPARATOR.join(message.content for message in messages[:start])
    return ({"system": system} if start else {}) | {"messages": turns}


def _blocks(message: Message, keep_reasoning: bool) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {
            "type": "tool_result",
            "tool_use_id": message.tool_call_id,
            "content": [{"type": "text", "text": message.content}] if message.content else [],
        }
        return [result | ({"is_error": True} if message.error is not None else {})]
    blocks: list[dict[str, Any]] = []
    if message.reasoning and keep_reasoning:
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    if message.content.strip():
        blocks.append({"type": "text", "text": message.content})
    return blocks + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
        for call in message.tool_calls
    ]


def wire_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Offered tools in Anthropic's form."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
        for tool in tools
    ]


# -- in ------------------------------------------------------------------------------------------------


def read_messages(entries: object, system: object = None, where: str = "messages") -> tuple[Message, ...]:
    """A conversation from the fields `messages` and `system` of a request. `where` opens every error.

    Each `tool_result` becomes a message of role `tool`, named after its call; texts beside it become a user message
    where they stand. Redacted thinking is left out. A `timestamp` of a message becomes the time of all that it holds,
    `is_error` the error of a result. `known` is kept as it is: a result's stands in its block, any other in its
    message. Raises TraceError for what is no conversation.
    """
    prompt = fields.content(system, f"{where}: system")
    done = [Message("system", prompt)] if prompt else []
    for number, entry in enumerate(fields.expect_list(entries, where, "a list of messages")):
        at = f"{where}[{number}]"
        entry = fields.expect_object(entry, at, "a message with role and content")
        time = fields.time(entry.get("timestamp"), f"{at}.timestamp")
        blocks = entry.get("content")
        blocks = blocks if isinstance(blocks, list) else [{"type": "text", "text": blocks}]
        known = fields.known(entry.get("known"), f"{at}.known")
        if entry.get("role") == "assistant":
            done.append(replace(_assistant(blocks, f"{at}.content"), time=time, known=known))
        elif entry.get("role") == "user":
            done.extend(
                replace(each, time=time, known=known if each.role == "user" else each.known)
                for each in _user(blocks, f"{at}.content")
            )
        else:
            raise TraceError(f"{at}.role is {fields.kind(entry.get('role'))}; expected user or assistant")
    return fields.named_results(done)


def _assistant(blocks: list[Any], where: str) -> Message:
    said: list[Any] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for number, block in enumerate(blocks):
        at = f"{where}[{number}]"
        block = fields.expect_object(block, at, "a content block")
        if block.get("type") == "thinking":
            thoughts.append(fields.text(block.get("thinking"), f"{at}.thinking"))
        elif block.get("type") == "tool_use":
            called = fields.name(block.get("name"), f"{at}.name")
            given = fields.arguments(block.get("input"), f"{at}.input")
            calls.append(ToolCall(called, given, fields.text(block.get("id"), f"{at}.id")))
        elif block.get("type") != "redacted_thinking":
            said.append(block)
    return Message(
        "assistant",
        fields.content(said, where),
        tuple(calls),
        BLOCK_SEPARATOR.join(thoughts) if thoughts else None,
    )


def _user(blocks: list[Any], where: str) -> list[Message]:
    done: list[Message] = []
    said: list[Any] = []
    for number, block in enumerate(blocks):
        at = f"{where}[{number}]"
        block = fields.expect_object(block, at, "a content block")
        if block.get("type") != "tool_result":
            said.append(block)
            continue
        if said:
            done.append(Message("user", fields.content(said, where)))
            said = []
        done.append(
            Message(
                "tool",
                fields.content(block.get("content"), f"{at}.content"),
                tool_call_id=fields.text(block.get("tool_use_id"), f"{at}.tool_use_id") or None,
                error="error" if block.get("is_error") is True else None,
                known=fields.known(block.get("known"), f"{at}.known"),
            )
        )
    if said or not done:
        done.append(Message("user", fields.content(said, where)))
    return done


def read_tools(entries: object, where: str = "tools") -> tuple[ToolSpec, ...]:
    """Offered tools from their wire form."""
    listed = fields.expect_list(entries, where, "a list of tools")
    return tuple(
        fields.tool(fields.expect_object(entry, f"{where}[{i}]", "a tool"), "input_schema", f"{where}[{i}]")
        for i, entry in enumerate(listed)
    )


# -- what the API makes of it --------------------------------------------------------------------------


def illegal(messages: Sequence[Message]) -> str | None:
    """The first reason why the API would refuse the conversation; None for a legal one."""
    start = _system_end(messages)
    turns = messages[start:]
    if not turns:
        return "there is no message beside the system prompt"
    if turns[0].role != "user":
        return f"message {start + 1}: the first message after the system prompt is not the user's"
    used: set[str] = set()
    for number, message in enumerate(messages, start=1):
        if message.role == "system" and number > start:
            return f"message {number}: a system message after the first message"
        if message.role != "tool" and not message.content.strip() and not message.tool_calls:
            return f"message {number}: a {message.role} message without text"
        for call in message.tool_calls:
            if call.id in used or not _ID.fullmatch(call.id):
                return f"message {number}: a call of {call.name} without an id of its own"
            used.add(call.id)
    return unpaired(messages, LONGEST_NAME) or _unthought(messages) or _unfinished(turns[-1], len(messages))


def _unthought(messages: Sequence[Message]) -> str | None:
    """Where the conversation has thinking, the newest assistant message must begin with it if it has calls."""
    if not any(message.reasoning for message in messages):
        return None
    newest = max(number for number, message in enumerate(messages) if message.role == "assistant")
    if messages[newest].tool_calls and not messages[newest].reasoning:
        return f"message {newest + 1}: where thinking is on, the newest assistant message must begin with thinking"
    return None


def _unfinished(last: Message, number: int) -> str | None:
    if last.role == "assistant" and last.content != last.content.rstrip():
        return f"message {number}: the last message is the assistant's and ends with white space"
    return None


def merged(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation as the API takes it in: consecutive messages of one role are one. An own user message of a
    bar beside another user message is then the same condition as a block of that message."""
    done: list[Message] = []
    for message in messages:
        last = done[-1] if done else None
        if last is None or message.role != last.role or message.role == "tool":
            done.append(message)
            continue
        texts = [text for text in (last.content, message.content) if text]
        thoughts = [text for text in (last.reasoning, message.reasoning) if text]
        done[-1] = replace(
            last,
            content=BLOCK_SEPARATOR.join(texts),
            tool_calls=(*last.tool_calls, *message.tool_calls),
            reasoning=BLOCK_SEPARATOR.join(thoughts) if thoughts else None,
        )
    return tuple(done)


def _system_end(messages: Sequence[Message]) -> int:
    return next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
