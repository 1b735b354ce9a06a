"""Reading fields of foreign JSON, strictly and with one line for what does not fit.

Knows JSON values and where they stood; knows no API.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from harness.errors import TailgaugeError
from harness.types import Message, ToolSpec

UNREAD = "unread_arguments"
"""The one argument of a call whose arguments a model wrote as something else than a JSON object: their text."""
BLOCK_SEPARATOR = "\n\n"
MAX_DEPTH = 100
"""Nesting of JSON beyond which nobody wrote it by hand or by a tool."""


class TraceError(TailgaugeError):
    """A recorded conversation is not in the form that was expected; the line names file, place and reason."""


def kind(value: object) -> str:
    """A JSON value's kind, for an error's line."""
    if isinstance(value, dict):
        keys = ", ".join(repr(key[:30]) for key in list(value)[:6])
        return f"an object with the keys {keys}" if keys else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return "a text" if value else "an empty text"
    return "nothing" if value is None else f"{value!r:.30}"


def clean(value: Any, where: str, depth: int = 0) -> Any:
    """The JSON value without lone surrogates, which no API and no tokenizer takes: U+FFFD stands for each.

    Raises TraceError for nesting deeper than MAX_DEPTH.
    """
    if depth > MAX_DEPTH:
        raise TraceError(f"{where} is nested more than {MAX_DEPTH} levels deep, which no trajectory is")
    if isinstance(value, str):
        return (
            value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, dict):
        return {clean(key, where): clean(item, where, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item, where, depth + 1) for item in value]
    return value


def expect_object(value: object, where: str, what: str) -> dict[str, Any]:
    """The value, when it is an object; else raises TraceError: `where` has `kind`, expected `what`."""
    if not isinstance(value, dict):
        raise TraceError(f"{where} is {kind(value)}; expected {what}")
    return value


def expect_list(value: object, where: str, what: str) -> list[Any]:
    """The value, when it is a list; nothing counts as an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise TraceError(f"{where} is {kind(value)}; expected {what}")
    return value


def text(value: object, where: str) -> str:
    """A text field; nothing is ''."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TraceError(f"{where} is {kind(value)}; expected a text")
    return value


def name(value: object, where: str) -> str:
    """A text field that must not be empty."""
    if not isinstance(value, str) or not value:
        raise TraceError(f"{where} is {kind(value)}; expected a name")
    return value


def content(value: object, where: str) -> str:
    """A message's content: a text, or parts of which the texts are joined as blocks. A part that is no text, such
    as an image, leaves its kind in brackets."""
    if not isinstance(value, list):
        return text(value, where)
    blocks = []
    for number, part in enumerate(value):
        at = f"{where}[{number}]"
        if isinstance(part, str):
            blocks.append(part)
            continue
        part = expect_object(part, at, "a content part with a type")
        label = name(part.get("type"), f"{at}.type")
        blocks.append(
            text(part.get("text"), f"{at}.text") if label.endswith("text") else f"[{flat_label(label)}]"
        )
    return BLOCK_SEPARATOR.join(block for block in blocks if block)


def flat_label(label: str) -> str:
    """A part's kind as a short word of letters, digits and underscores."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in label[:30])


def arguments(value: object, where: str) -> dict[str, Any]:
    """Arguments of a call: an object, or one as JSON text. What a model wrote instead of an object is kept as it is
    under the key `unread_arguments`: a malformed call is data too."""
    if value is None or value == "":
        return {}
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        raise TraceError(f"{where} is {kind(value)}; expected an object or its JSON text")
    try:
        read = clean(json.loads(value, parse_constant=lambda _: None), where)
    except (ValueError, RecursionError, TraceError):
        return {UNREAD: value}
    return read if isinstance(read, dict) else {UNREAD: value}


def time(value: object, where: str) -> str | None:
    """A time as ISO 8601: from such a text, or from seconds since 1970."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            datetime.fromisoformat(value)
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        pass
    raise TraceError(f"{where} is {kind(value)}; expected an ISO 8601 time or seconds since 1970")


def known(value: object, where: str) -> dict[str, Any]:
    """What a record says that the framework knew beside the text (`Message.known`): an object, nothing as an empty
    one."""
    return {} if value is None else expect_object(value, where, "an object such as {cwd: /work}")


def tool(entry: Mapping[str, Any], schema: str, where: str) -> ToolSpec:
    """A tool offered, from the object with its name, description and schema."""
    parameters = entry.get(schema)
    return ToolSpec(
        name(entry.get("name"), f"{where}.name"),
        text(entry.get("description"), f"{where}.description"),
        expect_object({} if parameters is None else parameters, f"{where}.{schema}", "a JSON schema"),
    )


def named_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with each result named after the call that it answers, where the result does not say."""
    names: dict[str, str] = {}
    done = []
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls if call.id}
        if message.role == "tool" and message.name is None and message.tool_call_id in names:
            message = replace(message, name=names[message.tool_call_id])
        done.append(message)
    return tuple(done)
