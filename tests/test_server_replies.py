"""Claims about what is made of a server's stream: ids, counts, and the raw text put together again."""

import time
from typing import Any

import pytest
from loopback import DONE, Step, delta, text, usage
from server_models import HAND, TEMPLATE, good, only, request, serving

from harness.parsing import parse_reply
from harness.types import ToolCall

TOOLS = tuple(tool.name for tool in HAND.tools)
CALL = {"name": "phone_call", "arguments": '{"merchant": "Xfinity"}'}
TAGGED = '<tool_call>\n{"name": "phone_call", "arguments": {"merchant": "Xfinity"}}\n</tool_call>'
CHAT: dict[str, Any] = {"api": "chat", "kind": "other"}


def test_the_servers_own_token_ids_are_kept_and_text_without_them_says_that_it_was_tokenised_again() -> None:
    ids = TEMPLATE.encode("<think>a b</think>Ok<|im_end|>").ids
    pieces = [text(TEMPLATE.decode([token]), ids=[token]) for token in ids]
    script = [*pieces, text("", finish="stop", ids=[]), usage(40, len(ids)), DONE]
    with serving([script]) as (model, _):
        output = only(model, request())
        assert (output.token_ids, output.usage.completion_tokens) == (ids, len(ids))
        assert output.text == "<think>a b</think>Ok<|im_end|>"
        assert output.usage.reasoning_counted_by is None
    # Fewer ids than billed tokens: some are missing, so none is used.
    with serving([[*pieces, text("", finish="stop"), usage(40, len(ids) + 1), DONE]]) as (model, _):
        usage_again = only(model, request()).usage
        assert usage_again.reasoning_counted_by == "retokenised"
        assert usage_again.completion_tokens == len(ids) + 1
    with serving([[text("Ok", finish="stop"), usage(40, 1), DONE]]) as (model, _):
        output = only(model, request())
        assert output.usage.reasoning_counted_by == "retokenised"
        assert output.token_ids == TEMPLATE.encode("Ok").ids


def test_null_is_unknown_and_zero_is_zero() -> None:
    def counted(**details: Any) -> tuple[int | None, int | None, str | None]:
        with serving([[text("Ok", finish="stop"), usage(40, 1, **details), DONE]]) as (model, _):
            counts = only(model, request()).usage
            assert (counts.prompt_tokens, counts.reported_prompt_tokens) == (40, 40)
            return counts.cached_tokens, counts.reported_reasoning_tokens, counts.reported_reasoning_field

    field = "completion_tokens_details.reasoning_tokens"
    for nothing in (
        {},
        {"prompt_tokens_details": None, "completion_tokens_details": None},
        {
            "prompt_tokens_details": {"cached_tokens": None},
            "completion_tokens_details": {"reasoning_tokens": None},
        },
    ):
        assert counted(**nothing) == (None, None, None)
    for number in (0, 32):
        details = {"prompt_tokens_details": {"cached_tokens": number}}
        assert counted(**details, completion_tokens_details={"reasoning_tokens": number}) == (
            number,
            number,
            field,
        )
        assert counted(reasoning_tokens=number)[1:] == (number, "reasoning_tokens")
    nested = {"completion_tokens_details": {"reasoning_tokens": 7}}
    assert counted(reasoning_tokens=0, **nested)[1:] == (7, field)
    nothing_there = {"completion_tokens_details": {"reasoning_tokens": None}}
    assert counted(reasoning_tokens=9, **nothing_there)[1:] == (9, "reasoning_tokens")


def test_computed_tokens_are_the_prompts_without_what_was_cached() -> None:
    cached = usage(40, 1, prompt_tokens_details={"cached_tokens": 32})
    with serving([[text("a", finish="stop"), cached, DONE], good()]) as (model, _):
        list(model.run([request("a"), request("b")]))
        assert model.computed_tokens == 8 + 40


