"""Every provider, by its vendor's own client against a server that speaks its protocol: what goes out, what comes back."""

from pathlib import Path
from typing import Any

import pytest
from anthropic_server import AnthropicSpeaker
from api_calls import TALK, a_call, ask
from api_faults import Cut, Fault, Malformed, Reset, Status, WrongType
from api_server import KEY, ApiServer, Reply, sse
from gemini_server import GeminiSpeaker, refused_prompt
from openai_server import ChatSpeaker, ResponsesSpeaker

from harness.errors import ModelError, ProviderError
from harness.models.api.anthropic_messages import AnthropicMessages
from harness.models.api.base import Block
from harness.models.api.faults import ThrottledError, limits_of
from harness.models.api.gemini import Gemini
from harness.models.api.openai_chat import OpenAIChat
from harness.models.api.openai_responses import OpenAIResponses
from harness.models.api.replies import text_of
from harness.models.api.wire import Wire
from harness.models.server_faults import StatusError, TransportError
from harness.parsing import parse_reply

SPEAKERS: dict[type, type] = {
    OpenAIChat: ChatSpeaker,
    OpenAIResponses: ResponsesSpeaker,
    AnthropicMessages: AnthropicSpeaker,
    Gemini: GeminiSpeaker,
}
ALL = pytest.mark.parametrize("provider", SPEAKERS, ids=lambda cls: cls.name)


def serve(provider: type, reply: Reply | None = None, **options: Any) -> ApiServer:
    return ApiServer(SPEAKERS[provider](), lambda seen: reply or Reply(text="Hello."), **options)


def body_of(provider: type, **changes: Any) -> dict[str, Any]:
    """What arrives at the server."""
    with serve(provider) as server:
        ask(provider, server, a_call(**changes))
        assert server.refused == []
        return server.seen[0].body


def find(data: Any, key: str) -> list[Any]:
    """Every value under that key, at any depth."""
    if isinstance(data, dict):
        here = [data[key]] if key in data else []
        return here + [found for value in data.values() for found in find(value, key)]
    if isinstance(data, list):
        return [found for value in data for found in find(value, key)]
    return []


# -- what comes back -------------------------------------------------------------------------------------


@ALL
def test_text_thinking_and_calls_come_back_in_order(provider: type) -> None:
    said = Reply(
        thinking="Three calls were made already.",
        text="I can't.",
        calls=(("reply", {"text": "Nein – „genug“"}), ("phone_call", {"merchant": "Xfinity"})),
        reasoning_tokens=7,
    )
    with serve(provider, said) as server:
        answer, _ = ask(provider, server)
    assert [block.kind for block in answer.blocks] == ["thinking", "text", "call", "call"]
    parsed = parse_reply(text_of(answer), tool_names=("phone_call", "reply"))
    assert parsed.reasoning == "Three calls were made already." and parsed.content == "I can't."
    assert [(call.name, dict(call.arguments)) for call in parsed.tool_calls] == [
        ("reply", {"text": "Nein – „genug“"}),
        ("phone_call", {"merchant": "Xfinity"}),
    ]


@ALL
def test_counts_mean_the_same_everywhere(provider: type) -> None:
    """The prompt with what was cached and written, the reply with its thinking, however the API counts them."""
    said = Reply(
        text="Hi.",
        input_tokens=1000,
        cached_tokens=600,
        cache_written_tokens=200,
        output_tokens=90,
        reasoning_tokens=70,
    )
    with serve(provider, said) as server:
        usage = ask(provider, server)[0].usage
    assert (usage.input_tokens, usage.cached_tokens) == (1000, 600)
    assert (usage.output_tokens, usage.reasoning_tokens) == (90, 70)
    assert usage.cache_written_tokens == (
        None if provider is Gemini else 200
    )  # Gemini bills and tells no writing
    assert usage.reasoning_field


@ALL
def test_what_is_not_told_is_unknown_and_not_zero(provider: type) -> None:
    with serve(provider, Reply(text="Hi.")) as server:
        speak = server.speaker.events

        def silent(seen: Any, reply: Reply) -> list[bytes]:
            import re

            return [
                re.sub(rb'"(usage|usageMetadata)": \{.*\}', b'"\\1": null}', event)
                if b"[DONE]" not in event
                else event
                for event in speak(seen, reply)
            ]

        if provider in (OpenAIChat,):
            server.speaker.events = silent  # type: ignore[method-assign]
            usage = ask(provider, server)[0].usage
            assert (
                usage.input_tokens is None and usage.output_tokens is None and usage.reasoning_tokens is None
            )
        else:
            usage = ask(provider, server)[0].usage
            assert usage.input_tokens == 100


