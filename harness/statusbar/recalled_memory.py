"""`<recalled_memory>`: what a memory gave back for this user message, within quotas of items, lines, bytes and time.

Knows the state alone. How long the memory took is what the record says; no clock runs when the bar is drawn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.escape import block, flatten
from harness.statusbar.file_previews import QUOTE, quoted
from harness.statusbar.surroundings import Line, check_positive, drawn, item


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """`most`: items, best first; `lines`, `bytes`: of each, as the model gets it (UTF-8, entities counted); `seconds`:
    what took longer to collect is left out without a word. A time that the record does not state is no reason to."""

    name: ClassVar[str] = "recalled_memory"
    most: int = 5
    lines: int = 30
    bytes: int = 10_000
    seconds: float = 10.0
    advice: str = ""

    def __post_init__(self) -> None:
        for option in ("most", "lines", "bytes"):
            check_positive(option, getattr(self, option))
        if not self.seconds > 0:
            raise ValueError(f"seconds={self.seconds}: expected more than 0")

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None when nothing was recalled for this message, or too late."""
        if state.recalled_seconds is not None and state.recalled_seconds > self.seconds:
            return None
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
