"""The plug point `StatusBar` and what a bar may see."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from harness.state import AgentState
from harness.types import CallLimit

HEADING = "Current State:"


@dataclass(frozen=True, slots=True)
class BarContext:
    """What a framework has at hand when it draws a bar. No message text, no expectation: a bar that
    could see which merchant the follow-up names would leak the answer."""

    rules: tuple[CallLimit, ...]
    cluster_index: int
    """Assigns the placebo text: the same for both sides and all samples of a cluster."""
    decoys: tuple[str, ...]
    """Key values that occur nowhere in the transcript."""
    count_tokens: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class StatusText:
    """A drawn bar: tag, heading and body lines, before any placement."""

    tag: str
    lines: tuple[str, ...]
    variant: int | None = None
    """Which of several texts was taken (placebo), for the record."""
    heading: str = HEADING

    @property
    def text(self) -> str:
        """The block that the model sees, without a trailing line break."""
        body = "\n".join((self.heading, *self.lines))
        return f"<{self.tag}>\n{body}\n</{self.tag}>"


class StatusBar(Protocol):
    """(AgentState) -> text or None. Deterministic; None draws nothing. `name` goes into every record."""

    name: ClassVar[str]

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None: ...
