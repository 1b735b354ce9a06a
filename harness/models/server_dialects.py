"""What is not the same at every OpenAI-compatible server, as one table.

The fields are those of vLLM 0.32 (entrypoints/openai), SGLang (openai_api/protocol.py), llama.cpp's server
(tools/server/README.md) and Ollama (docs/openai.md). Knows no client and no stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import ModelError
from harness.types import CacheState, Decoding, Request


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server. Absent abilities are None; what a server cannot do is refused, not approximated."""

    kind: str
    token_prompts: bool = True
    """Does its completions API take token ids?"""
    always: Mapping[str, Any] = field(default_factory=dict)
    """Sent with every request: raw text, and no sampling rule that nobody asked for."""
    every_token: int | None = None
    """The value of `top_k` that means no limit; None: the field does not exist."""
    penalty: str | None = None
    """Name of the repetition penalty's field."""
    keep_stop: Mapping[str, Any] | None = None
    """What makes a stop text stay part of the reply; None: it would be cut, so the client looks for it."""
    salted: bool = False
    """Can a request have a prefix cache of its own (`cache_salt`)?"""
    uncached: Mapping[str, Any] | None = None
    """What makes a request leave the prefix cache alone."""
    history_reasoning: str = "reasoning_content"
    """The field in which it reads the reasoning of earlier turns."""
    renders: bool = False
    """Does `/tokenize` tell which token ids a conversation becomes?"""
    version_path: str | None = None

    def check_decoding(self, decoding: Decoding) -> None:
        """Raises ModelError for sampling that this kind of server cannot be told."""
        if self.every_token is None and decoding.top_k > 0:
            raise ModelError(
                f"a server of kind {self.kind} cannot be told top_k={decoding.top_k}; set model.decoding.top_k=0 "
                "with model.decoding.source=stated, or use vllm, sglang or llamacpp"
            )
        if self.penalty is None and decoding.repetition_penalty != 1.0:
            raise ModelError(
                f"a server of kind {self.kind} cannot be told repetition_penalty={decoding.repetition_penalty:g}; "
                "set it to 1 with model.decoding.source=stated, or use vllm, sglang or llamacpp"
            )

    def check_cache(self, cache: CacheState, api: str) -> None:
        """Raises ModelError where that state of the prefix cache cannot be brought about."""
        if cache == "cold" and not self.salted and self.uncached is None:
            raise ModelError(
                f"latency.cache=cold: a server of kind {self.kind} cannot be asked to forget its cache; "
                "use latency.cache=natural, or model.server.kind=vllm or llamacpp where it is one"
            )
        if cache == "warm" and not (self.salted and api == "completions"):
            raise ModelError(
                f"latency.cache=warm needs token prompts and a cache apart for each request, which kind={self.kind} "
                f"with api={api} has not; use model.server.kind=vllm with api=completions, or latency.cache=natural"
            )

    def extra(self, request: Request, salt: str | None, *, cold: bool) -> dict[str, Any]:
        """The fields beyond OpenAI's own."""
        fields = dict(self.always)
        if self.every_token is not None:
            fields["top_k"] = request.decoding.top_k or self.every_token
        if self.penalty is not None:
            fields[self.penalty] = request.decoding.repetition_penalty
        if request.stop_text and self.keep_stop is not None:
            fields |= self.keep_stop
        if salt is not None:
            fields["cache_salt"] = salt
        if cold and self.uncached is not None:
            fields |= self.uncached
        return fields


_RAW = {"skip_special_tokens": False, "spaces_between_special_tokens": False, "min_p": 0.0}

DIALECTS: Mapping[str, Dialect] = {
    dialect.kind: dialect
    for dialect in (
        Dialect(
            "vllm",
            always={**_RAW, "return_token_ids": True},
            every_token=0,
            penalty="repetition_penalty",
            keep_stop={"include_stop_str_in_output": True},
            salted=True,
            history_reasoning="reasoning",
            renders=True,
            version_path="/version",
        ),
        Dialect(
            "sglang",
            always=_RAW,
            every_token=-1,
            penalty="repetition_penalty",
            keep_stop={"no_stop_trim": True},
        ),
        Dialect(
            "llamacpp",
            # Its own defaults are top_k 40, min_p 0.05 and a penalty over the last 64 tokens.
            always={"min_p": 0.0, "repeat_last_n": -1},
            every_token=0,
            penalty="repeat_penalty",
            uncached={"cache_prompt": False},
        ),
        Dialect("ollama", token_prompts=False, history_reasoning="reasoning", version_path="/api/version"),
        Dialect("other"),
    )
}
