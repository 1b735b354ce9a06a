"""A result that was cut: how much it had and how much is left out; and `cut`, which cuts one.

Knows the two counts that stand in `Message.known`. Cutting is part of the transcript and the same in every arm,
the mark at the gap included; the bar is the line with the counts alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, Moment, StatusText
from harness.types import Message

GAP = "\n[…]\n"
"""Stands where something was left out. It says so in every arm, and says nothing of how much."""


def cut(message: Message, limit: int) -> Message:
    """`message` with at most `limit` characters of content: two thirds head, one third tail, GAP between.

    Content within the limit stays as it is. `known` then holds `original_chars` and `omitted_chars`, counted on the
    first original even where the message was cut before; head + left-out text + tail is the content as it was.
    Raises ValueError when the limit leaves no character beside GAP.
    """
    if limit <= len(GAP):
        raise ValueError(f"limit={limit}: expected more than the {len(GAP)} characters of the gap's mark")
    content = message.content
    if len(content) <= limit:
        return message
    kept = limit - len(GAP)
    tail = kept // 3
    head = kept - tail
    before = counts(message.known)
    original, omitted = before or (len(content), 0)
    gone = content[head : len(content) - tail]
    # The mark of an earlier cut lies in what is left out now and was no part of the original.
    omitted += len(gone) - (len(GAP) if before and GAP in gone else 0)
    known = {**message.known, "original_chars": original, "omitted_chars": omitted}
    return replace(message, content=content[:head] + GAP + content[len(content) - tail :], known=known)


def cut_results(messages: Sequence[Message], limit: int) -> tuple[Message, ...]:
    """Every tool result cut to `limit` characters; for all arms alike, before any bar comes in."""
    return tuple(cut(message, limit) if message.role == "tool" else message for message in messages)


def counts(known: Mapping[str, Any]) -> tuple[int, int] | None:
    """(original, omitted) in characters, where both are known and something was left out."""
    original, omitted = known.get("original_chars"), known.get("omitted_chars")
    if type(original) is not int or type(omitted) is not int or not 0 < omitted <= original:
        return None
    return original, omitted


@dataclass(frozen=True, slots=True)
class Truncation:
    """The counts line of the newest result."""

    name: ClassVar[str] = "truncation"
    moment: ClassVar[Moment] = "result"

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """One line, or None where nothing was cut or the counts are unknown."""
        found = counts(state.latest.known) if state.latest is not None else None
        if found is None:
            return None
        line = f"(Original: {found[0]} chars, omitted: {found[1]} chars.)"
        return StatusText(tag="", heading="", lines=(line,), frames=(("(", ".)"),))
