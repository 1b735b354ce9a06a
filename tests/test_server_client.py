"""Claims about the server backend: what is sent, what is made of the stream, and when which token came."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from core_samples import calls
from loopback import DONE, Asked, Cut, Hang, Step, delta, text, usage
from server_models import HAND, good, only, request, serving

from harness.dialects.openai import wire_messages
from harness.errors import ConfoundError, ModelError
from harness.types import Decoding, Message, Request

TOOLS = tuple(tool.name for tool in HAND.tools)
CALL = {"name": "phone_call", "arguments": '{"merchant": "Xfinity"}'}
CHAT: dict[str, Any] = {"api": "chat", "kind": "other"}


# -- times ---------------------------------------------------------------------------------------------------


TRIES = 12


def timed(script: Sequence[Step], asked: Request, first: float, answer: float, **settings: Any) -> list[Any]:
    """(first token, first answer token) of lone requests, until one is within 10 ms of what is known. A busy
    machine only ever adds; what is late by construction is late every time."""
    seen: list[Any] = []
    with serving([script], **settings) as (model, _):
        while len(seen) < TRIES:
            timing = model.run_alone(asked, "natural").timing
            assert timing.first_token and timing.first_answer_token and timing.total
            assert timing.first_token <= timing.first_answer_token <= timing.total
            seen.append((timing.first_token, timing.first_answer_token))
            if seen[-1][0] - first < 0.010 and seen[-1][1] - answer < 0.010:
                break
    return seen


STREAMS: dict[str, tuple[list[Step], dict[str, Any], bool, float, float]] = {
    "no thinking": ([text("", at=0.02), text("Ok", at=0.08), text(".", at=0.1, finish="stop")], {}, False, 0.08, 0.08),
    "an end mark over two chunks": (
        [text("<think>", at=0.04), text("a</th", at=0.06), text("ink>\n", at=0.08), text("\n", at=0.1),
         text("Ok", at=0.12, finish="stop")], {}, False, 0.04, 0.12,
    ),
    "an opening mark over two chunks": (
        [text("<", at=0.04), text("think>a</think>Ok", at=0.08, finish="stop")], {}, False, 0.04, 0.08,
    ),
    "an answer that begins like a mark": (
        [text("<", at=0.04), text("tool_call>", at=0.08, finish="stop")], {}, False, 0.04, 0.04,
    ),
    "a block opened by the prompt": (
        [text("so ", at=0.04), text("it is", at=0.06), text("</think>", at=0.08), text("Ok", at=0.1, finish="stop")],
        {}, True, 0.04, 0.1,
    ),
    "reasoning": (
        [delta(role="assistant", content="", at=0.02), delta(reasoning="so", at=0.05), delta(content="\n\n", at=0.08),
         delta(content="Ok", at=0.11, finish="stop")], CHAT, False, 0.05, 0.11,
    ),
    "reasoning_content": (
        [delta(reasoning_content="so", at=0.05), delta(content="Ok", at=0.1, finish="stop")], CHAT, False, 0.05, 0.1,
    ),
    "a structured call": (
        [delta(reasoning="so", at=0.05), delta(tool_calls=[{"index": 0, "function": CALL}], at=0.09),
         delta(at=0.12, finish="tool_calls")], CHAT, False, 0.05, 0.09,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_first_token_and_first_answer_token_are_seen_within_ten_milliseconds(name: str) -> None:
    script, settings, think_open, first, answer = STREAMS[name]
    seen = timed([*script, DONE], request(think_open=think_open), first, answer, **settings)
    assert all(token >= first - 0.002 and later >= answer - 0.002 for token, later in seen), "never early"
    assert seen[-1][0] - first < 0.010 and seen[-1][1] - answer < 0.010, (
        f"{seen} instead of {first}, {answer}"
    )


def test_a_reply_that_only_thinks_has_no_answer_and_a_batch_has_no_latency() -> None:
    with serving([[text("<think>so"), text(" on", finish="length"), DONE]]) as (model, _):
        lone = model.run_alone(request(), "natural")
        assert lone.finish_reason == "length"
        assert lone.timing.first_token is not None and lone.timing.first_answer_token is None
        timing = only(model, request()).timing
        assert (timing.total, timing.first_token, timing.first_answer_token) == (None, None, None)
        assert timing.started_at


# -- what is sent ----------------------------------------------------------------------------------------------


def sent(asked: Request, **settings: Any) -> dict[str, Any]:
    with serving([[text("a</x>", finish="stop"), DONE]], **settings) as (model, server):
        assert only(model, asked).error is None
        return server.asked[0].body


DRAWN = Decoding(64, temperature=0.6, top_p=0.95, top_k=20, repetition_penalty=1.05)


def test_the_proved_token_ids_are_the_prompt_and_all_sampling_is_stated() -> None:
    body = sent(request(decoding=DRAWN, stop_text="</x>"))
    assert body["prompt"] == list(range(40)) and "messages" not in body
    stated = ("max_tokens", "temperature", "top_p", "top_k", "repetition_penalty", "seed", "min_p")
    assert [body[key] for key in stated] == [64, 0.6, 0.95, 20, 1.05, 5, 0.0]
    assert body["stop"] == ["</x>"] and body["include_stop_str_in_output"] is True
    assert body["skip_special_tokens"] is False and body["return_token_ids"] is True
    assert body["stream_options"] == {"include_usage": True} and "cache_salt" not in body
    assert sent(request())["top_k"] == 0 and sent(request(), kind="sglang")["top_k"] == -1
    llama = sent(request(decoding=DRAWN), kind="llamacpp")
    assert (llama["repeat_penalty"], llama["repeat_last_n"], llama["min_p"]) == (1.05, -1, 0.0)


def test_the_conversation_is_sent_whole_with_thinking_stated_either_way() -> None:
    for thinking, stated in (("native", True), ("off", False)):
        body = sent(request(), **CHAT, model_thinking=thinking)
        assert body["chat_template_kwargs"] == {"enable_thinking": stated}
    assert "prompt" not in body and body["tool_choice"] == "auto"
    assert [m["role"] for m in body["messages"]] == ["system", "assistant", "tool", "user"]
    call = body["messages"][1]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"merchant": "Xfinity", "purpose": "ask"}
    assert body["messages"][2]["tool_call_id"] == call["id"]
    assert [tool["function"]["name"] for tool in body["tools"]] == list(TOOLS)
    assert body["tools"][0]["function"]["parameters"]["type"] == "object"


def test_the_reasoning_of_history_goes_where_the_server_reads_it_unless_it_is_dropped() -> None:
    said = replace(HAND.messages[1], reasoning="hm")
    asked = request(messages=(HAND.messages[0], said, *HAND.messages[2:]))
    for kind, name in (
        ("other", "reasoning_content"),
        ("llamacpp", "reasoning_content"),
        ("ollama", "reasoning"),
    ):
        assert sent(asked, api="chat", kind=kind)["messages"][1][name] == "hm"
    (wired,) = wire_messages([said], "reasoning", keep_reasoning=False)
    assert "reasoning" not in wired
    assert "hm" not in json.dumps(sent(asked, **CHAT, model_keep_reasoning=False))


def refusal(act: Callable[[Any], Any], **settings: Any) -> str:
    """The one line with which something is refused before anything is sent."""
    with serving([good()], **settings) as (model, server):
        with pytest.raises(ModelError) as error:
            act(model)
        assert server.asked == []
    return str(error.value)


def test_what_the_server_cannot_do_is_refused_before_anything_is_sent() -> None:
    choose = request("c1", probe="choose", choices={"a": (1,)})
    assert "offline engine" in refusal(lambda m: list(m.run([request(), choose])))
    assert "top_k=20" in refusal(
        lambda m: list(m.run([request(), request("d", decoding=DRAWN)])), kind="other"
    )
    penal = request(decoding=Decoding(8, repetition_penalty=1.1))
    assert "repetition_penalty=1.1" in refusal(
        lambda m: m.run_alone(penal, "natural"), api="chat", kind="ollama"
    )
    assert "latency.cache=cold" in refusal(lambda m: m.run_alone(request(), "cold"), kind="other")
    assert "latency.cache=warm" in refusal(lambda m: m.run_alone(request(), "warm", 8), kind="llamacpp")
    assert "latency.cache=warm" in refusal(lambda m: m.check_cache("warm"), api="chat")
    assert "conversation" in refusal(lambda m: list(m.run([request(messages=())])), **CHAT)


# -- cache states ------------------------------------------------------------------------------------------------


def test_a_cold_start_is_a_new_salt_for_every_try_and_nothing_for_the_natural_state() -> None:
    with serving([[text("x"), Cut()], good()]) as (model, server):
        model.run_alone(request(), "cold")
        assert model.run_alone(request(), "cold").timing.cache == "cold"
        assert model.run_alone(request(), "natural").timing.cache == "natural"
        assert only(model, request()).timing.cache is None
        salts = [asked.body.get("cache_salt") for asked in server.asked]
    assert len(set(salts[:3])) == 3 and all(salts[:3]) and salts[3:] == [None, None]
    with serving([good()], kind="llamacpp") as (model, server):
        model.run_alone(request(), "cold")
        assert server.asked[0].body["cache_prompt"] is False


def test_a_warm_start_computes_the_shared_tokens_alone_first_and_does_not_time_them() -> None:
    def script(asked: Asked) -> Sequence[Step]:
        return [Hang(0.5), DONE] if asked.body["max_tokens"] == 1 else [text("Done.", finish="stop"), DONE]

    with serving(script) as (model, server):
        timing = model.run_alone(request(), "warm", 24).timing
        assert timing.cache == "warm"
        first, second = (asked.body for asked in server.asked)
    assert (first["prompt"], first["max_tokens"]) == (list(range(24)), 1)
    assert second["prompt"] == list(range(40)) and second["max_tokens"] == 16
    assert first["cache_salt"] == second["cache_salt"]
    assert timing.total is not None and timing.total < 0.4


# -- the prompt that was computed ----------------------------------------------------------------------------------


def test_vllms_own_rendering_is_proved_before_anything_is_generated() -> None:
    with serving(
        [[delta(content="Ok", finish="stop"), DONE]], {"tokenize": lambda b: list(range(40))}, api="chat"
    ) as (
        model,
        server,
    ):
        assert only(model, request()).error is None
        (proof,) = server.proofs
        assert (
            proof["messages"] == server.asked[0].body["messages"]
            and proof["tools"] == server.asked[0].body["tools"]
        )
        assert proof["add_generation_prompt"] is True
        assert proof["chat_template_kwargs"] == server.asked[0].body["chat_template_kwargs"]
    other = [*range(30), 300, *range(31, 40)]
    for theirs, said in ((other, "token 30 (300"), (list(range(39)), "token 39 (the end instead of 39")):
        with serving([good()], {"tokenize": lambda b, ids=theirs: ids}, api="chat") as (model, server):
            with pytest.raises(ConfoundError) as error:
                list(model.run([request("a"), request("b")]))
            assert said in str(error.value) and server.asked == []


def test_elsewhere_the_reported_length_must_differ_by_a_small_constant() -> None:
    def script(asked: Asked) -> Sequence[Step]:
        tokens = {1: 41, 2: 51, 3: 50}[asked.body["seed"]]
        return [delta(content="Ok", finish="stop"), usage(tokens, 1), DONE]

    with serving(script, **CHAT) as (model, server):
        outputs = [
            model.run_alone(request(tokens=n, seed=s), "natural") for n, s in ((40, 1), (50, 2), (50, 3))
        ]
        assert [output.error is None for output in outputs] == [True, True, False]
        assert "another prompt than the proved one (50 tokens instead of 51)" in str(outputs[2].error)
        assert "tools or thinking" in str(outputs[2].error)
        assert len(server.asked) == 3, "it is no fault of the transport"
        assert (model.facts["chat_prompt_surplus"], model.facts["chat_prompt_proved"]) == (1, True)
    with serving([[text("Ok", finish="stop"), usage(41, 1), DONE]]) as (model, _):
        assert "41 tokens instead of 40" in str(only(model, request()).error)


def counting(tokens: int | None) -> list[Step]:
    count = [] if tokens is None else [usage(tokens, 1)]
    return [delta(content="Ok", finish="stop"), *count, DONE]


@pytest.mark.parametrize("surplus", [-30, -4, -1, 3, 4])
@pytest.mark.parametrize("alone", [True, False])
def test_a_server_that_drops_the_tools_or_ignores_the_thinking_ends_the_run_at_its_first_reply(
    surplus: int, alone: bool
) -> None:
    with serving([counting(40 + surplus)], **CHAT) as (model, server):
        with pytest.raises(ConfoundError, match=r"tools or thinking otherwise") as error:
            model.run_alone(request(), "natural") if alone else list(model.run([request()]))
        assert f"({40 + surplus} tokens instead of 40)" in str(error.value) and "\n" not in str(error.value)
        assert len(server.asked) == 1


@pytest.mark.parametrize("surplus", [0, 1, 2])
def test_a_begin_mark_or_two_are_no_other_prompt(surplus: int) -> None:
    with serving([counting(40 + surplus)], **CHAT) as (model, _):
        assert model.facts["chat_prompt_proved"] is None, "nothing has come yet"
        assert only(model, request()).error is None
        assert model.facts["chat_prompt_proved"] is True
        assert model.facts["chat_prompt_surplus"] == surplus


@pytest.mark.parametrize("count", [None, 0])
def test_a_reply_without_a_count_of_its_prompt_is_kept_and_the_manifest_tells(count: int | None) -> None:
    with serving([counting(40), counting(count), counting(40)], **CHAT) as (model, _):
        assert only(model, request()).error is None and model.facts["chat_prompt_proved"] is True
        for _ in range(2):
            assert only(model, request()).error is None and model.facts["chat_prompt_proved"] is False
    rendered = {"tokenize": lambda body: list(range(40))}
    with serving([counting(count)], rendered, api="chat") as (model, _):
        assert only(model, request()).error is None
        assert model.facts["chat_prompt_proved"] is True, "it was proved token by token before"


# -- room ----------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_into_the_server_is_an_error_of_its_cell_alone_and_never_sent() -> None:
    with serving(good) as (model, server):
        big, fits = request("big", tokens=4096 - 15), request("fits", tokens=4096 - 16)
        outputs = dict(model.run([big, fits]))
        alone = model.run_alone(big, "warm", 8)
        assert len(server.asked) == 1, "the one that fits"
    assert outputs["fits"].error is None
    for output in (outputs["big"], alone):
        assert output.finish_reason == "error" and output.usage.prompt_tokens == 4081
        told = str(output.error)
        assert "4081 tokens and 16 new ones do not fit into the server's 4096" in told and "\n" not in told


# -- in flight -----------------------------------------------------------------------------------------------------


def test_so_many_requests_are_in_flight_as_allowed_and_each_is_told_when_it_is_done() -> None:
    release = threading.Event()

    def script(asked: Asked) -> Sequence[Step]:
        if asked.body["seed"] == 0:
            release.wait(20)
        return [text("Ok", at=0.03, finish="stop"), DONE]

    with serving(script, concurrency=3, timeout_s=20) as (model, server):
        outputs = model.run([request(str(n), seed=n) for n in range(10)])
        early = [next(outputs)[0] for _ in range(9)]
        assert sorted(early) == [str(n) for n in range(1, 10)]
        release.set()
        assert [name for name, _ in outputs] == ["0"]
        assert server.most_at_once == 3


def test_a_batch_that_is_left_sends_nothing_more() -> None:
    slow: list[Step] = [*(text("x", at=0.1 * n) for n in range(30)), text("", finish="stop"), DONE]
    with serving(lambda asked: good(asked) if asked.body["seed"] == 0 else slow, concurrency=2) as (
        model,
        server,
    ):
        outputs = model.run([request(str(n), seed=n) for n in range(8)])
        next(outputs)
        outputs.close()
        end = time.monotonic() + 2
        while time.monotonic() < end and in_flight():
            time.sleep(0.05)
        assert not in_flight(), "what was under way has ended long before its reply would have"
        assert len(server.asked) <= 4


def in_flight() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("tailgauge-server")]


def test_messages_of_every_role_survive_the_wire() -> None:
    history = [Message("user", "hi"), *calls("A", "B"), Message("user", "<bar/>")]
    wired = wire_messages(history, "reasoning", keep_reasoning=True)
    assert [m["role"] for m in wired] == ["user", "assistant", "tool", "assistant", "tool", "user"]
    assert all(set(m) <= {"role", "content", "tool_calls", "tool_call_id", "name"} for m in wired)