@ALL
@pytest.mark.parametrize("stop", ["stop", "length", "refusal"])
def test_stop_reasons_keep_the_providers_word(provider: type, stop: str) -> None:
    with serve(provider, Reply(text="No.", stop=stop)) as server:
        answer, _ = ask(provider, server)
    assert answer.stop == stop and answer.stop_reason
    assert any(block.text == "No." for block in answer.blocks)


@ALL
def test_times_of_first_token_first_answer_and_end_are_in_order(provider: type) -> None:
    said = Reply(thinking="Let me think about it. " * 3, text="Now I know. " * 3, reasoning_tokens=9)
    with serve(provider, said, delay=0.05, paced=0.01) as server:
        answer, _ = ask(provider, server)
    assert answer.first_token is not None and answer.first_answer_token is not None
    assert 0.05 <= answer.first_token < answer.first_answer_token < answer.total < 5


@ALL
def test_request_id_and_served_model_are_recorded(provider: type) -> None:
    with serve(provider) as server:
        first, _ = ask(provider, server)
        second, _ = ask(provider, server)
    assert first.request_id and second.request_id and first.request_id != second.request_id
    assert first.model == "served-2026"


@ALL
def test_malformed_arguments_of_a_call_are_kept_as_an_attempt(provider: type) -> None:
    with serve(provider, Reply(calls=(("phone_call", '{"merchant": "Xfin'),))) as server:
        answer, _ = ask(provider, server)
    parsed = parse_reply(text_of(answer), tool_names=("phone_call", "reply"))
    assert parsed.status == "malformed" and not parsed.tool_calls
    # Google's client drops the message that holds what the model wrote.
    assert provider is Gemini or "phone_call" in parsed.malformed_text


# -- what goes out ---------------------------------------------------------------------------------------


@ALL
def test_the_conversation_arrives_whole_with_its_call_and_result(provider: type) -> None:
    body = body_of(provider)
    read = {
        OpenAIChat: lambda: provider.dialect.read_messages(body.get("messages")),
        OpenAIResponses: lambda: provider.dialect.read_messages(body.get("input")),
        AnthropicMessages: lambda: provider.dialect.read_messages(body.get("messages"), body.get("system")),
        Gemini: lambda: provider.dialect.read_messages(body.get("contents"), body.get("systemInstruction")),
    }[provider]()
    assert [(m.role, m.content, m.tool_calls) for m in read] == [
        (m.role, m.content, m.tool_calls) for m in TALK
    ]


@ALL
def test_a_forced_call_is_asked_for_in_the_apis_own_way(provider: type) -> None:
    free, forced = body_of(provider), body_of(provider, forced=True)
    asked = {
        OpenAIChat: lambda b: b["tool_choice"],
        OpenAIResponses: lambda b: b["tool_choice"],
        AnthropicMessages: lambda b: b["tool_choice"]["type"],
        Gemini: lambda b: b["toolConfig"]["functionCallingConfig"]["mode"],
    }[provider]
    assert asked(free).lower() == "auto"
    assert asked(forced) == {AnthropicMessages: "any", Gemini: "ANY"}.get(provider, "required")


@pytest.mark.parametrize(
    ("provider", "path", "value"),
    [
        (OpenAIChat, "reasoning_effort", "high"),
        (OpenAIResponses, "effort", "high"),
        (AnthropicMessages, "effort", "high"),
        (Gemini, "thinking_level", "HIGH"),
    ],
)
def test_reasoning_effort_goes_out(provider: type, path: str, value: str) -> None:
    assert find(body_of(provider, effort="high", temperature=None), path) == [value]
    assert find(body_of(provider), path) == []


def test_a_budget_of_thinking_tokens_goes_out_where_the_api_counts_in_tokens() -> None:
    sent = body_of(AnthropicMessages, thinking_budget=1500)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 1500} and "temperature" not in sent
    assert body_of(AnthropicMessages, thinking_budget=0)["thinking"] == {"type": "disabled"}
    # The client leaves names within the thinking configuration as its own; the API reads both ways of writing.
    assert find(body_of(Gemini, thinking_budget=0), "thinking_budget") == [0]


