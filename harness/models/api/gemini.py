"""Google's Gemini API through the vendor's client.

Fields are those of the generateContent reference as the client types them. Thoughts that are shown are summaries, so
that only the usage tells their length. The API caches prompts by itself, which cannot be switched off.
"""

import json
from collections.abc import Mapping
from typing import Any

import httpx2
from google import genai
from google.genai import types

from harness.dialects import gemini as dialect
from harness.errors import ModelError, ProviderError
from harness.models.api import wire
from harness.models.api.base import Answer, ApiUsage, Call, Stop, TokenChances
from harness.models.api.building import Building
from harness.models.server_faults import TransportError

_STOPS: Mapping[str, Stop] = {
    "STOP": "stop", "MAX_TOKENS": "length", "MALFORMED_FUNCTION_CALL": "stop", "UNEXPECTED_TOOL_CALL": "stop",
    "SAFETY": "refusal", "RECITATION": "refusal", "BLOCKLIST": "refusal", "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal", "LANGUAGE": "refusal", "IMAGE_SAFETY": "refusal", "ESCALATION": "refusal",
    "MODEL_ARMOR": "refusal",
}  # fmt: skip
_MALFORMED = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")
_AGAIN = ("OTHER", "MALFORMED_RESPONSE", "FINISH_REASON_UNSPECIFIED")
_LEVELS = ("minimal", "low", "medium", "high", "xhigh")
_TOP_LOGPROBS = 20
_MS = 1000


class Gemini:
    """A Provider. `address`: None for Google's own."""

    name = "gemini"
    dialect = dialect

    def __init__(self, address: str | None, key: str, http: httpx2.Client) -> None:
        self._address = address
        silence_s = http.timeout.read or 300.0
        self._client = genai.Client(
            api_key=key,
            # Said outright, or the environment would decide.
            vertexai=False,
            http_options=types.HttpOptions(
                base_url=address or "https://generativelanguage.googleapis.com",
                api_version="v1beta",
                httpx_client=http,
                timeout=int(silence_s * _MS),
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        )

    def __repr__(self) -> str:
        return f"Gemini({self._address or 'https://generativelanguage.googleapis.com'})"

    def body(self, call: Call) -> dict[str, Any]:
        """As Provider.body, in the names of the client's own fields."""
        if call.prompt_cache is False:
            raise ModelError(
                "model.api.prompt_cache=false: Gemini caches by itself and cannot be told not to; leave it null"
            )
        sent = dialect.wire_messages(call.messages)
        config: dict[str, Any] = {"max_output_tokens": call.max_tokens}
        if "system_instruction" in sent:
            config["system_instruction"] = sent["system_instruction"]
        if call.tools:
            config["tools"] = dialect.wire_tools(call.tools)
            mode = "ANY" if call.forced else "AUTO"
            config["tool_config"] = {"function_calling_config": {"mode": mode}}
            config["automatic_function_calling"] = {"disable": True}
        for name, value in (("temperature", call.temperature), ("top_p", call.top_p), ("seed", call.seed)):
            if value is not None:
                config[name] = value
        if call.logprobs:
            config |= {"response_logprobs": True, "logprobs": _TOP_LOGPROBS}
        thinking = _thinking(call)
        if thinking:
            config["thinking_config"] = thinking
        return {"model": call.model, "contents": sent["contents"], "config": config}

    def ask(self, body: Mapping[str, Any]) -> Answer:
        attempt = wire.current()
        building = Building(attempt)
        finish, message, request_id, served, thought = "", "", None, None, False
        usage: types.GenerateContentResponseUsageMetadata | None = None
        blocked = None
        for chunk in self._client.models.generate_content_stream(**body):
            attempt.made()
            usage = chunk.usage_metadata or usage
            request_id, served = chunk.response_id or request_id, chunk.model_version or served
            if chunk.prompt_feedback and chunk.prompt_feedback.block_reason:
                blocked = _name(chunk.prompt_feedback.block_reason)
            candidate = chunk.candidates[0] if chunk.candidates else None
            if candidate is None:
                continue
            thought = _take(candidate, building) or thought
            if candidate.finish_reason:
                finish, message = _name(candidate.finish_reason), candidate.finish_message or ""
        if not finish and blocked:
            return building.answer(
                "refusal", f"prompt blocked: {blocked}", _usage(usage), request_id=request_id, model=served
            )
        if not finish:
            raise TransportError("the stream was cut before the reply's end")
        if finish in _AGAIN:
            raise TransportError(f"the provider gave the reply up (finish reason {finish})")
        stop = _STOPS.get(finish)
        if stop is None:
            raise ProviderError(f"the provider ended the reply with finish reason {finish[:40]}")
        if finish in _MALFORMED:
            # An attempt is data. What the model wrote stands in the finish message, which the client (3.6) drops.
            building.call("malformed", "", message or finish)
        return building.answer(
            stop, finish, _usage(usage), request_id=request_id, model=served, thinking_hidden=thought
        )

    def close(self) -> None:
        self._client.close()


def _thinking(call: Call) -> dict[str, Any]:
    if call.thinking_budget is not None:
        return {"thinking_budget": call.thinking_budget}
    if call.effort is None:
        return {}
    if call.effort == "none":
        return {"thinking_budget": 0}
    if call.effort not in _LEVELS:
        raise ModelError(f"model.api.effort={call.effort}: Gemini's levels are none, {', '.join(_LEVELS)}")
    return {"thinking_level": call.effort.upper()}


def _name(value: Any) -> str:
    return str(getattr(value, "value", value))


def _take(candidate: Any, building: Building) -> bool:
    """One chunk's part of the reply; True when a thought was in it."""
    thought = False
    parts = (candidate.content.parts if candidate.content else None) or ()
    for part in parts:
        if part.function_call is not None:
            arguments = json.dumps(part.function_call.args or {}, ensure_ascii=False)
            building.call(object(), part.function_call.name or "", arguments)
        elif part.text and part.thought:
            thought = True
            building.thinking(part.text)
        elif part.text:
            building.text(part.text)
    told = candidate.logprobs_result
    if told is not None and told.chosen_candidates:
        tops = told.top_candidates or ()
        for number, chosen in enumerate(told.chosen_candidates):
            others = (tops[number].candidates or ()) if number < len(tops) else ()
            building.chances.append(
                TokenChances(
                    chosen.token or "",
                    float(chosen.log_probability or 0.0),
                    {other.token or "": float(other.log_probability or 0.0) for other in others},
                )
            )
    return thought


def _usage(usage: Any) -> ApiUsage:
    """Counts of the newest chunk: they are cumulative. Candidates leave out thoughts; the prompt leaves out the results of
    the provider's own tools, which are billed as prompt, too."""
    if usage is None:
        return ApiUsage()
    prompt, thoughts = usage.prompt_token_count, usage.thoughts_token_count
    replied = usage.candidates_token_count
    known = replied is not None or thoughts is not None
    return ApiUsage(
        input_tokens=None if prompt is None else prompt + (usage.tool_use_prompt_token_count or 0),
        cached_tokens=usage.cached_content_token_count,
        output_tokens=(replied or 0) + (thoughts or 0) if known else None,
        reasoning_tokens=thoughts,
        reasoning_field=None if thoughts is None else "thoughts_token_count",
    )
