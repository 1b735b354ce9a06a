"""The plug point `StatusBar`, what a bar may see, and what it draws."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from harness.state import AgentState
from harness.types import CallLimit

HEADING = "Current State:"
Moment = Literal["request", "result", "input"]
"""When a bar is drawn. `request`: before each request. `result`: for each tool result as it comes in, so that it can
stand in it. `input`: for each user message and tool result."""
Frame = tuple[str, str]
"""What the placebo of a line begins and ends with: the line's form without its state, such as an empty box for a
ticked one."""
LIST_ITEM: Frame = ("- ", "")


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
    previous: str | None = None
    """The newest copy of this bar that stays in the transcript, for bars that show what has changed."""
    earlier: tuple[str, ...] = ()
    """The texts of all its copies that will stand beside the next one, oldest first; `previous` is the last of them.
    Empty under a policy that takes the old copy out."""
    count_printed: Callable[[str], int] | None = None
    """Tokens of a text as it stands at its place, where a place prints it in another spelling; None: as it is."""
    sample_id: str = ""
    cluster: str = ""
    request: int = 0
    """Which request of the transcript is being made, from 0."""


@dataclass(frozen=True, slots=True)
class StatusText:
    """A drawn bar before any placement: tag, heading and body lines.

    The state is in `lines` alone: tag, attributes and heading say the same whatever the state, because the placebo
    keeps them.
    """

    tag: str
    """'' for a text without a wrapper."""
    lines: tuple[str, ...]
    variant: int | None = None
    """Which of several texts was taken (placebo), for the record."""
    heading: str = HEADING
    """'' for none."""
    attributes: str = ""
    """Of the opening tag, with the blank before them: ` file="a.py"`."""
    frames: tuple[Frame | None, ...] = ()
    """For each line its frame; None: the placebo keeps the line as it is (a blank line, a brace). Empty: every line is
    an item of a list, `- …`."""
    note: str = ""
    """Text directly after the closing tag, such as a line of advice that the placebo keeps."""

    meant: str | None = None
    """Of a placebo: the text that it stands in for."""

    @property
    def said(self) -> str:
        """What policies and bars that look back go by: a placebo comes and changes exactly when the bar that it stands
        in for does."""
        return self.text if self.meant is None else self.meant

    @property
    def text(self) -> str:
        """The block that the model sees, without a trailing line break."""
        body = "\n".join((*((self.heading,) if self.heading else ()), *self.lines))
        wrapped = f"<{self.tag}{self.attributes}>\n{body}\n</{self.tag}>" if self.tag else body
        return f"{wrapped}\n{self.note}" if self.note else wrapped

    def frame(self, number: int) -> Frame | None:
        """The frame of line `number`, from 0."""
        return self.frames[number] if self.frames else LIST_ITEM


class StatusBar(Protocol):
    """(AgentState) -> text or None. Deterministic; None draws nothing. `name` goes into every record.

    A class may also have `moment: ClassVar[Moment]`; without it the bar is drawn before each request. One whose text
    depends on `context.previous` says so with `looks_back: ClassVar[bool] = True`.
    """

    name: ClassVar[str]

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None: ...


def moment_of(bar: StatusBar) -> Moment:
    """When `bar` is drawn; a wrapper (a placebo) is drawn when what it stands in for is."""
    inner = getattr(bar, "of", None)
    moment: Moment = moment_of(inner) if inner is not None else getattr(bar, "moment", "request")
    return moment


def looks_back(bar: StatusBar) -> bool:
    """Does the text of `bar` depend on its copy before?"""
    inner = getattr(bar, "of", None)
    return looks_back(inner) if inner is not None else bool(getattr(bar, "looks_back", False))


def misfit(bar: StatusBar | None, state: AgentState, rules: tuple[CallLimit, ...]) -> str | None:
    """Why `bar`, or what it wraps, cannot be on this state what its options say (`misfit` of the bar); None where it
    can, and for a bar that makes no such claim."""
    if bar is None:
        return None
    own = getattr(bar, "misfit", None)
    return own(state, rules) if own is not None else misfit(getattr(bar, "of", None), state, rules)


def file_digest(bar: StatusBar | None) -> str | None:
    """Hash of the file that a bar is made from (`digest` of the bar, or of what it wraps); None for one that its
    configuration says all of."""
    if bar is None:
        return None
    own: str | None = getattr(bar, "digest", None)
    return own or file_digest(getattr(bar, "of", None))
