"""OpenAI's two APIs as Speakers, from the Chat Completions and Responses references (streaming)."""

import json
from collections.abc import Mapping
from typing import Any

from api_server import KEY, Reply, Seen, sse

from harness.dialects import openai as chat
from harness.dialects import responses

_FIELDS = {
    "model", "messages", "max_completion_tokens", "max_tokens", "stream", "stream_options", "tools", "tool_choice",
    "temperature", "top_p", "seed", "logprobs", "top_logprobs", "reasoning_effort", "prompt_cache_options",
    "reasoning", "usage",
}  # fmt: skip
STOPS = {"stop": "stop", "length": "length", "refusal": "content_filter"}


def pieces(text: str, size: int = 7) -> list[str]:
    """A text in pieces, as a model's tokens come."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def error(status: int, message: str) -> dict[str, Any]:
    """OpenAI's error object."""
    kinds = {400: "invalid_request_error", 401: "invalid_request_error", 429: "rate_limit_error"}
    return {
        "error": {"message": message, "type": kinds.get(status, "server_error"), "param": None, "code": None}
    }


def wrong_key(seen: Seen) -> bool:
    return seen.headers.get("authorization") != f"Bearer {KEY}"


class ChatSpeaker:
    """Speaks `/v1/chat/completions`."""

    prefix = "/v1"

    def refuse(self, seen: Seen) -> str | None:
        body = seen.body
        if seen.path != "/v1/chat/completions":
            return f"unknown path {seen.path}"
        if wrong_key(seen):
            return "Incorrect API key provided"
        unknown = sorted(set(body) - _FIELDS)
        if unknown:
            return f"Unrecognized request argument supplied: {unknown[0]}"
        if body.get("stream") is not True or body.get("stream_options") != {"include_usage": True}:
            return "this test wants a stream with its usage"
        if "top_logprobs" in body and not body.get("logprobs"):
            return "top_logprobs needs logprobs"
        if "tool_choice" in body and not body.get("tools"):
            return "tool_choice is only allowed when tools are specified"
        if not isinstance(body.get("max_completion_tokens", body.get("max_tokens")), int):
            return "no limit of tokens"
        return chat.illegal(chat.read_messages(body["messages"]))

    def events(self, seen: Seen, reply: Reply) -> list[bytes]:
        def chunk(delta: Mapping[str, Any], finish: str | None = None, logprobs: Any = None) -> bytes:
            choice: dict[str, Any] = {
                "index": 0,
                "delta": delta,
                "finish_reason": finish,
                "logprobs": logprobs,
            }
            return sse({**head, "choices": [choice], "usage": None})

        head = {
            "id": f"chatcmpl-{seen.number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "served-2026",
        }
        events = [chunk({"role": "assistant", "content": ""})]
        events += [chunk({"reasoning_content": piece}) for piece in pieces(reply.thinking)]
        if reply.logprobs:
            told = [_logprob(*each) for each in reply.logprobs]
            events.append(chunk({}, None, {"content": told, "refusal": None}))
        events += [chunk({"content": piece}) for piece in pieces(reply.text)]
        for number, (name, arguments) in enumerate(reply.calls):
            raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
            call = {"index": number, "id": f"call_{number}", "type": "function"}
            events.append(chunk({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]}))
            events += [
                chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
                for piece in pieces(raw)
            ]
        finish = "tool_calls" if reply.calls and reply.stop == "stop" else STOPS[reply.stop]
        events.append(chunk({}, finish))
        events.append(sse({**head, "choices": [], "usage": _usage(reply)}))
        return [*events, sse("[DONE]")]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return error(status, message)

    def headers(self, number: int) -> dict[str, str]:
        return {"x-request-id": f"req_{number}", "openai-processing-ms": "12"}


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": reply.cached_tokens,
            "cache_write_tokens": reply.cache_written_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
    }


