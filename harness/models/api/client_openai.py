"""What the two APIs of OpenAI's client have in common: the client, counts out of plain data, caching switched on purpose."""

import os
from collections.abc import Mapping
from typing import Any

import httpx2
import openai

from harness.models.api.base import ApiUsage, TokenChances

DEFAULT = "https://api.openai.com/v1"
TOP_LOGPROBS = 20
"""Most that the APIs tell."""


def make_client(address: str | None, key: str, http: httpx2.Client) -> openai.OpenAI:
    """The vendor's client without retries of its own; nothing is taken from the environment."""
    # Headers that it would take from the environment, and the two that the lines below set to empty.
    names = [
        line.partition(":")[0].strip() for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    ]
    unwanted = {name: openai.Omit() for name in (*names, "OpenAI-Organization", "OpenAI-Project") if name}
    # Given outright, one of the environment cannot take its place.
    kept = {name: omit for name, omit in unwanted.items() if name.lower() != "authorization"}
    return openai.OpenAI(
        api_key=key,
        admin_api_key="",
        base_url=address or DEFAULT,
        organization="",
        project="",
        webhook_secret="",
        max_retries=0,
        timeout=http.timeout,
        http_client=http,
        default_headers={**kept, "Authorization": f"Bearer {key}"},
    )


def plain(event: Any) -> Mapping[str, Any]:
    """An event of the client's as plain data."""
    data: Mapping[str, Any] = event.to_dict(warnings=False) if hasattr(event, "to_dict") else event
    return data if isinstance(data, Mapping) else {}


def count(data: Any, *path: str) -> int | None:
    """A count by its path; None where it is not there, or no number."""
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data if isinstance(data, int) and not isinstance(data, bool) else None


def text(value: Any) -> str:
    """The value where it is a text, else ''."""
    return value if isinstance(value, str) else ""


def usage_of(data: Any, prompt: str, completion: str) -> ApiUsage:
    """Counts of a usage object. `prompt`, `completion`: the API's words for the two, which its detail objects carry,
    too. Cached tokens are part of the prompt and thinking is part of the reply, except at servers whose total says
    otherwise."""
    told, replied = count(data, f"{prompt}_tokens"), count(data, f"{completion}_tokens")
    reasoning = count(data, f"{completion}_tokens_details", "reasoning_tokens")
    field = f"{completion}_tokens_details.reasoning_tokens"
    if reasoning is None:
        reasoning, field = count(data, "reasoning_tokens"), "reasoning_tokens"
    total = count(data, "total_tokens")
    if told is not None and replied is not None and reasoning and total == told + replied + reasoning:
        replied += reasoning
    details = f"{prompt}_tokens_details"
    cached = count(data, details, "cached_tokens")
    return ApiUsage(
        input_tokens=told,
        # DeepSeek's name for it.
        cached_tokens=count(data, "prompt_cache_hit_tokens") if cached is None else cached,
        cache_written_tokens=count(data, details, "cache_write_tokens"),
        output_tokens=replied,
        reasoning_tokens=reasoning,
        reasoning_field=None if reasoning is None else field,
    )


def caching(prompt_cache: bool | None) -> dict[str, Any]:
    """Fields that switch the caching of prompts on or off on purpose (`prompt_cache_options`, from gpt-5.6 on; older
    models always cache). Explicit without a breakpoint is off."""
    if prompt_cache is None:
        return {}
    return {"prompt_cache_options": {"mode": "implicit" if prompt_cache else "explicit"}}


def chances(entries: Any) -> list[TokenChances]:
    """Token probabilities from a `logprobs` list of either API."""
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("logprob"), int | float):
            continue
        others = {
            text(other.get("token")): float(other["logprob"])
            for other in entry.get("top_logprobs") or ()
            if isinstance(other, Mapping) and isinstance(other.get("logprob"), int | float)
        }
        found.append(TokenChances(text(entry.get("token")), float(entry["logprob"]), others))
    return found
