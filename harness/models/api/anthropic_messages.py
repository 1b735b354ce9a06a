"""Anthropic's Messages API.

Events and fields are those of the Messages reference as the vendor's client types them. Reasoning of earlier turns is
only taken back signed, which a `Message` does not keep, so the history goes without it. Thinking that is shown is a
summary (Claude 4 and later), so that only the usage tells its length. The API knows no seed and no token probabilities.
"""

import json
from collections.abc import Mapping
from typing import Any

import anthropic
import httpx2

from harness.dialects import anthropic as dialect
from harness.errors import ModelError
from harness.models.api import wire
from harness.models.api.base import Answer, ApiUsage, Call, Stop
from harness.models.api.building import Building
from harness.models.server_faults import TransportError

_STOPS: Mapping[str, Stop] = {
    "end_turn": "stop", "tool_use": "stop", "stop_sequence": "stop", "pause_turn": "stop",
    "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal",
}  # fmt: skip
LEAST_BUDGET = 1024
_CACHED = {"cache_control": {"type": "ephemeral"}}


class AnthropicMessages:
    """A Provider. `address`: None for Anthropic's own."""

    name = "anthropic"
    dialect = dialect

    def __init__(self, address: str | None, key: str, http: httpx2.Client) -> None:
        self._client = anthropic.Anthropic(
            # Given outright, it takes the place of whatever else the environment holds.
            api_key=key,
            base_url=address or "https://api.anthropic.com",
            max_retries=0,
            timeout=http.timeout,
            http_client=http,
        )

    def __repr__(self) -> str:
        return f"AnthropicMessages({self._client.base_url})"

    def body(self, call: Call) -> dict[str, Any]:
        """As Provider.body."""
        body: dict[str, Any] = {"model": call.model, "max_tokens": call.max_tokens, "stream": True}
        body |= dialect.wire_messages(call.messages, keep_reasoning=False)
        if call.tools:
            body["tools"] = dialect.wire_tools(call.tools)
            body["tool_choice"] = {"type": "any" if call.forced else "auto"}
        thinking = _thinking(call)
        if "thinking" in thinking and thinking["thinking"]["type"] != "disabled":
            if call.forced:
                raise ModelError(
                    "probe=choose with model.api.thinking_budget or effort: Anthropic forces no call while the model "
                    "thinks; set model.api.thinking_budget=0, or probe=[act]"
                )
        elif call.temperature is not None:
            # Newer models take one of the two.
            body["temperature"] = call.temperature
        elif call.top_p is not None:
            body["top_p"] = call.top_p
        return _with_caching(body | thinking, call.prompt_cache)

    def ask(self, body: Mapping[str, Any]) -> Answer:
        attempt = wire.current()
        reading = _Reading(Building(attempt))
        # The client has no arguments for sampling any more; the API still takes it for the models that have it.
        extra = {key: body[key] for key in ("temperature", "top_p") if key in body}
        typed = {key: value for key, value in body.items() if key not in extra}
        with self._client.messages.create(**typed, extra_body=extra or None) as stream:
            for event in stream:
                reading.take(event.to_dict(warnings=False))
        if not reading.over or reading.stop_reason is None:
            raise TransportError("the stream was cut before the reply's end")
        return reading.building.answer(
            _STOPS.get(reading.stop_reason, "stop"),
            reading.stop_reason,
            _usage(reading.usage),
            request_id=attempt.headers.get("request-id"),
            model=reading.model,
            thinking_hidden=reading.thought,
        )

    def close(self) -> None:
        self._client.close()


def _thinking(call: Call) -> dict[str, Any]:
    if call.effort == "minimal":
        raise ModelError(
            "model.api.effort=minimal: Anthropic's levels are none, low, medium, high, xhigh and max"
        )
    if call.effort == "none" or call.thinking_budget == 0:
        return {"thinking": {"type": "disabled"}}
    if call.effort is not None:
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": call.effort}}
    if call.thinking_budget is None:
        return {}
    if not LEAST_BUDGET <= call.thinking_budget < call.max_tokens:
        raise ModelError(
            f"model.api.thinking_budget={call.thinking_budget}: Anthropic takes {LEAST_BUDGET} or more, and less than the "
            f"whole reply (the probe's max_new_tokens, {call.max_tokens})"
        )
    return {"thinking": {"type": "enabled", "budget_tokens": call.thinking_budget}}


