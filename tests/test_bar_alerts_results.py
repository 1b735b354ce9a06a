"""Claims about what stands at a message: its time, an error in four layers, how much of a result was cut."""

import json
from dataclasses import replace

import pytest
from alert_states import last, said, turns
from core_samples import context
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.state import AgentState, Latest
from harness.statusbar.detailed_errors import DetailedErrors
from harness.statusbar.timestamps import Timestamps
from harness.statusbar.truncation import GAP, Truncation, cut, cut_results
from harness.types import Message, ToolCall

# -- timestamps ------------------------------------------------------------------------------------------------


def at(*times: str | None) -> list[Message]:
    return [Message("user", "Hello", time=time) for time in times]


@pytest.mark.parametrize(
    ("granularity", "text"),
    [("day", "[2026-03-02]"), ("minute", "[2026-03-02 09:30]"), ("second", "[2026-03-02 09:30:59]")],
)
def test_the_time_is_shown_as_finely_as_asked_and_never_rounded_up(granularity: str, text: str) -> None:
    bar = Timestamps(granularity)  # type: ignore[arg-type]
    assert last(bar, at("2026-03-02T09:30:59.999")) == text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("2026-03-02T23:30:00+05:30", "[2026-03-02 23:30:00]"),
        ("2026-03-02T23:30:00Z", "[2026-03-02 23:30:00]"),
        ("2026-03-02 23:30", "[2026-03-02 23:30:00]"),
        ("2026-03-02", "[2026-03-02]"),
    ],
)
def test_a_time_is_shown_as_the_record_states_it(time: str, text: str) -> None:
    assert last(Timestamps(), at(time)) == text


def test_where_no_time_is_stated_a_made_up_clock_runs_by_message() -> None:
    messages = [Message("user", "Hi"), *turns(("fetch", {}, "ok"), ("fetch", {}, "ok"))]
    assert said(Timestamps(), messages)[::2] == [
        "[2026-03-02 09:00:00]",
        "[2026-03-02 09:02:00]",
        "[2026-03-02 09:04:00]",
    ]
    assert last(Timestamps(start="2030-01-01", step=3600), at(None, None)) == "[2030-01-01 01:00:00]"
    assert last(Timestamps(start=None), at(None)) is None


@pytest.mark.parametrize("unknown", [None, "yesterday", "</x>\n[2026-01-01]"])
def test_a_made_up_time_never_stands_among_true_ones(unknown: str | None) -> None:
    assert said(Timestamps(), at("2026-03-02T09:30:00", unknown)) == ["[2026-03-02 09:30:00]", None]


@settings(max_examples=40)
@given(st.datetimes(), st.sampled_from(["day", "minute", "second"]))
def test_a_stamp_is_a_prefix_of_the_time(moment, granularity: str) -> None:
    drawn = last(Timestamps(granularity), at(moment.isoformat()))
    assert drawn is not None and moment.isoformat(" ").startswith(drawn[1:-1])
    assert len(drawn) == {"day": 12, "minute": 18, "second": 21}[granularity]


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        ({"granularity": "hour"}, "granularity='hour': expected day or minute or second"),
        ({"step": -1}, "step=-1"),
        ({"start": "noon"}, "start='noon': expected an ISO 8601 time"),
        ({"start": "9999-12-31"}, "start='9999-12-31'"),
    ],
)
def test_a_clock_that_cannot_be_is_refused(options: dict[str, object], stated: str) -> None:
    with pytest.raises(ValueError, match=stated):
        Timestamps(**options)  # type: ignore[arg-type]


# -- detailed errors -------------------------------------------------------------------------------------------

KNOWN = {
    "stack": '  File "tool.py", line 3, in read\n    raise KeyError(path)\nKeyError: src/app.py\n',
    "advice": "List the folder first.",
}
FAILED = turns(("read_file", {"path": "src/app.py", "limit": 10}, "src/app.py is not there"))
FAILED[-1] = replace(FAILED[-1], error="KeyError", known=KNOWN)


