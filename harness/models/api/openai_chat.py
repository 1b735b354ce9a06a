"""OpenAI's chat completions, and every server that speaks them (OpenRouter, vLLM, xAI, DeepSeek …).

Fields are those of the Chat Completions reference as the vendor's client types them. Chunks have no numbers, so that a
single one that came twice cannot be told from a model that repeats itself; a stream of which every chunk came twice can.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2

from harness.dialects import openai as dialect
from harness.errors import ModelError, ProviderError
from harness.models.api import wire
from harness.models.api.base import Answer, Call, Stop
from harness.models.api.building import Building
from harness.models.api.client_openai import (
    DEFAULT,
    TOP_LOGPROBS,
    caching,
    chances,
    make_client,
    plain,
    text,
    usage_of,
)
from harness.models.server_faults import Redactor, TransportError

_STOPS: Mapping[str, Stop] = {
    "stop": "stop", "tool_calls": "stop", "function_call": "stop", "eos": "stop", "end_turn": "stop",
    "length": "length", "model_length": "length", "content_filter": "refusal",
}  # fmt: skip
_GIVEN_UP = ("error", "abort", "insufficient_system_resource")
"""Ends for which the server is to blame, not the request (OpenRouter, vLLM, DeepSeek)."""


class OpenAIChat:
    """A Provider. `address`: None for OpenAI's own."""

    name = "openai-chat"
    dialect = dialect

    def __init__(self, address: str | None, key: str, http: httpx2.Client) -> None:
        host = urlsplit(address or DEFAULT).hostname or ""
        # OpenAI's regions are eu.api.openai.com and its like.
        self._own = host == "api.openai.com" or host.endswith(".api.openai.com")
        self._router = host == "openrouter.ai" or host.endswith(".openrouter.ai")
        self._client = make_client(address, key, http)
        self._redact = Redactor(key)

    def __repr__(self) -> str:
        return f"OpenAIChat({self._client.base_url})"

    def body(self, call: Call) -> dict[str, Any]:
        """As Provider.body. Other servers than OpenAI's own know `max_tokens`, not its newer name; OpenAI's refuses fields
        of a message that it does not know, and so the history's reasoning."""
        body: dict[str, Any] = {
            "model": call.model,
            "messages": dialect.wire_messages(
                call.messages, keep_reasoning=call.keep_reasoning and not self._own
            ),
            "max_completion_tokens" if self._own else "max_tokens": call.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if call.tools:
            body["tools"] = dialect.wire_tools(call.tools)
            body["tool_choice"] = "required" if call.forced else "auto"
        for name, value in (("temperature", call.temperature), ("top_p", call.top_p), ("seed", call.seed)):
            if value is not None:
                body[name] = value
        if call.logprobs:
            body |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        return body | self._thinking(call) | self._caching(call)

    def _thinking(self, call: Call) -> dict[str, Any]:
        if self._router:
            if call.thinking_budget is not None:
                if call.effort is not None:
                    raise ModelError(
                        "model.api.effort with model.api.thinking_budget: OpenRouter takes one of the two"
                    )
                budget = {"max_tokens": call.thinking_budget} if call.thinking_budget else {"enabled": False}
                return {"reasoning": budget, "usage": {"include": True}}
            return {"usage": {"include": True}} | (
                {"reasoning": {"effort": call.effort}} if call.effort is not None else {}
            )
        if call.thinking_budget is not None:
            raise ModelError(
                "model.api.thinking_budget: chat completions count no thinking tokens in advance; set model.api.effort"
            )
        return {"reasoning_effort": call.effort} if call.effort is not None else {}

    def _caching(self, call: Call) -> dict[str, Any]:
        if call.prompt_cache is not None and not self._own:
            raise ModelError(
                "model.api.prompt_cache: only OpenAI's own API lets it be switched; leave it null (the server decides)"
            )
        return caching(call.prompt_cache)

    def ask(self, body: Mapping[str, Any]) -> Answer:
        attempt = wire.current()
        known = {key: body[key] for key in body if key not in ("reasoning", "usage", "prompt_cache_options")}
        extra = {key: body[key] for key in body if key not in known}
        whole, halved = _Reading(Building(attempt)), _Reading(Building(attempt))
        newest: Mapping[str, Any] = {}
        number, doubled = 0, True
        with self._client.chat.completions.create(**known, extra_body=extra or None) as stream:
            for chunk in stream:
                data = plain(chunk)
                whole.take(data)
                if number % 2 == 0:
                    halved.take(data)
                else:
                    doubled = doubled and data == newest
                newest, number = data, number + 1
        # A stream tells its end once, so one in which everything stands in pairs was doubled on its way.
        read = halved if doubled and number and number % 2 == 0 else whole
        stop, finish = self._stop(read)
        counted = usage_of(read.usage, "prompt", "completion")
        return read.building.answer(
            stop,
            finish,
            counted,
            request_id=attempt.headers.get("x-request-id") or read.request_id,
            model=read.served,
            thinking_hidden=read.veiled or (bool(counted.reasoning_tokens) and not read.thought),
        )

    def _stop(self, read: "_Reading") -> tuple[Stop, str]:
        """How the reply ended. Raises TransportError or ProviderError for one that did not."""
        if not read.finish:
            if read.usage is not None and not read.chosen:
                raise ProviderError("the provider's reply holds no choice")
            raise TransportError("the stream was cut before the reply's end")
        if read.building.refused:
            return "refusal", "refusal"
        stop = _STOPS.get(read.finish)
        if stop is not None:
            return stop, read.finish
        said = repr(self._redact(read.finish)[:40])
        if read.finish in _GIVEN_UP:
            raise TransportError(f"the provider gave the reply up (finish_reason {said})")
        raise ProviderError(f"the provider ended the reply with finish_reason {said}")

    def close(self) -> None:
        self._client.close()


class _Reading:
    """The chunks of one stream as they come, and the (only) choice in them."""

    def __init__(self, building: Building) -> None:
        self.building = building
        self.finish = ""
        self.usage: Any = None
        self.served: str | None = None
        self.request_id: str | None = None
        self.chosen = False
        """Whether there was a choice at all."""
        self.thought = False
        """Whether thinking was shown."""
        self.veiled = False
        """Whether thinking came as a summary or encrypted."""
        self._calls: dict[int, tuple[int, str]] = {}
        """Index → how many calls began under it before, and the newest one's id."""

    def take(self, data: Mapping[str, Any]) -> None:
        """One chunk."""
        self.usage = data.get("usage") or self.usage
        self.served = text(data.get("model")) or self.served
        self.request_id = text(data.get("id")) or self.request_id
        choices = data.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, Mapping):
            return
        self.chosen = True
        delta = choice.get("delta")
        self._delta(delta if isinstance(delta, Mapping) else {})
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, Mapping):
            self.building.chances += chances(logprobs.get("content"))
        self.finish = text(choice.get("finish_reason")) or self.finish

    def _delta(self, delta: Mapping[str, Any]) -> None:
        # Some servers send more than one name for the same text.
        thinking = text(delta.get("reasoning")) or text(delta.get("reasoning_content"))
        thinking = self._details(delta.get("reasoning_details"), thinking)
        self.thought = self.thought or bool(thinking)
        self.building.thinking(thinking)
        self.building.text(text(delta.get("content")))
        refusal = text(delta.get("refusal"))
        self.building.text(refusal, "refusal")
        self.building.refused = self.building.refused or bool(refusal)
        calls = delta.get("tool_calls")
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, Mapping):
                self._call(call, number)

    def _details(self, details: Any, thinking: str) -> str:
        """OpenRouter's list of pieces of thinking, which says what kind they are. Its text where `thinking` is ''."""
        pieces = [
            each for each in (details if isinstance(details, list) else ()) if isinstance(each, Mapping)
        ]
        if any(each.get("type") in ("reasoning.summary", "reasoning.encrypted") for each in pieces):
            self.veiled = True
        return thinking or "".join(text(each.get("text")) or text(each.get("summary")) for each in pieces)

    def _call(self, call: Mapping[str, Any], number: int) -> None:
        """A piece of a call. A name comes at a call's beginning alone, so that one with another id begins another call,
        even where a server gives all calls the same index."""
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        given, name, own_id = call.get("index"), text(function.get("name")), text(call.get("id"))
        index = given if isinstance(given, int) else number
        before, known_id = self._calls.get(index, (0, own_id))
        if name and own_id and own_id != known_id:
            before += 1
        self._calls[index] = (before, own_id or known_id)
        self.building.call((index, before), name, text(function.get("arguments")))
