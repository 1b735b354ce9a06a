"""Streamed chunks → one reply: raw text, token ids, times.

Knows the chunks of both APIs in all dialects (`text`, `content`, `reasoning`, `reasoning_content`, structured
tool calls, vLLM's `token_ids`); knows no client, no request and no retry. Whatever a server has taken apart is
put back into the one form that `harness.parsing` reads, because a server's parsers return what they do not
understand as plain content; nothing is judged here.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

from harness.errors import ProviderError
from harness.models.server_faults import TransportError
from harness.template import THINK_CLOSE, THINK_OPEN

_END = object()
_STOPPED = {"stop", "tool_calls", "function_call", "eos", "end_turn", "stop_sequence"}
_MARK = re.compile(f"{THINK_OPEN}|{THINK_CLOSE}")
_SPECIAL = re.compile(r"<\|[A-Za-z0-9_]{1,40}\|>|</s>")
"""Marks such as `<|im_end|>`, which raw text keeps; they are no part of an answer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk brought, and when (seconds after the request was sent)."""

    at: float
    content: str = ""
    reasoning: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    ids: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.content or self.reasoning or self.calls or self.ids)


@dataclass(slots=True)
class Streamed:
    """A whole answer as it came."""

    pieces: list[Piece] = field(default_factory=list)
    finish: str | None = None
    ended_at: float = 0.0
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        return "length" if self.finish == "length" else "stop"

    def count(self, *path: str) -> int | None:
        """A figure of the provider's usage; None where it is not there, or null."""
        value: Any = self.usage
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer in the form that is recorded. `ids` are None where the server did not give them."""

    text: str
    ids: tuple[int, ...] | None
    first_token: float | None
    first_answer_token: float | None


def read_stream(
    chunks: Iterable[Any],
    clock: float,
    stop_text: str = "",
    *,
    most: int,
    given_up: Callable[[], bool],
    headway: Callable[[], None],
) -> Streamed:
    """Reads a client's stream to its end. `clock`: `perf_counter` just before the request was sent.
    `stop_text`: looked for here when the server would cut it; reading ends with it, and the usage stays
    unknown. `most`: pieces after which the reply has no end; `headway` is called for each.

    Raises TransportError when the stream ends before the reply does, ProviderError when it never
    holds a reply, and whatever the iteration itself raises before the finish reason. What breaks after
    it breaks a whole reply no more: the usage stays unknown then.
    """
    streamed = Streamed()
    seen = 0
    content = ""
    iterator = iter(chunks)
    while True:
        try:
            chunk = next(iterator, _END)
        except Exception:
            if streamed.finish is None:
                raise
            break
        now = perf_counter() - clock
        if chunk is _END:
            break
        if given_up():
            raise TransportError("the run was stopped")
        seen += 1
        plain = _plain(chunk)
        if isinstance(plain.get("usage"), Mapping):
            streamed.usage = plain["usage"]
        piece = _take(plain, streamed, now)
        if piece is None:
            continue
        if stop_text and piece.content:
            before, content = len(content), content + piece.content
            found = content.find(stop_text, max(0, before - len(stop_text)))
            if found >= 0:
                kept = content[before : found + len(stop_text)]
                streamed.pieces.append(Piece(now, kept, piece.reasoning, piece.calls))
                streamed.finish, streamed.ended_at, streamed.usage = "stop", now, {}
                return streamed
        if not piece.empty:
            streamed.pieces.append(piece)
            headway()
        if len(streamed.pieces) > most:
            raise ProviderError("the server goes on far beyond max_tokens, which it does not seem to heed")
    _check_end(streamed, seen)
    return streamed


def _plain(chunk: Any) -> Mapping[str, Any]:
    plain = chunk.to_dict(warnings=False) if hasattr(chunk, "to_dict") else chunk
    if not isinstance(plain, Mapping):
        raise ProviderError("malformed stream from the server: a chunk that is no object")
    return plain


def _take(plain: Mapping[str, Any], streamed: Streamed, now: float) -> Piece | None:
    """The chunk's piece of the (only) choice; notes the finish reason. None: a chunk without a choice."""
    choices = plain.get("choices")
    choice = (
        choices[0] if isinstance(choices, Sequence) and not isinstance(choices, str) and choices else None
    )
    if not isinstance(choice, Mapping):
        return None
    delta = choice.get("delta")
    delta = delta if isinstance(delta, Mapping) else {}
    if choice.get("finish_reason"):
        streamed.finish, streamed.ended_at = str(choice["finish_reason"]), now
    calls = delta.get("tool_calls")
    ids = choice.get("token_ids")
    return Piece(
        at=now,
        content=_text(choice.get("text")) or _text(delta.get("content")),
        # Newer servers send `reasoning`, older ones `reasoning_content`; some send both, the same.
        reasoning=_text(delta.get("reasoning")) or _text(delta.get("reasoning_content")),
        calls=tuple(call for call in calls if isinstance(call, Mapping)) if isinstance(calls, list) else (),
        ids=tuple(ids) if isinstance(ids, list) and all(isinstance(each, int) for each in ids) else (),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _check_end(streamed: Streamed, seen: int) -> None:
    if streamed.finish in _STOPPED or streamed.finish == "length":
        return
    if streamed.finish is None:
        if seen and not streamed.pieces:
            # The stream came and ended in good order: the server's answer, and no other is to be had.
            raise ProviderError("the server's stream holds no choice")
        raise TransportError("the stream was cut before the reply's end")
    if streamed.finish in ("abort", "error"):
        raise TransportError(f"the server gave the reply up (finish_reason {streamed.finish!r})")
    raise ProviderError(f"the server ended the reply with finish_reason {streamed.finish[:40]!r}")


def assemble(
    streamed: Streamed, *, think_open: bool, chat: bool, decode: Callable[[Sequence[int]], str]
) -> Reply:
    """One reply from its pieces. Token ids that came with them are used where they are all of the raw reply
    (as many as the provider bills); in the chat API the text is then theirs too."""
    pieces = streamed.pieces
    ids = tuple(token for piece in pieces for token in piece.ids)
    billed = streamed.count("completion_tokens")
    exact = (
        bool(ids)
        and (billed is None or billed == len(ids))
        and all(piece.ids or not piece.content for piece in pieces if not chat)
    )
    if not chat:
        parts = [(piece.content, piece.at) for piece in pieces]
    elif exact:
        parts = [(decode(piece.ids) if piece.ids else "", piece.at) for piece in pieces]
    else:
        parts = _rebuilt(pieces, think_open)
    text = "".join(part for part, _ in parts)
    return Reply(
        # Pieces cut a character in two where it has several tokens; decoded as one they do not.
        text=decode(ids) if chat and exact else text,
        ids=ids if exact else None,
        first_token=pieces[0].at if pieces else None,
        first_answer_token=_time_of(answer_start(text, think_open=think_open), parts),
    )


def _time_of(position: int | None, parts: Sequence[tuple[str, float]]) -> float | None:
    """When the character at `position` of the joined parts came."""
    if position is None:
        return None
    starts, total = [], 0
    for part, _ in parts:
        starts.append(total)
        total += len(part)
    return parts[bisect_right(starts, position) - 1][1]


def answer_start(text: str, *, think_open: bool) -> int | None:
    """Position of the first character of the answer: not blank, outside thinking. None: there is none."""
    marks = list(_MARK.finditer(text))
    # A closing mark that comes first ends a block whose opening the model left out.
    inside = think_open or (bool(marks) and marks[0].group() == THINK_CLOSE)
    at = 0
    for mark in marks:
        if not inside and (found := _first_word(text, at, mark.start())) is not None:
            return found
        inside = mark.group() == THINK_OPEN
        at = mark.end()
    return None if inside else _first_word(text, at, len(text))


def _first_word(text: str, start: int, end: int) -> int | None:
    stretch = _SPECIAL.sub(lambda mark: " " * len(mark.group()), text[start:end])
    lead = len(stretch) - len(stretch.lstrip())
    return start + lead if lead < len(stretch) else None


# -- the chat API's parts, put together again ------------------------------------------------------------


@dataclass(slots=True)
class _Block:
    kind: Literal["thinking", "content", "call"]
    parts: list[tuple[str, float]] = field(default_factory=list)
    name: str = ""


def _rebuilt(pieces: Sequence[Piece], think_open: bool) -> list[tuple[str, float]]:
    """The raw text in parts with their times: thinking in its marks, calls in theirs, in order of arrival.
    Calls that the server left in content or reasoning stay where they are."""
    parts: list[tuple[str, float]] = []
    blocks = _blocks(pieces)
    for number, block in enumerate(blocks):
        first, last = block.parts[0][1], block.parts[-1][1]
        if block.kind == "thinking":
            if number > 0 or not think_open:
                parts.append((THINK_OPEN + "\n", first))
            parts += block.parts
            # Without anything after it nobody can tell whether the thinking was closed.
            if number < len(blocks) - 1:
                parts.append((f"\n{THINK_CLOSE}\n\n", last))
        elif block.kind == "content":
            parts += block.parts
        else:
            before = "\n" if parts and not parts[-1][0].endswith("\n") else ""
            raw = "".join(part for part, _ in block.parts).strip() or "{}"
            name = json.dumps(block.name, ensure_ascii=False)
            call = f'{before}<tool_call>\n{{"name": {name}, "arguments": {raw}}}\n</tool_call>'
            parts.append((call, first))
    return parts


def _blocks(pieces: Sequence[Piece]) -> list[_Block]:
    blocks: list[_Block] = []
    calls: dict[int, _Block] = {}
    for piece in pieces:
        for kind, text in (("thinking", piece.reasoning), ("content", piece.content)):
            if not text:
                continue
            if not blocks or blocks[-1].kind != kind:
                blocks.append(_Block("thinking" if kind == "thinking" else "content"))
            blocks[-1].parts.append((text, piece.at))
        for delta in piece.calls:
            index = delta.get("index")
            index = index if isinstance(index, int) else len(calls)
            if index not in calls:
                calls[index] = _Block("call")
                blocks.append(calls[index])
            function = delta.get("function")
            function = function if isinstance(function, Mapping) else {}
            calls[index].name += _text(function.get("name"))
            calls[index].parts.append((_arguments(function.get("arguments")), piece.at))
    return blocks


def _arguments(value: Any) -> str:
    """A delta's argument text as it is, broken JSON included; some servers send an object."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else _text(value)
