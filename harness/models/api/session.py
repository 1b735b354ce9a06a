"""What every request to one provider shares: its client, the gate, the purse, a cassette, a way to stop."""

from dataclasses import dataclass, field
from threading import Event
from typing import Any

from harness.budget import Price
from harness.models.api.base import Provider
from harness.models.api.cassette import Cassette
from harness.models.api.flow import Gate
from harness.models.api.purse import Purse
from harness.models.api.wire import Wire
from harness.models.server_faults import Redactor


@dataclass(frozen=True, slots=True)
class Session:
    """Built by `open.open_session`; closed by the model that uses it."""

    provider: Provider
    wire: Wire
    gate: Gate
    redact: Redactor
    purse: Purse = field(default_factory=lambda: Purse(None))
    price: Price = field(default_factory=Price)
    cassette: Cassette | None = None
    address: str | None = None
    """None: the provider's own."""
    run: str = ""
    """Part of every idempotency key: a later run's requests are others."""
    closing: Event = field(default_factory=Event)

    @property
    def replays(self) -> bool:
        return self.cassette is not None and not self.cassette.keeps

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "address": self.address,
            **({"cassette": "replay" if self.replays else "record"} if self.cassette else {}),
            "least_in_flight": self.gate.least,
        }
