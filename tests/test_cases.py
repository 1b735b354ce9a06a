"""State over recorded traces of real agents: counts that were made by hand or published with them."""

import json
from pathlib import Path
from typing import Any

from harness.state import AgentState, derive
from harness.types import Message, ToolCall


def read(messages: list[dict[str, Any]]) -> AgentState:
    """The state of a conversation in the OpenAI dialect (arguments are JSON in a string)."""
    return derive(
        Message(
            role=message["role"],
            content=message.get("content") or "",
            tool_calls=tuple(
                ToolCall(call["function"]["name"], json.loads(call["function"]["arguments"]), id=call["id"])
                for call in message.get("tool_calls") or ()
            ),
        )
        for message in messages
    )


def test_three_calls_to_xfinity_are_counted_through_the_searches_between_them(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "openai" / "xfinity.json").read_text(encoding="utf-8"))
    state = read(case["messages"])
    assert state.count("phone_call", "merchant", "Xfinity") == 3
    assert state.calls["web_search"].total > 0


def test_calls_and_identical_calls_of_real_airline_trajectories(cases_dir: Path) -> None:
    trajectories = json.loads((cases_dir / "tau_bench" / "airline_sample.json").read_text(encoding="utf-8"))
    states = [read(trajectory["traj"]) for trajectory in trajectories]
    totals = [sum(counted.total for counted in state.calls.values()) for state in states]
    assert totals == [14, 3, 5, 1, 1, 16, 2, 6, 5, 23, 4, 20, 1, 1, 1, 0, 18]
    repeats = [max(state.identical.values(), default=0) for state in states]
    assert repeats == [3, 1, 1, 1, 1, 3, 1, 1, 1, 4, 1, 1, 1, 1, 1, 0, 2]
