"""`<system_warning>`: how many tokens of the context window are used.

Knows the state and a function that counts tokens. What is counted is the transcript's contents, without what a chat
template adds and without the tools.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, Frame, StatusText
from harness.statusbar.surroundings import check_positive

FRAME: Frame = ("<system_warning>", "</system_warning>")


@dataclass(frozen=True, slots=True)
class ContextBudget:
    """One line with its tags around it. `window`: tokens; `step`: what is used is rounded up to a multiple of it, so
    that not every message changes the line; `from_percent`: nothing is said below it."""

    name: ClassVar[str] = "context_budget"
    window: int = 128_000
    step: int = 1
    from_percent: int = 0

    def __post_init__(self) -> None:
        check_positive("window", self.window)
        check_positive("step", self.step)
        if not 0 <= self.from_percent <= 100:
            raise ValueError(f"from_percent must be from 0 to 100, not {self.from_percent!r}")

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None for an empty transcript and below `from_percent`."""
        used = -(-state.tokens(context.count_tokens) // self.step) * self.step if state.latest else 0
        if not used or 100 * used < self.from_percent * self.window:
            return None
        line = f"Token usage: {used}/{self.window}; {max(0, self.window - used)} remaining"
        return StatusText("", (f"{FRAME[0]}{line}{FRAME[1]}",), heading="", frames=(FRAME,))
