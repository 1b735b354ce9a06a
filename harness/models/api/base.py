"""The words between the engine and a provider's client: what is asked, what comes back.

A provider turns a `Call` into the body of its own API, sends that by its vendor's client and turns the stream that
comes back into an `Answer` whose figures mean the same everywhere. Knows no configuration, no retry and no run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from harness.types import Message, ToolSpec

Stop = Literal["stop", "length", "refusal"]
"""`stop`: the model ended by itself, with text or calls. `length`: cut at the token limit. `refusal`: the provider or
the model's safety layer ended it; what was said until then is kept."""
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a provider. None: the field is left out, and the provider's own default holds."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_tokens: int
    """Of the whole reply, thinking included."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    effort: Effort | None = None
    """How much the model shall think, in the provider's own levels."""
    thinking_budget: int | None = None
    """Most thinking tokens; 0: none."""
    forced: bool = False
    """Some tool must be called (`choose`)."""
    logprobs: bool = False
    """Ask for the probabilities of the reply's tokens, where the API has them."""
    prompt_cache: bool | None = None
    """True or False: switched on or off on purpose, as far as the API lets us; None: as the provider does it."""
    keep_reasoning: bool = True
    """False leaves the history's reasoning out."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of the reply. `text`: what was said, or a call's arguments as the JSON text that came, valid or not."""

    kind: Literal["thinking", "text", "call"]
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class TokenChances:
    """One generated token, its natural-log probability and those of the likeliest alternatives at its place (itself
    among them where the API says so)."""

    token: str
    logprob: float
    others: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApiUsage:
    """Token counts as the provider bills them, normalised; None means that it did not say."""

    input_tokens: int | None = None
    """All of the prompt: cached and cache-written tokens are part of it, whether or not the provider counts them in."""
    cached_tokens: int | None = None
    cache_written_tokens: int | None = None
    output_tokens: int | None = None
    """All that was generated: thinking is part of it, whether or not the provider counts it in."""
    reasoning_tokens: int | None = None
    reasoning_field: str | None = None
    """Where in the provider's usage `reasoning_tokens` stood, dotted."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole reply. Times are seconds from just before the request was sent."""

    blocks: tuple[Block, ...]
    stop: Stop
    stop_reason: str
    """The provider's own word for `stop`."""
    usage: ApiUsage
    total: float
    first_token: float | None = None
    """First piece of anything, thinking included."""
    first_answer_token: float | None = None
    """First piece of text or of a call."""
    request_id: str | None = None
    model: str | None = None
    """The model as the provider says that it was served, often with a date."""
    thinking_hidden: bool = False
    """True where thinking is not shown, or only a summary of it: its text says nothing about its length."""
    chances: tuple[TokenChances, ...] = ()


class Provider(Protocol):
    """One API. `make_*` in its module builds it from an address, a key and an HTTP client."""

    name: str
    """As in `model.api.provider`."""
    dialect: Any
    """The module of harness/dialects whose `illegal` and `merged` say what this API makes of a conversation."""

    def body(self, call: Call) -> dict[str, Any]:
        """What is sent: plain JSON data, the same for the same call, without a key. Pure.

        Raises ModelError for what this API cannot be asked, in one line that names the key to change.
        """

    def ask(self, body: Mapping[str, Any]) -> Answer:
        """Sends the body, streamed, within the current `wire.Attempt`; tells it of every piece that comes.

        Raises whatever its client raises (`faults.fault_of` reads it), and TransportError or ProviderError for a
        stream that ends early or holds no reply.
        """

    def close(self) -> None: ...
