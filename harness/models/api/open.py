"""A configuration → a session with a provider. The vendor's client is imported here, and only the one that is used."""

from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from harness.budget import Price
from harness.config import ApiConfig
from harness.errors import ModelError
from harness.models.addresses import checked_address
from harness.models.api.base import Provider
from harness.models.api.cassette import Cassette
from harness.models.api.flow import Gate
from harness.models.api.keys import key_for
from harness.models.api.purse import Purse
from harness.models.api.session import Session
from harness.models.api.wire import Wire
from harness.models.server_faults import Redactor

PROVIDERS = {
    "openai-chat": ("harness.models.api.openai_chat", "OpenAIChat", "https://api.openai.com/v1"),
    "openai-responses": (
        "harness.models.api.openai_responses",
        "OpenAIResponses",
        "https://api.openai.com/v1",
    ),
    "anthropic": ("harness.models.api.anthropic_messages", "AnthropicMessages", "https://api.anthropic.com"),
    "gemini": ("harness.models.api.gemini", "Gemini", "https://generativelanguage.googleapis.com"),
}
"""provider → module, class, its own address."""


def provider_class(provider: str) -> Any:
    """The provider's class. Raises ModelError where the vendor's client is not installed."""
    module, name, _ = PROVIDERS[provider]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "harness":
            raise
        raise ModelError(
            f"model.api.provider={provider}: its client is not installed ({error.name}); pip install 'tailgauge[api]'"
        ) from None


def open_session(
    settings: ApiConfig,
    *,
    price: Price | None = None,
    cap: float | None = None,
    spent: float = 0.0,
    cassette: tuple[Literal["record", "replay"], Path] | None = None,
) -> Session:
    """A session; nothing is sent yet. `cap`: most money of the run, of which `spent` is gone. A replay needs no key.

    Raises ModelError for a missing key or client and for an impossible address, ConfigError for a file that is no
    cassette.
    """
    if settings.address is not None:
        checked_address(settings.address, "api", "https://openrouter.ai/api/v1")
    replays = cassette is not None and cassette[0] == "replay"
    key = "replayed" if replays else key_for(settings.provider, settings.api_key_env, settings.address)
    make = provider_class(settings.provider)
    redact = Redactor(key)
    keeper = Cassette(cassette[1], cassette[0], redact) if cassette else None
    wire = Wire(settings.address or PROVIDERS[settings.provider][2], settings.timeout_s, keeper)
    provider: Provider = make(settings.address, key, wire.client)
    return Session(
        provider=provider,
        wire=wire,
        gate=Gate(settings.concurrency),
        redact=redact,
        purse=Purse(cap, spent),
        price=price or Price(),
        cassette=keeper,
        address=settings.address,
        run=uuid4().hex,
    )
