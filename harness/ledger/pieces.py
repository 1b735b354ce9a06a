"""Prompts as lists of pieces, and the longest prefix that a prompt has in common with any before it.

Knows token ids alone. A growing transcript's prompts are nearly all the same; as numbers of pieces they take little
room, and two of them are compared without a look at most of their tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as numbers of pieces, and its length in tokens."""

    pieces: Numbers
    tokens: int


class Pieces:
    """Stretches of token ids by number; equal ids have one number. Not frozen: it grows with what it is shown."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._ids: list[Numbers] = []
        self._sizes = np.zeros(1024, dtype=np.int64)

    def number(self, ids: tuple[int, ...]) -> int:
        known = self._numbers.get(ids)
        if known is not None:
            return known
        number = self._numbers[ids] = len(self._ids)
        self._ids.append(np.asarray(ids, dtype=np.int32))
        if number >= len(self._sizes):
            self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)])
        self._sizes[number] = len(ids)
        return number

    def prompt(self, numbers: Iterable[int]) -> Prompt:
        pieces = np.asarray(list(numbers), dtype=np.int32)
        return Prompt(pieces, self.tokens(pieces))

    def ids(self, pieces: Numbers) -> Numbers:
        """Token ids of a stretch of pieces."""
        if not len(pieces):
            return np.zeros(0, dtype=np.int32)
        return np.concatenate([self._ids[number] for number in pieces.tolist()])

    def tokens(self, pieces: Numbers) -> int:
        return int(self._sizes[pieces].sum())


class History:
    """The prompts so far, in lexicographic order of their token ids, so that the one that has most in common with a new
    prompt is its neighbour."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._sorted: list[Prompt] = []

    def visit(self, prompt: Prompt) -> int:
        """Tokens of the longest prefix that `prompt` has in common with any earlier one; then it is one of them."""
        low, high, best = 0, len(self._sorted), 0
        while low < high:
            middle = (low + high) // 2
            shared, before = self._compare(prompt, self._sorted[middle])
            best = max(best, shared)
            low, high = (low, middle) if before else (middle + 1, high)
        self._sorted.insert(low, prompt)
        return best

    def _compare(self, a: Prompt, b: Prompt) -> tuple[int, bool]:
        """Tokens in common, and whether `a` sorts before `b`."""
        least = min(len(a.pieces), len(b.pieces))
        at = _first_difference(a.pieces[:least], b.pieces[:least])
        shared = self._pieces.tokens(a.pieces[:at])
        window = 4
        while True:
            x, y = (self._pieces.ids(p.pieces[at : at + window]) for p in (a, b))
            least = min(len(x), len(y))
            found = _first_difference(x[:least], y[:least])
            if found < least:
                return shared + found, bool(x[found] < y[found])
            if at + window >= max(len(a.pieces), len(b.pieces)):
                return shared + least, len(x) < len(y)
            window *= 4


def _first_difference(a: Numbers, b: Numbers) -> int:
    """The first place at which two arrays of one length differ; their length when they are equal."""
    different = a != b
    return int(different.argmax()) if different.any() else len(a)
