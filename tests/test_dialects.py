"""Claims about the dialects of the APIs: what they say of a conversation, and that every bar in one stays legal."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from conversations import Counter, OnInput, OnResult, conversations, without_ids
from core_samples import calls, context
from hypothesis import given, settings
from hypothesis import strategies as st
from test_placements import PLACEMENTS

from harness.delivery import Delivery
from harness.dialects import TraceError, anthropic, gemini, one_condition, openai, responses
from harness.errors import ConfoundError
from harness.state import derive
from harness.statusbar.placements import (
    BLOCK_SEPARATOR,
    BeforeFollowUp,
    LastBlock,
    OwnBefore,
    Placement,
    SystemTail,
    Tail,
    has_place,
)
from harness.statusbar.policies import (
    Append,
    Boundary,
    Event,
    EveryN,
    Never,
    OnChange,
    Replace,
    Staleness,
    UpdatePolicy,
)
from harness.types import Message, ToolCall

POLICIES: tuple[UpdatePolicy, ...] = (
    Never(),
    Replace(),
    Append(),
    OnChange(),
    EveryN(2),
    Staleness(1),
    Event(),
    Event(on="failure"),
    Boundary(messages=5),
)
SYSTEM, USER, SAID = Message("system", "S"), Message("user", "U"), Message("assistant", "Done.")
CALL, RESULT = calls("A")
ID = str(RESULT.tool_call_id)


# -- what the APIs refuse ------------------------------------------------------------------------------


@settings(max_examples=40)
@given(conversations())
def test_a_legal_conversation_is_legal_in_both(messages: tuple[Message, ...]) -> None:
    assert openai.illegal(messages) is None
    assert anthropic.illegal(messages) is None


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((USER, RESULT), "message 2: a tool result without its call in the assistant message before"),
        ((USER, CALL, RESULT, RESULT), "message 4: a tool result without its call"),
        ((USER, CALL, RESULT, USER, RESULT), "message 5: a tool result without its call"),
        ((USER, CALL), "message 2: a call of phone_call has no result"),
        ((USER, CALL, USER, RESULT), "message 3: stands between a call of phone_call and its result"),
        ((USER, CALL, SAID, RESULT), "message 3: stands between a call of phone_call and its result"),
        ((USER, replace(CALL, tool_calls=CALL.tool_calls * 2)), "a call of phone_call without an id of its own"),
        ((USER, replace(CALL, tool_calls=(ToolCall("a tool", {}, id="x"),))), "the tool name 'a tool' is not"),
        ((USER, replace(CALL, role="user")), "message 2: a call in a message of role user"),
        ((USER, Message("assistant")), "message 2: an assistant message "),
        ((), "there is no message"),
    ],
)  # fmt: skip
def test_both_refuse_what_parts_calls_from_results(messages: tuple[Message, ...], reason: str) -> None:
    for dialect in (openai, anthropic):
        told = dialect.illegal(messages)
        if "an assistant message " in reason:
            assert told and told.startswith("message 2: a")
            continue
        assert told and reason in told, dialect


THOUGHT = replace(CALL, reasoning="Let me call.")


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((SYSTEM, USER, SAID, SYSTEM), "message 4: a system message after the first message"),
        ((SYSTEM, SAID, USER), "message 2: the first message after the system prompt is not the user's"),
        ((SYSTEM,), "there is no message beside the system prompt"),
        ((SYSTEM, Message("user", " \n")), "message 2: a user message without text"),
        ((Message("system", ""), USER), "message 1: a system message without text"),
        ((USER, CALL, RESULT, CALL, RESULT), "message 4: a call of phone_call without an id of its own"),
        ((USER, replace(CALL, tool_calls=(ToolCall("t", {}, id="a.b"),))), "a call of t without an id"),
        ((USER, Message("assistant", "So ")), "message 2: the last message is the assistant's and ends with white"),
        (
            (USER, THOUGHT, RESULT, *(replace(m, tool_calls=tuple(replace(c, id="y") for c in m.tool_calls),
             tool_call_id=m.tool_call_id and "y") for m in (CALL, RESULT))),
            "message 4: where thinking is on, the newest assistant message must begin with thinking",
        ),
    ],
)  # fmt: skip
def test_anthropic_refuses_more_than_openai(messages: tuple[Message, ...], reason: str) -> None:
    assert reason in str(anthropic.illegal(messages))
    if len(messages) > 3:
        assert openai.illegal(messages) is None


# -- bars in them --------------------------------------------------------------------------------------


@settings(max_examples=120)
@given(
    conversations(),
    st.sampled_from(PLACEMENTS),
    st.sampled_from(POLICIES),
    st.sampled_from((Counter(), OnResult(), OnInput())),
)
def test_a_bar_at_any_place_under_any_policy_is_legal_or_refused_with_a_reason(
    messages: tuple[Message, ...], placement: Placement, policy: UpdatePolicy, bar: Counter
) -> None:
    requests = []
    try:
        requests = list(Delivery(bar, placement, policy).unfold(messages, (), context()))
    except ConfoundError as error:
        assert str(error).startswith(f"placement {placement.name}: ") and "; choose placement" in str(error)
        if type(bar) is Counter:  # drawn where the model is asked: refused is only what has no place yet
            assert getattr(placement, "needs", None) in ("tool", "system")
    for request in requests:
        assert openai.illegal(request.messages) is None
        assert responses.illegal(request.messages) is None
        put_in = len(request.messages) > len(request.base)
        hoisted = gemini.illegal(request.messages)
        assert hoisted is None or (
            isinstance(placement, SystemTail) and put_in and "a system message after" in hoisted
        )
        told = anthropic.illegal(request.messages)
        if told is None:
            continue
        late = isinstance(placement, SystemTail) and put_in and "a system message after" in told
        unthought = placement.name == "own_action" and put_in and "must begin with thinking" in told
        assert late or unthought, told


@settings(max_examples=40)
@given(conversations(), st.sampled_from(PLACEMENTS))
def test_at_a_request_only_a_missing_message_keeps_a_bar_out(
    messages: tuple[Message, ...], placement: Placement
) -> None:
    if has_place(placement, messages):
        assert placement.place(messages, "BAR") != messages
        return
    with pytest.raises(ConfoundError):
        placement.place(messages, "BAR")


# -- over the wire and back ----------------------------------------------------------------------------


@settings(max_examples=40)
@given(conversations())
def test_openais_wire_form_comes_back_as_it_went(messages: tuple[Message, ...]) -> None:
    for field in ("reasoning_content", "reasoning"):
        wire = json.loads(json.dumps(openai.wire_messages(messages, field)))
        assert openai.read_messages(wire) == messages


@settings(max_examples=40)
@given(conversations())
def test_anthropics_wire_form_comes_back_with_neighbours_of_one_role_merged(
    messages: tuple[Message, ...],
) -> None:
    wire = json.loads(json.dumps(anthropic.wire_messages(messages)))
    assert anthropic.read_messages(wire["messages"], wire.get("system")) == anthropic.merged(messages)
    roles = [turn["role"] for turn in wire["messages"]]
    assert all(a != b for a, b in pairwise(roles)) and roles[0] == "user"
    for turn in wire["messages"]:
        kinds = [block["type"] for block in turn["content"]]
        assert kinds and kinds == sorted(kinds, key=("tool_result", "thinking", "text", "tool_use").index)


def test_what_goes_over_the_wire_is_what_the_references_state() -> None:
    asked = replace(CALL, reasoning="Hm.", tool_calls=(ToolCall("t", {"a": "é"}, id="x"),))
    failed = Message("tool", "no", tool_call_id="x", name="t", error="timeout")
    messages = (SYSTEM, USER, asked, failed, Message("user", "BAR"))
    assert openai.wire_messages(messages)[2:4] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"type": "function", "id": "x", "function": {"name": "t", "arguments": '{"a": "é"}'}}
            ],
            "reasoning_content": "Hm.",
        },
        {"role": "tool", "content": "no", "tool_call_id": "x", "name": "t"},
    ]
    result = {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "no"}]}
    assert anthropic.wire_messages(messages) == {
        "system": "S",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "U"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "tool_use", "id": "x", "name": "t", "input": {"a": "é"}},
                ],
            },
            {"role": "user", "content": [result | {"is_error": True}, {"type": "text", "text": "BAR"}]},
        ],
    }
    without = anthropic.wire_messages(messages, keep_reasoning=False)["messages"][1]["content"]
    assert [block["type"] for block in without] == ["tool_use"]
    with pytest.raises(TraceError, match="message 3: a system message after the first"):
        anthropic.wire_messages((SYSTEM, USER, SYSTEM))


def test_malformed_arguments_of_a_model_are_kept_and_not_thrown_away() -> None:
    def arguments(text: str) -> object:
        entry = {
            "role": "assistant",
            "tool_calls": [{"id": "x", "function": {"name": "t", "arguments": text}}],
        }
        return openai.read_messages([entry])[0].tool_calls[0].arguments

    assert arguments("") == arguments("{}") == {}
    assert arguments('{"a": 1') == {"unread_arguments": '{"a": 1'}
    assert arguments("[1]") == {"unread_arguments": "[1]"}
    assert arguments("[" * 100_000) == {"unread_arguments": "[" * 100_000}
    assert arguments('{"a": "\\ud800"}') == {"a": "\ufffd"}


def test_parts_are_blocks_and_what_is_no_text_leaves_its_kind() -> None:
    parts = [
        {"type": "text", "text": "One"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "Two"},
    ]
    assert (
        openai.read_messages([{"role": "user", "content": parts}])[0].content == "One\n\n[image_url]\n\nTwo"
    )
    blocks = [{"type": "text", "text": "One"}, {"type": "image", "source": {}}]
    assert anthropic.read_messages([{"role": "user", "content": blocks}])[0].content == "One\n\n[image]"


# -- one condition -------------------------------------------------------------------------------------


def test_where_neighbours_are_merged_own_message_and_block_are_one_condition() -> None:
    talk = (SYSTEM, USER, CALL, RESULT, SAID, Message("user", "V"))
    placed = {p.name: p.place(talk, "BAR") for p in (Tail(), LastBlock(), OwnBefore(), BeforeFollowUp())}
    merged = {name: anthropic.merged(messages) for name, messages in placed.items()}
    assert one_condition(merged) == [("tail", "last_block"), ("own_before", "before")]
    assert one_condition({name: openai.merged(messages) for name, messages in placed.items()}) == []
    assert BLOCK_SEPARATOR == anthropic.BLOCK_SEPARATOR


# -- the same conversation in both ---------------------------------------------------------------------


def test_one_case_in_both_dialects_is_one_conversation(cases_dir: Path) -> None:
    here = json.loads((cases_dir / "openai" / "xfinity.json").read_text(encoding="utf-8"))
    there = json.loads((cases_dir / "anthropic" / "xfinity.json").read_text(encoding="utf-8"))
    one = openai.read_messages(here["messages"])
    other = anthropic.read_messages(there["messages"], there["system"])
    assert without_ids(one) == without_ids(other)
    assert len(one) == 14 and sum(message.reasoning is not None for message in one) == 5
    assert openai.read_tools(here["tools"]) == anthropic.read_tools(there["tools"])
    assert derive(one).count("phone_call", "merchant", "Xfinity") == 3
    assert openai.wire_tools(openai.read_tools(here["tools"])) == here["tools"]
    assert anthropic.wire_tools(anthropic.read_tools(there["tools"])) == there["tools"]
