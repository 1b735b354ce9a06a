"""`<codewhale:work_state>`: todos and plan at every request of the parent agent, of a fork and of a relay.

The three differ by their wrapper alone; the body is `work_lines`. The default style is the block as it was requested
(boxes, percent, strategy), `SHIPPED` the one that was released.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.errors import ConfigError
from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.work import DEFAULT, WorkStyle, framed, work_lines

Reader = Literal["parent", "fork", "relay"]
WRAPPERS: dict[str, tuple[str, str]] = {
    "parent": ("codewhale:work_state", ""),
    "fork": ("codewhale:fork_state", ""),
    "relay": ("", "## Work state"),
}
"""Tag and heading for each reader."""
SHIPPED = WorkStyle(ids=True, wording="settled", strategy=False, active_first=True)


@dataclass(frozen=True, slots=True)
class WorkState:
    """The work state for one reader: the agent itself, a sub-agent forked from it, or whoever takes over."""

    name: ClassVar[str] = "work_state"
    style: WorkStyle = DEFAULT
    reader: Reader = "parent"

    def __post_init__(self) -> None:
        if self.reader not in WRAPPERS:
            raise ConfigError(f"reader={self.reader!r}: expected one of {', '.join(WRAPPERS)}")

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None without todos and, where the style shows it, plan."""
        lines = work_lines(state.todos, state.plan, self.style)
        tag, heading = WRAPPERS[self.reader]
        return framed(lines, tag=tag, heading=heading) if lines else None
