"""What may be spent: no request leaves unless the most that it can cost still fits.

Money is set aside before a request goes and settled when its cost is known. A try that broke after the provider had
begun to answer stays set aside in full: it may have been billed. Knows amounts alone.
"""

from collections.abc import Callable
from threading import Condition


class SpentError(Exception):
    """The cap would be passed; nothing was sent."""


class Purse:
    """`cap`: most money of the run, None for no limit; `spent`: what earlier sessions used."""

    def __init__(self, cap: float | None, spent: float = 0.0) -> None:
        self.cap = cap
        self.spent = spent
        self._aside = 0.0
        self._changed = Condition()

    def set_aside(self, amount: float, given_up: Callable[[], bool]) -> None:
        """Takes the most that a request can cost; waits while only what others have set aside stands in its way.
        Raises SpentError when it does not fit."""
        if self.cap is None:
            return
        with self._changed:
            while self.spent + self._aside + amount > self.cap:
                if self.spent + amount > self.cap or self._aside <= 0 or given_up():
                    raise SpentError
                self._changed.wait(0.25)
            self._aside += amount

    def settle(self, amount: float, cost: float | None) -> None:
        """Gives back what was set aside, less what was spent of it; `cost` None: unknown, so all of it."""
        with self._changed:
            if self.cap is not None:
                self._aside = max(0.0, self._aside - amount)
            self.spent += amount if cost is None else cost
            self._changed.notify_all()
