"""The todo list as a markdown file that the agent writes anew for itself, so that its goal stands at the end again.

Knows the text of the file alone: that it stands there as the agent's own action is the placement's business.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.work import BLANK, Line, WorkStyle, framed, work_lines

FILE = WorkStyle(title="", strategy=False)


@dataclass(frozen=True, slots=True)
class Recitation:
    """The agent's rewritten list, under the plan's objective where there is one."""

    name: ClassVar[str] = "recitation"
    title: str = "# Todo"
    style: WorkStyle = FILE

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None without items."""
        items = work_lines(state.todos, state.plan, self.style) if state.todos.items else ()
        if not items:
            return None
        goal = flatten(state.plan.objective, self.style.max_item)
        lines: tuple[Line, ...] = (BLANK, *items)
        if goal:
            lines = (BLANK, (f"Goal: {goal}", ("Goal: ", "")), *lines)
        return framed(lines, heading=self.title)
