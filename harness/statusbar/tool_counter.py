"""The tool-call counter inside each result: `Tool call #3 for 'read_file'`.

Knows the newest result and which call it answers; knows no limit, so it states a count and no verdict.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, Moment, StatusText
from harness.statusbar.escape import flatten


@dataclass(frozen=True, slots=True)
class ToolCounter:
    """How many calls of its tool a result is the answer to, this one included."""

    name: ClassVar[str] = "tool_counter"
    moment: ClassVar[Moment] = "result"

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """One line, or None where the newest message answers no known call."""
        latest = state.latest
        if latest is None or latest.call is None or latest.calls < 1:
            return None
        line = f"Tool call #{latest.calls} for '{flatten(latest.call.name)}'"
        return StatusText(tag="", heading="", lines=(line,), frames=(("", "'"),))
