"""What a recorded run does that no API would take: calls and results that do not meet, a reply behind a reply.

Such a run is read and billed as it is; this says in words how it is odd. Knows messages with the ids of `numbered`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.types import Message

_UNASKED = "a tool result without its call before it"
_UNANSWERED = "a call that is never answered"
_TWICE = "two assistant messages in a row"
KINDS = (_UNASKED, _UNANSWERED, _TWICE)


@dataclass(frozen=True, slots=True)
class Oddity:
    """One kind of oddity in one transcript."""

    kind: str
    """One of KINDS."""
    count: int
    first: int
    """The message at which it is found first, from 1: the result, the message with the call, the second message."""

    @property
    def sentence(self) -> str:
        """Kind, count and first place."""
        place = f"message {self.first}"
        return (
            f"{self.kind} ({place})"
            if self.count == 1
            else f"{self.kind}, {self.count} times (first: {place})"
        )


def oddities(messages: Sequence[Message]) -> tuple[Oddity, ...]:
    """One entry for each kind that there is, in the order of KINDS. Calls of the last message are not odd: the
    record ends there."""
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for kind, number in _found(messages):
        found[kind].append(number)
    return tuple(Oddity(kind, len(places), min(places)) for kind, places in found.items() if places)


def _found(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    waiting: list[str] = []
    asked = 0
    """Calls without a result so far, by id, and the message that makes them."""
    for number, message in enumerate(messages, start=1):
        if message.role == "tool":
            if message.tool_call_id in waiting:
                waiting.remove(message.tool_call_id)
            else:
                yield _UNASKED, number
            continue
        if message.role == "assistant" and number > 1 and messages[number - 2].role == "assistant":
            yield _TWICE, number
        if message.tool_calls:
            yield from ((_UNANSWERED, asked) for _ in waiting)
            waiting, asked = [call.id for call in message.tool_calls], number
    if asked < len(messages):
        yield from ((_UNANSWERED, asked) for _ in waiting)