def _logprob(token: str, logprob: float, others: Mapping[str, float]) -> dict[str, Any]:
    def one(name: str, value: float) -> dict[str, Any]:
        return {"token": name, "logprob": value, "bytes": list(name.encode())}

    return {**one(token, logprob), "top_logprobs": [one(name, value) for name, value in others.items()]}


_RESPONSES_FIELDS = {
    "model", "input", "max_output_tokens", "store", "stream", "tools", "tool_choice", "temperature", "top_p",
    "reasoning", "top_logprobs", "include", "prompt_cache_options",
}  # fmt: skip


class ResponsesSpeaker:
    """Speaks `/v1/responses`."""

    prefix = "/v1"

    def refuse(self, seen: Seen) -> str | None:
        body = seen.body
        if seen.path != "/v1/responses":
            return f"unknown path {seen.path}"
        if wrong_key(seen):
            return "Incorrect API key provided"
        unknown = sorted(set(body) - _RESPONSES_FIELDS)
        if unknown:
            return f"Unknown parameter: '{unknown[0]}'"
        if body.get("stream") is not True or body.get("store") is not False:
            return "this test wants a stream that is not stored"
        if "top_logprobs" in body and body.get("include") != ["message.output_text.logprobs"]:
            return "top_logprobs needs include"
        if not isinstance(body.get("max_output_tokens"), int) or body["max_output_tokens"] < 16:
            return "max_output_tokens: integer below minimum value"
        return responses.illegal(responses.read_messages(body["input"]))

    def events(self, seen: Seen, reply: Reply) -> list[bytes]:
        events: list[bytes] = []

        def add(kind: str, **fields: Any) -> None:
            events.append(sse({"type": kind, "sequence_number": len(events), **fields}, kind))

        head = {"id": f"resp_{seen.number}", "object": "response", "model": "served-2026", "output": []}
        add("response.created", response={**head, "status": "in_progress"})
        index = 0
        if reply.reasoning_tokens:
            item = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
            add("response.output_item.added", output_index=index, item=item)
            for piece in pieces(reply.thinking):
                add(
                    "response.reasoning_summary_text.delta",
                    output_index=index,
                    item_id="rs_0",
                    summary_index=0,
                    delta=piece,
                )
            add("response.output_item.done", output_index=index, item=item)
            index += 1
        if reply.text or reply.logprobs:
            item = {"type": "message", "id": f"msg_{index}", "role": "assistant", "content": []}
            place = {"output_index": index, "content_index": 0, "item_id": item["id"]}
            add("response.output_item.added", output_index=index, item=item)
            told = [_logprob(*each) for each in reply.logprobs]
            kind = "response.refusal.delta" if reply.stop == "refusal" else "response.output_text.delta"
            for number, piece in enumerate(pieces(reply.text) or [""]):
                add(kind, **place, delta=piece, logprobs=[] if number else told)
            add("response.output_item.done", output_index=index, item=item)
            index += 1
        for number, (name, arguments) in enumerate(reply.calls):
            raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name}
            add("response.output_item.added", output_index=index, item={**item, "arguments": ""})
            for piece in pieces(raw):
                add(
                    "response.function_call_arguments.delta",
                    output_index=index,
                    item_id=item["id"],
                    delta=piece,
                )
            add(
                "response.function_call_arguments.done", output_index=index, item_id=item["id"], arguments=raw
            )
            add("response.output_item.done", output_index=index, item={**item, "arguments": raw})
            index += 1
        length = reply.stop == "length"
        ended = {
            **head,
            "status": "incomplete" if length else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if length else None,
            "usage": _responses_usage(reply),
        }
        add("response.incomplete" if length else "response.completed", response=ended)
        return events

    def error(self, status: int, message: str) -> dict[str, Any]:
        return error(status, message)

    def headers(self, number: int) -> dict[str, str]:
        return {"x-request-id": f"req_{number}"}


def _responses_usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {
            "cached_tokens": reply.cached_tokens,
            "cache_write_tokens": reply.cache_written_tokens,
        },
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
