"""Prefix-cache ledger: what an engine's cache of blocks holds and what each request re-bills.

Knows token ids and the size of a block; knows no engine. The rule is the one of paged attention with prefix
caching: a request finds the longest run of whole leading blocks that an earlier one left, its last token
always computed (its logits are needed). Blocks are told apart by all tokens up to their end.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence


class PrefixLedger:
    """The blocks that requests have left behind, in the order in which an engine would evict them.

    `block`: tokens per block. `capacity`: most blocks kept; None: no eviction. The least recently used
    block goes first, of one request the deepest first.
    """

    def __init__(self, block: int, capacity: int | None = None) -> None:
        if block < 1 or (capacity is not None and capacity < 1):
            raise ValueError(f"block {block} and capacity {capacity} must be 1 or more")
        self.block = block
        self.capacity = capacity
        self._kept: OrderedDict[bytes, None] = OrderedDict()

    def predict(self, ids: Sequence[int]) -> int:
        """Tokens of a prompt that the cache holds now; changes nothing."""
        found = 0
        for name in self._names(ids[: max(len(ids) - 1, 0)]):
            if name not in self._kept:
                break
            found += self.block
        return found

    def visit(self, ids: Sequence[int]) -> int:
        """`predict`, then the request's own whole blocks are left behind."""
        cached = self.predict(ids)
        for name in reversed(list(self._names(ids))):
            self._kept[name] = None
            self._kept.move_to_end(name)
        if self.capacity is not None:
            while len(self._kept) > self.capacity:
                self._kept.popitem(last=False)
        return cached

    def clear(self) -> None:
        """An empty cache: a new engine, or one that was reset."""
        self._kept.clear()

    def _names(self, ids: Sequence[int]) -> Iterator[bytes]:
        """A name for each whole block: a hash over everything up to its end."""
        digest = hashlib.blake2b(digest_size=16)
        for start in range(0, len(ids) - self.block + 1, self.block):
            digest.update(array("q", ids[start : start + self.block]).tobytes())
            yield digest.digest()


def found_in_cache(shared: int, length: int, block: int) -> int:
    """What a `PrefixLedger` without eviction predicts for a prompt of `length` tokens, of which `shared` tokens are the
    longest prefix that it has in common with any earlier request."""
    return min(shared, max(length - 1, 0)) // block * block


def sharing_order(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Positions of the prompts in an order in which shared prefixes meet in the cache: lexicographic by
    token ids, which walks the prefix tree depth first. Equal prompts keep their order."""
    return sorted(range(len(prompts)), key=lambda position: tuple(prompts[position]))