REPLIES: dict[str, list[Step]] = {
    "structured, in pieces": [
        delta(reasoning="so"),
        delta(content="I call."),
        delta(tool_calls=[{"index": 0, "id": "x", "function": {"name": "phone_call", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"merchant": '}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '"Xfinity"}'}}]),
    ],
    "left in the content": [delta(reasoning_content="so"), delta(content="I call.\n" + TAGGED)],
    "all of it in the content": [
        delta(content="<think>\nso\n</think>\n\nI "),
        delta(content=f"call.\n{TAGGED}"),
    ],
    "both fields at once": [
        delta(reasoning="so", reasoning_content="so"),
        delta(content="I call.\n" + TAGGED),
    ],
}


@pytest.mark.parametrize("name", REPLIES)
def test_however_a_server_takes_a_reply_apart_the_same_is_read(name: str) -> None:
    with serving([[*REPLIES[name], delta(finish="tool_calls"), DONE]], **CHAT) as (model, _):
        output = only(model, request())
    parsed = parse_reply(output.text, tool_names=TOOLS)
    assert (parsed.reasoning, parsed.content, parsed.status) == ("so", "I call.", "ok")
    assert parsed.tool_calls == (ToolCall("phone_call", {"merchant": "Xfinity"}),)


def test_two_structured_calls_stay_two_and_broken_arguments_stay_broken() -> None:
    two = [delta(tool_calls=[{"index": n, "function": CALL}]) for n in (0, 1)]
    with serving([[*two, delta(finish="tool_calls"), DONE]], **CHAT) as (model, _):
        assert len(parse_reply(only(model, request()).text, tool_names=TOOLS).tool_calls) == 2
    broken = {"name": "phone_call", "arguments": '{"merchant": "Xfin'}
    with serving(
        [[delta(tool_calls=[{"index": 0, "function": broken}]), delta(finish="stop"), DONE]], **CHAT
    ) as (model, _):
        parsed = parse_reply(only(model, request()).text, tool_names=TOOLS)
    assert (parsed.status, parsed.malformed_names, parsed.tool_calls) == ("malformed", ("phone_call",), ())


def test_calls_inside_the_reasoning_stay_there() -> None:
    with serving(
        [[delta(reasoning="then " + TAGGED), delta(content="No.", finish="stop"), DONE]], **CHAT
    ) as (model, _):
        parsed = parse_reply(only(model, request()).text, tool_names=TOOLS)
    assert [call.in_reasoning for call in parsed.tool_calls] == [True] and parsed.content == "No."


def test_a_block_that_the_prompt_opened_is_not_opened_twice() -> None:
    with serving([[delta(reasoning="so"), delta(content="No.", finish="stop"), DONE]], **CHAT) as (model, _):
        output = only(model, request(think_open=True))
    assert "<think>" not in output.text and output.text.count("</think>") == 1
    parsed = parse_reply(output.text, tool_names=TOOLS, think_open=True)
    assert (parsed.reasoning, parsed.content) == ("so", "No.")


def test_thinking_that_was_cut_is_not_closed_for_the_model() -> None:
    with serving([[delta(reasoning="so"), delta(finish="length"), DONE]], **CHAT) as (model, _):
        output = only(model, request())
    assert (output.text, output.finish_reason) == ("<think>\nso", "length")


def test_a_chat_servers_raw_token_ids_say_more_than_its_parsers() -> None:
    raw = f"<think>so</think>{TAGGED}<|im_end|>"
    ids = TEMPLATE.encode(raw).ids
    half = len(ids) // 2
    script = [
        delta(reasoning="so", ids=ids[:half]),
        delta(ids=ids[half:], finish="tool_calls"),
        usage(40, len(ids)),
        DONE,
    ]
    with serving([script], {"tokenize": lambda body: list(range(40))}, api="chat") as (model, _):
        output = only(model, request())
    assert (output.text, output.token_ids) == (raw, ids)


def test_a_stop_text_that_a_server_would_cut_is_looked_for_here() -> None:
    script = [text("I do </ans"), text("wer> and more"), text(" and more", at=2.0, finish="stop"), DONE]
    with serving([script], kind="llamacpp") as (model, server):
        begun = time.perf_counter()
        output = only(model, request(stop_text="</answer>"))
        assert (output.text, output.finish_reason) == ("I do </answer>", "stop")
        assert output.usage.completion_tokens is None, "the provider's count never came"
        assert time.perf_counter() - begun < 1.5
        assert "stop" not in server.asked[0].body
