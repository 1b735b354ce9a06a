"""Claims about parsing: what is a call, what is thinking, what is left to read, what hostile text costs."""

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.parsing import count_thinking, count_thinking_pieces, first_answer_piece, parse_reply
from harness.parsing.calls import MAX_DEPTH
from harness.parsing.thinking import ThinkingCount
from harness.types import ParsedReply

TOOLS = ("phone_call", "web_search", "reply")
CALL = '{"name": "phone_call", "arguments": {"merchant": "Xfinity"}}'


def parse(text: str, think_open: bool = False) -> ParsedReply:
    return parse_reply(text, tool_names=TOOLS, think_open=think_open)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"<tool_call>{CALL}</tool_call>", ""),
        (f"Sure.\n<tool_call>\n{CALL}\n</tool_call>\nDone.<|im_end|>", "Sure.\nDone."),
        (f"Sure.\n<tool_call>\n{CALL}\nAnd some prose.", "Sure.\nAnd some prose."),
        (f"```json\n{CALL}\n```", ""),
        (f"Here: ```json\n{CALL}\n``` Done.", "Here:\nDone."),
        (f"[{CALL}]", ""),
        (f"<tools>\n{CALL}\n</tools>", ""),
        (f"I use {{ and }} and {CALL}", "I use { and } and"),
    ],
)
def test_what_is_left_to_read_holds_neither_calls_nor_what_held_them(text: str, content: str) -> None:
    reply = parse(text)
    assert [call.name for call in reply.tool_calls] == ["phone_call"]
    assert reply.content == content
    assert reply.malformed_names == ()


def test_calls_keep_their_order_whatever_their_form() -> None:
    second = '{"name": "web_search", "parameters": {"query": "a"}}'
    reply = parse(f"<tool_call>{CALL}</tool_call>\n{second}\n<tool_call>{CALL}")
    assert [call.name for call in reply.tool_calls] == ["phone_call", "web_search", "phone_call"]
    assert reply.status == "ok"


def test_a_call_to_a_tool_that_was_not_offered_is_a_call() -> None:
    reply = parse('{"name": "agent_status", "arguments": {"merchant": "Xfinity"}}')
    assert (reply.status, reply.tool_calls[0].name) == ("bare_json", "agent_status")


def test_data_that_looks_like_a_call_stays_in_the_prose() -> None:
    for text in (
        '{"name": "Xfinity", "calls": 3}',
        '{"name": "agent_status"}',
        '{"name": "phone_call", "parameters": {"type": "object", "properties": {}}}',
        '{"note": {"name": "phone_call", "arguments": {}}}',
    ):
        reply = parse(text)
        assert (reply.status, reply.tool_calls, reply.content) == ("none", (), text)


def test_a_broken_call_is_malformed_and_still_says_which_tool_it_named() -> None:
    for text in (
        '{"name": "phone_call", "arguments": {"merchant": "Xf',
        "phone_call('Xfinity')",
        '{"tool": "phone_call"}',
    ):
        reply = parse(f"Well. {text}")
        assert (reply.status, reply.malformed_names) == ("malformed", ("phone_call",))
        assert reply.malformed_text == text
        assert reply.content == "Well."


def test_a_broken_call_does_not_swallow_the_good_one_on_the_next_line() -> None:
    reply = parse('{"name": "web_search", "arguments": {"query": "x"}\n' + CALL)
    assert reply.status == "malformed"
    assert reply.malformed_names == ("web_search",)
    assert [call.name for call in reply.tool_calls] == ["phone_call"]


def test_a_tool_named_in_passing_is_not_a_call() -> None:
    for text in (
        "I used phone_call() twice.",
        "The phone_call tool (merchant) is limited.",
        "Use `phone_call`.",
    ):
        assert parse(text).status == "none"


def test_raw_line_breaks_inside_a_message_are_tolerated() -> None:
    reply = parse('{"name": "reply", "arguments": {"message": "Hello,\nbye"}}')
    assert reply.tool_calls[0].arguments == {"message": "Hello,\nbye"}


