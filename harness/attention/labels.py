"""Token ids → the text of each token, for labels and for finding a word's tokens. Never a vocabulary's raw pieces.

Knows a tokenizer and nothing of what the ids mean. A character that is spelt with several tokens belongs to the first
of them.
"""

from collections.abc import Sequence
from typing import Any

_BROKEN = "\ufffd"
_LONGEST = 6
"""Tokens that one character can take; then a broken character is shown as such."""


class Labels:
    """Texts of tokens. What recurs is decoded once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[tuple[int, ...], str] = {}

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One text per token, '' where it only ends a character; together they are the text."""
        found: list[str] = []
        anchor: tuple[int, ...] = ()
        pending: list[int] = []
        for token in ids:
            pending.append(token)
            text = self._after(anchor, pending)
            if text.endswith(_BROKEN) and len(pending) < _LONGEST:
                continue
            found += [text, *[""] * (len(pending) - 1)]
            # A whole character: bytes that follow half of one would not be read as the next.
            anchor, pending = tuple(pending), []
        if pending:
            found += [self._after(anchor, pending), *[""] * (len(pending) - 1)]
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included."""
        return self._decode(tuple(ids))

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text, no special token added."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _after(self, anchor: tuple[int, ...], pending: list[int]) -> str:
        """The text of `pending` behind `anchor`: some tokenizers drop the space of a text's first token."""
        if not anchor:
            return self._decode(tuple(pending))
        before = self._decode(anchor)
        whole = self._decode((*anchor, *pending))
        return whole[len(before) :] if whole.startswith(before) else self._decode(tuple(pending))

    def _decode(self, ids: tuple[int, ...]) -> str:
        text = self._known.get(ids)
        if text is None:
            text = str(
                self._tokenizer.decode(
                    list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
                )
            )
            self._known[ids] = text
        return text


def token_at(pieces: Sequence[str], character: int) -> int:
    """Number of the token that holds the character at this offset of the joined text."""
    seen = 0
    for number, piece in enumerate(pieces):
        seen += len(piece)
        if seen > character:
            return number
    return len(pieces) - 1
