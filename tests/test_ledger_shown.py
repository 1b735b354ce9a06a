"""How often the model sees a bar: of the requests at which the bar has something to say, never of the silent ones."""

from dataclasses import replace

import pytest
from core_samples import sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.conditions import Condition
from harness.ledger import Bill, Row, Total, arms_of, bill, totals
from harness.ledger.rows import Engine
from harness.statusbar import AgentStatus, LastResult, Placement, StatusBar, Tail
from harness.statusbar.loop_guard import LoopGuard
from harness.statusbar.policies import Append, Event, Replace, Staleness, UpdatePolicy
from harness.statusbar.system_reminder import SystemReminder
from harness.statusbar.todo import Todo
from harness.template import ChatTemplate
from harness.types import Message, ToolCall, ToolSpec

BARS: dict[str, tuple[StatusBar, Placement]] = {
    "loop_guard": (LoopGuard(repeats=2), LastResult()),
    "todo_reminder": (SystemReminder(of=Todo(life="tool_result")), LastResult()),
    "agent_status": (AgentStatus(), Tail()),
}
POLICIES: dict[str, UpdatePolicy] = {
    "append": Append(), "staleness": Staleness(1), "event": Event(), "replace": Replace(),
}  # fmt: skip
TODO = [{"content": "Look", "status": "in_progress"}, {"content": "Write", "status": "pending"}]
STEPS = {
    "look": ToolCall("search", {"query": "tea"}),
    "list": ToolCall("todo_write", {"todos": TODO}),
    "clear": ToolCall("todo_write", {"todos": []}),
    "fail": ToolCall("search", {"query": "?"}),
}
TOOLS = tuple(
    ToolSpec(name, f"Tool {name}.", {"type": "object", "properties": {}}) for name in ("search", "todo_write")
)


def billed(steps: list[str], bar: str, template: ChatTemplate, policies: list[str]) -> Bill:
    """The bill of a conversation: `ask` is the user's, any other step a call and its result."""
    messages = [Message("system", "You help."), Message("user", "Begin.")]
    for number, step in enumerate(steps):
        if step == "ask":
            messages += [Message("assistant", "Done."), Message("user", "And now?")]
            continue
        call = replace(STEPS[step], id=f"c{number}")
        result = "Error: no" if step == "fail" else "ok"
        messages += [
            Message("assistant", tool_calls=(call,)),
            Message("tool", result, tool_call_id=call.id, name=call.name),
        ]
    each = replace(sample(messages), tools=TOOLS)
    conditions = [Condition(name, *BARS[bar], POLICIES[name]) for name in policies]
    return bill(each, template, arms_of(conditions), Engine(16))


def total(made: Bill, policy: str) -> Total:
    return next(each for each in totals(made, 0.1) if each.condition == policy)


def test_a_guard_that_spoke_once_is_not_shown_at_the_requests_at_which_it_is_silent(
    qwen: ChatTemplate,
) -> None:
    steps = ["look", "look", "list", "clear", "fail"]
    made = billed(steps, "loop_guard", qwen, ["append"])
    rows = made.of("append")
    spoke = [row.request for row in rows if row.drawn]
    assert spoke == [3], "the second call alone was one too many"
    assert [row.request for row in rows if row.copies] == [3, 4, 5, 6], "and its copy stands from there on"
    found = total(made, "append")
    assert (found.drawn, found.shown, found.outdated, found.left_over) == (1, 1, 0, 3)
    assert [row.up_to_date for row in rows] == [None, None, True, None, None, None]


@pytest.mark.parametrize("bar", BARS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(["ask", *STEPS]), min_size=1, max_size=8))
def test_a_bar_is_never_shown_more_often_than_it_has_something_to_say(
    qwen: ChatTemplate, bar: str, steps: list[str]
) -> None:
    made = billed(steps, bar, qwen, list(POLICIES))
    for found in totals(made, 0.1):
        rows: list[Row] = made.of(found.condition)
        assert 0 <= found.outdated <= found.shown <= found.drawn <= found.requests
        assert found.shown + found.left_over == sum(row.copies > 0 for row in rows)
        assert all((row.up_to_date is None) == (not row.drawn or not row.copies) for row in rows)
        assert found.put_in or not found.shown
