"""A bar with one line of operating advice at its end: what to do with the reading.

Knows nothing of what the bar says. The placebo keeps the advice, so that bar − placebo stays what the reading does;
what the advice does is the bar with it minus the bar without it.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import LIST_ITEM, BarContext, StatusBar, StatusText


@dataclass(frozen=True, slots=True)
class Advised:
    """`of`, and `advice` as its last line."""

    name: ClassVar[str] = "advised"
    of: StatusBar
    advice: str

    def __post_init__(self) -> None:
        if not self.advice.strip() or len(self.advice.splitlines()) > 1:
            raise ValueError(f"advice={self.advice!r}: expected one line of text")

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None where the bar says nothing: there is nothing to advise on."""
        drawn = self.of.draw(state, context)
        if drawn is None:
            return None
        frames = drawn.frames or tuple(LIST_ITEM for _ in drawn.lines)
        return replace(drawn, lines=(*drawn.lines, self.advice), frames=(*frames, None))
