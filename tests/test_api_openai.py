"""What is particular to OpenAI's two APIs and to the servers that speak the older one: odd streams, foreign counts,
history, environment, keys in errors."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from api_calls import TALK, a_call, ask
from api_faults import Cut, Duplicates, Malformed
from api_server import KEY, ApiServer, Reply, sse
from openai_server import ChatSpeaker, ResponsesSpeaker

from harness.dialects import one_condition, responses
from harness.errors import ModelError, ProviderError
from harness.models.api.base import Answer, Block
from harness.models.api.openai_chat import OpenAIChat
from harness.models.api.openai_responses import OpenAIResponses
from harness.models.api.wire import Wire
from harness.models.server_faults import TransportError
from harness.types import Message, ToolCall

HEAD = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "served"}
BOTH = pytest.mark.parametrize("provider", [OpenAIChat, OpenAIResponses], ids=lambda cls: cls.name)


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return sse({**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def counted(**usage: Any) -> bytes:
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **usage}
    return sse({**HEAD, "choices": [], "usage": counts})


def heard(*events: bytes, speaker: type = ChatSpeaker, provider: type = OpenAIChat) -> Answer:
    """The answer to a stream of exactly these events."""
    with ApiServer(speaker()) as server:
        server.speaker.events = lambda seen, reply: list(events)  # type: ignore[method-assign]
        return ask(provider, server)[0]


def numbered(*events: dict[str, Any]) -> Answer:
    """The answer to these events of the Responses API."""
    sent = [sse({"sequence_number": n, **event}, event["type"]) for n, event in enumerate(events)]
    return heard(*sent, speaker=ResponsesSpeaker, provider=OpenAIResponses)


def ended(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {
        "type": f"response.{status}",
        "response": {"id": "r", "object": "response", "model": "m", "output": [], "status": status, **fields},
    }


def at_address(address: str | None, use: Callable[[OpenAIChat], dict[str, Any]]) -> dict[str, Any]:
    wire = Wire(address or "https://api.openai.com/v1", 5)
    try:
        return use(OpenAIChat(address, KEY, wire.client))
    finally:
        wire.close()


# -- what goes out ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [None, "https://api.openai.com/v1", "https://eu.api.openai.com/v1"])
def test_openais_regions_are_openai(address: str | None) -> None:
    body = at_address(address, lambda chat: chat.body(a_call(prompt_cache=True)))
    assert body["max_completion_tokens"] == 2000 and "max_tokens" not in body
    assert body["prompt_cache_options"] == {"mode": "implicit"}


def test_an_address_that_only_looks_like_openais_is_another_server() -> None:
    body = at_address("https://api.openai.com.example.org/v1", lambda chat: chat.body(a_call()))
    assert "max_tokens" in body


def test_reasoning_of_earlier_turns_goes_to_servers_that_know_it_and_not_to_openai() -> None:
    """OpenAI refuses a field of a message that is none of its own."""
    thought = (*TALK[:2], replace(TALK[2], reasoning="Twice so far."), *TALK[3:])
    for address, kept, sent in [
        (None, True, False),
        ("https://x.example/v1", True, True),
        ("https://x.example/v1", False, False),
    ]:
        body = at_address(address, lambda chat, k=kept: chat.body(a_call(messages=thought, keep_reasoning=k)))
        assert ("Twice so far." in str(body)) == sent


def test_effort_and_a_budget_of_thinking_at_once_are_refused_by_the_router() -> None:
    with pytest.raises(ModelError, match=r"model\.api\.effort"):
        at_address(
            "https://openrouter.ai/api/v1", lambda chat: chat.body(a_call(effort="high", thinking_budget=100))
        )


def test_the_router_is_asked_for_effort_and_counts_in_its_own_way() -> None:
    body = at_address("https://openrouter.ai/api/v1", lambda chat: chat.body(a_call(effort="low")))
    assert body["reasoning"] == {"effort": "low"} and body["usage"] == {"include": True}
    assert "reasoning_effort" not in body


@BOTH
def test_headers_in_the_environment_do_not_go_along(provider: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendor's client would add them, and one named Authorization would take the key's place."""
    given = "X-Company: from-the-environment\nauthorization: Bearer from-the-environment"
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", given)
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "from-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/from-the-environment")
    with ApiServer({OpenAIChat: ChatSpeaker, OpenAIResponses: ResponsesSpeaker}[provider]()) as server:
        ask(provider, server)
    assert "from-the-environment" not in str(server.seen[0].headers)
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"


