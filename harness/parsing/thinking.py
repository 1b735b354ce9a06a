"""Where the thinking of a reply begins and ends, in text and in token ids.

Knows only the delimiters that it is given. Text is split to be read; token ids are counted to be measured,
because a count from text would depend on how it is tokenised again.

| reply | tokens | start_missing | end_missing | censored |
| --- | --- | --- | --- | --- |
| `<think> a b </think> …` | between the delimiters | | | |
| `a b </think> …`, block opened by the prompt | up to `</think>` | | | |
| `a b </think> …`, not opened by the prompt | up to `</think>` | yes | | |
| `<think> a b`, cut by the limit | after `<think>` | | yes | yes |
| `<think> a b`, stopped by itself | after `<think>` | | yes | |
| `a b`, opened by the prompt, cut by the limit | all | | yes | yes |
| no delimiter, not opened by the prompt | 0 | yes | yes | |
| a provider error | unknown (None) | | | |

Several blocks are added up. A count that is censored is a lower bound.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

OPEN = "<think>"
CLOSE = "</think>"
_MARK = re.compile(f"{OPEN}|{CLOSE}")

Delimiter = int | Sequence[int] | Sequence[Sequence[int]]
"""One token id, the ids of one spelling, or several spellings (ids differ with the neighbouring
characters)."""

_Finder = Callable[[bool, int], tuple[int, int] | None]
"""(look for a closing delimiter?, position) → [start, end) of the next one, or None."""


@dataclass(frozen=True, slots=True)
class ThinkingCount:
    """Thinking tokens of one reply, strictly between the delimiters. None is unknown, never 0."""

    tokens: int | None
    censored: bool = False
    """True when the reply was cut by its limit inside the thinking: `tokens` is a lower bound."""
    start_missing: bool = False
    end_missing: bool = False


@dataclass(frozen=True, slots=True)
class TextParts:
    """A reply's text split into thinking and the rest."""

    reasoning: str | None
    content: str
    start_missing: bool
    end_missing: bool


@dataclass(frozen=True, slots=True)
class _Blocks:
    inside: tuple[tuple[int, int], ...]
    """[start, end) of every block, without its delimiters."""
    outside: tuple[tuple[int, int], ...]
    start_missing: bool
    end_missing: bool


def _walk(find: _Finder, length: int, think_open: bool) -> _Blocks:
    """Blocks of a reply of `length` units, whatever the units are. One pass, linear."""
    inside: list[tuple[int, int]] = []
    outside: list[tuple[int, int]] = []
    position = 0
    start_missing = end_missing = False
    opening = find(False, 0)
    closing = find(True, 0)
    if think_open:
        begin = opening[1] if opening is not None and opening[0] == 0 else 0
    elif closing is not None and (opening is None or closing[0] < opening[0]):
        begin, start_missing = 0, True
    elif opening is not None:
        outside.append((0, opening[0]))
        begin = opening[1]
    else:
        return _Blocks((), ((0, length),), True, True)
    while True:
        closing = find(True, begin)
        if closing is None:
            inside.append((begin, length))
            end_missing = True
            break
        inside.append((begin, closing[0]))
        position = closing[1]
        opening = find(False, position)
        if opening is None:
            outside.append((position, length))
            break
        outside.append((position, opening[0]))
        begin = opening[1]
    return _Blocks(tuple(inside), tuple(outside), start_missing, end_missing)


def split_thinking(text: str, *, think_open: bool) -> TextParts:
    """Split `text` at `<think>` and `</think>`; a block without its end reaches to the end of the text."""
    lead = len(text) - len(text.lstrip())
    body = text[lead:]

    def find(closing: bool, start: int) -> tuple[int, int] | None:
        mark = CLOSE if closing else OPEN
        at = body.find(mark, start)
        return None if at < 0 else (at, at + len(mark))

    blocks = _walk(find, len(body), think_open)
    reasoning = "\n".join(body[a:b].strip() for a, b in blocks.inside) if blocks.inside else None
    content = "".join(body[a:b] for a, b in blocks.outside).replace(CLOSE, "")
    return TextParts(reasoning, content, blocks.start_missing, blocks.end_missing)


def _variants(delimiter: Delimiter) -> tuple[tuple[int, ...], ...]:
    if isinstance(delimiter, int):
        return ((delimiter,),)
    flat: list[int] = []
    nested: set[tuple[int, ...]] = set()
    for item in delimiter:
        if isinstance(item, int):
            flat.append(item)
        else:
            nested.add(tuple(item))
    if flat:
        nested.add(tuple(flat))
    return tuple(sorted((spelling for spelling in nested if spelling), key=len, reverse=True))