@pytest.mark.parametrize(
    ("provider", "changes", "told"),
    [
        (OpenAIChat, {"thinking_budget": 100}, "model.api.thinking_budget"),
        (OpenAIResponses, {"thinking_budget": 100}, "model.api.thinking_budget"),
        (AnthropicMessages, {"thinking_budget": 100}, "1024 or more"),
        (AnthropicMessages, {"thinking_budget": 2000}, "less than the"),
        (AnthropicMessages, {"effort": "minimal"}, "model.api.effort=minimal"),
        (AnthropicMessages, {"effort": "high", "forced": True}, "forces no call while the model thinks"),
        (OpenAIChat, {"prompt_cache": True}, "model.api.prompt_cache"),
        (Gemini, {"prompt_cache": False}, "model.api.prompt_cache=false"),
        (Gemini, {"effort": "max"}, "model.api.effort=max"),
    ],
)  # fmt: skip
def test_what_an_api_cannot_be_asked_is_refused_before_anything_is_sent(
    provider: type, changes: dict[str, Any], told: str
) -> None:
    with serve(provider) as server:
        with pytest.raises(ModelError, match=told):
            ask(provider, server, a_call(**changes))
        assert server.seen == []


def test_prompt_caching_is_switched_on_and_off_on_purpose() -> None:
    on, off = (body_of(AnthropicMessages, prompt_cache=value) for value in (True, False))
    assert len(find(on, "cache_control")) == 3 and on["messages"][-1]["content"][-1]["cache_control"]
    assert find(off, "cache_control") == []
    modes = [
        find(body_of(OpenAIResponses, prompt_cache=v), "prompt_cache_options") for v in (True, False, None)
    ]
    assert modes == [[{"mode": "implicit"}], [{"mode": "explicit"}], []]


def test_openais_own_chat_api_gets_the_newer_name_of_the_limit_and_the_switch_of_the_cache() -> None:
    wire = Wire("https://api.openai.com/v1", 5)
    provider = OpenAIChat(None, KEY, wire.client)
    body = provider.body(a_call(prompt_cache=False))
    assert body["max_completion_tokens"] == 2000 and "max_tokens" not in body
    assert body["prompt_cache_options"] == {"mode": "explicit"}
    router = OpenAIChat("https://openrouter.ai/api/v1", KEY, wire.client).body(a_call(thinking_budget=500))
    assert router["reasoning"] == {"max_tokens": 500} and router["usage"] == {"include": True}
    wire.close()


@pytest.mark.parametrize("provider", [OpenAIChat, OpenAIResponses, Gemini], ids=lambda cls: cls.name)
def test_token_probabilities_come_back_where_the_api_has_them(provider: type) -> None:
    told = (("Yes", -0.1, {"Yes": -0.1, "No": -2.5}), (".", -0.01, {".": -0.01}))
    with serve(provider, Reply(text="Yes.", logprobs=told)) as server:
        answer, _ = ask(provider, server, a_call(logprobs=True))
    assert [(each.token, each.logprob) for each in answer.chances] == [("Yes", -0.1), (".", -0.01)]
    assert answer.chances[0].others == {"Yes": -0.1, "No": -2.5}


@ALL
def test_the_same_call_is_the_same_body_and_holds_no_key(provider: type) -> None:
    wire = Wire("http://127.0.0.1:1", 5)
    made = provider("http://127.0.0.1:1", KEY, wire.client)
    assert made.body(a_call()) == made.body(a_call())
    assert KEY not in str(made.body(a_call())) + repr(made) + str(made) + str(vars(wire))
    wire.close()


# -- faults ----------------------------------------------------------------------------------------------


def fault(provider: type, happens: Fault, reply: Reply | None = None) -> tuple[ProviderError, ApiServer]:
    with serve(provider, reply or Reply(text="Hello there, you. " * 3), faults=[happens]) as server:
        with pytest.raises(ProviderError) as caught:
            ask(provider, server, silence_s=2.0)
        assert len(server.seen) == 1  # no client tries again by itself
    assert KEY not in str(caught.value) and caught.value.__cause__ is None
    return caught.value, server


