"""Where a bar stands and in which role.

A placement is given the messages and the bar's text and returns the messages with the bar in them. It never
changes another message's wording, so that whatever else differs in a rendered prompt is the template's doing and
is found by the proof in `harness.prompt`. Under a policy that keeps old copies it is applied again and again to the
growing transcript: no call is ever parted from its results, and what cannot be placed is refused in one line. Knows
no template and no API; which of them takes the outcome is asked in `harness.template_check` and `harness.dialects`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from harness.errors import ConfigError, ConfoundError
from harness.types import Message, Role, ToolCall

BLOCK_SEPARATOR = "\n\n"


class Placement(Protocol):
    """`place` returns the conversation with the bar, and raises ConfoundError where there is no such place; `name`
    goes into every record. A class that hangs the bar on a message of one role may say so: `needs: ClassVar[Role]`."""

    name: ClassVar[str]

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]: ...


def has_place(placement: Placement, messages: Sequence[Message]) -> bool:
    """Is there a message of the kind that the placement hangs the bar on? Before the first tool result, say, nothing
    can stand in the last one."""
    needed: set[Role | None] = {getattr(part, "needs", None) for part in parts_of(placement)}
    return all(need is None or any(m.role == need for m in reversed(messages)) for need in needed)


def parts_of(placement: Placement) -> tuple[Placement, ...]:
    """The places at which one copy is put in, in that order."""
    if isinstance(placement, Both):
        return (*parts_of(placement.first), *parts_of(placement.second))
    return (placement,)


def printed(placement: Placement, bar: str) -> str:
    """What a template that prints contents as they are shows of the bar: its text, or where it stands in a call's
    arguments that text as JSON spells it."""
    return json.dumps(bar, ensure_ascii=False)[1:-1] if isinstance(placement, OwnAction) else bar


def printed_as_is(placement: Placement) -> bool:
    """Does every part of the place print a text as it was drawn?"""
    return not any(isinstance(part, OwnAction) for part in parts_of(placement))


@dataclass(frozen=True, slots=True)
class PrintedTokens:
    """Tokens of a text as it stands at a place; where it is printed in several spellings, of all of them."""

    count: Callable[[str], int]
    placement: Placement

    def __call__(self, text: str) -> int:
        return sum(self.count(spelt) for spelt in {printed(part, text) for part in parts_of(self.placement)})


def waits(placement: Placement) -> bool:
    """Does the text have to wait until every call of the newest turn has its result?"""
    return any(isinstance(part, (Tail, SystemTail, OwnAction)) for part in parts_of(placement))


def parts_company(placement: Placement) -> bool:
    """Do some parts have to wait for the newest turn's last result, and others stand in each result as it comes in?"""
    return waits(placement) and any(
        isinstance(part, (LastResult, PrefixLast)) for part in parts_of(placement)
    )


# -- a message of its own ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tail:
    """Own user-role message at the very end, after the follow-up."""

    name: ClassVar[str] = "tail"

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        return (*_answered(messages, self.name), Message(role="user", content=bar))


@dataclass(frozen=True, slots=True)
class SystemTail:
    """Own system-role message at the very end. Several templates, and Anthropic's API, take none but a first one."""

    name: ClassVar[str] = "system_tail"

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        return (*_answered(messages, self.name), Message(role="system", content=bar))


@dataclass(frozen=True, slots=True)
class OwnBefore:
    """Own user-role message before the last user message."""

    name: ClassVar[str] = "own_before"
    needs: ClassVar[Role] = "user"
    acknowledge: str = ""
    """What the assistant answers it; '' for no answer. Templates that want the roles to alternate need one."""

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        at = _last(messages, "user", self.name)
        return _inserted(messages, at, bar, self.acknowledge)


@dataclass(frozen=True, slots=True)
class Front:
    """Own user-role message right after the system prompt; of several copies the newest stands first."""

    name: ClassVar[str] = "front"
    acknowledge: str = ""
    """What the assistant answers it; '' for no answer."""

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        at = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
        if self.acknowledge and at < len(messages) and messages[at].role == "assistant":
            raise ConfoundError(
                f"placement {self.name}: the conversation begins with the assistant, so that `acknowledge` would "
                "make two assistant messages in a row; leave it empty"
            )
        return _inserted(messages, at, bar, self.acknowledge)


