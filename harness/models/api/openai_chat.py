"""OpenAI's chat completions, and every server that speaks them (OpenRouter, vLLM, xAI, DeepSeek …).

Fields are those of the Chat Completions reference as the vendor's client types them. The API sends no numbers with its
chunks, so that a chunk that came twice cannot be told from one that repeats itself; the client's own stream is trusted
there, and a reply's length is held against the billed tokens nowhere.
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
from harness.models.server_faults import TransportError

_STOPS: Mapping[str, Stop] = {
    "stop": "stop", "tool_calls": "stop", "function_call": "stop", "eos": "stop", "end_turn": "stop",
    "length": "length", "content_filter": "refusal",
}  # fmt: skip


class OpenAIChat:
    """A Provider. `address`: None for OpenAI's own."""

    name = "openai-chat"
    dialect = dialect

    def __init__(self, address: str | None, key: str, http: httpx2.Client) -> None:
        host = urlsplit(address or DEFAULT).hostname or ""
        self._own = host == "api.openai.com"
        self._router = host == "openrouter.ai" or host.endswith(".openrouter.ai")
        self._client = make_client(address, key, http)

    def __repr__(self) -> str:
        return f"OpenAIChat({self._client.base_url})"

    def body(self, call: Call) -> dict[str, Any]:
        """As Provider.body. Other servers than OpenAI's own know `max_tokens`, not its newer name."""
        body: dict[str, Any] = {
            "model": call.model,
            "messages": dialect.wire_messages(call.messages, keep_reasoning=call.keep_reasoning),
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
        building = Building(attempt)
        finish, usage, served, request_id = "", None, None, None
        known = {key: body[key] for key in body if key not in ("reasoning", "usage", "prompt_cache_options")}
        extra = {key: body[key] for key in body if key not in known}
        with self._client.chat.completions.create(**known, extra_body=extra or None) as stream:
            for chunk in stream:
                data = plain(chunk)
                usage = data.get("usage") or usage
                served = data.get("model") or served
                request_id = data.get("id") or request_id
                finish = _take(data, building) or finish
        if not finish:
            raise TransportError("the stream was cut before the reply's end")
        refused = finish == "refusal"
        stop = "refusal" if refused else _STOPS.get(finish)
        if stop is None:
            if finish in ("error", "abort"):
                raise TransportError(f"the provider gave the reply up (finish_reason {finish!r})")
            raise ProviderError(f"the provider ended the reply with finish_reason {finish[:40]!r}")
        counted = usage_of(usage, "prompt", "completion")
        return building.answer(
            stop,
            finish,
            counted,
            request_id=attempt.headers.get("x-request-id") or request_id,
            model=served,
            thinking_hidden=bool(counted.reasoning_tokens) and self._own,
        )

    def close(self) -> None:
        self._client.close()


def _take(data: Mapping[str, Any], building: Building) -> str:
    """One chunk's part of the (only) choice; returns its finish reason, `refusal` where the model said no by itself."""
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, Mapping):
        return ""
    delta = choice.get("delta")
    delta = delta if isinstance(delta, Mapping) else {}
    # Some servers send both names for the same text.
    building.thinking(text(delta.get("reasoning")) or text(delta.get("reasoning_content")))
    building.text(text(delta.get("content")))
    refusal = text(delta.get("refusal"))
    building.text(refusal, "refusal")
    calls = delta.get("tool_calls")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, Mapping):
            function = call.get("function")
            function = function if isinstance(function, Mapping) else {}
            index = call.get("index")
            key = index if isinstance(index, int) else number
            building.call(key, text(function.get("name")), text(function.get("arguments")))
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, Mapping):
        building.chances += chances(logprobs.get("content"))
    if refusal:
        building.refused = True
    finish = text(choice.get("finish_reason"))
    return "refusal" if finish and building.refused else finish
