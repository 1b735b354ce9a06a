"""The sockets under a vendor's client: cut from outside, because a read that blocks ends in no other way.

Closing a socket does not wake a thread that reads from it; shutting it down does. Knows no request and no reply.
The client tells of its connections by the trace hook of its HTTP library and of a reply's connection by the
response's `network_stream`; both are documented extensions of it.
"""

import contextlib
import socket
from threading import Condition, Lock, Thread
from time import monotonic, sleep
from typing import Any, Self
from weakref import WeakSet

_LOOK_S = 0.25
"""So often the requests under way are looked at."""


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
        self.silence_s = silence_s
        self._last = monotonic()
        self._socket: socket.socket | None = None
        self._lock = Lock()
        self._over = False

    def __enter__(self) -> Self:
        _WATCHER.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over = True
        _WATCHER.remove(self)

    def follow(self, response: Any) -> None:
        """The response whose body is read from now on."""
        self._last = monotonic()
        self._socket = _socket_of(response.extensions.get("network_stream"))

    def made(self) -> None:
        self._last = monotonic()

    def check(self) -> None:
        """Cuts the request if it has been silent for too long. Before there is a response the client's own time-out
        rules."""
        with self._lock:
            late = self._last + self.silence_s <= monotonic()
            if late and not self._over and not self.stalled and self._socket is not None:
                self.stalled = True
                _cut(self._socket)


class _Watcher:
    """One thread for all requests under way; it sleeps while there are none."""

    def __init__(self) -> None:
        self._watched: set[Headway] = set()
        self._changed = Condition()
        self._thread: Thread | None = None

    def add(self, headway: Headway) -> None:
        with self._changed:
            self._watched.add(headway)
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._watch, name="tailgauge-headway", daemon=True)
                self._thread.start()
            elif len(self._watched) == 1:
                self._changed.notify()

    def remove(self, headway: Headway) -> None:
        with self._changed:
            self._watched.discard(headway)

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._watched:
                    self._changed.wait()
                watched = list(self._watched)
            for each in watched:
                each.check()
            sleep(min(_LOOK_S, *(each.silence_s / 8 for each in watched)))


_WATCHER = _Watcher()


def _socket_of(stream: Any) -> socket.socket | None:
    found = stream.get_extra_info("socket") if hasattr(stream, "get_extra_info") else None
    return found if isinstance(found, socket.socket) else None


def _cut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Not SSLSocket's own, which also takes the TLS layer away from under the reading thread.
        socket.socket.shutdown(each, socket.SHUT_RDWR)