# -- chat: what other servers send -----------------------------------------------------------------------


def test_reasoning_counts_once_under_whichever_names_it_comes() -> None:
    answer = heard(
        chunk({"reasoning": "One, ", "reasoning_content": "One, "}),
        chunk({"reasoning": "two, ", "reasoning_details": [{"type": "reasoning.text", "text": "two, "}]}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "text": "three."}]}),
        chunk({"content": "Three."}, "stop"),
        counted(completion_tokens_details={"reasoning_tokens": 4}),
    )
    assert answer.blocks == (Block("thinking", "One, two, three."), Block("text", "Three."))
    assert not answer.thinking_hidden


@pytest.mark.parametrize(
    "details",
    [
        [{"type": "reasoning.summary", "summary": "Counted."}],
        [{"type": "reasoning.encrypted", "data": "gAAAA"}],
        [],
    ],
    ids=["summary", "encrypted", "nothing"],
)
def test_thinking_of_which_the_text_is_not_shown_is_hidden(details: list[dict[str, str]]) -> None:
    summary = "".join(each.get("summary", "") for each in details)
    answer = heard(
        chunk({"reasoning_details": details} | ({"reasoning": summary} if summary else {})),
        chunk({"content": "Three."}, "stop"),
        counted(completion_tokens_details={"reasoning_tokens": 40}),
    )
    assert answer.thinking_hidden
    assert [block.text for block in answer.blocks if block.kind == "thinking"] == (
        [summary] if summary else []
    )


def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    """Google's endpoint in OpenAI's form numbers every call 0."""
    answer = heard(
        *(
            chunk({"tool_calls": [{"index": 0, "id": i, "type": "function", "function": {"name": n, "arguments": a}}]})
            for i, n, a in [("a", "phone_call", '{"merchant": "X"}'), ("b", "reply", '{"text": "Hi"}')]
        ),
        chunk({}, "tool_calls"),
    )  # fmt: skip
    assert answer.blocks == (
        Block("call", '{"merchant": "X"}', "phone_call"),
        Block("call", '{"text": "Hi"}', "reply"),
    )


def test_a_call_whose_pieces_have_new_ids_is_one_call() -> None:
    """Some servers give every piece an id of its own; only the first has the name."""
    answer = heard(
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "reply", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "b", "function": {"arguments": '{"text": '}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": '"Hi"}'}}]}),
        chunk({}, "tool_calls"),
    )
    assert answer.blocks == (Block("call", '{"text": "Hi"}', "reply"),)


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 7}}, 7),
        ({"prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2}, 8),
        ({"prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 0}, 0),
        ({"prompt_tokens_details": None}, None),
    ],
)
def test_cached_tokens_are_read_where_the_server_puts_them(usage: dict[str, Any], cached: int | None) -> None:
    answer = heard(chunk({"content": "Hi."}, "stop"), counted(**usage))
    assert answer.usage.cached_tokens == cached and answer.usage.input_tokens == 10


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("function_call", "stop"), ("tool_calls", "stop"), ("length", "length"), ("model_length", "length"),
     ("content_filter", "refusal")],
)  # fmt: skip
def test_the_reasons_of_chat_servers_for_ending(finish: str, stop: str) -> None:
    answer = heard(chunk({"content": "Hi."}), chunk({}, finish))
    assert (answer.stop, answer.stop_reason) == (stop, finish)


