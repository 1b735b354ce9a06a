"""Claims about the todo list and the plan: which calls write them, in which spellings, and when they count."""

from typing import Any

import pytest
from core_samples import context
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.state import AgentState, Phase, Plan, TodoItem, TodoList, derive
from harness.statusbar.todo import Todo
from harness.types import Message, ToolCall


def done(*calls: ToolCall, result: str = "ok", error: str | None = None) -> AgentState:
    """The state after calls that are answered one after the other."""
    messages = [Message("user", "go")]
    for call in calls:
        messages += [Message("assistant", "", (call,)), Message("tool", result, name=call.name, error=error)]
    return derive(messages)


def items(state: AgentState) -> list[tuple[int, str, str]]:
    return [(item.id, item.content, item.status) for item in state.todos.items]


TWO = [{"content": "Plan", "status": "in_progress"}, {"content": "Build", "status": "pending"}]
READ = [(1, "Plan", "in_progress"), (2, "Build", "pending")]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("todo_write", {"todos": TWO}),
        ("checklist_write", {"todos": TWO}),
        ("TodoWrite", {"todos": TWO}),
        ("write_todos", {"items": TWO}),
        ("rewrite_todo_list", {"items": TWO}),
        ("update_plan", {"plan": [{"step": "Plan", "status": "in_progress"}, {"step": "Build"}]}),
        ("todo_write", {"todos": [{"title": " Plan ", "status": "InProgress"}, "Build"]}),
        ("todo_write", {"todos": [{"task": "Plan", "status": "[~]"}, {"text": "Build", "status": "[ ]"}]}),
        ("todo_write", {"todos": '[{"content": "Plan", "status": "doing"}, "Build"]'}),
    ],
)
def test_every_known_list_tool_and_spelling_gives_the_same_list(name: str, arguments: dict[str, Any]) -> None:
    assert items(done(ToolCall(name, arguments))) == READ


@pytest.mark.parametrize(
    ("spelling", "status"),
    [
        *((s, "pending") for s in ("pending", "todo", "open", "[ ]", "Pending", "unheard of", 7, None)),
        *(
            (s, "in_progress")
            for s in ("in_progress", "in-progress", "InProgress", "in progress", "doing", "[~]")
        ),
        *((s, "completed") for s in ("completed", "complete", "done", "[x]", "[X]", "[✓]", "Completed")),
    ],
)
def test_a_status_is_understood_in_each_spelling(spelling: object, status: str) -> None:
    state = done(ToolCall("todo_write", {"todos": [{"content": "a", "status": spelling}]}))
    assert items(state) == [(1, "a", status)]


def test_a_write_replaces_the_whole_list_and_an_empty_one_clears_it() -> None:
    first = ToolCall("todo_write", {"todos": TWO})
    assert items(done(first, ToolCall("todo_write", {"todos": ["Other"]}))) == [(1, "Other", "pending")]
    assert items(done(first, ToolCall("todo_write", {"todos": []}))) == []


def test_items_are_added_after_the_last_and_updated_by_id() -> None:
    state = done(
        ToolCall("todo_write", {"todos": TWO}),
        ToolCall("todo_add", {"content": "Test", "status": "in_progress"}),
        ToolCall("checklist_add", {"items": ["Ship"]}),
        ToolCall("todo_update", {"id": 2, "status": "done"}),
        ToolCall("checklist_update", {"id": "#4", "status": "in_progress"}),
    )
    expected = [
        (1, "Plan", "pending"),
        (2, "Build", "completed"),
        (3, "Test", "pending"),
        (4, "Ship", "in_progress"),
    ]
    assert items(state) == expected


def test_what_was_called_off_is_no_longer_on_the_list() -> None:
    write = ToolCall("todo_write", {"todos": [*TWO, {"content": "Nap", "status": "cancelled"}]})
    assert items(done(write)) == READ
    assert items(done(write, ToolCall("todo_update", {"id": 1, "status": "cancelled"}))) == READ[1:]


def test_a_list_counts_when_its_result_comes_in_and_only_if_that_is_no_failure() -> None:
    call = ToolCall("todo_write", {"todos": TWO})
    assert derive([Message("user", "go"), Message("assistant", "", (call,))]).todos == TodoList()
    assert done(call, result="Error: no such list").todos == TodoList()
    assert done(call, error="timeout").todos == TodoList()
    assert derive([Message("assistant", "I called todo_write")]).todos == TodoList()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("todo_write", {}),
        ("todo_write", {"todos": None}),
        ("todo_write", {"todos": "buy milk"}),
        ("todo_write", {"todos": "[" * 5000}),
        ("todo_write", {"todos": {"content": "a"}}),
        ("todo_add", {"content": 7}),
        ("todo_add", {}),
        ("todo_update", {"id": 9, "status": "done"}),
        ("todo_update", {"id": True, "status": "done"}),
        ("todo_update", {"id": "²", "status": "done"}),
        ("todo_update", {"id": 1}),
        ("todo_list", {"todos": ["x"]}),
        ("add_note", {"content": "x"}),
    ],
)
def test_arguments_that_make_no_sense_change_nothing(name: str, arguments: dict[str, Any]) -> None:
    state = done(ToolCall("todo_write", {"todos": TWO}), ToolCall(name, arguments))
    assert items(state) == READ
    assert state.todos_age == 1