@dataclass(frozen=True, slots=True)
class OwnAction:
    """The agent's own action and its observation at the very end: a call that writes the text, and its result."""

    name: ClassVar[str] = "own_action"
    tool: str = "write_file"
    """The tool that is called; best one that the agent is offered."""
    argument: str = "content"
    """The argument that holds the text."""
    observation: str = "Written."
    """The result."""

    def __post_init__(self) -> None:
        for option in ("tool", "argument", "observation"):
            if not getattr(self, option).strip():
                raise ConfigError(f"placement {self.name}: {option} must not be empty")

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        number = len(_answered(messages, self.name))
        used = {call.id for message in messages for call in message.tool_calls}
        # Nine letters and digits: the strictest of the templates that print ids wants just that.
        while (call_id := f"bar{number:06d}") in used:
            number += 1
        call = ToolCall(self.tool, {self.argument: bar}, id=call_id)
        result = Message("tool", self.observation, tool_call_id=call_id, name=self.tool)
        return (*messages, Message("assistant", tool_calls=(call,)), result)


# -- a block of another message ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeforeFollowUp:
    """First block of the last user message, a blank line after it."""

    name: ClassVar[str] = "before"
    needs: ClassVar[Role] = "user"

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        return _first_block(messages, _last(messages, "user", self.name), bar)


@dataclass(frozen=True, slots=True)
class LastBlock:
    """Last block of the last user message, a blank line before it."""

    name: ClassVar[str] = "last_block"
    needs: ClassVar[Role] = "user"

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        return _last_block(messages, _last(messages, "user", self.name), bar)


@dataclass(frozen=True, slots=True)
class LastResult:
    """Inside the last tool result, after its text and a blank line."""

    name: ClassVar[str] = "last_result"
    needs: ClassVar[Role] = "tool"

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        return _last_block(messages, _last(messages, "tool", self.name), bar)


@dataclass(frozen=True, slots=True)
class PrefixLast:
    """First block of the newest message, a user message or a tool result."""

    name: ClassVar[str] = "prefix"
    separator: str = " "
    """Between the bar and the message's own text; "\\n\\n" for a block."""

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        if not messages or messages[-1].role not in ("user", "tool"):
            raise ConfoundError(
                f"placement {self.name}: the newest message is neither a user message nor a tool result; "
                "choose placement tail"
            )
        return _first_block(messages, len(messages) - 1, bar, self.separator)


@dataclass(frozen=True, slots=True)
class SystemHead:
    """In the system prompt, as its last block or its first."""

    name: ClassVar[str] = "system_head"
    needs: ClassVar[Role] = "system"
    at: str = "end"
    """`end`: after the system prompt's own text; `start`: before it."""

    def __post_init__(self) -> None:
        if self.at not in ("end", "start"):
            raise ConfigError(f"placement {self.name}: at={self.at!r}: expected end or start")

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        if not messages or messages[0].role != "system":
            raise ConfoundError(
                f"placement {self.name}: the conversation has no system prompt to stand in; choose placement front"
            )
        return _last_block(messages, 0, bar) if self.at == "end" else _first_block(messages, 0, bar)


# -- helpers -------------------------------------------------------------------------------------------

_MISSING = {
    "user": "there is no user message; choose placement tail or front",
    "tool": "there is no tool result; choose placement last_block, or a bar that is drawn for results",
}


def _last(messages: tuple[Message, ...], role: Role, name: str) -> int:
    """Position of the last message of that role."""
    for number in range(len(messages) - 1, -1, -1):
        if messages[number].role == role:
            return number
    raise ConfoundError(f"placement {name}: {_MISSING[role]}")


def _answered(messages: tuple[Message, ...], name: str) -> tuple[Message, ...]:
    """The messages, when every call of the newest turn has its result; nothing may stand between the two."""
    for results, message in enumerate(reversed(messages)):
        if message.role == "tool":
            continue
        missing = len(message.tool_calls) - results
        if missing > 0:
            raise ConfoundError(
                f"placement {name}: {missing} of the newest calls have no result yet, and nothing may stand between "
                "a call and its results; choose placement last_result or prefix"
            )
        break
    return messages


def _inserted(messages: tuple[Message, ...], at: int, bar: str, acknowledge: str) -> tuple[Message, ...]:
    answer = (Message("assistant", acknowledge),) if acknowledge else ()
    return (*messages[:at], Message("user", bar), *answer, *messages[at:])


def _first_block(
    messages: tuple[Message, ...], at: int, bar: str, separator: str = BLOCK_SEPARATOR
) -> tuple[Message, ...]:
    content = messages[at].content
    return _with(messages, at, bar + separator + content if content else bar)


def _last_block(messages: tuple[Message, ...], at: int, bar: str) -> tuple[Message, ...]:
    content = messages[at].content
    return _with(messages, at, content + BLOCK_SEPARATOR + bar if content else bar)


def _with(messages: tuple[Message, ...], at: int, content: str) -> tuple[Message, ...]:
    return (*messages[:at], replace(messages[at], content=content), *messages[at + 1 :])


# -- two at once ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Both:
    """The same text at two places at once."""

    name: ClassVar[str] = "both"
    first: Placement = field(default_factory=Tail)
    second: Placement = field(default_factory=LastResult)

    def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
        return self.second.place(self.first.place(messages, bar), bar)