@pytest.mark.parametrize("finish", ["error", "abort", "insufficient_system_resource"])
def test_a_server_that_gave_the_reply_up_is_asked_again(finish: str) -> None:
    with pytest.raises(TransportError, match=finish):
        heard(chunk({"content": "Hi."}), chunk({}, finish))


def test_an_end_for_a_reason_that_nobody_knows_is_final() -> None:
    with pytest.raises(ProviderError, match="moon_phase") as caught:
        heard(chunk({"content": "Hi."}), chunk({}, "moon_phase"))
    assert not isinstance(caught.value, TransportError)


def test_a_whole_stream_without_a_choice_is_final_and_one_that_was_cut_is_not() -> None:
    with pytest.raises(ProviderError, match="no choice") as caught:
        heard(sse({**HEAD, "choices": []}), counted(completion_tokens=0), sse("[DONE]"))
    assert not isinstance(caught.value, TransportError)
    with pytest.raises(TransportError, match="cut"):
        heard(sse({**HEAD, "choices": []}))
    with pytest.raises(TransportError, match="cut"):
        heard()
    with pytest.raises(TransportError, match="cut"):
        heard(chunk({"content": "Hi."}), counted())


@BOTH
def test_a_stream_of_which_every_event_comes_twice_is_one_reply(provider: type) -> None:
    said = Reply(
        thinking="hmm hmm hmm",
        text="no no no no no",
        calls=(("reply", {"text": "ha ha ha ha"}),),
        reasoning_tokens=3,
        logprobs=(("no", -0.5, {"no": -0.5}), ("no", -0.5, {"no": -0.5})),
    )
    speaker = {OpenAIChat: ChatSpeaker, OpenAIResponses: ResponsesSpeaker}[provider]
    with ApiServer(speaker(), lambda seen: said, faults=[None, Duplicates()]) as server:
        once, _ = ask(provider, server, a_call(logprobs=True))
        twice, _ = ask(provider, server, a_call(logprobs=True))
    assert twice.blocks == once.blocks and len(once.blocks) == 3
    assert twice.chances == once.chances and len(once.chances) == 2
    assert (twice.usage, twice.stop_reason) == (once.usage, once.stop_reason)


def test_a_model_that_repeats_itself_is_not_taken_for_a_doubled_stream() -> None:
    answer = heard(chunk({"content": "ha"}), chunk({"content": "ha"}), chunk({}, "stop"), counted())
    assert answer.blocks == (Block("text", "haha"),)


# -- Responses -------------------------------------------------------------------------------------------


def test_an_item_after_its_pieces_is_not_added_to_them() -> None:
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "reply"}
    answer = numbered(
        {"type": "response.output_item.added", "output_index": 0, "item": {**call, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "f", "delta": "{}"},
        {"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "f", "arguments": "{}"},
        {"type": "response.output_item.done", "output_index": 0, "item": {**call, "arguments": "{}"}},
        ended(),
    )  # fmt: skip
    assert answer.blocks == (Block("call", "{}", "reply"),)


@pytest.mark.parametrize(("kind", "hidden"), [("reasoning_text", False), ("reasoning_summary_text", True)])
def test_thinking_is_hidden_unless_its_own_text_is_shown(kind: str, hidden: bool) -> None:
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    answer = numbered(
        {"type": f"response.{kind}.delta", "output_index": 0, "item_id": "r", "content_index": 0, "delta": "Hm."},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "item_id": "m", "delta": "Hi."},
        ended(usage={**usage, "output_tokens_details": {"reasoning_tokens": 5}}),
    )  # fmt: skip
    assert answer.blocks == (Block("thinking", "Hm."), Block("text", "Hi."))
    assert answer.thinking_hidden == hidden


def test_parts_of_a_summary_do_not_run_into_each_other() -> None:
    answer = numbered(
        *(
            {
                "type": "response.reasoning_summary_text.delta", "output_index": 0, "item_id": "r",
                "summary_index": n, "delta": text,
            }
            for n, text in [(0, "First "), (0, "this."), (1, "Then that.")]
        ),
        ended(),
    )  # fmt: skip
    assert answer.blocks == (Block("thinking", "First this."), Block("thinking", "Then that."))


def test_counts_that_the_end_does_not_tell_are_unknown() -> None:
    usage = numbered(ended(usage=None)).usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (None, None, None)
    assert usage.reasoning_tokens is None and usage.reasoning_field is None


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_output_tokens", "length"), ("content_filter", "refusal"), ("max_messages", None)],
)
def test_an_incomplete_response_says_why(reason: str, stop: str | None) -> None:
    end = ended("incomplete", incomplete_details={"reason": reason})
    if stop is None:
        with pytest.raises(ProviderError, match=reason):
            numbered(end)
    else:
        answer = numbered(end)
        assert (answer.stop, answer.stop_reason) == (stop, reason)


