"""`[CYCLE STATE …]`: what a fresh transcript begins with after the old one was archived.

A user message of mode, workspace and work, which its label tells apart from the user's own words. Where it stands, and
whether a sentence of the assistant follows it (`ACKNOWLEDGE`), is the placement's business.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.todo import SEED, WORK_HEADING
from harness.statusbar.work import BLANK, Line, WorkStyle, framed, work_lines

LABEL = "[CYCLE STATE — kept by the runtime across the restart, not typed by the user]"
ACKNOWLEDGE = "Understood, I go on from this state."
"""The assistant's one sentence after the seed, for templates in which roles must alternate."""


@dataclass(frozen=True, slots=True)
class CycleState:
    """The seed of a cycle. `workspace` stands where no message says which folder is worked in."""

    name: ClassVar[str] = "cycle_state"
    mode: str = "agent"
    """'' leaves the line out."""
    workspace: str = ""
    style: WorkStyle = SEED

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None without work: mode and workspace alone change no decision."""
        work = work_lines(state.todos, state.plan, self.style)
        if not work:
            return None
        facts = (("Mode", self.mode), ("Workspace", state.workspace or self.workspace))
        told = [self._fact(label, value) for label, value in facts if value.strip()]
        lines = (BLANK, *told, *([BLANK] if told else []), (WORK_HEADING, None), BLANK, *work)
        return framed(lines, heading=LABEL)

    @staticmethod
    def _fact(label: str, value: str) -> Line:
        opening = f"- {label}: `"
        return opening + flatten(value, 200).replace("`", "'") + "`", (opening, "`")