def _occurrences(ids: Sequence[int], delimiter: Delimiter) -> Iterator[tuple[int, int]]:
    variants = _variants(delimiter)
    heads = {variant[0] for variant in variants}
    position = 0
    while position < len(ids):
        if ids[position] in heads:
            hit = next((v for v in variants if tuple(ids[position : position + len(v)]) == v), None)
            if hit is not None:
                yield position, position + len(hit)
                position += len(hit)
                continue
        position += 1


def _blocks(
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]], length: int, think_open: bool
) -> _Blocks:
    """Blocks of a reply of `length` tokens whose delimiters stand at `spans` (opening, closing)."""
    cursor = [0, 0]

    def find(closing: bool, start: int) -> tuple[int, int] | None:
        which = int(closing)
        while cursor[which] < len(spans[which]) and spans[which][cursor[which]][0] < start:
            cursor[which] += 1
        return spans[which][cursor[which]] if cursor[which] < len(spans[which]) else None

    return _walk(find, length, think_open)


def _count(
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]], length: int, think_open: bool, finish: str
) -> ThinkingCount:
    if finish == "error":
        return ThinkingCount(None)
    blocks = _blocks(spans, length, think_open)
    tokens = sum(max(b - a, 0) for a, b in blocks.inside)
    censored = bool(blocks.inside) and blocks.end_missing and finish == "length"
    return ThinkingCount(tokens, censored, blocks.start_missing, blocks.end_missing)


def count_thinking(
    ids: Sequence[int],
    *,
    open_id: Delimiter,
    close_id: Delimiter,
    think_open: bool,
    finish_reason: str,
) -> ThinkingCount:
    """Thinking tokens of a completion, on its token ids (the module docstring holds the cases).

    `ids` are the generated ids alone. `open_id` and `close_id` are single tokens where the vocabulary has
    them (Qwen3: 151667 and 151668), else the ids of their spelling or a sequence of spellings. Where the
    delimiters are ordinary text (Qwen2.5) they may merge with a neighbour (`>` and a line break are one
    token): prefer `count_thinking_pieces` there. A closing delimiter that was itself cut off counts as
    thinking.
    """
    spans = (list(_occurrences(ids, open_id)), list(_occurrences(ids, close_id)))
    return _count(spans, len(ids), think_open, finish_reason)


def count_thinking_pieces(pieces: Sequence[str], *, think_open: bool, finish_reason: str) -> ThinkingCount:
    """The same on the decoded text of each token, for vocabularies without thinking tokens.

    `pieces[i]` is the text of token i. A token that straddles a delimiter's edge belongs to the delimiter.
    """
    return _count(_delimiters(pieces), len(pieces), think_open, finish_reason)


def thinking_pieces(pieces: Sequence[str], *, think_open: bool) -> tuple[tuple[int, int], ...]:
    """Ranges [start, end) of the tokens strictly between the delimiters, as `count_thinking_pieces` counts them."""
    blocks = _blocks(_delimiters(pieces), len(pieces), think_open)
    return tuple((start, end) for start, end in blocks.inside if end > start)


def _delimiters(pieces: Sequence[str]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Token ranges of the opening and of the closing delimiters."""
    text = "".join(pieces)
    owner: list[int] = [token for token, piece in enumerate(pieces) for _ in piece]
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    taken = 0
    for mark in _MARK.finditer(text):
        start, end = max(owner[mark.start()], taken), owner[mark.end() - 1] + 1
        spans[int(mark.group() == CLOSE)].append((start, max(end, start)))
        taken = max(end, start)
    return spans


def first_answer_piece(pieces: Sequence[str], *, think_open: bool) -> int | None:
    """Number of the first token whose text holds something of the answer: not blank, outside the thinking
    and no part of its delimiters; None where the reply never gets that far. `pieces[i]` is the text of token i."""
    text = "".join(pieces)
    answer = _outside(text, think_open)
    if answer is None:
        return None
    seen = 0
    for number, piece in enumerate(pieces):
        seen += len(piece)
        if seen > answer:
            return number
    return None


def _outside(text: str, think_open: bool) -> int | None:
    """Position of the first character of the answer that is not blank."""
    lead = len(text) - len(text.lstrip())

    def find(closing: bool, start: int) -> tuple[int, int] | None:
        mark = CLOSE if closing else OPEN
        at = text.find(mark, start + lead) - lead
        return None if at < 0 else (at, at + len(mark))

    for start, end in _walk(find, len(text) - lead, think_open).outside:
        part = text[lead + start : lead + end].replace(CLOSE, " " * len(CLOSE))
        if part.strip():
            return lead + start + len(part) - len(part.lstrip())
    return None