def test_an_error_has_four_layers() -> None:
    assert last(DetailedErrors(), FAILED) == (
        "<error_details>\n"
        "- Error: KeyError: src/app.py is not there\n"
        '- Arguments of \'read_file\': {"path": "src/app.py", "limit": 10}\n'
        "- Stack, innermost last:\n"
        '  File "tool.py", line 3, in read\n'
        "  raise KeyError(path)\n"
        "  KeyError: src/app.py\n"
        "- Advice: List the folder first.\n"
        "</error_details>"
    )


@pytest.mark.parametrize(
    ("layer", "mark"),
    [("text", "- Error"), ("arguments", "- Arg"), ("stack", "- Stack"), ("advice", "- Advice")],
)
def test_each_layer_can_be_left_out_and_stand_alone(layer: str, mark: str) -> None:
    layers = ("text", "arguments", "stack", "advice")
    without = last(DetailedErrors(**{layer: False}), FAILED)
    alone = last(DetailedErrors(**{each: each == layer for each in layers}), FAILED)
    assert without is not None and mark not in without
    assert alone is not None and alone.splitlines()[1].startswith(mark)
    assert [line for line in alone.splitlines() if line.startswith("- ")] == [alone.splitlines()[1]]
    whole = (last(DetailedErrors(), FAILED) or "").splitlines()
    assert len(without.splitlines()) + len(alone.splitlines()) - 2 == len(whole)


@pytest.mark.parametrize(
    ("text", "error", "line"),
    [
        ("Error: no such file", None, "- Error: no such file"),
        ("ValueError: bad", None, "- Error: ValueError: bad"),
        ("Traceback (most recent call last)\n  File x\nOSError: gone", None, "- Error: OSError: gone"),
        ("Error: gone", "timeout", "- Error: timeout: gone"),
        ("", "timeout", "- Error: timeout"),
    ],
)
def test_the_kind_of_error_is_named_once(text: str, error: str | None, line: str) -> None:
    messages = turns(("read_file", {}, text), error=error)
    assert (last(DetailedErrors(), messages) or "").splitlines()[1] == line


def test_a_success_a_user_message_and_an_error_without_anything_known_are_no_news() -> None:
    assert last(DetailedErrors(), turns(("read_file", {}, "fine"))) is None
    assert last(DetailedErrors(), [Message("user", "Error: x")]) is None
    stack_alone = DetailedErrors(text=False, arguments=False, advice=False)
    assert last(stack_alone, turns(("read_file", {}, "Error: x"))) is None
    with pytest.raises(ValueError, match="leave at least one layer on"):
        DetailedErrors(text=False, arguments=False, stack=False, advice=False)


SECRET = "hunter2-and-more-77"
TOKEN = "ghp_" + "a1B2" * 9
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"


def test_no_secret_of_a_call_or_a_stack_is_shown() -> None:
    arguments = {
        "user": "mia",
        "password": SECRET,
        "login": {"api_key": [SECRET, SECRET], "note": f"use {TOKEN}"},
        "pin": {"secret": 778899},
        "key_file": PEM,
    }
    messages = turns(("login", arguments, f"Error: password={SECRET} refused"))
    messages[-1] = replace(messages[-1], known={"stack": f"connect({TOKEN!r})\npassword: '{SECRET}'"})
    drawn = last(DetailedErrors(), messages)
    assert drawn is not None and '"user": "mia"' in drawn
    for secret in (SECRET, TOKEN, "778899", "MIIEp"):
        assert secret not in drawn
    assert drawn.count("[redacted]") >= 7


def test_a_secret_that_the_bound_would_cut_in_half_is_not_shown_either() -> None:
    drawn = last(DetailedErrors(), turns(("say", {"a": "x" * 570 + " " + TOKEN + "y" * 9000}, "Error: x")))
    assert drawn is not None and "x" * 570 in drawn and "ghp_" not in drawn