def test_arguments_that_are_too_deep_or_not_numbers_never_reach_the_log() -> None:
    deep = '{"name": "phone_call", "arguments": ' + '{"a": ' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 2)
    assert parse(deep).status == "malformed"
    odd = parse(
        '{"name": "phone_call", "arguments": {"a": NaN, "b": 1e999, "c": "\\ud800", "d": ' + "9" * 5000 + "}}"
    )
    assert odd.status == "bare_json"
    assert odd.tool_calls[0].arguments["a"] == "NaN" and odd.tool_calls[0].arguments["b"] == "1e999"
    json.dumps(odd.tool_calls[0].arguments, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("text", "think_open", "reasoning", "content", "missing"),
    [
        ("<think>a</think>b", False, "a", "b", (False, False)),
        ("a</think>b", False, "a", "b", (True, False)),
        ("a</think>b", True, "a", "b", (False, False)),
        ("<think>a</think>b", True, "a", "b", (False, False)),
        ("<think>a", False, "a", "", (False, True)),
        ("a", True, "a", "", (False, True)),
        ("a", False, None, "a", (True, True)),
        ("x<think>a</think>b", False, "a", "xb", (False, False)),
        ("<think>a</think>b<think>c</think>d", False, "a\nc", "bd", (False, False)),
        ("<think></think>b", False, "", "b", (False, False)),
        ("", True, "", "", (False, True)),
    ],
)
def test_thinking_is_split_off_wherever_its_delimiters_are(
    text: str, think_open: bool, reasoning: str | None, content: str, missing: tuple[bool, bool]
) -> None:
    reply = parse(text, think_open)
    assert (reply.reasoning, reply.content) == (reasoning, content)
    assert (reply.thinking_start_missing, reply.thinking_end_missing) == missing


def test_a_call_inside_thinking_is_stated_and_not_made() -> None:
    reply = parse(f"<think><tool_call>{CALL}</tool_call></think>{CALL}")
    assert [call.in_reasoning for call in reply.tool_calls] == [True, False]
    assert parse('<think>phone_call(merchant="X")? {"name": "phone_call"}</think>No.').status == "none"


OPEN, CLOSE = 7, 8


@pytest.mark.parametrize(
    ("ids", "think_open", "finish", "expected"),
    [
        ([7, 1, 2, 8, 3], False, "stop", ThinkingCount(2)),
        ([1, 2, 8, 3], True, "stop", ThinkingCount(2)),
        ([7, 1, 8, 3], True, "stop", ThinkingCount(1)),
        ([1, 2, 8, 3], False, "stop", ThinkingCount(2, start_missing=True)),
        ([7, 1, 2], False, "length", ThinkingCount(2, censored=True, end_missing=True)),
        ([7, 1, 2], False, "stop", ThinkingCount(2, end_missing=True)),
        ([1, 2], True, "length", ThinkingCount(2, censored=True, end_missing=True)),
        ([], True, "length", ThinkingCount(0, censored=True, end_missing=True)),
        ([1, 2], False, "length", ThinkingCount(0, start_missing=True, end_missing=True)),
        ([7, 8, 3], False, "stop", ThinkingCount(0)),
        ([7, 1, 8, 3, 7, 1, 1, 8], False, "stop", ThinkingCount(3)),
        ([7, 1], False, "error", ThinkingCount(None)),
    ],
)
def test_thinking_tokens_are_counted_strictly_between_the_delimiters(
    ids: list[int], think_open: bool, finish: str, expected: ThinkingCount
) -> None:
    assert count_thinking(ids, open_id=7, close_id=8, think_open=think_open, finish_reason=finish) == expected
    spelt = [token for item in ids for token in {7: (70, 71, 72), 8: (80, 71, 72)}.get(item, (item,))]
    counted = count_thinking(
        spelt,
        open_id=(70, 71, 72),
        close_id=[(80, 71, 72), (80, 71, 73)],
        think_open=think_open,
        finish_reason=finish,
    )
    assert counted == expected
    pieces = [{7: "<think>", 8: "</think>"}.get(item, f"w{item}") for item in ids]
    assert count_thinking_pieces(pieces, think_open=think_open, finish_reason=finish) == expected


