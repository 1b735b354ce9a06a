"""Runs of SWE-agent: `.traj` files with a `history` of messages and a `trajectory` of steps.

Newer files hold the model's own tool calls in `history`, which is then the conversation. In older ones the model
wrote its command as text; there each step becomes an assistant message with a call whose argument is the command,
and the observation its result (fields: SWE-agent's documentation, "Output files").
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.dialects import openai
from harness.dialects.fields import expect_list, expect_object, text
from harness.traces.openai import facts
from harness.traces.trajectory import Trajectory, numbered
from harness.types import Message, ToolCall

TOOL, ARGUMENT = "bash", "command"
"""How the call of a step is named that was written as text."""


def is_run(value: Mapping[str, Any]) -> bool:
    """Does this object hold SWE-agent's steps?"""
    return isinstance(value.get("trajectory"), list) and "messages" not in value


def trajectory(value: Mapping[str, Any], id: str, source: str, where: str) -> Trajectory:
    """A run from a `.traj` object. Raises TraceError."""
    history = expect_list(value.get("history"), f"{where}history", "a list of messages")
    steps = [
        expect_object(step, f"{where}trajectory[{i}]", "a step with action and observation")
        for i, step in enumerate(expect_list(value["trajectory"], f"{where}trajectory", "a list of steps"))
    ]
    native = any(isinstance(entry, dict) and entry.get("tool_calls") for entry in history)
    messages = _history(history, where) if native else _head(history, where)
    if not native:
        for number, step in enumerate(steps):
            messages += _step(step, f"{where}trajectory[{number}]")
    told = facts(value) | {"steps": len(steps)}
    return Trajectory(id, numbered(_at(messages, steps)), (), source, "swe_agent", told)


def _history(history: list[Any], where: str) -> list[Message]:
    """The conversation itself; a result states the ids of its calls in a list."""
    entries = []
    for entry in history:
        ids = entry.get("tool_call_ids") if isinstance(entry, dict) else None
        entries.append({**entry, "tool_call_id": ids[0]} if isinstance(ids, list) and ids else entry)
    return list(openai.read_messages(entries, f"{where}history"))


def _head(history: list[Any], where: str) -> list[Message]:
    """What the model was told before its first answer."""
    first = next(
        (i for i, e in enumerate(history) if isinstance(e, dict) and e.get("role") == "assistant"),
        len(history),
    )
    return list(openai.read_messages(history[:first], f"{where}history"))


def _step(step: Mapping[str, Any], where: str) -> list[Message]:
    """Thought and action as one assistant message, then what came back; without an action a plain exchange."""
    thought = text(step.get("thought"), f"{where}.thought").strip()
    command = text(step.get("action"), f"{where}.action").strip()
    observation = text(step.get("observation"), f"{where}.observation")
    if not command:
        said = thought or text(step.get("response"), f"{where}.response").strip()
        answer = [Message("user", observation)] if observation.strip() else []
        return [Message("assistant", said), *answer]
    call = ToolCall(TOOL, {ARGUMENT: command})
    return [Message("assistant", thought, tool_calls=(call,)), Message("tool", observation)]


def _at(messages: list[Message], steps: list[dict[str, Any]]) -> list[Message]:
    """The working directory after each step, where there is one result for each."""
    results = [number for number, message in enumerate(messages) if message.role == "tool"]
    if len(results) != len(steps):
        return messages
    done = list(messages)
    for number, step in zip(results, steps, strict=True):
        folder = _folder(step.get("state"))
        if folder:
            done[number] = replace(done[number], known={**done[number].known, "cwd": folder})
    return done


def _folder(state: object) -> str | None:
    """`working_dir` of a step's state, an object or its JSON text; None where it does not say."""
    if isinstance(state, str):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError):
            return None
    folder = state.get("working_dir") if isinstance(state, dict) else None
    return folder if isinstance(folder, str) and folder else None
