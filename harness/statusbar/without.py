"""A bar with one line left out, for triage: which lines change a decision?

Knows nothing of what the lines say. The tag, the heading and the note stay; a bar of that one line says nothing.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from harness.errors import ConfoundError
from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusBar, StatusText


@dataclass(frozen=True, slots=True)
class Without:
    """`of` without its line number `line`, counted from 1."""

    name: ClassVar[str] = "without"
    of: StatusBar
    line: int

    def __post_init__(self) -> None:
        if self.line < 1:
            raise ValueError(f"line={self.line}: lines count from 1")

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """The shorter bar. None where nothing else was in it, or where the whole bar is None. Raises ConfoundError
        when the bar has fewer lines: leaving nothing out, the arm would be the whole bar under another name."""
        whole = self.of.draw(state, context)
        if whole is None:
            return None
        if self.line > len(whole.lines):
            raise ConfoundError(
                f"without: line {self.line} of bar {self.of.name} cannot be left out, it has {len(whole.lines)} here"
            )
        at = self.line - 1
        lines = (*whole.lines[:at], *whole.lines[at + 1 :])
        frames = (*whole.frames[:at], *whole.frames[at + 1 :])
        return replace(whole, lines=lines, frames=frames) if lines else None