@pytest.mark.parametrize(
    ("code", "again"),
    [("server_error", True), ("rate_limit_exceeded", True), ("invalid_prompt", False), ("bio_policy", False)],
)
def test_a_failed_response_is_worth_another_try_by_its_code(code: str, again: bool) -> None:
    with pytest.raises(ProviderError, match=f"{code}.*went wrong") as caught:
        numbered(ended("failed", error={"code": code, "message": "it went wrong"}))
    assert isinstance(caught.value, TransportError) == again


@pytest.mark.parametrize(
    "quoting",
    [
        ended("failed", error={"code": "invalid_prompt", "message": f"{'x' * 190} {KEY} was used"}),
        {"type": "error", "code": "invalid_prompt", "message": f"{'x' * 190} {KEY} was used", "param": None},
        ended("incomplete", incomplete_details={"reason": f"key {KEY}"}),
    ],
    ids=["failed", "error", "incomplete"],
)
def test_a_key_that_the_stream_quotes_is_masked(quoting: dict[str, Any]) -> None:
    """However the words are cut: half a key is one, too."""
    with pytest.raises(ProviderError) as caught:
        numbered(quoting)
    assert KEY[:8] not in str(caught.value) and "***" in str(caught.value)


def test_a_key_in_an_error_of_a_chat_stream_is_masked() -> None:
    with pytest.raises(ProviderError) as caught:
        heard(sse({"error": {"message": f"bad key {KEY}", "type": "server_error", "code": None}}))
    assert KEY[:8] not in str(caught.value) and "***" in str(caught.value)


@pytest.mark.parametrize("happens", [Cut(0), Cut(3), Malformed(3)], ids=repr)
def test_a_response_without_its_end_is_asked_again(happens: Cut | Malformed) -> None:
    server = ApiServer(ResponsesSpeaker(), lambda seen: Reply(text="Hello there."), faults=[happens])
    with server, pytest.raises(TransportError):
        ask(OpenAIResponses, server)


# -- what Responses makes of a conversation --------------------------------------------------------------


def test_what_goes_out_as_the_same_items_is_the_same_conversation() -> None:
    call = ToolCall("reply", {"text": "Hi"}, "call_1")
    result = Message("tool", "Sent.", tool_call_id="call_1", name="reply")
    apart = (TALK[1], Message("assistant", "Let me."), Message("assistant", "", (call,)), result)
    joined = (TALK[1], Message("assistant", "Let me.", (call,)), result)
    thought = (TALK[1], Message("assistant", "Let me.", (call,), "Hm."), result)
    other = (TALK[1], Message("assistant", "Let me!", (call,)), result)
    shown = {"apart": apart, "joined": joined, "thought": thought, "other": other}
    sent = {name: str(responses.wire_messages(messages)) for name, messages in shown.items()}
    assert sent["apart"] == sent["joined"] == sent["thought"] != sent["other"]
    assert one_condition({name: responses.merged(messages) for name, messages in shown.items()}) == [
        ("apart", "joined", "thought")
    ]