def test_tokens_that_straddle_a_delimiter_belong_to_it() -> None:
    pieces = ["<", "think", ">\n", "two", " words", ".</", "think", ">\n\n", "done"]
    assert count_thinking_pieces(pieces, think_open=False, finish_reason="stop").tokens == 2
    assert count_thinking_pieces(
        ["<th", "ink></", "think>", "a"], think_open=False, finish_reason="stop"
    ) == ThinkingCount(0)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "a", " b", "</", "think", ">"]), max_size=30),
    st.booleans(),
)
def test_no_more_tokens_are_counted_as_thinking_than_there_are(pieces: list[str], think_open: bool) -> None:
    count = count_thinking_pieces(pieces, think_open=think_open, finish_reason="length")
    assert count.tokens is not None and 0 <= count.tokens <= len(pieces)
    assert not count.censored or count.end_missing


ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NOT_THINKING = st.dictionaries(st.text(), ARGUMENTS, max_size=4).filter(
    lambda value: (
        "think>" not in json.dumps(value)
        and "<|" not in json.dumps(value)
        and "</s>" not in json.dumps(value)
    )
)
FORMS: list[Callable[[str], str]] = [
    lambda call: f"<tool_call>\n{call}\n</tool_call>",
    lambda call: f"<tool_call>{call}",
    lambda call: call,
    lambda call: f"```json\n{call}\n```",
    lambda call: f"[{call}]",
    lambda call: f"Sure, I do it:\n{call}\nDone.",
    lambda call: f'{{"function": {call}}}',
]


@given(NOT_THINKING, st.sampled_from(FORMS), st.sampled_from(["phone_call", "agent_status"]), st.booleans())
@settings(deadline=None)
def test_a_well_formed_call_comes_back_as_it_was_stated(
    arguments: dict[str, object], form: Callable[[str], str], name: str, ascii_only: bool
) -> None:
    stated = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=ascii_only)
    reply = parse(form(stated))
    assert reply.status in ("ok", "bare_json")
    [call] = reply.tool_calls
    assert (call.name, call.arguments) == (name, arguments)


PARTS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "{", "}", "[", "]", '"', "'", ":", ",", '"name"',
    '"phone_call"', '"arguments"', "phone_call", "(", ")", "\\", "\n", "```", "json", "\ud800", CALL,
    "<|im_end|>", "<function=", ">",
]  # fmt: skip


@given(st.text() | st.lists(st.sampled_from(PARTS)).map("".join), st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_text_at_all_is_parsed(text: str, think_open: bool) -> None:
    reply = parse(text, think_open)
    assert (reply.status == "malformed") == bool(reply.malformed_text or reply.malformed_names)
    if reply.status == "none":
        assert not reply.tool_calls


@pytest.mark.parametrize(
    "unit",
    [
        "{", "}", "[", '{"', '{"a":', '{"a":[', '{"a":{"b', "<tool_call>", "<tool_call>{",
        '{"name":"phone_call"', "<think>", "</think>", '{"name": "phone_call", "arguments": {', "phone_call(",
        "phone_call(a=", "```", " ", "\n", '{"\\"',
        "<function=a>", "<phone_call ", '{"name": "phone_call"}', "{'", "<|", "{ ",
        '{"x', CALL, "<tool_call>" + CALL,
    ],
)  # fmt: skip
def test_megabytes_of_anything_take_seconds_at_most(unit: str) -> None:
    start = time.perf_counter()
    parse(unit * (2_000_000 // len(unit)))
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("pieces", "think_open", "wanted"),
    [
        (["Hi", "!"], False, 0),
        (["\n", " ", "Hi"], False, 2),
        (["<think>", "a", "b", "</think>", "\n\n", "Hi"], False, 5),
        (["<think>", "a", "b"], False, None),
        (["a", "</think>", "Hi"], True, 2),
        (["a", "</think>", "Hi"], False, 2),
        (["a", "b"], True, None),
        (["<th", "ink>", "a", "</thi", "nk>Hi", " you"], False, 4),
        (["<think>", "</think>", "a", "<think>", "b", "</think>"], False, 2),
        ([], False, None),
        ([" "], False, None),
    ],
)
def test_the_first_answer_token_is_the_first_that_is_no_thinking(
    pieces: list[str], think_open: bool, wanted: int | None
) -> None:
    assert first_answer_piece(pieces, think_open=think_open) == wanted
