"""Google's Gemini API as a Speaker, from the generateContent reference (streaming)."""

import json
from itertools import pairwise
from typing import Any

from api_server import KEY, Reply, Seen, sse

from harness.dialects import gemini as dialect

_FIELDS = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
_SETTINGS = {
    "maxOutputTokens", "temperature", "topP", "seed", "responseLogprobs", "logprobs", "thinkingConfig",
}  # fmt: skip
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_STOPS = {"stop": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}


class GeminiSpeaker:
    """Speaks `/v1beta/models/…:streamGenerateContent?alt=sse`."""

    prefix = ""

    def refuse(self, seen: Seen) -> str | None:
        body = seen.body
        path, _, query = seen.path.partition("?")
        if (
            not path.startswith("/v1beta/models/")
            or not path.endswith(":streamGenerateContent")
            or query != "alt=sse"
        ):
            return f"unknown path {path}"
        if seen.headers.get("x-goog-api-key") != KEY or KEY in seen.path:
            return "API key not valid"
        unknown = sorted(set(body) - _FIELDS) + sorted(set(body.get("generationConfig", {})) - _SETTINGS)
        if unknown:
            return f"Unknown name {unknown[0]!r}"
        thinking = body.get("generationConfig", {}).get("thinkingConfig", {})
        if (
            len({name.replace("_", "").lower() for name in thinking} & {"thinkingbudget", "thinkinglevel"})
            == 2
        ):
            return "thinking_budget and thinking_level cannot both be set"
        mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
        if mode is not None and (mode not in ("AUTO", "ANY", "NONE") or "tools" not in body):
            return "Function calling config is set without function_declarations"
        roles = [turn.get("role") for turn in body["contents"]]
        if any(first == second for first, second in pairwise(roles)):
            return "this test wants turns of one role sent as one"
        return dialect.illegal(dialect.read_messages(body["contents"], body.get("systemInstruction")))

    def events(self, seen: Seen, reply: Reply) -> list[bytes]:
        parts: list[dict[str, Any]] = []
        parts += [{"text": piece, "thought": True} for piece in _pieces(reply.thinking)]
        parts += [{"text": piece} for piece in _pieces(reply.text)]
        malformed = ""
        for name, arguments in reply.calls:
            if isinstance(arguments, str):
                malformed = f"Malformed function call: {name}({arguments})"
            else:
                parts.append({"functionCall": {"name": name, "args": dict(arguments)}})
        thoughts = {"thoughtsTokenCount": reply.reasoning_tokens} if reply.reasoning_tokens else {}
        cached = {"cachedContentTokenCount": reply.cached_tokens} if reply.cached_tokens else {}
        head = {"modelVersion": "served-2026", "responseId": f"resp-{seen.number}"}

        def chunk(shown: list[dict[str, Any]], done: int, finish: str | None, **more: Any) -> bytes:
            candidate: dict[str, Any] = {"content": {"role": "model", "parts": shown}, "index": 0, **more}
            if finish:
                candidate["finishReason"] = finish
            usage = {
                "promptTokenCount": reply.input_tokens,
                "candidatesTokenCount": done,
                **thoughts,
                **cached,
            }
            return sse({"candidates": [candidate], "usageMetadata": usage, **head})

        replied = reply.output_tokens - reply.reasoning_tokens
        events = [chunk([part], min(number, replied), None) for number, part in enumerate(parts)]
        finish = "MALFORMED_FUNCTION_CALL" if malformed else _STOPS[reply.stop]
        last: dict[str, Any] = {"finishMessage": malformed} if malformed else {}
        if reply.logprobs:
            last["logprobsResult"] = {
                "chosenCandidates": [{"token": t, "logProbability": p} for t, p, _ in reply.logprobs],
                "topCandidates": [
                    {"candidates": [{"token": t, "logProbability": p} for t, p in others.items()]}
                    for _, _, others in reply.logprobs
                ],
            }
        return [*events, chunk([{"text": ""}], replied, finish, **last)]

    def error(self, status: int, message: str) -> dict[str, Any]:
        details = []
        if status == 429:
            details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.05s"}]
        name = _STATUS.get(status, "INTERNAL")
        return {"error": {"code": status, "message": message, "status": name, "details": details}}

    def headers(self, number: int) -> dict[str, str]:
        return {"x-gemini-service-tier": "standard"}


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def refused_prompt(reason: str = "PROHIBITED_CONTENT") -> bytes:
    """The only event of a prompt that is blocked."""
    return sse(
        json.loads(
            json.dumps({"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 9}})
        )
    )