def _with_caching(body: dict[str, Any], prompt_cache: bool | None) -> dict[str, Any]:
    """Breakpoints after tools, system and the last message. Without any the API caches nothing, which is both what False
    asks for and what it does by itself."""
    if not prompt_cache:
        return body
    done = json.loads(json.dumps(body))  # nothing of the call is changed
    if done.get("tools"):
        done["tools"][-1] |= _CACHED
    if isinstance(done.get("system"), str):
        done["system"] = [{"type": "text", "text": done["system"], **_CACHED}]
    done["messages"][-1]["content"][-1] |= _CACHED
    read: dict[str, Any] = done
    return read


class _Reading:
    """The events of one stream as they come."""

    def __init__(self, building: Building) -> None:
        self.building = building
        self.usage: dict[str, Any] = {}
        self.stop_reason: str | None = None
        self.model: str | None = None
        self.thought = False
        self.over = False
        self._closed: set[int] = set()
        self._newest = ""
        self._doubled = False
        """Whether somebody in between sends every event twice."""

    def take(self, data: Mapping[str, Any]) -> None:
        """One event. The API numbers nothing, and a model may say the same piece twice; but where the message begins
        twice somebody in between doubles events, and each that directly repeats itself counts once."""
        kind = str(data.get("type"))
        written = json.dumps(data, sort_keys=True)
        again, self._newest = written == self._newest, written
        self._doubled = self._doubled or (again and kind == "message_start")
        if again and self._doubled:
            self._newest = ""  # a third one would be the model's own
            return
        match kind:
            case "message_start":
                message = data.get("message") or {}
                self.model = message.get("model")
                self._count(message.get("usage"))
            case "content_block_start":
                self._start(int(data["index"]), data.get("content_block") or {})
            case "content_block_delta":
                self._delta(int(data["index"]), data.get("delta") or {})
            case "content_block_stop":
                self._closed.add(int(data["index"]))
            case "message_delta":
                self.stop_reason = (data.get("delta") or {}).get("stop_reason") or self.stop_reason
                self._count(data.get("usage"))
            case "message_stop":
                self.over = True

    def _start(self, index: int, block: Mapping[str, Any]) -> None:
        if index in self._closed:
            raise TransportError("malformed stream from the provider: a block begins again after its end")
        match block.get("type"):
            case "tool_use":
                self.building.call(index, str(block.get("name") or ""))
            case "text":
                self.building.text(str(block.get("text") or ""), index)
            case "thinking" | "redacted_thinking":
                self.thought = True
                self.building.thinking(str(block.get("thinking") or ""), index)

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        if index in self._closed:
            raise TransportError("malformed stream from the provider: a block goes on after its end")
        match delta.get("type"):
            case "text_delta":
                self.building.text(str(delta.get("text") or ""), index)
            case "thinking_delta":
                self.building.thinking(str(delta.get("thinking") or ""), index)
            case "input_json_delta":
                self.building.call(index, "", str(delta.get("partial_json") or ""))

    def _count(self, usage: Any) -> None:
        """Counts are cumulative: the later one holds."""
        if isinstance(usage, Mapping):
            self.usage |= {key: value for key, value in usage.items() if value is not None}


def _usage(usage: Mapping[str, Any]) -> ApiUsage:
    """`input_tokens` leaves out what was read from and written to the cache (the reference: the total is their sum)."""
    uncached = _count(usage, "input_tokens")
    cached = _count(usage, "cache_read_input_tokens")
    written = _count(usage, "cache_creation_input_tokens")
    details = usage.get("output_tokens_details")
    thinking = _count(details, "thinking_tokens") if isinstance(details, Mapping) else None
    return ApiUsage(
        input_tokens=None if uncached is None else uncached + (cached or 0) + (written or 0),
        cached_tokens=cached,
        cache_written_tokens=written,
        output_tokens=_count(usage, "output_tokens"),
        reasoning_tokens=thinking,
        reasoning_field=None if thinking is None else "output_tokens_details.thinking_tokens",
    )


def _count(usage: Mapping[str, Any], key: str) -> int | None:
    value = usage.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
