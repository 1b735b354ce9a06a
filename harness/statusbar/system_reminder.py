"""`<system-reminder>`: another bar inside the tag, or a nudge with the whole todo list.

Knows no staleness: when the nudge comes, and whether old copies stay, is the policy's business.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, Frame, StatusBar, StatusText
from harness.statusbar.work import BLANK, WorkStyle, framed, work_lines

TAG = "system-reminder"
NUDGE = (
    "The todo list was not written for a while. Where the work has moved on, write it anew; "
    "this note needs no answer."
)
WHOLE_LIST = WorkStyle(spelling="snake", ids=True, title="", strategy=False)


@dataclass(frozen=True, slots=True)
class SystemReminder:
    """`of` inside the tag, its own tag left out; without `of` the todo list in `style`. `lead` comes first; '' for
    none."""

    name: ClassVar[str] = "system_reminder"
    of: StatusBar | None = None
    lead: str = NUDGE
    style: WorkStyle = WHOLE_LIST

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None when `of` draws nothing, or the list is empty."""
        if self.of is None:
            items = work_lines(state.todos, state.plan, self.style)
            lines = (BLANK, *items) if self.lead else items
            return framed(lines, tag=TAG, heading=self.lead) if items else None
        drawn = self.of.draw(state, context)
        return None if drawn is None else self._wrapped(drawn)

    def _wrapped(self, drawn: StatusText) -> StatusText:
        kept: tuple[Frame | None, ...] = tuple(drawn.frame(number) for number in range(len(drawn.lines)))
        lines = drawn.lines
        if self.lead and drawn.heading:
            lines, kept = (drawn.heading, *lines), (None, *kept)
        if drawn.note:
            lines, kept = (*lines, drawn.note), (*kept, None)
        heading = self.lead or drawn.heading
        return replace(drawn, tag=TAG, attributes="", heading=heading, note="", lines=lines, frames=kept)
