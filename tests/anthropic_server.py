"""Anthropic's Messages API as a Speaker, from its reference (streaming)."""

import json
from itertools import pairwise
from typing import Any

from api_server import KEY, Reply, Seen, sse

from harness.dialects import anthropic as dialect

_FIELDS = {
    "model", "max_tokens", "stream", "system", "messages", "tools", "tool_choice", "temperature", "top_p", "thinking",
    "output_config",
}  # fmt: skip
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_STOPS = {"length": "max_tokens", "refusal": "refusal"}


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


class AnthropicSpeaker:
    """Speaks `/v1/messages`."""

    prefix = ""

    def refuse(self, seen: Seen) -> str | None:
        body = seen.body
        if seen.path != "/v1/messages":
            return f"unknown path {seen.path}"
        # Older clients send the key in a header of its own.
        sent = {seen.headers.get("authorization"), seen.headers.get("x-api-key")} - {None}
        if not sent or not sent <= {f"Bearer {KEY}", KEY}:
            return "invalid x-api-key"
        if "anthropic-version" not in seen.headers:
            return "anthropic-version: header is required"
        unknown = sorted(set(body) - _FIELDS)
        if unknown:
            return f"{unknown[0]}: Extra inputs are not permitted"
        if body.get("stream") is not True or not isinstance(body.get("max_tokens"), int):
            return "max_tokens: Field required"
        return (
            _wrong_thinking(body)
            or _wrong_turns(body)
            or dialect.illegal(dialect.read_messages(body["messages"], body.get("system")))
        )

    def events(self, seen: Seen, reply: Reply) -> list[bytes]:
        events: list[bytes] = []

        def add(kind: str, **fields: Any) -> None:
            events.append(sse({"type": kind, **fields}, kind))

        def block(opening: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
            nonlocal index
            add("content_block_start", index=index, content_block=opening)
            for delta in deltas:
                add("content_block_delta", index=index, delta=delta)
            add("content_block_stop", index=index)
            index += 1

        index = 0
        uncached = reply.input_tokens - reply.cached_tokens - reply.cache_written_tokens
        usage = {
            "input_tokens": uncached,
            "cache_read_input_tokens": reply.cached_tokens,
            "cache_creation_input_tokens": reply.cache_written_tokens,
            "output_tokens": 1,
        }
        message = {
            "id": f"msg_{seen.number}", "type": "message", "role": "assistant", "model": "served-2026", "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        add("message_start", message=message)
        add("ping")
        if reply.thinking:
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(reply.thinking)]
            signed = [*thoughts, {"type": "signature_delta", "signature": "c2ln"}]
            block({"type": "thinking", "thinking": "", "signature": ""}, signed)
        if reply.text:
            block(
                {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in _pieces(reply.text)]
            )
        for number, (name, arguments) in enumerate(reply.calls):
            raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(raw))]
            block({"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}, deltas)
        stop = _STOPS.get(reply.stop) or ("tool_use" if reply.calls else "end_turn")
        final = {
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"thinking_tokens": reply.reasoning_tokens},
        }
        add("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=final)
        add("message_stop")
        return events

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": _KINDS.get(status, "api_error"), "message": message}}

    def headers(self, number: int) -> dict[str, str]:
        return {"request-id": f"req_{number}", "anthropic-ratelimit-requests-remaining": "4000"}


def _wrong_thinking(body: dict[str, Any]) -> str | None:
    thinking = body.get("thinking", {"type": "disabled"})
    kind = thinking.get("type")
    if kind not in ("enabled", "disabled", "adaptive"):
        return "thinking.type: unknown"
    if kind == "enabled" and not 1024 <= thinking.get("budget_tokens", 0) < body["max_tokens"]:
        return "thinking.budget_tokens: at least 1024 and less than max_tokens"
    if kind != "disabled":
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            return "Thinking may not be enabled when tool_choice forces tool use."
        if body.get("temperature", 1) != 1:
            return "`temperature` may only be set to 1 when thinking is enabled"
    if "temperature" in body and "top_p" in body:
        return "`temperature` and `top_p` cannot both be specified for this model"
    return None


def _wrong_turns(body: dict[str, Any]) -> str | None:
    """Roles alternate, and no more than four places are marked for the cache."""
    roles = [turn.get("role") for turn in body["messages"]]
    if any(first == second for first, second in pairwise(roles)):
        return "messages: roles must alternate"
    if json.dumps(body).count('"cache_control"') > 4:
        return "A maximum of 4 blocks with cache_control may be provided"
    return None
