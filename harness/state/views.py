"""Read-only views of append-only histories, so that a snapshot costs the same however long the transcript is.

A history only ever grows, and every entry says at which version (number of messages taken in) it came. A view is a
history and a version: made in constant time, read in logarithmic time per key, and never changed by what comes later.
Knows no message.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Generic, TypeVar, overload

Value = TypeVar("Value")
Item = TypeVar("Item")


Stages = list[tuple[int, Value | None]]
"""What one key was: from which version on it was what, ascending; None: it was not there."""


def _put(stages: Stages[Value], value: Value | None, version: int) -> None:
    if stages and stages[-1][0] == version:
        stages[-1] = (version, value)
    else:
        stages.append((version, value))


def _at(stages: Stages[Value], version: int) -> Value | None:
    if not stages:
        return None
    newest = stages[-1]
    if newest[0] <= version:
        return newest[1]
    at = bisect_right(stages, version, key=_version)
    return stages[at - 1][1] if at else None


def _version(stage: tuple[int, object]) -> int:
    return stage[0]


class History(Generic[Value]):
    """A mapping with all its earlier states. Keys keep the order in which they first came; values are not None."""

    __slots__ = ("keys", "since", "sizes", "stages")

    def __init__(self) -> None:
        self.stages: dict[str, Stages[Value]] = {}
        self.keys: list[str] = []
        self.since: list[int] = []
        """For each key the version with which it first came; ascending."""
        self.sizes: Stages[int] = []
        """How many keys were there."""

    def now(self, key: str) -> Value | None:
        """The newest value of `key`; None: it is not there."""
        stages = self.stages.get(key)
        return stages[-1][1] if stages else None

    def put(self, key: str, value: Value | None, version: int) -> None:
        """Set `key` from `version` on, which is at least the version of every put before; None takes it away."""
        stages = self.stages.get(key)
        before = stages[-1][1] if stages else None
        if before is None and value is None:
            return
        if stages is None:
            stages = self.stages[key] = []
            self.keys.append(key)
            self.since.append(version)
        if before is None or value is None:
            size = (self.sizes[-1][1] or 0) if self.sizes else 0
            _put(self.sizes, size + (1 if before is None else -1), version)
        _put(stages, value, version)

    def view(self, version: int) -> "View[Value]":
        return View(self, version)


class View(Mapping[str, Value]):
    """A history as it was at one version."""

    __slots__ = ("_history", "_version")

    def __init__(self, history: History[Value], version: int) -> None:
        self._history = history
        self._version = version

    def __getitem__(self, key: str) -> Value:
        value = _at(self._history.stages[key], self._version)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        if not len(self):
            return
        stages, version = self._history.stages, self._version
        for key in islice(self._history.keys, bisect_right(self._history.since, version)):
            if _at(stages[key], version) is not None:
                yield key

    def __len__(self) -> int:
        return _at(self._history.sizes, self._version) or 0

    def __repr__(self) -> str:
        return repr(dict(self))


class Lookup(Mapping[str, Item]):
    """A view whose values are made when they are asked for."""

    __slots__ = ("_keys", "_make")

    def __init__(self, keys: Mapping[str, object], make: Callable[[str], Item]) -> None:
        self._keys = keys
        self._make = make

    def __getitem__(self, key: str) -> Item:
        if key not in self._keys:
            raise KeyError(key)
        return self._make(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return repr(dict(self))


class LazySequence(Sequence[Item]):
    """A sequence of which only the items asked for are made. Equal to any sequence of equal items, such as a tuple;
    a slice is a tuple."""

    __slots__ = ()

    def _item(self, index: int) -> Item:
        """Item `index`, 0 ≤ index < len(self)."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            return tuple(self._item(number) for number in range(*index.indices(len(self))))
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(index)
        return self._item(number)

    def __iter__(self) -> Iterator[Item]:
        return (self._item(number) for number in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Window(LazySequence[Item]):
    """The first `size` items of a list that only grows."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._size = len(items)

    def _item(self, index: int) -> Item:
        return self._items[index]

    def __iter__(self) -> Iterator[Item]:
        return islice(self._items, self._size)

    def __len__(self) -> int:
        return self._size
