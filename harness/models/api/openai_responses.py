"""OpenAI's Responses API. OpenAI never shows thinking, its tokens are counted in the usage; servers with open weights do.

Events and fields are those of the Responses reference as the vendor's client types them. Events are numbered, so that
one that comes twice counts once.
"""

from collections.abc import Mapping
from typing import Any

import httpx2

from harness.dialects import responses as dialect
from harness.errors import ModelError, ProviderError
from harness.models.api import wire
from harness.models.api.base import Answer, Call, Stop
from harness.models.api.building import Building
from harness.models.api.client_openai import (
    TOP_LOGPROBS,
    caching,
    chances,
    make_client,
    plain,
    text,
    usage_of,
)
from harness.models.server_faults import Redactor, TransportError

_ENDS = ("response.completed", "response.incomplete", "response.failed")
_AGAIN = ("server_error", "rate_limit_exceeded", "vector_store_timeout")
"""Codes of a failed response that another try may mend."""


class OpenAIResponses:
    """A Provider. `address`: None for OpenAI's own."""

    name = "openai-responses"
    dialect = dialect

    def __init__(self, address: str | None, key: str, http: httpx2.Client) -> None:
        self._client = make_client(address, key, http)
        self._redact = Redactor(key)

    def __repr__(self) -> str:
        return f"OpenAIResponses({self._client.base_url})"

    def body(self, call: Call) -> dict[str, Any]:
        """As Provider.body. The API takes no seed: none is sent."""
        if call.thinking_budget is not None:
            raise ModelError(
                "model.api.thinking_budget: the Responses API counts no thinking tokens in advance; set model.api.effort"
            )
        body: dict[str, Any] = {
            "model": call.model,
            "input": dialect.wire_messages(call.messages),
            "max_output_tokens": call.max_tokens,
            "store": False,
            "stream": True,
        }
        if call.tools:
            body["tools"] = dialect.wire_tools(call.tools)
            body["tool_choice"] = "required" if call.forced else "auto"
        for name, value in (("temperature", call.temperature), ("top_p", call.top_p)):
            if value is not None:
                body[name] = value
        if call.effort is not None:
            body["reasoning"] = {"effort": call.effort}
        if call.logprobs:
            body |= {"top_logprobs": TOP_LOGPROBS, "include": ["message.output_text.logprobs"]}
        return body | caching(call.prompt_cache)

    def ask(self, body: Mapping[str, Any]) -> Answer:
        attempt = wire.current()
        building = Building(attempt)
        known = {key: body[key] for key in body if key != "prompt_cache_options"}
        extra = {key: body[key] for key in body if key not in known}
        newest, ended, shown = -1, None, False
        with self._client.responses.create(**known, extra_body=extra or None) as stream:
            for event in stream:
                data = plain(event)
                number = data.get("sequence_number")
                if isinstance(number, int):
                    if number <= newest:
                        continue
                    newest = number
                kind = text(data.get("type"))
                if kind == "error":
                    raise self._failure(data)
                _take(kind, data, building)
                shown = shown or kind == "response.reasoning_text.delta"
                if kind in _ENDS:
                    ended = data.get("response")
        if not isinstance(ended, Mapping):
            raise TransportError("the stream was cut before the reply's end")
        stop, reason = self._stop(ended, building)
        counted = usage_of(ended.get("usage"), "input", "output")
        return building.answer(
            stop,
            reason,
            counted,
            request_id=attempt.headers.get("x-request-id") or text(ended.get("id")) or None,
            model=text(ended.get("model")) or None,
            thinking_hidden=bool(counted.reasoning_tokens) and not shown,
        )

    def _stop(self, response: Mapping[str, Any], building: Building) -> tuple[Stop, str]:
        """How the reply ended. Raises TransportError or ProviderError for one that failed."""
        status = text(response.get("status"))
        if status == "completed":
            return ("refusal", "refusal") if building.refused else ("stop", status)
        if status == "incomplete":
            details = response.get("incomplete_details")
            reason = text(details.get("reason")) if isinstance(details, Mapping) else ""
            if reason == "max_output_tokens":
                return "length", reason
            if reason == "content_filter":
                return "refusal", reason
            raise ProviderError(
                f"the provider left the reply incomplete ({self._redact(reason)[:40] or 'no reason given'})"
            )
        error = response.get("error")
        raise self._failure(error if isinstance(error, Mapping) else {})

    def _failure(self, error: Mapping[str, Any]) -> ProviderError:
        """Its words are the provider's, which may quote the key."""
        code, said = text(error.get("code")), text(error.get("message"))
        reason = self._redact(f"the provider ended its stream with an error: {code or 'no code'}: {said}")
        return TransportError(reason) if code in _AGAIN or not code else ProviderError(reason)

    def close(self) -> None:
        self._client.close()


def _take(kind: str, data: Mapping[str, Any], building: Building) -> None:
    """One event's part of the reply."""
    key = (data.get("output_index"), data.get("content_index"))
    piece = text(data.get("delta"))
    match kind:
        case "response.output_text.delta":
            building.text(piece, key)
            building.chances += chances(data.get("logprobs"))
        case "response.refusal.delta":
            building.text(piece, key)
            building.refused = True
        case "response.reasoning_text.delta":
            building.thinking(piece, key)
        case "response.reasoning_summary_text.delta":
            building.thinking(piece, ("summary", data.get("output_index"), data.get("summary_index")))
        case "response.output_item.added":
            item = data.get("item")
            if isinstance(item, Mapping) and item.get("type") == "function_call":
                building.call(data.get("output_index"), text(item.get("name")))
        case "response.function_call_arguments.delta":
            building.call(data.get("output_index"), "", piece)
        case "response.output_item.done":
            item = data.get("item")
            if isinstance(item, Mapping) and item.get("type") == "function_call":
                name, arguments = text(item.get("name")), text(item.get("arguments"))
                building.replace_call(data.get("output_index"), name, arguments)
