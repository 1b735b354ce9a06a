"""The transcript as stretches of context: how long each is, how old, and how often what came in with it was used.

Knows messages and calls; counts tokens by a function that it is given, each text once per function.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.state.facts import Block
from harness.state.paths import strings_of, words_of
from harness.state.views import LazySequence
from harness.types import Message, ToolCall

MAX_WORDS = 64
"""Words of one message that are remembered as having come in with it."""
SHORTEST, LONGEST = 4, 260
"""Characters of a value that can be used."""
MAX_COUNTERS = 4
"""Counting functions whose sums are remembered; the oldest gives way."""


class Transcript:
    """Append-only. A value (a word that is not plain lower case, or a string that a call was made with) belongs to
    the message that it first came in with; a later call with it is one use of that message. The model's own
    messages bring nothing in."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._characters: list[int] = []
        """Of each message's content."""
        self._calls: dict[int, tuple[ToolCall, ...]] = {}
        """Calls of the messages whose calls were not measured yet; measured once, when somebody asks."""
        self.arrived: list[int] = []
        """Requests that had been answered when the message came in."""
        self.used: list[list[int] | None] = []
        """For each message the numbers of messages that made use of it, ascending; one entry per call."""
        self.texts: list[str | ToolCall] = []
        self._holder: dict[str, int] = {}
        self._sums: dict[Callable[[str], int], list[int]] = {}

    def add(self, message: Message, kind: str, requests: int, answered: ToolCall | None) -> None:
        """One message more, which answers the call `answered`; `requests` counts itself if it is the assistant's."""
        number = len(self.kinds)
        self.kinds.append(kind)
        self._characters.append(len(message.content))
        self.arrived.append(requests)
        self.used.append(None)
        if message.content:
            self.texts.append(message.content)
        if message.role == "assistant":
            self.texts.extend(message.tool_calls)
            if message.tool_calls:
                self._calls[number] = message.tool_calls
            return
        holder = self._holder
        for word in _telling(words_of(message.content)):
            holder.setdefault(word, number)
        if answered is not None:
            for _, value in strings_of(answered.arguments):
                if SHORTEST <= len(value) <= LONGEST:
                    holder.setdefault(value, number)

    def use(self, call: ToolCall, paths: Iterable[str]) -> None:
        """A call that the message about to be added makes."""
        number = len(self.kinds)
        values = {value for _, value in strings_of(call.arguments) if SHORTEST <= len(value) <= LONGEST}
        for holder in {self._holder[value] for value in values.union(paths) if value in self._holder}:
            uses = self.used[holder]
            if uses is None:
                uses = self.used[holder] = []
            uses.append(number)

    def characters(self, number: int) -> int:
        """Of a message's content and of its calls in JSON."""
        if number in self._calls:
            self._characters[number] += sum(len(call_text(call)) for call in self._calls.pop(number))
        return self._characters[number]

    def tokens(self, texts: int, count: Callable[[str], int]) -> int:
        """Sum of `count` over the first `texts` texts. Each is counted once, whoever asks how often."""
        try:
            sums = self._sums.get(count)
        except TypeError:  # a counting function that cannot be a key
            return sum(count(_spelt(text)) for text in self.texts[:texts])
        if sums is None:
            if len(self._sums) >= MAX_COUNTERS:
                del self._sums[next(iter(self._sums))]
            sums = self._sums[count] = [0]
        for text in self.texts[len(sums) - 1 : texts]:
            sums.append(sums[-1] + count(_spelt(text)))
        return sums[texts]


def _telling(words: Sequence[str]) -> list[str]:
    """Words that can be told apart from mere prose: not of small letters alone."""
    likely = [word.strip(".,:;!?") for word in words if not (word.isalpha() and word.islower())]
    told = [w for w in likely if SHORTEST <= len(w) <= LONGEST and not (w.isalpha() and w.islower())]
    return told[:MAX_WORDS]


def _spelt(text: str | ToolCall) -> str:
    return text if isinstance(text, str) else call_text(text)


def call_text(call: ToolCall) -> str:
    """A call as a model writes it, in JSON."""
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    """Mappings and sequences of other types than JSON's own."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"a call's arguments hold a {type(value).__name__}, which is not JSON")


class Blocks(LazySequence[Block]):
    """The messages of a transcript as it was at one moment."""

    __slots__ = ("_requests", "_size", "_transcript")

    def __init__(self, transcript: Transcript, requests: int) -> None:
        self._transcript = transcript
        self._size = len(transcript.kinds)
        self._requests = requests

    def _item(self, index: int) -> Block:
        told, used = self._transcript, self._transcript.used[index]
        return Block(
            id=index,
            kind=told.kinds[index],
            characters=told.characters(index),
            age=self._requests - told.arrived[index],
            uses=bisect_right(used, self._size - 1) if used else 0,
        )

    def __len__(self) -> int:
        return self._size


class Texts(LazySequence[str]):
    """The texts of a transcript as it was at one moment: contents, and calls in JSON."""

    __slots__ = ("_size", "_transcript")

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._size = len(transcript.texts)

    def _item(self, index: int) -> str:
        return _spelt(self._transcript.texts[index])

    def __len__(self) -> int:
        return self._size

    def tokens(self, count: Callable[[str], int]) -> int:
        return self._transcript.tokens(self._size, count)
