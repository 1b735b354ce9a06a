"""Messages of the chat APIs, as tau-bench and most frameworks record them, OpenAI's or Anthropic's.

Knows the objects around the messages; the messages themselves are read by harness/dialects.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.dialects import anthropic, openai
from harness.dialects.fields import expect_list
from harness.traces.trajectory import Trajectory, numbered

KEYS = ("traj", "messages")
"""Where an object has its messages."""
_ANTHROPIC_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})


def is_messages(value: object) -> bool:
    """Is this a list of messages (of which the first has a role)?"""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "role" in value[0]


def is_run(value: Mapping[str, Any]) -> bool:
    """Does this object hold messages?"""
    return any(key in value for key in KEYS)


def trajectory(value: Mapping[str, Any], id: str, source: str, where: str) -> Trajectory:
    """A run from an object with `traj` or `messages`, and perhaps `tools`, `system` and facts. Raises TraceError."""
    key = next(key for key in KEYS if key in value)
    at = f"{where}{key}"
    entries = expect_list(value[key], at, "a list of messages")
    if _is_anthropic(value, entries):
        messages = anthropic.read_messages(entries, value.get("system"), at)
        tools, form = anthropic.read_tools(value.get("tools"), f"{where}tools"), "anthropic"
    else:
        messages = openai.read_messages(entries, at)
        tools, form = openai.read_tools(value.get("tools"), f"{where}tools"), "openai"
    return Trajectory(id, numbered(messages), tools, source, form, facts(value))


def facts(value: Mapping[str, Any]) -> dict[str, Any]:
    """What an object and its `info` say in single values."""
    info = value.get("info")
    told = {**(info if isinstance(info, dict) else {}), **value}
    return {
        key: said
        for key, said in told.items()
        if key != "system" and (said is None or isinstance(said, str | int | float))
    }


def _is_anthropic(value: Mapping[str, Any], entries: Sequence[Any]) -> bool:
    if "system" in value:
        return True
    tools = value.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools):
        return True
    blocks = (entry.get("content") for entry in entries if isinstance(entry, dict))
    return any(
        isinstance(block, dict) and block.get("type") in _ANTHROPIC_BLOCKS
        for content in blocks
        if isinstance(content, list)
        for block in content
    )
