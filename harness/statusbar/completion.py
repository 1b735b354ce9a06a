"""The event that sub-agents have finished: a line for each, in a tag that says that no user wrote it.

Lean: who, how it ended, what came of it. How long it took would change no decision. Without the tag it is the same text
as a plain user message, to test what the tag does.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState, Completion
from harness.statusbar.base import LIST_ITEM, BarContext, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.work import Line, framed

TAG = "subagent_completion"
VISIBILITY = ' visibility="internal"'


@dataclass(frozen=True, slots=True)
class CompletionEvent:
    """Sub-agents that finished since the last request, oldest first."""

    name: ClassVar[str] = "completion"
    tagged: bool = True
    heading: str = "Finished in the background:"
    max_events: int = 8
    """The newest ones stand; a line counts the others."""
    max_summary: int = 400
    """Characters."""

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None when none has finished."""
        events = tuple(state.completions)
        if not events:
            return None
        shown = events[-self.max_events :]
        lines: list[Line] = [(self._line(event), LIST_ITEM) for event in shown]
        if len(shown) < len(events):
            lines.insert(0, (f"- … {len(events) - len(shown)} earlier not shown", LIST_ITEM))
        tag, attributes = (TAG, VISIBILITY) if self.tagged else ("", "")
        return framed(lines, tag=tag, attributes=attributes, heading=self.heading)

    def _line(self, event: Completion) -> str:
        who, status = flatten(event.agent) or "–", flatten(event.status) or "–"
        summary = flatten(event.summary, self.max_summary)
        return f"- {who} ({status})" + (f": {summary}" if summary else "")
