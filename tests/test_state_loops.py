"""Claims about the facts of loops: which call a result answers, how often the same was tried, what counts as failed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.state import AgentState, Latest, StateBuilder, derive
from harness.types import Message, ToolCall


def call(value: str = "x", tool: str = "look", id: str = "") -> Message:
    return Message("assistant", "", (ToolCall(tool, {"at": value}, id),))


def back(text: str = "ok", tool: str = "look", id: str | None = None, error: str | None = None) -> Message:
    return Message("tool", text, tool_call_id=id, name=tool, error=error)


def latest(*messages: Message) -> Latest:
    found = derive(messages).latest
    assert found is not None
    return found


def counts(*messages: Message) -> tuple[int, int, int]:
    found = latest(*messages)
    return found.calls, found.identical, found.same_result


def test_a_result_is_told_which_call_it_answers_and_how_often_that_was_made() -> None:
    found = latest(Message("user", "go"), call(), back(), call("y"), back(), call(), back("other"))
    assert found.call == ToolCall("look", {"at": "x"})
    assert (found.role, found.text, found.number) == ("tool", "other", 6)
    assert (found.calls, found.identical, found.same_result) == (3, 2, 1)


def test_repeats_need_not_be_adjacent_and_other_arguments_never_count() -> None:
    assert counts(call(), back(), call("page 2"), back(), call("page 3"), back()) == (3, 1, 1)
    assert counts(
        call(), back(), call("y"), back(), call(), back(), call(tool="b"), back(tool="b"), call(), back()
    ) == (
        4,
        3,
        3,
    )


def test_the_counts_of_a_turn_begin_again_with_each_user_message_and_those_of_the_transcript_do_not() -> None:
    before = (call(), back(), call(), back())
    assert counts(*before) == (2, 2, 2)
    after = (*before, Message("user", "again"), call(), back())
    assert counts(*after) == (3, 1, 1)
    assert (latest(*after).identical_ever, latest(*after).same_result_ever) == (3, 3)
    assert counts(*before, Message("system", "note"), Message("assistant", "hm"), call(), back()) == (3, 3, 3)


def test_the_order_of_keys_makes_no_other_call_and_the_order_of_a_list_does() -> None:
    def made(arguments: dict[str, Any]) -> Message:
        return Message("assistant", "", (ToolCall("look", arguments),))

    one, other = made({"a": 1, "b": {"c": 2, "d": 3}}), made({"b": {"d": 3, "c": 2}, "a": 1})
    assert counts(one, back(), other, back())[1] == 2
    assert counts(made({"a": [1, 2]}), back(), made({"a": [2, 1]}), back())[1] == 1
    assert counts(made({"a": 1}), back(), made({"a": 1.0}), back())[1] == 1


def test_parallel_calls_are_answered_by_id_in_any_order() -> None:
    first, second = ToolCall("look", {"at": "x"}, "a"), ToolCall("look", {"at": "y"}, "b")
    both = Message("assistant", "", (first, second))
    assert latest(both, back(id="b")).call == second
    assert latest(both, back(id="b"), back(id="a")).call == first
    assert latest(both, back(id="b"), back(id="b")).call != second, "a call is answered once"


def test_without_ids_results_come_in_the_order_of_the_calls_of_their_tool() -> None:
    one, two, three = ToolCall("a", {"n": 1}), ToolCall("b", {"n": 2}), ToolCall("a", {"n": 3})
    both = Message("assistant", "", (one, two, three))
    assert latest(both, back(tool="b")).call == two
    assert latest(both, back(tool="b"), back(tool="a")).call == one
    assert latest(both, Message("tool", "x"), Message("tool", "x"), Message("tool", "x")).call == three
    assert latest(both, back(tool="c")).call is None
    assert latest(Message("assistant", "", (ToolCall("a", {}, "1"),)), back(tool="a", id="lost")).call is None


def test_a_result_without_a_call_is_only_a_text() -> None:
    found = latest(Message("user", "go"), back("Error: no"))
    assert (found.call, found.failed, found.calls, found.identical, found.same_result) == (
        None,
        True,
        0,
        0,
        0,
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Error: not found", "Error"),
        ("\n  Error", "Error"),
        ("error: not found", "error"),
        ("ERROR: not found", "error"),
        ("Exception in thread main", "Exception"),
        ("ValueError: no", "ValueError"),
        ("botocore.exceptions.ClientError: no", "botocore.exceptions.ClientError"),
        ("Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 'x'", "KeyError"),
        ("Traceback (most recent call last):", "Traceback"),
        ('{"error": "not_found"}', "not_found"),
        ('{"error": "no such file"}', "error"),
        (' {"error": {"type": "timeout", "message": "…"}}', "timeout"),
        ('{"ok": false, "error": true}', "error"),
    ],
)
def test_a_failure_is_seen_in_the_text(text: str, error: str) -> None:
    found = latest(call(), back(text))
    assert (found.failed, found.error) == (True, error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok",
        "No Error: all fine",
        "Errors found: none",
        "Error-free build",
        "error handling is described below",
        '{"error": null}',
        '{"error": ""}',
        '{"error": false, "n": 1}',
        '{"data": {"error": "inner"}}',
        '[{"error": "x"}]',
        '{"error": "cut off',
        '{"error": ' + "[" * 100_000,
        "Traceback of a call",
    ],
)
def test_a_text_that_only_speaks_of_errors_is_no_failure(text: str) -> None:
    found = latest(call(), back(text))
    assert (found.failed, found.error) == (False, "")


def test_what_the_framework_says_decides_before_the_text() -> None:
    found = latest(call(), back("done", error="permission"))
    assert (found.failed, found.error) == (True, "permission")


def failing(*messages: Message) -> dict[str, int]:
    return dict(derive(messages).failing)


def test_a_streak_ends_with_that_tools_success_alone() -> None:
    bad = (call(), back("Error"), call(), back("Error"))
    assert failing(*bad) == {"look": 2} and latest(*bad).streak == 2
    other = (*bad, Message("user", "hm"), call(tool="b"), back(tool="b"))
    assert failing(*other) == {"look": 2} and latest(*other).streak == 0
    assert failing(*other, call(), back("Error")) == {"look": 3}
    assert failing(*other, call(), back("fine")) == {}
    assert failing(*other, call(), back("fine"), call(), back("Error")) == {"look": 1}


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from(["ok", "Error"]), st.booleans()
        ),
        max_size=12,
    )
)
def test_the_facts_are_those_of_counting_by_hand(steps: list[tuple[str, str, str, bool]]) -> None:
    builder = StateBuilder()
    made: list[tuple[str, str, str]] = []
    turn: list[tuple[str, str, str]] = []
    streaks = {"a": 0, "b": 0}
    for tool, value, text, user in steps:
        if user:
            builder.advance(Message("user", "next"))
            turn = []
        builder.advance(call(value, tool))
        builder.advance(back(text, tool))
        made.append((tool, value, text))
        turn.append((tool, value, text))
        streaks[tool] = streaks[tool] + 1 if text == "Error" else 0
        state: AgentState = builder.state()
        assert state.latest is not None
        assert state.latest.calls == sum(m[0] == tool for m in made)
        assert state.latest.identical == sum(m[:2] == (tool, value) for m in turn)
        assert state.latest.same_result == turn.count((tool, value, text))
        assert state.latest.identical_ever == sum(m[:2] == (tool, value) for m in made)
        assert state.latest.same_result_ever == made.count((tool, value, text))
        assert state.latest.streak == streaks[tool]
        assert state.failing == {t: n for t, n in streaks.items() if n}
