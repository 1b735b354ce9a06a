"""The dialects of Responses and Gemini: what goes out reads back the same, and what the API would refuse is found first."""

from dataclasses import replace
from itertools import pairwise

import pytest
from api_calls import PHONE, REPLY, TALK
from conversations import conversations
from hypothesis import given, settings

from harness.dialects import gemini, one_condition, responses
from harness.dialects.fields import TraceError
from harness.types import Message, ToolCall

BAR = Message("user", "<agent_status>3 calls</agent_status>")


def plain(messages: tuple[Message, ...]) -> list[Message]:
    """Without what these APIs do not carry."""
    return [replace(m, reasoning=None, time=None, known={}, error=None, name=None) for m in messages]


@settings(max_examples=60)
@given(conversations())
def test_responses_items_read_back_as_the_conversation_that_went_out(messages: tuple[Message, ...]) -> None:
    if responses.illegal(messages) is None:
        back = responses.read_messages(responses.wire_messages(messages))
        assert [(m.role, m.content) for m in plain(back)] == [(m.role, m.content) for m in plain(messages)]
        assert [m.tool_calls for m in back] == [m.tool_calls for m in messages]


@settings(max_examples=60)
@given(conversations())
def test_gemini_turns_read_back_as_the_conversation_that_the_api_makes_of_it(
    messages: tuple[Message, ...],
) -> None:
    if gemini.illegal(messages) is None:
        sent = gemini.wire_messages(messages)
        back = gemini.read_messages(sent["contents"], sent.get("system_instruction"))
        assert gemini.merged(back) == gemini.read_messages(sent["contents"], sent.get("system_instruction"))
        roles = [turn["role"] for turn in sent["contents"]]
        assert all(first != second for first, second in pairwise(roles))


def test_tools_read_back() -> None:
    assert responses.read_tools(responses.wire_tools((PHONE, REPLY))) == (PHONE, REPLY)
    assert gemini.read_tools(gemini.wire_tools((PHONE, REPLY))) == (PHONE, REPLY)


def test_geminis_wire_names_are_read_like_the_clients() -> None:
    wire = [
        {"role": "user", "parts": [{"text": "Call."}]},
        {
            "role": "model",
            "parts": [{"text": "hm", "thought": True}, {"functionCall": {"id": "a", "name": "f", "args": {"x": 1}}}],
        },
        {"role": "user", "parts": [{"functionResponse": {"id": "a", "name": "f", "response": {"error": "no"}}}]},
    ]  # fmt: skip
    read = gemini.read_messages(wire, {"parts": [{"text": "Be brief."}]})
    assert [m.role for m in read] == ["system", "user", "assistant", "tool"]
    assert read[2].reasoning == "hm" and read[2].tool_calls == (ToolCall("f", {"x": 1}, "a"),)
    assert read[3].error == "error" and read[3].content == "no"


def test_a_bar_as_its_own_user_message_and_as_a_block_are_one_for_gemini_and_two_for_responses() -> None:
    own = (*TALK, BAR)
    block = (*TALK[:-1], replace(TALK[-1], content=f"{TALK[-1].content}\n\n{BAR.content}"))
    shown = {"own": own, "block": block, "none": TALK}
    assert one_condition({name: gemini.merged(m) for name, m in shown.items()}) == [("own", "block")]
    assert one_condition({name: responses.merged(m) for name, m in shown.items()}) == []


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ((), "no message beside the system prompt"),
        ((TALK[0],), "no message beside the system prompt"),
        ((TALK[2], TALK[3]), "is not the user's"),
        ((*TALK, TALK[0]), "a system message after the first message"),
        (TALK[:3], "has no result"),
        ((*TALK[:3], TALK[1], TALK[3]), "stands between a call"),
    ],
)
def test_what_gemini_would_refuse_is_named(messages: tuple[Message, ...], said: str) -> None:
    assert said in (gemini.illegal(messages) or "")
    assert gemini.illegal(TALK) is None and responses.illegal(TALK) is None


@pytest.mark.parametrize(
    ("read", "wire", "said"),
    [
        (responses.read_messages, [{"type": "web_search_call"}], r"input\[0\]\.type"),
        (responses.read_messages, [{"role": "robot", "content": "x"}], r"input\[0\]\.role"),
        (responses.read_messages, "x", "input is a text"),
        (gemini.read_messages, [{"role": "robot", "parts": []}], r"contents\[0\]\.role"),
        (gemini.read_messages, [{"role": "user", "parts": [3]}], r"contents\[0\]\.parts\[0\]"),
        (gemini.read_messages, [{"role": "user", "parts": [{"functionResponse": {"name": "f"}}]}], "response"),
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_refused_at_its_place(read: object, wire: object, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        read(wire)  # type: ignore[operator]