@ALL
@pytest.mark.parametrize(
    "happens", [Reset(0), Reset(2), Cut(1), Malformed(1), WrongType(), Status(500), Status(503)], ids=repr
)
def test_what_the_transport_did_is_worth_another_try(provider: type, happens: Fault) -> None:
    found, _ = fault(provider, happens)
    assert isinstance(found, TransportError)


@ALL
@pytest.mark.parametrize("code", [400, 404, 413, 422])
def test_what_the_provider_says_of_the_request_is_final(provider: type, code: int) -> None:
    found, _ = fault(provider, Status(code, "the prompt is too long"))
    assert isinstance(found, StatusError) and found.status == code and "the prompt is too long" in str(found)


@ALL
def test_a_refusal_for_the_rate_carries_the_wait_that_is_asked_for(provider: type) -> None:
    found, _ = fault(provider, Status(429, "slow down", (("retry-after", "3"),)))
    assert isinstance(found, ThrottledError) and found.retry_after == 3


def test_geminis_wait_stands_in_the_body() -> None:
    found, _ = fault(Gemini, Status(429, "Quota exceeded"))
    assert isinstance(found, ThrottledError) and found.retry_after == pytest.approx(0.05)


@ALL
def test_a_key_that_a_provider_quotes_is_masked(provider: type) -> None:
    found, _ = fault(provider, Status(403, f"Incorrect API key provided: {KEY}. Also {KEY[:12]}…"))
    assert KEY[:12] not in str(found) and "***" in str(found)


def test_an_error_within_a_stream_is_read() -> None:
    overloaded = sse(
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "error"
    )
    found, _ = fault(AnthropicMessages, Malformed(2, overloaded))
    assert isinstance(found, TransportError) and "Overloaded" in str(found)
    failed = sse(
        {
            "type": "error",
            "sequence_number": 1,
            "code": "invalid_prompt",
            "message": "flagged",
            "param": None,
        },
        "error",
    )
    found, _ = fault(OpenAIResponses, Malformed(1, failed))
    assert not isinstance(found, TransportError) and "invalid_prompt" in str(found)
    broken = sse({"error": {"message": "The server had an error", "type": "server_error", "code": None}})
    found, _ = fault(OpenAIChat, Malformed(1, broken))
    assert isinstance(found, TransportError) and "had an error" in str(found)


def test_a_prompt_that_gemini_blocks_is_a_refusal_without_a_word() -> None:
    with serve(Gemini) as server:
        server.speaker.events = lambda seen, reply: [refused_prompt()]  # type: ignore[method-assign]
        answer, _ = ask(Gemini, server)
    assert answer.stop == "refusal" and answer.blocks == () and "PROHIBITED_CONTENT" in answer.stop_reason


def test_a_refusal_in_a_field_of_its_own_is_one() -> None:
    with serve(OpenAIChat) as server:
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        server.speaker.events = lambda seen, reply: [  # type: ignore[method-assign]
            sse({**head, "choices": [{"index": 0, "delta": {"refusal": "I won't."}, "finish_reason": None}]}),
            sse({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            sse("[DONE]"),
        ]
        answer, _ = ask(OpenAIChat, server)
    assert answer.stop == "refusal" and answer.blocks == (Block("text", "I won't."),)


def test_a_server_whose_total_says_that_thinking_comes_on_top_is_believed() -> None:
    """xAI counts reasoning apart from the completion."""
    from harness.models.api.client_openai import usage_of

    apart = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 45,
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    assert usage_of(apart, "prompt", "completion").output_tokens == 35
    within = {**apart, "completion_tokens": 35}
    assert usage_of(within, "prompt", "completion").output_tokens == 35


@ALL
def test_rate_limits_in_the_headers_of_a_good_answer_are_seen(provider: type) -> None:
    with serve(provider) as server:
        usual = server.speaker.headers

        def nearly_out(number: int) -> dict[str, str]:
            return {
                **usual(number),
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1s",
            }

        server.speaker.headers = nearly_out  # type: ignore[method-assign]
        _, attempt = ask(provider, server)
    assert limits_of(attempt.headers).remaining == 0 and limits_of(attempt.headers).reset == 1.0


def test_nothing_of_the_environment_goes_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "ANTHROPIC_AUTH_TOKEN",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
    ):
        monkeypatch.setenv(name, "from-the-environment")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    for provider in SPEAKERS:
        with serve(provider) as server:
            ask(provider, server)
            assert "from-the-environment" not in str(server.seen[0].headers)
