"""A streamed reply, put together piece by piece.

Knows the order of pieces and when they came; knows no provider's format.
"""

from dataclasses import dataclass, field
from typing import Literal

from harness.models.api.base import Answer, ApiUsage, Block, Stop, TokenChances
from harness.models.api.wire import Attempt

_Kind = Literal["thinking", "text", "call"]


@dataclass(slots=True)
class _Growing:
    kind: _Kind
    name: str = ""
    parts: list[str] = field(default_factory=list)


class Building:
    """One reply as it grows. `key` tells blocks of one kind apart (an index, an id); pieces of one key are one block,
    wherever they come between others."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._blocks: dict[tuple[_Kind, object], _Growing] = {}
        self._first: float | None = None
        self._first_answer: float | None = None
        self.chances: list[TokenChances] = []
        self.refused = False
        """Set by a provider whose model says no in a field of its own."""

    @property
    def empty(self) -> bool:
        """Whether nothing came so far."""
        return not self._blocks

    def thinking(self, text: str, key: object = 0) -> None:
        """A piece of thinking; an empty one opens no block."""
        if text:
            self._add("thinking", key, text)

    def text(self, text: str, key: object = 0) -> None:
        """A piece of what is said; an empty one opens no block."""
        if text:
            self._add("text", key, text)

    def call(self, key: object, name: str = "", arguments: str = "") -> None:
        """A piece of a call: its name, more of its arguments' JSON text, or both."""
        growing = self._add("call", key, arguments)
        growing.name += name

    def replace_call(self, key: object, name: str, arguments: str) -> None:
        """A call as a whole, in the place of what came of it in pieces (final events repeat it)."""
        growing = self._add("call", key, "")
        growing.name, growing.parts = name, [arguments]

    def _add(self, kind: _Kind, key: object, text: str) -> _Growing:
        self._attempt.made()
        now = self._attempt.seconds
        if self._first is None:
            self._first = now
        if kind != "thinking" and self._first_answer is None:
            self._first_answer = now
        growing = self._blocks.setdefault((kind, key), _Growing(kind))
        growing.parts.append(text)
        return growing

    def answer(
        self,
        stop: Stop,
        stop_reason: str,
        usage: ApiUsage,
        *,
        request_id: str | None = None,
        model: str | None = None,
        thinking_hidden: bool = False,
    ) -> Answer:
        """The whole reply; call it at the stream's end."""
        blocks = tuple(Block(each.kind, "".join(each.parts), each.name) for each in self._blocks.values())
        return Answer(
            blocks=blocks,
            stop=stop,
            stop_reason=stop_reason,
            usage=usage,
            total=self._attempt.seconds,
            first_token=self._first,
            first_answer_token=self._first_answer,
            request_id=request_id,
            model=model,
            thinking_hidden=thinking_hidden,
            chances=tuple(self.chances),
        )
