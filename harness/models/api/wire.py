"""The HTTP client under every vendor's client: one try of one request is watched, marked and can be cut.

All three vendors' clients take an HTTP client of ours. What each of them would hide is seen here, in one place: the
status, the headers, the socket, the bytes for a cassette. Knows no provider's format.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import local
from time import perf_counter
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from harness.models.server_faults import TransportError
from harness.models.server_sockets import Headway, Sockets

CONNECT_S = 10.0
IDEMPOTENCY = "Idempotency-Key"
"""The same in every try of a request: a provider that knows the header bills and computes it once."""


@dataclass(slots=True)
class Attempt:
    """One try of one request, as the transport sees it. Belongs to one thread."""

    mark: str
    """Value of the idempotency header: one per request, the same in all of its tries."""
    label: str
    """What the request is for (cell, draw): the same in a later session, for cassettes."""
    headway: Headway
    given_up: Callable[[], bool]
    clock: float = field(default_factory=perf_counter)
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of the newest response, names in lower case."""
    received: list[bytes] | None = None
    """The newest response's body as it came, where it is kept for a cassette."""
    request: tuple[str, str, bytes] | None = None
    """Method, path and body, where they are kept for a cassette."""

    @property
    def seconds(self) -> float:
        """Since this try began."""
        return perf_counter() - self.clock

    def made(self) -> None:
        """Tells of a new piece of the reply. Raises TransportError when the run was stopped meanwhile."""
        self.headway.made()
        if self.given_up():
            raise TransportError("the run was stopped")


class Keeper(Protocol):
    """A cassette, as the transport knows it."""

    def replay(self, request: httpx2.Request, attempt: Attempt) -> httpx2.Response | None:
        """The recorded response; None: ask the network."""

    keeps: bool
    """Whether what comes from the network is to be kept in the attempt."""


_here = local()


def current() -> Attempt:
    """The try that this thread is in. Raises RuntimeError outside of one."""
    attempt: Attempt | None = getattr(_here, "attempt", None)
    if attempt is None:
        raise RuntimeError("a provider was asked outside of an attempt")
    return attempt


@contextmanager
def trying(attempt: Attempt) -> Iterator[Attempt]:
    """Makes `attempt` the current one of this thread, watched for headway."""
    before = getattr(_here, "attempt", None)
    _here.attempt = attempt
    try:
        with attempt.headway:
            yield attempt
    finally:
        _here.attempt = before


class _Watched(httpx2.BaseTransport):
    """Between a vendor's client and the network."""

    def __init__(self, inner: httpx2.BaseTransport, sockets: Sockets, keeper: Keeper | None) -> None:
        self._inner = inner
        self._sockets = sockets
        self._keeper = keeper

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        attempt: Attempt | None = getattr(_here, "attempt", None)
        if attempt is None:
            return self._inner.handle_request(request)
        attempt.status, attempt.headers, attempt.received = None, {}, None
        request.headers[IDEMPOTENCY] = attempt.mark
        response = self._keeper.replay(request, attempt) if self._keeper else None
        if response is None:
            self._sockets.hook(request)
            response = self._inner.handle_request(request)
            attempt.headway.follow(response)
        attempt.status = response.status_code
        attempt.headers = {name.lower(): value for name, value in response.headers.items()}
        if self._keeper and self._keeper.keeps:
            path = request.url.path
            attempt.request = (request.method, path, request.read())
            attempt.received = []
            assert isinstance(response.stream, httpx2.SyncByteStream)
            response.stream = _Kept(response.stream, attempt.received)
        return response

    def close(self) -> None:
        self._inner.close()


class _Kept(httpx2.SyncByteStream):
    """A response's bytes, of which a copy stays. As they came: a compressed body is not taken apart."""

    def __init__(self, inner: httpx2.SyncByteStream, received: list[bytes]) -> None:
        self._inner = inner
        self._received = received

    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            self._received.append(part)
            yield part

    def close(self) -> None:
        self._inner.close()


class Wire:
    """The HTTP client for one provider. `silence_s`: longest wait for the next byte. No proxy stands between us and
    this machine; elsewhere the environment's proxies hold, as they do for the vendors' own clients."""

    def __init__(self, address: str, silence_s: float, keeper: Keeper | None = None) -> None:
        self.sockets = Sockets()
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256)
        inner = httpx2.HTTPTransport(limits=limits, proxy=_proxy(address), trust_env=False)
        self.client = httpx2.Client(
            transport=_Watched(inner, self.sockets, keeper),
            timeout=httpx2.Timeout(silence_s, connect=min(silence_s, CONNECT_S)),
            # A recorded body must be readable, and replies are small.
            headers={"accept-encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
        )

    def cut(self) -> None:
        """Ends every request under way, as if the provider had gone."""
        self.sockets.cut()

    def close(self) -> None:
        self.client.close()


def _proxy(address: str) -> str | None:
    parts = urlsplit(address)
    host = parts.hostname or ""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