def test_entries_without_words_are_left_out() -> None:
    state = done(ToolCall("todo_write", {"todos": [None, 3, {}, {"content": " "}, {"content": "a"}, ["b"]]}))
    assert items(state) == [(1, "a", "pending")]


def test_the_age_counts_requests_since_the_last_write() -> None:
    call = ToolCall("todo_write", {"todos": TWO})
    messages = [Message("user", "go"), Message("assistant", "", (call,)), Message("tool", "ok")]
    assert derive(messages).todos_age == 0
    messages += [Message("assistant", "thinking"), Message("user", "and?"), Message("assistant", "so")]
    assert derive(messages).todos_age == 2
    assert derive(messages[3:]).todos_age == 0, "there is no list whose age could be told"


def test_a_plan_is_read_field_by_field_beside_the_list() -> None:
    call = ToolCall(
        "set_plan",
        {
            "title": "Ship it",
            "context": "Two services",
            "constraints": ["no downtime", "one day"],
            "recommended_approach": "Small steps",
            "verification_plan": "Run the suite",
            "phases": [{"title": "Now", "status": "in_progress"}, "Later", {}],
        },
    )
    phases = (Phase("Now", "in_progress"), Phase("Later"))
    plan = Plan("Ship it", "Two services", "no downtime; one day", "Small steps", "Run the suite", phases)
    state = done(ToolCall("todo_write", {"todos": TWO}), call)
    assert (state.plan, items(state)) == (plan, READ)
    later = done(call, ToolCall("update_plan", {"plan": ["Build"], "objective": "Ship it soon"}))
    assert later.plan.objective == "Ship it soon" and later.plan.phases == phases
    assert items(later) == [(1, "Build", "pending")]


_STATUS = st.sampled_from(
    ["pending", "in_progress", "completed", "cancelled", "doing", "[x]", "nonsense", None, 3]
)
_ITEM = (
    st.text(max_size=5)
    | st.none()
    | st.fixed_dictionaries({"content": st.text(max_size=5), "status": _STATUS})
)
_CALL = st.one_of(
    st.builds(lambda v: ToolCall("todo_write", {"todos": v}), st.lists(_ITEM, max_size=5) | st.integers()),
    st.builds(lambda c, s: ToolCall("todo_add", {"content": c, "status": s}), st.text(max_size=5), _STATUS),
    st.builds(lambda i, s: ToolCall("todo_update", {"id": i, "status": s}), st.integers(-1, 7) | st.text(), _STATUS),
    st.builds(lambda v: ToolCall("update_plan", {"plan": v, "title": v}), st.lists(_ITEM, max_size=3) | st.none()),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(calls=st.lists(_CALL, max_size=8))
def test_whatever_is_called_one_item_at_most_is_in_progress_and_ids_ascend_from_one(
    calls: list[ToolCall],
) -> None:
    todos = done(*calls).todos
    ids = [item.id for item in todos.items]
    assert sum(item.status == "in_progress" for item in todos.items) <= 1
    assert ids == sorted(set(ids)) and all(number >= 1 for number in ids)
    assert all(item.content.strip() for item in todos.items)
    total, finished = len(ids), sum(item.status == "completed" for item in todos.items)
    assert todos.percent == ((100 * finished + total // 2) // total if total else 0)


def test_the_percent_rounds_half_up_so_that_199_of_200_are_all() -> None:
    several = [TodoItem(n, "x", "completed" if n < 200 else "pending") for n in range(1, 201)]
    assert TodoList(tuple(several)).percent == 100
    assert TodoList().percent == 0
    assert TodoList.written([("a", "completed"), ("b", "pending"), ("c", "pending")]).percent == 33


def test_a_plan_without_a_list_writes_no_list() -> None:
    """The list's own result speaks after a call that changed the list, and after no other."""
    write = ToolCall("todo_write", {"todos": [{"content": "one", "status": "pending"}]}, id="c00000001")
    plan = ToolCall("set_plan", {"objective": "all of it"}, id="c00000002")
    both = ToolCall("update_plan", {"plan": [{"step": "one", "status": "completed"}]}, id="c00000003")
    said = [Todo().draw(done(*calls), context()) for calls in ((write,), (write, plan), (write, plan, both))]
    assert [drawn is not None for drawn in said] == [True, False, True]
