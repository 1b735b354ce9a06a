"""Gemini's dialect: the system prompt stands apart, the assistant is `model`, results are parts of a user turn.

Knows no client. Fields are those of the generateContent reference. Consecutive turns of one role are sent as one, since
answers to the calls of one turn must come together, directly after it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.dialects import fields
from harness.dialects.fields import BLOCK_SEPARATOR, TraceError
from harness.dialects.pairing import unpaired
from harness.types import Message, ToolCall, ToolSpec

LONGEST_NAME = 64


# -- out -----------------------------------------------------------------------------------------------


def wire_messages(messages: Sequence[Message]) -> dict[str, Any]:
    """A conversation as the fields `system_instruction` (left out where there is none) and `contents` of a request, in
    the names of the vendor's client. Leading system messages are the system prompt; a later one raises TraceError.
    Reasoning is left out: the API takes its own back only with a signature, which a `Message` does not keep."""
    start = _system_end(messages)
    turns: list[dict[str, Any]] = []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for number, message in enumerate(messages[start:], start=start + 1):
        if message.role == "system":
            raise TraceError(f"message {number}: a system message after the first message")
        role = "model" if message.role == "assistant" else "user"
        parts = _parts(message, names)
        if turns and turns[-1]["role"] == role:
            turns[-1]["parts"].extend(parts)
        else:
            turns.append({"role": role, "parts": parts})
    system = BLOCK_SEPARATOR.join(message.content for message in messages[:start])
    return ({"system_instruction": system} if start else {}) | {"contents": turns}


def _parts(message: Message, names: dict[str, str]) -> list[dict[str, Any]]:
    if message.role == "tool":
        called = message.tool_call_id or ""
        response = {"error" if message.error is not None else "result": message.content}
        name = message.name or names.get(called, "")
        return [{"function_response": {"id": called, "name": name, "response": response}}]
    parts: list[dict[str, Any]] = [{"text": message.content}] if message.content else []
    return parts + [
        {"function_call": {"id": call.id, "name": call.name, "args": dict(call.arguments)}}
        for call in message.tool_calls
    ]


def wire_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Offered tools in Gemini's form: one entry with all declarations."""
    declared = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters_json_schema": dict(tool.parameters),
        }
        for tool in tools
    ]
    return [{"function_declarations": declared}] if declared else []


# -- in ------------------------------------------------------------------------------------------------


def read_messages(entries: object, system: object = None, where: str = "contents") -> tuple[Message, ...]:
    """A conversation from the fields `contents` and `systemInstruction` of a request, in the names of the wire or of the
    vendor's client. `where` opens every error. Thought parts become the assistant's reasoning. Raises TraceError for
    what is no conversation."""
    done: list[Message] = []
    prompt = _system_text(system, f"{where}: system")
    if prompt:
        done.append(Message("system", prompt))
    for number, entry in enumerate(fields.expect_list(entries, where, "a list of turns")):
        at = f"{where}[{number}]"
        entry = fields.expect_object(entry, at, "a turn with role and parts")
        parts = fields.expect_list(entry.get("parts"), f"{at}.parts", "a list of parts")
        parts = [fields.expect_object(part, f"{at}.parts[{i}]", "a part") for i, part in enumerate(parts)]
        if entry.get("role") == "model":
            done.append(_model(parts, f"{at}.parts"))
        elif entry.get("role") in ("user", None):
            done.extend(_user(parts, f"{at}.parts"))
        else:
            raise TraceError(f"{at}.role is {fields.kind(entry.get('role'))}; expected user or model")
    return tuple(done)


def _system_text(system: object, where: str) -> str:
    if isinstance(system, dict):
        system = [part.get("text", "") for part in system.get("parts") or () if isinstance(part, dict)]
    return fields.content(system, where)


def _of(part: dict[str, Any], name: str) -> Any:
    """A field by its name in the client, or on the wire."""
    head, *rest = name.split("_")
    return part.get(name, part.get(head + "".join(word.capitalize() for word in rest)))


