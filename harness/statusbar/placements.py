"""Where a bar stands and in which role.

A placement is given the messages and the bar's text and returns the messages with the bar in them. It
never changes another message's wording, so that whatever else differs in a rendered prompt is the
template's doing and is found by `harness.prompt.prove`.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from harness.types import Message

BLOCK_SEPARATOR = "\n\n"


class Placement(Protocol):
    """`place` returns the conversation with the bar; `name` goes into every record."""

    name: ClassVar[str]

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]: ...


@dataclass(frozen=True, slots=True)
class Tail:
    """Own user-role message at the very end, after the follow-up."""

    name: ClassVar[str] = "tail"

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        return (*messages, Message(role="user", content=bar))


@dataclass(frozen=True, slots=True)
class BeforeFollowUp:
    """First block of the follow-up's own user message, a blank line after it."""

    name: ClassVar[str] = "before"

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        last = messages[-1]
        if last.role != "user":
            raise ValueError("the last message is not the user's follow-up")
        return (*messages[:-1], replace(last, content=bar + BLOCK_SEPARATOR + last.content))
