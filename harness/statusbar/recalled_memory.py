"""`<recalled_memory>`: what a memory gave back for this user message, within quotas; and the collector that asks it.

The bar knows the state alone. `collect` is the framework's side: it asks a memory and waits no longer than a set time;
nothing of it runs when a bar is drawn.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.state.facts import Recalled
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.escape import block, flatten
from harness.statusbar.file_previews import QUOTE, quoted
from harness.statusbar.surroundings import Line, check_positive, drawn, item

SECONDS = 10.0


def collect(source: Callable[[], Iterable[Recalled]], seconds: float = SECONDS) -> tuple[Recalled, ...]:
    """What `source` gives within `seconds`; nothing, and no error, when it takes longer.

    A source that is too late goes on in a daemon thread, which no exit waits for; what it gives then is dropped. What
    it raises in time is raised here.
    """
    given: list[tuple[Recalled, ...]] = []
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            given.append(tuple(source()))
        except BaseException as error:
            raised.append(error)

    asking = threading.Thread(target=ask, daemon=True, name="recalled-memory")
    asking.start()
    asking.join(seconds)
    if asking.is_alive():
        return ()
    if raised:
        raise raised[0]
    return given[0]


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """`most`: items, best first; `lines`, `bytes`: of each, as the model gets it (UTF-8, entities counted)."""

    name: ClassVar[str] = "recalled_memory"
    most: int = 5
    lines: int = 30
    bytes: int = 10_000
    advice: str = ""

    def __post_init__(self) -> None:
        for option in ("most", "lines", "bytes"):
            check_positive(option, getattr(self, option))

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None when nothing was recalled for this message."""
        return drawn("recalled_memory", self._items(state), "Recalled for this message:", self.advice)

    def _items(self, state: AgentState) -> Iterator[Line]:
        for recalled in state.recalled[: self.most]:
            yield item(flatten(recalled.source, 160))
            for line in self._cut(recalled.text):
                yield quoted(line)

    def _cut(self, text: str) -> tuple[str, ...]:
        """The text in whole lines and characters, as much as the quota takes: the first try takes as many characters
        as it has bytes, each further one fewer in proportion."""
        limit = self.bytes
        while limit > 0:
            lines = block(text, limit, QUOTE[0], self.lines)
            size = sum(len(line.encode()) - len(QUOTE[0]) + 1 for line in lines) - 1
            if size <= self.bytes:
                return lines
            limit = min(limit - 1, limit * self.bytes // size)
        return ()
