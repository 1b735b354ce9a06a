"""Claims about the loop guard and the tool counter: what they say in which result, and what they leave alone."""

import json
from itertools import count

import pytest
from alert_states import last, said, turns
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.state import ATTEMPTS, argument_hash
from harness.statusbar.guard_counts import Limits
from harness.statusbar.loop_guard import LoopGuard, blocked
from harness.statusbar.tool_counter import ToolCounter
from harness.types import Message, ToolCall

READ = ("read_file", {"path": "src/app.py", "limit": 100}, "text")
PLAIN = LoopGuard(advice=False)


def steps(messages: list[Message], guard: LoopGuard = PLAIN) -> list[tuple[str, int]]:
    return [(trip.step, trip.count) for trip in blocked(messages, guard)]


def calls(*arguments: dict[str, object], text: str = "ok") -> list[Message]:
    return turns(*[("search", each, text) for each in arguments])


# -- golden texts ------------------------------------------------------------------------------------------


def test_the_third_identical_call_is_blocked_and_the_count_includes_it() -> None:
    texts = said(LoopGuard(), turns(READ, READ, READ))
    assert texts[:-1] == [None] * 5
    assert texts[-1] == (
        "Blocked: this call of 'read_file' has already been made 3 times this turn with the same arguments.\n"
        "Change the arguments or take another way."
    )


def test_a_tool_that_fails_three_times_is_warned_about_once_and_at_eight_halted() -> None:
    messages = turns(*[("fetch", {"page": n}, "Error: gone") for n in range(9)])
    texts = said(LoopGuard(), messages)[1::2]
    assert texts == [
        None,
        None,
        "Warning: 'fetch' has failed 3 times in a row.\nFind out why before the next call.",
        *[None] * 4,
        "Halted: 'fetch' has failed 8 times in a row.\n"
        "Make no further call of it and say what stands in the way.",
        "Halted: 'fetch' has failed 9 times in a row.\n"
        "Make no further call of it and say what stands in the way.",
    ]


def test_the_wording_follows_the_options() -> None:
    thrice = turns(READ, READ, READ)
    head = "this call of 'read_file' has already been made 3 times"
    same = "with the same arguments"
    assert last(PLAIN, thrice) == f"Blocked: {head} this turn {same}."
    assert last(LoopGuard(advice=False, reset="never"), thrice) == f"Blocked: {head} {same}."
    assert last(LoopGuard(advice=False, action="warn"), thrice) == f"Warning: {head} this turn {same}."
    assert (
        last(LoopGuard(advice=False, aware="results"), thrice)
        == f"Blocked: {head} this turn {same} and the same result."
    )


def test_a_block_and_a_halt_stand_in_one_result() -> None:
    texts = said(PLAIN, turns(*[("fetch", {}, "Error: gone")] * 8))
    assert texts[-1] == (
        "Blocked: this call of 'fetch' has already been made 8 times this turn with the same arguments.\n"
        "Halted: 'fetch' has failed 8 times in a row."
    )


def test_each_result_says_the_number_of_its_call() -> None:
    other = ("list_dir", {"path": "."}, "app.py")
    texts = said(ToolCounter(), turns(READ, other, READ, READ))
    assert texts[1::2] == [
        "Tool call #1 for 'read_file'",
        "Tool call #1 for 'list_dir'",
        "Tool call #2 for 'read_file'",
        "Tool call #3 for 'read_file'",
    ]
    assert texts[::2] == [None] * 4  # no result, no number


def test_parallel_calls_are_numbered_one_by_one() -> None:
    two = tuple(ToolCall("read_file", {"path": "a"}, id=name) for name in ("one", "two"))
    results = [Message("tool", "x", tool_call_id=call.id, name="read_file") for call in two]
    assert said(ToolCounter(), [Message("assistant", tool_calls=two), *results])[1:] == [
        "Tool call #1 for 'read_file'",
        "Tool call #2 for 'read_file'",
    ]


def test_a_result_without_a_call_has_no_number_and_no_alert() -> None:
    for bar in (ToolCounter(), LoopGuard()):
        assert said(bar, [Message("user", "Hello"), Message("tool", "Error: x", name="fetch")]) == [
            None,
            None,
        ]


# -- what is the same call -----------------------------------------------------------------------------------


def test_repeats_need_not_be_adjacent() -> None:
    between = ("search", {"query": "other"}, "ok")
    same = ("search", {"query": "a"}, "ok")
    assert steps(turns(same, between, same, between, same)) == [("block", 3)]


def test_the_order_of_keys_is_no_difference_at_any_depth() -> None:
    one = {"a": {"x": 1, "y": [2, {"p": 1, "q": 2}]}, "b": 1}
    other = {"b": 1, "a": {"y": [2, {"q": 2, "p": 1}], "x": 1}}
    assert steps(calls(one, other, one)) == [("block", 3)]


@pytest.mark.parametrize(
    "third",
    [{"ids": [2, 1], "n": 1}, {"ids": [1, 2], "n": 1.0}, {"ids": [1, 2], "n": "1"}, {"ids": [1, 2], "n": 2}],
    ids=["array order", "number spelling", "type", "next page"],
)
def test_another_call_is_no_repeat(third: dict[str, object]) -> None:
    first = {"ids": [1, 2], "n": 1}
    assert steps(calls(first, first, third)) == []
    assert steps(calls(first, first, first)) == [("block", 3)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def _turned(value: object) -> object:
    """The same value with every mapping's keys in reverse order."""
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(value)}
    return [_turned(each) for each in value] if isinstance(value, list) else value


