"""The sockets under a vendor's client: cut from outside, because a read that blocks ends in no other way.

Closing a socket does not wake a thread that reads from it; shutting it down does. Knows no request and no reply.
The client tells of its connections by the trace hook of its HTTP library and of a reply's connection by the
response's `network_stream`; both are documented extensions of it.
"""

import contextlib
import socket
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Self
from weakref import WeakSet


class Sockets:
    """Every socket that a client has opened, while it lives."""

    def __init__(self) -> None:
        self._open: WeakSet[socket.socket] = WeakSet()
        self._lock = Lock()

    def hook(self, request: Any) -> None:
        """The client's hook for requests, which has the request's connection reported."""
        request.extensions["trace"] = self._note

    def _note(self, event: str, info: dict[str, Any]) -> None:
        # A TLS socket takes the plain one's place.
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            opened = _socket_of(info.get("return_value"))
            if opened is not None:
                with self._lock:
                    self._open.add(opened)

    def cut(self) -> None:
        """Ends every read and write under way; the requests fail as if the other side had gone."""
        with self._lock:
            opened = list(self._open)
        for each in opened:
            _cut(each)


class Headway:
    """Cuts one streamed request that brings nothing new for `silence_s`, whatever else keeps coming.

    A context around the request; `follow` once its response is there, `made` for each new text or token.
    `stalled` tells afterwards that the request ended in this way.
    """

    def __init__(self, silence_s: float) -> None:
        self.stalled = False
        self._silence_s = silence_s
        self._last = monotonic()
        self._socket: socket.socket | None = None
        self._over = Event()
        self._lock = Lock()
        self._thread = Thread(target=self._watch, name="tailgauge-headway", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over.set()

    def follow(self, response: Any) -> None:
        """The response whose body is read from now on."""
        self._last = monotonic()
        self._socket = _socket_of(response.extensions.get("network_stream"))

    def made(self) -> None:
        self._last = monotonic()

    def _watch(self) -> None:
        while True:
            # Before there is a response the client's own time-out rules.
            left = self._last + self._silence_s - monotonic() if self._socket else self._silence_s
            if left > 0:
                if self._over.wait(left):
                    return
                continue
            with self._lock:
                if not self._over.is_set() and self._socket is not None:
                    self.stalled = True
                    _cut(self._socket)
            return


def _socket_of(stream: Any) -> socket.socket | None:
    found = stream.get_extra_info("socket") if hasattr(stream, "get_extra_info") else None
    return found if isinstance(found, socket.socket) else None


def _cut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Not SSLSocket's own, which also takes the TLS layer away from under the reading thread.
        socket.socket.shutdown(each, socket.SHUT_RDWR)