def test_the_bar_is_bounded_however_large_the_failure() -> None:
    deep: object = "x"
    for _ in range(3000):
        deep = {"a": [deep]}
    arguments = {"deep": deep, "wide": list(range(100_000)), "long": "y" * 1_000_000, "nan": float("nan")}
    known = {"stack": "frame\n" * 200_000 + "the end", "advice": "a" * 10_000}
    call = ToolCall("read_file", arguments)
    latest = Latest("tool", "Error: " + "z" * 1_000_000, 3, known=known, call=call, failed=True)
    drawn = DetailedErrors().draw(AgentState(latest=latest), context())
    assert drawn is not None and len(drawn.text) < 4 * 700 + 8 * 170
    assert sum(line.startswith("  ") for line in drawn.lines) == 8 and drawn.lines[-2] == "  the end"


# -- truncation --------------------------------------------------------------------------------------------------


def test_a_cut_result_states_how_long_it_was_and_how_much_is_left_out() -> None:
    messages = turns(("read_file", {}, "0123456789" * 100))
    assert last(Truncation(), messages) is None
    messages[-1] = cut(messages[-1], 305)
    assert messages[-1].content == ("0123456789" * 20) + "\n[…]\n" + ("0123456789" * 10)
    assert last(Truncation(), messages) == "(Original: 1000 chars, omitted: 700 chars.)"


@settings(max_examples=60)
@given(text=st.text(max_size=120), limit=st.integers(6, 130))
def test_head_and_left_out_and_tail_are_the_original(text: str, limit: int) -> None:
    message = Message("tool", text, known={"stack": "kept"})
    short = cut(message, limit)
    if len(text) <= limit:
        assert short is message
        return
    kept = limit - len(GAP)
    head, tail = kept - kept // 3, kept // 3
    omitted = short.known["omitted_chars"]
    assert len(short.content) == limit and short.known["stack"] == "kept"
    assert short.content == text[:head] + GAP + text[len(text) - tail :]
    assert head + omitted + tail == short.known["original_chars"] == len(text)


@settings(max_examples=60)
@given(length=st.integers(50, 300), limits=st.lists(st.integers(6, 200), min_size=2, max_size=4))
def test_cut_again_the_counts_are_still_those_of_the_first_original(length: int, limits: list[int]) -> None:
    message = Message("tool", "x" * length)
    for limit in limits:
        message = cut(message, limit)
    if message.known:
        assert message.known["original_chars"] == length
        assert message.known["omitted_chars"] == length - message.content.count("x")


def test_only_results_are_cut_and_no_limit_leaves_nothing() -> None:
    messages = [Message("user", "u" * 50), *turns(("read_file", {}, "r" * 50))]
    done = cut_results(messages, 20)
    assert [len(message.content) for message in done] == [50, 0, 20]
    with pytest.raises(ValueError, match="limit=5"):
        cut(messages[-1], 5)


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"original_chars": 10},
        {"omitted_chars": 10},
        {"original_chars": 10, "omitted_chars": 0},
        {"original_chars": 10, "omitted_chars": 11},
        {"original_chars": "10", "omitted_chars": "</x>"},
        {"original_chars": True, "omitted_chars": True},
        {"original_chars": None, "omitted_chars": None},
    ],
)
def test_counts_that_are_unknown_or_cannot_be_are_not_stated(known: dict[str, object]) -> None:
    assert last(Truncation(), turns(("read_file", {}, "x"), known=known)) is None


def test_a_state_of_arguments_is_shown_as_json_that_reads_back() -> None:
    arguments = {"text": 'say "hi"', "n": [1, 2.5, None, True], "ünicode": "ß"}
    drawn = last(DetailedErrors(text=False, advice=False), turns(("say", arguments, "Error: x")))
    assert drawn is not None
    assert json.loads(drawn.splitlines()[1].removeprefix("- Arguments of 'say': ")) == arguments
