"""Claims about harness/state on records of real agents: the counts are those of the cases' own documentation."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from harness.state import AgentState, Latest, StateBuilder, argument_hash, derive
from harness.types import Message, ToolCall


def _airline_message(raw: dict[str, Any]) -> Message:
    calls = tuple(
        ToolCall(c["function"]["name"], json.loads(c["function"]["arguments"]), c["id"])
        for c in raw.get("tool_calls") or ()
    )
    return Message(raw["role"], raw["content"] or "", calls, None, raw.get("tool_call_id"), raw.get("name"))


@pytest.fixture(scope="module")
def airline(cases_dir: Path) -> list[list[dict[str, Any]]]:
    found = json.loads((cases_dir / "tau_bench" / "airline_sample.json").read_text())
    return [trajectory["traj"] for trajectory in found]


def _steps(cases_dir: Path, name: str) -> list[Message]:
    """A SWE-agent run: each action as a command in a shell, each observation as its result."""
    found = [Message("user", "Solve the task.")]
    for step in json.loads((cases_dir / "swe_agent" / f"{name}.traj").read_text())["trajectory"]:
        found.append(Message("assistant", step["thought"], (ToolCall("bash", {"command": step["action"]}),)))
        found.append(Message("tool", step["observation"], name="bash"))
    return found


def _latest(messages: list[Message]) -> list[Latest]:
    """The facts about every result."""
    builder = StateBuilder()
    found = []
    for message in messages:
        builder.advance(message)
        latest = builder.state().latest
        if latest is not None and latest.role == "tool":
            found.append(latest)
    return found


def _states(airline: list[list[dict[str, Any]]]) -> list[AgentState]:
    return [derive(map(_airline_message, raw)) for raw in airline]


def test_the_airline_calls_errors_and_repeats_are_counted_right(airline: list[list[dict[str, Any]]]) -> None:
    states = _states(airline)
    assert [s.tool_calls for s in states] == [14, 3, 5, 1, 1, 16, 2, 6, 5, 23, 4, 20, 1, 1, 1, 0, 18]
    assert [s.tool_calls for s in states] == [sum(c.total for c in s.calls.values()) for s in states]
    repeats = [max(s.identical.values(), default=0) for s in states]
    assert repeats == [3, 1, 1, 1, 1, 3, 1, 1, 1, 4, 1, 1, 1, 1, 1, 0, 2]
    results = [_latest(list(map(_airline_message, raw))) for raw in airline]
    errors = [sum(latest.failed for latest in each) for each in results]
    assert errors == [6, 0, 0, 0, 0, 3, 0, 1, 0, 5, 0, 1, 0, 0, 0, 0, 3]
    assert {latest.error for each in results for latest in each if latest.failed} == {"Error"}
    assert all(latest.call is not None for each in results for latest in each)


def test_one_airline_call_repeats_in_other_bytes(airline: list[list[dict[str, Any]]]) -> None:
    spellings: dict[tuple[int, str], set[str]] = defaultdict(set)
    for number, raw in enumerate(airline):
        for call in (c["function"] for m in raw for c in m.get("tool_calls") or ()):
            identity = argument_hash(call["name"], json.loads(call["arguments"]))
            spellings[number, identity].add(call["arguments"])
    assert sum(len(raw) > 1 for raw in spellings.values()) == 1


@pytest.mark.parametrize(
    ("count", "blocked", "trajectories"), [("identical_ever", 5, 3), ("identical", 4, 2)]
)
def test_a_guard_at_three_blocks_as_many_airline_calls_as_documented(
    airline: list[list[dict[str, Any]]], count: str, blocked: int, trajectories: int
) -> None:
    results = [_latest(list(map(_airline_message, raw))) for raw in airline]
    each = [sum(getattr(latest, count) >= 3 for latest in found) for found in results]
    assert (sum(each), sum(n > 0 for n in each)) == (blocked, trajectories)


def test_repeats_with_changing_results_are_told_from_repeats_with_the_same(cases_dir: Path) -> None:
    changing = _latest(_steps(cases_dir, "repeats_with_changing_results"))
    runs = [
        latest
        for latest in changing
        if latest.call and "python decrypt.py" in latest.call.arguments["command"]
    ]
    assert [latest.identical for latest in runs] == [1, 2, 3, 4]
    assert [latest.same_result for latest in runs] == [1, 1, 1, 1]
    assert max(latest.same_result for latest in changing) == 2
    same = _latest(_steps(cases_dir, "repeats_same_wrong_answer"))
    assert [latest.same_result for latest in same if latest.identical > 1] == [2, 3, 4]
    assert [latest.identical for latest in same if latest.identical > 1] == [2, 3, 4]


def test_a_shell_session_tells_what_was_read_and_edited(cases_dir: Path) -> None:
    state = derive(_steps(cases_dir, "repeats_with_changing_results"))
    assert [read.path for read in state.reads] == ["decrypt.py", "chall.py"]
    assert {active.path for active in state.working_set} >= {"decrypt.py", "chall.py"}
    assert state.calls["bash"].total == state.tool_calls == 16
    assert derive(_steps(cases_dir, "repeats_same_wrong_answer")).tool_calls == 14


def test_the_list_of_a_claude_code_session_is_read(cases_dir: Path) -> None:
    messages: list[Message] = []
    for line in (cases_dir / "claude_code" / "todowrite.jsonl").read_text().splitlines():
        entry = json.loads(line)
        content = entry.get("message", {}).get("content")
        if isinstance(content, str):
            messages.append(Message("user", content, time=entry["timestamp"]))
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_use":
                call = ToolCall(block["name"], block["input"], block["id"])
                messages.append(Message("assistant", "", (call,), time=entry["timestamp"]))
            elif block["type"] == "tool_result":
                result = Message("tool", block["content"], tool_call_id=block["tool_use_id"])
                messages.append(result)
    state = derive(messages)
    assert state.calls["TodoWrite"].total == 3
    assert [(item.id, item.status) for item in state.todos.items] == [
        (1, "completed"),
        (2, "completed"),
        (3, "in_progress"),
        (4, "pending"),
        (5, "pending"),
        (6, "pending"),
    ]
    assert (state.todos.percent, state.todos.in_progress_id, state.date) == (33, 3, "2025-06-14")