@settings(max_examples=40)
@given(arguments=st.dictionaries(st.text(max_size=3), JSON, max_size=4), other=JSON)
def test_identity_is_canonical_json(arguments: dict[str, object], other: object) -> None:
    turned = _turned(arguments)
    assert argument_hash("t", arguments) == argument_hash("t", turned)  # type: ignore[arg-type]
    changed = {**arguments, "new key": other}
    same = json.dumps(arguments, sort_keys=True) == json.dumps(changed, sort_keys=True)
    assert (argument_hash("t", arguments) == argument_hash("t", changed)) == same
    assert argument_hash("t", arguments) != argument_hash("u", arguments)


def test_a_user_message_begins_a_new_count_unless_told_otherwise() -> None:
    messages = [*turns(READ, READ), Message("user", "go on"), *turns(READ, start=2)]
    assert steps(messages) == []
    assert steps(messages, LoopGuard(reset="never")) == [("block", 3)]
    assert steps([*messages, *turns(READ, READ, start=3)]) == [("block", 3)]


def test_polling_is_spared_by_a_guard_that_sees_results() -> None:
    polls = turns(*[("status", {"job": 7}, f"{percent} %") for percent in (10, 40, 80, 80, 80)])
    assert steps(polls) == [("block", 3), ("block", 4), ("block", 5), ("warn", 3)]
    assert steps(polls, LoopGuard(aware="results")) == [("block", 3)]


# -- rows of failures ----------------------------------------------------------------------------------------


def fails(text: str, *pages: int) -> list[tuple[str, dict[str, int], str]]:
    return [("fetch", {"page": page}, text) for page in pages]


def test_only_a_success_of_the_same_tool_ends_a_row() -> None:
    fail, ok = fails("Error: x", 1, 2), [("list_dir", {}, "ok")]
    assert steps(turns(*fail, *ok, *fails("Error: x", 3))) == [("warn", 3)]
    assert steps([*turns(*fail), Message("user", "and?"), *turns(*fails("Error: x", 3), start=2)]) == [
        ("warn", 3)
    ]
    assert steps(turns(*fail, *fails("fine", 3), *fails("Error: x", 4, 5))) == []
    again = [*fails("Error: x", 1, 2, 3), *fails("fine", 4), *fails("Error: x", 5, 6, 7)]
    assert steps(turns(*again)) == [("warn", 3), ("warn", 3)]


def test_a_blocked_call_is_a_failure_so_that_a_loop_of_successes_is_halted() -> None:
    loop = turns(*[READ] * 10)
    assert [step for step in steps(loop) if step[0] != "block"] == [("warn", 3), ("halt", 8)]
    for lenient in (LoopGuard(blocked_fails=False), LoopGuard(action="warn")):
        assert {step for step, _ in steps(loop, lenient)} == {"block"}


@settings(max_examples=60)
@given(
    made=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["ok", "Error: x", "user"])), max_size=25),
    guard=st.builds(
        LoopGuard,
        repeats=st.sampled_from([None, 2, 3]),
        warn=st.sampled_from([None, 1, 3]),
        halt=st.sampled_from([None, 4, 8]),
        aware=st.sampled_from(["arguments", "results"]),
        reset=st.sampled_from(["user_turn", "never"]),
        blocked_fails=st.booleans(),
        advice=st.just(False),
    ),
)
def test_the_bar_says_in_each_result_what_the_count_over_the_transcript_says(
    made: list[tuple[int, str]], guard: LoopGuard
) -> None:
    messages: list[Message] = []
    number = count()
    for page, text in made:
        messages += (
            [Message("user", "go on")] if text == "user" else turns(*fails(text, page), start=next(number))
        )
    texts = said(guard, messages)
    trips = blocked(messages, guard)
    assert [n for n, text in enumerate(texts) if text] == sorted({trip.message for trip in trips})
    for trip in trips:
        stated = (
            f"at least {ATTEMPTS}" if trip.step != "block" and trip.count >= ATTEMPTS else str(trip.count)
        )
        word = "time" if stated == "1" else "times"
        shown = f"made {stated} times" if trip.step == "block" else f"failed {stated} {word} in a row"
        assert shown in (texts[trip.message] or "")


# -- options that make no sense --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        ({"aware": "mood"}, "aware='mood': expected arguments or results"),
        ({"reset": "daily"}, "reset='daily': expected user_turn or never"),
        ({"action": "shout"}, "action='shout': expected block or warn"),
        ({"repeats": 1}, "repeats=1: expected 2 or more"),
        ({"halt": 17}, "halt=17: expected a number of failures from 1 to 16"),
        ({"warn": 0}, "warn=0"),
    ],
)
def test_options_out_of_range_are_refused_with_what_was_expected(
    options: dict[str, object], stated: str
) -> None:
    with pytest.raises(ValueError, match=stated):
        LoopGuard(**options)  # type: ignore[arg-type]


def test_limits_are_the_guards_own() -> None:
    assert LoopGuard().limits == Limits() and LoopGuard(action="warn").limits == Limits(blocked_fails=False)
