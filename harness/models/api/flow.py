"""How many requests may be in flight: as many as the provider bears, found out as TCP does.

Up to `most` at first; halved when the provider asks for less, one more after each round of good answers. What its
headers say about waiting holds for every request, not only for the one that was told. Knows no request.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from time import monotonic

from harness.models.api.faults import Limits
from harness.models.server_faults import MAX_RETRY_AFTER_S, TransportError

_LOOK_S = 0.25
"""A waiting request looks so often whether the run was stopped."""
_SAME_STORM_S = 1.0
"""Refusals this close together are one: requests that were in flight together are refused together."""


class Gate:
    """Opens for one request at a time while there is room. `clock` in seconds."""

    def __init__(self, most: int, clock: Callable[[], float] = monotonic) -> None:
        self.most = most
        self.limit = float(most)
        self.in_flight = 0
        self.least = most
        """The lowest that the limit has been."""
        self._clock = clock
        self._closed_until = 0.0
        self._halved_at = float("-inf")
        self._free = Condition()

    @contextmanager
    def slot(self, given_up: Callable[[], bool]) -> Iterator[None]:
        """A place in flight. Raises TransportError when the run is stopped while waiting for it."""
        self._enter(given_up)
        try:
            yield
        finally:
            with self._free:
                self.in_flight -= 1
                self._free.notify()

    def _enter(self, given_up: Callable[[], bool]) -> None:
        with self._free:
            while True:
                if given_up():
                    raise TransportError("the run was stopped")
                wait = self._closed_until - self._clock()
                if wait <= 0 and self.in_flight < max(1, int(self.limit)):
                    self.in_flight += 1
                    return
                self._free.wait(min(_LOOK_S, wait) if wait > 0 else _LOOK_S)

    def answered(self, limits: Limits) -> None:
        """A good answer, and what its headers say."""
        with self._free:
            if self.limit < self.most:
                self.limit = min(float(self.most), self.limit + 1.0 / self.limit)
                self._free.notify()
            if limits.remaining == 0 and limits.reset:
                self._close(limits.reset)

    def refused(self, retry_after: float | None) -> None:
        """The provider asked for less; `retry_after`: seconds for which it wants none at all."""
        with self._free:
            now = self._clock()
            if now - self._halved_at >= _SAME_STORM_S:
                self._halved_at = now
                self.limit = max(1.0, self.limit / 2)
                self.least = min(self.least, int(self.limit))
            if retry_after:
                self._close(retry_after)

    def _close(self, seconds: float) -> None:
        until = self._clock() + min(seconds, MAX_RETRY_AFTER_S)
        self._closed_until = max(self._closed_until, until)