def _model(parts: Sequence[dict[str, Any]], where: str) -> Message:
    said: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for number, part in enumerate(parts):
        at = f"{where}[{number}]"
        called = _of(part, "function_call")
        if called is not None:
            called = fields.expect_object(called, f"{at}.functionCall", "a name and args")
            calls.append(
                ToolCall(
                    fields.name(called.get("name"), f"{at}.functionCall.name"),
                    fields.arguments(called.get("args"), f"{at}.functionCall.args"),
                    fields.text(called.get("id"), f"{at}.functionCall.id"),
                )
            )
        elif part.get("text"):
            (thoughts if part.get("thought") else said).append(fields.text(part["text"], f"{at}.text"))
    reasoning = BLOCK_SEPARATOR.join(thoughts) if thoughts else None
    return Message("assistant", BLOCK_SEPARATOR.join(said), tuple(calls), reasoning)


def _user(parts: Sequence[dict[str, Any]], where: str) -> list[Message]:
    done: list[Message] = []
    said: list[str] = []
    for number, part in enumerate(parts):
        at = f"{where}[{number}]"
        answer = _of(part, "function_response")
        if answer is None:
            said.append(fields.text(part.get("text"), f"{at}.text"))
            continue
        answer = fields.expect_object(answer, f"{at}.functionResponse", "a name and a response")
        response = fields.expect_object(
            answer.get("response"), f"{at}.functionResponse.response", "an object"
        )
        failed = "error" in response
        done.append(
            Message(
                "tool",
                fields.text(response.get("error" if failed else "result"), f"{at}.functionResponse.response"),
                tool_call_id=fields.text(answer.get("id"), f"{at}.functionResponse.id") or None,
                name=fields.name(answer.get("name"), f"{at}.functionResponse.name"),
                error="error" if failed else None,
            )
        )
    text = BLOCK_SEPARATOR.join(each for each in said if each)
    return [*done, Message("user", text)] if text or not done else done


def read_tools(entries: object, where: str = "tools") -> tuple[ToolSpec, ...]:
    """Offered tools from their wire form."""
    found: list[ToolSpec] = []
    for number, entry in enumerate(fields.expect_list(entries, where, "a list of tools")):
        at = f"{where}[{number}]"
        declared = _of(fields.expect_object(entry, at, "function declarations"), "function_declarations")
        for index, each in enumerate(fields.expect_list(declared, f"{at}.functionDeclarations", "a list")):
            here = f"{at}.functionDeclarations[{index}]"
            each = fields.expect_object(each, here, "a declaration")
            schema = _of(each, "parameters_json_schema") or each.get("parameters") or {}
            found.append(fields.tool({**each, "parameters": schema}, "parameters", here))
    return tuple(found)


# -- what the API makes of it --------------------------------------------------------------------------


def illegal(messages: Sequence[Message]) -> str | None:
    """The first reason why the API would refuse the conversation; None for a legal one."""
    start = _system_end(messages)
    turns = messages[start:]
    if not turns:
        return "there is no message beside the system prompt"
    if turns[0].role != "user":
        return f"message {start + 1}: the first message after the system prompt is not the user's"
    for number, message in enumerate(messages, start=1):
        if message.role == "system" and number > start:
            return f"message {number}: a system message after the first message"
        if message.role != "tool" and not message.content and not message.tool_calls:
            return f"message {number}: a {message.role} message without a part"
    return unpaired(messages, LONGEST_NAME)


def merged(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation as the API takes it in: leading system messages are one, and so are consecutive messages of one
    role, but for results. Reasoning is not sent."""
    done: list[Message] = []
    for message in messages:
        message = replace(message, reasoning=None)
        last = done[-1] if done else None
        if last is None or message.role != last.role or message.role == "tool":
            done.append(message)
            continue
        texts = [text for text in (last.content, message.content) if text]
        done[-1] = replace(
            last, content=BLOCK_SEPARATOR.join(texts), tool_calls=(*last.tool_calls, *message.tool_calls)
        )
    return tuple(done)


def _system_end(messages: Sequence[Message]) -> int:
    return next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
