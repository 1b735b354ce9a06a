"""`<system_state>`: when, where and on what the agent works.

Knows the state and its options. What no message states (operating system, shell, Python version) is an option with a
fixed default and never read from the machine that the harness runs on, so that a prompt is the same everywhere.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import HEADING, BarContext, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.surroundings import Granularity, check_choice, drawn, item, moment


@dataclass(frozen=True, slots=True)
class SystemState:
    """Five lines at most. `time`: how fine the time of the newest message is said; `directory`: where no message has
    stated the working directory; '' leaves a line out."""

    name: ClassVar[str] = "system_state"
    time: Granularity = "second"
    directory: str = "/workspace"
    system: str = "Linux"
    shell: str = "/bin/bash"
    python: str = "3.11"

    def __post_init__(self) -> None:
        check_choice("time", self.time, Granularity)

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """A line for each fact that is known; None when none is, and before the first message."""
        if state.latest is None:
            return None
        facts = {
            "Time": moment(state.time or state.date, self.time),
            "Working directory": flatten(state.cwd or self.directory, 200),
            "Operating system": flatten(self.system),
            "Shell": flatten(self.shell),
            "Python version": flatten(self.python),
        }
        lines = (item(f"{label}: {value}") for label, value in facts.items() if value)
        return drawn("system_state", lines, HEADING)
