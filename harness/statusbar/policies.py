"""When a bar is put into a transcript over many requests, and whether old copies stay.

A policy is asked once for every moment at which its bar is drawn. It knows what was drawn, what it put in before and
how long ago; it knows no message text and no place. `harness.delivery` folds it over a trajectory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from harness.state import AgentState
from harness.types import Message


@dataclass(frozen=True, slots=True)
class Occasion:
    """A moment at which a bar was drawn and might be put in."""

    text: str | None
    """What the bar says now; None: nothing."""
    state: AgentState
    last: str | None = None
    """What was put in last; None: nothing so far, or nothing since the transcript was compacted."""
    requests_since: int | None = None
    """Requests since then; None: nothing was put in so far."""
    boundary: bool = False
    """Was the transcript compacted just now?"""


class UpdatePolicy(Protocol):
    """`due`: is the bar put in now? `keeps`: do earlier copies stay where they are? `name` goes into every record."""

    name: ClassVar[str]
    keeps: ClassVar[bool]

    def due(self, occasion: Occasion) -> bool: ...


@dataclass(frozen=True, slots=True)
class Never:
    """The bar is drawn for the human alone."""

    name: ClassVar[str] = "never"
    keeps: ClassVar[bool] = True

    def due(self, occasion: Occasion) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Replace:
    """Only the newest copy is ever in the context: the one before is taken out."""

    name: ClassVar[str] = "replace"
    keeps: ClassVar[bool] = False

    def due(self, occasion: Occasion) -> bool:
        return occasion.text is not None


@dataclass(frozen=True, slots=True)
class Append:
    """Every request gets its copy, and all of them stay."""

    name: ClassVar[str] = "append"
    keeps: ClassVar[bool] = True

    def due(self, occasion: Occasion) -> bool:
        return occasion.text is not None


@dataclass(frozen=True, slots=True)
class OnChange:
    """A copy whenever the text is another one than the last that was put in, byte for byte; all of them stay."""

    name: ClassVar[str] = "on_change"
    keeps: ClassVar[bool] = True

    def due(self, occasion: Occasion) -> bool:
        return occasion.text is not None and occasion.text != occasion.last


@dataclass(frozen=True, slots=True)
class EveryN:
    """A copy every `n` requests, beginning with the first at which there is something to say; all of them stay."""

    name: ClassVar[str] = "every_n"
    keeps: ClassVar[bool] = True
    n: int = 5

    def __post_init__(self) -> None:
        _positive("n", self.n)

    def due(self, occasion: Occasion) -> bool:
        if occasion.text is None:
            return False
        return occasion.requests_since is None or occasion.requests_since >= self.n


@dataclass(frozen=True, slots=True)
class Staleness:
    """A copy when the todo list is not empty and was not written for `n` requests, and again after as many; all of
    them stay."""

    name: ClassVar[str] = "staleness"
    keeps: ClassVar[bool] = True
    n: int = 5

    def __post_init__(self) -> None:
        _positive("n", self.n)

    def due(self, occasion: Occasion) -> bool:
        if occasion.text is None or not occasion.state.todos.items or occasion.state.todos_age < self.n:
            return False
        return occasion.requests_since is None or occasion.requests_since >= self.n


@dataclass(frozen=True, slots=True)
class Event:
    """A copy when something happened: a new user message (`on: user`), or a result that failed (`on: failure`); all
    of them stay."""

    name: ClassVar[str] = "event"
    keeps: ClassVar[bool] = True
    on: str = "user"

    def __post_init__(self) -> None:
        if self.on not in ("user", "failure"):
            raise ValueError(f"on={self.on!r}: expected user or failure")

    def due(self, occasion: Occasion) -> bool:
        if occasion.text is None:
            return False
        arrived = occasion.state.arrived
        if self.on == "user":
            return any(latest.role == "user" for latest in arrived)
        return any(latest.failed for latest in arrived)


@dataclass(frozen=True, slots=True)
class Boundary:
    """A copy only where the transcript was compacted: at the first request at which it has `messages` messages or
    more, all but the system message and what the request is about give way to one summary."""

    name: ClassVar[str] = "boundary"
    keeps: ClassVar[bool] = True
    messages: int = 40
    summary: str = "The conversation so far was summarised to save space. The work goes on from here."

    def __post_init__(self) -> None:
        _positive("messages", self.messages)

    def due(self, occasion: Occasion) -> bool:
        return occasion.boundary and occasion.text is not None

    def reached(self, transcript: Sequence[Message]) -> bool:
        """Is the transcript long enough, and is there something that could be left out?"""
        return len(transcript) >= self.messages and len(self.compacted(transcript)) < len(transcript)

    def compacted(self, transcript: Sequence[Message]) -> tuple[Message, ...]:
        """System message, summary, and the newest exchange: from the last user message on, or where that is far
        back from the last assistant message on, so that no call is torn from its results."""
        head = tuple(transcript[:1]) if transcript and transcript[0].role == "system" else ()
        last_user = _last(transcript, "user")
        start = last_user if last_user == len(transcript) - 1 else _last(transcript, "assistant")
        kept = tuple(transcript[start:]) if start >= len(head) else ()
        summary = Message("user", self.summary)
        if kept and kept[0].role == "user":
            kept = (replace(kept[0], content=f"{self.summary}\n\n{kept[0].content}"), *kept[1:])
            return (*head, *kept)
        return (*head, summary, *kept)


def _positive(option: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{option}={value}: expected 1 or more")


def _last(transcript: Sequence[Message], role: str) -> int:
    """Position of the last message of that role; -1 when there is none."""
    return next((i for i in range(len(transcript) - 1, -1, -1) if transcript[i].role == role), -1)
