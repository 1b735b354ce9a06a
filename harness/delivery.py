"""A bar over a whole trajectory: the fold of an update policy over messages, one result per request.

Knows bars, placements, policies and the state; knows no sample, no tokenizer and no template. `harness.conditions`
is its only user, and so stays the only way in which a bar enters a prompt.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from harness.errors import ConfigError, ConfoundError
from harness.state import AgentState, StateBuilder
from harness.statusbar.base import BarContext, StatusBar, StatusText, looks_back, moment_of
from harness.statusbar.placements import (
    Placement,
    PrintedTokens,
    has_place,
    parts_company,
    parts_of,
    printed_as_is,
    waits,
)
from harness.statusbar.policies import Boundary, Occasion, UpdatePolicy
from harness.types import Message, ToolSpec


@dataclass(frozen=True, slots=True)
class InjectionRules:
    """What may keep a copy out although its policy wants it. All off by default."""

    dedupe: bool = False
    """Not when the very same text, byte for byte, is in the transcript already."""
    max_tokens: int | None = None
    """Not when the transcript's contents and the copy together would have more tokens than this: a dry run."""


@dataclass(frozen=True, slots=True)
class Injection:
    """One copy of a bar: after how many messages of the base transcript it was put in."""

    at: int
    bar: StatusText


@dataclass(frozen=True, slots=True)
class Delivered:
    """One request: the base transcript (what every arm shares), the copies in it, and what the model gets."""

    base: tuple[Message, ...]
    injections: tuple[Injection, ...]
    """Oldest first; the last one is the newest copy."""
    messages: tuple[Message, ...]
    drawn: StatusText | None
    """What the bar said at this request, whether it was put in or not."""
    kept_out: tuple[str, ...] = ()
    """The rule (`dedupe`, `max_tokens`) behind each copy that was due since the request before and kept out."""


def requests(messages: Sequence[Message]) -> list[int]:
    """For each request of a transcript how many messages it holds: one before every assistant message, and one at the
    end unless the transcript ends with the assistant."""
    ends = [number for number, message in enumerate(messages) if number and message.role == "assistant"]
    if messages and messages[-1].role != "assistant":
        ends.append(len(messages))
    return ends


class Step(NamedTuple):
    """The transcript after one more copy was put in at one place."""

    place: Placement
    injection: Injection
    messages: tuple[Message, ...]


def steps(base: Sequence[Message], injections: Sequence[Injection], placement: Placement) -> Iterator[Step]:
    """The base transcript with the copies put in one after the other as it grew, what came later behind them."""
    done: tuple[Message, ...] = ()
    used = 0
    for injection in injections:
        done, used = (*done, *base[used : injection.at]), injection.at
        for place in parts_of(placement):
            done = place.place(done, injection.bar.text)
            yield Step(place, injection, (*done, *base[used:]))


def place_all(
    base: Sequence[Message], injections: Sequence[Injection], placement: Placement
) -> tuple[Message, ...]:
    """The base transcript with all the copies in it."""
    return Growing(placement).of(base, injections)


class Growing:
    """`place_all` over a transcript that grows: what stood in it at the request before is not placed again. Not frozen:
    it is a fold's working memory."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._done: tuple[Message, ...] = ()
        self._used = self._standing = 0
        self._newest: Injection | None = None

    def of(self, base: Sequence[Message], injections: Sequence[Injection]) -> tuple[Message, ...]:
        """The same messages as `place_all`. Begins anew where a copy was taken out; a transcript that is rewritten has
        lost its copies."""
        standing = self._standing
        if standing and (len(injections) < standing or injections[standing - 1] is not self._newest):
            self._done, self._used, self._standing = (), 0, 0
        for injection in injections[self._standing :]:
            before = (*self._done, *base[self._used : injection.at])
            self._done = self._placement.place(before, injection.bar.text)
            self._used, self._newest = injection.at, injection
        self._standing = len(injections)
        return (*self._done, *base[self._used :])


@dataclass(frozen=True, slots=True)
class Delivery:
    """A bar with its place and its policy; without a bar only the policy's boundaries are kept."""

    bar: StatusBar | None
    placement: Placement | None
    policy: UpdatePolicy
    rules: InjectionRules = InjectionRules()

    def unfold(
        self, messages: Sequence[Message], tools: tuple[ToolSpec, ...], context: BarContext
    ) -> Iterator[Delivered]:
        """One `Delivered` for each request of the transcript. Raises ConfigError for a bar that draws no StatusText."""
        fold = _Fold(self, StateBuilder(tools), context)
        ends = set(requests(messages))
        for number, message in enumerate(messages, start=1):
            fold.take(message)
            if number in ends:
                yield fold.request()

    def last(
        self, messages: Sequence[Message], tools: tuple[ToolSpec, ...], context: BarContext
    ) -> Delivered | None:
        """What `unfold` gives last; None for a transcript that ends with the assistant. A bar of which only the newest
        copy stays is drawn this once."""
        ends = requests(messages)
        if not ends or ends[-1] < len(messages):
            return None
        once = not self.policy.keeps and (self.bar is None or moment_of(self.bar) == "request")
        fold = _Fold(self, StateBuilder(tools), context)
        before = set(ends[:-1])
        for number, message in enumerate(messages, start=1):
            fold.take(message)
            if number not in before:
                continue
            if once:
                fold.count += 1
            else:
                fold.request(place=False)
        return fold.request()


class _Fold:
    """The transcript as one condition keeps it. Not frozen: it is the fold's own working memory."""

    def __init__(self, delivery: Delivery, builder: StateBuilder, context: BarContext) -> None:
        self.delivery = delivery
        self.builder = builder
        self.context = _at(delivery.placement, context)
        self.base: list[Message] = []
        self.injections: list[Injection] = []
        self.waiting: list[StatusText] = []
        """Copies that come behind the newest turn's last result."""
        self.open_calls = 0
        """Calls of the newest turn without a result so far."""
        self.said: list[str] = []
        """What each copy says; a StatusText writes its text anew whenever it is asked."""
        self.seen = _Seen(context.count_tokens)
        self.growing = Growing(delivery.placement) if delivery.placement is not None else None
        self.count = 0
        """Requests so far."""
        self.put_in: int | None = None
        """The request at which the last copy came in."""
        self.drawn: StatusText | None = None
        self.kept_out: list[str] = []

    def take(self, message: Message) -> None:
        self.builder.advance(message)
        self.base.append(message)
        self.open_calls = self.open_calls - 1 if message.role == "tool" else len(message.tool_calls)
        if self.open_calls <= 0:
            self._put_waiting()
        bar = self.delivery.bar
        if bar is None or moment_of(bar) == "request":
            return
        wanted = ("tool",) if moment_of(bar) == "result" else ("tool", "user")
        if message.role in wanted:
            self._occasion(self.builder.state(), boundary=False)

    def request(self, place: bool = True) -> Delivered:
        boundary = self._compact()
        bar, growing = self.delivery.bar, self.growing
        self._put_waiting()
        if bar is not None and moment_of(bar) == "request":
            self._occasion(self.builder.state(), boundary)
        self.count += 1
        base, injections = tuple(self.base), tuple(self.injections)
        placed = growing.of(base, injections) if growing is not None and place else base
        kept_out, self.kept_out = tuple(self.kept_out), []
        return Delivered(base, injections, placed, self.drawn, kept_out)

    def _compact(self) -> bool:
        policy = self.delivery.policy
        if not isinstance(policy, Boundary) or not policy.reached(self.base):
            return False
        self.base = list(policy.compacted(self.base))
        self.builder.compact(self.base)
        self.injections, self.waiting, self.said, self.put_in = [], [], [], None
        self.seen = _Seen(self.context.count_tokens)
        return True

    def _occasion(self, state: AgentState, boundary: bool) -> None:
        policy, bar, placement = self.delivery.policy, self.delivery.bar, self.delivery.placement
        assert bar is not None and placement is not None
        last = self.said[-1] if self.said else None
        # What is taken out as the next copy comes in is nothing that a reader could hold it against.
        earlier = tuple(self.said) if policy.keeps and looks_back(bar) else ()
        previous = last if policy.keeps else None
        context = replace(self.context, previous=previous, earlier=earlier, request=self.count)
        self.drawn = drawn = _checked(bar, bar.draw(state, context))
        text = drawn.said if drawn else None
        since = None if self.put_in is None else self.count - self.put_in
        due = policy.due(Occasion(text, state, last, since, boundary)) and drawn is not None
        if not policy.keeps:
            self.injections, self.waiting, self.said = [], [], []
        # Where there is no place yet (no result to stand in) a framework has nothing to hang the bar on.
        if not due or drawn is None or not has_place(placement, self.base):
            return
        rule = self._against(drawn.said)
        if rule is not None:
            self.kept_out.append(rule)
            return
        if self.open_calls > 0 and waits(placement):
            if parts_company(placement):
                raise ConfoundError(
                    f"bar {bar.name} at {placement.name}: of several calls made at once, the text of one would come to "
                    "stand in the result of another, for its other part has to wait for the last; take last_result or tail"
                )
            self.waiting.append(drawn)
        else:
            self.injections.append(Injection(len(self.base), drawn))
        self.said.append(drawn.said)
        self.put_in = self.count

    def _put_waiting(self) -> None:
        self.injections += [Injection(len(self.base), drawn) for drawn in self.waiting]
        self.waiting = []

    def _against(self, text: str) -> str | None:
        """The rule that keeps the copy out; None: none does."""
        rules = self.delivery.rules
        if rules.dedupe and (text in self.said or self.seen.says(self.base, text)):
            return "dedupe"
        if rules.max_tokens is None:
            return None
        return "max_tokens" if self.seen.tokens(self.base, self.said, text) > rules.max_tokens else None


class _Seen:
    """What a transcript that only grows has been found to hold: each message is looked at once, and not at every
    occasion anew."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._counted = self._total = 0
        self._begun: dict[str, tuple[int, list[str]]] = {}
        """Beginning of a text → how many messages were looked at, and the contents that hold it."""
        self._lengths: dict[str, int] = {}

    def says(self, base: Sequence[Message], text: str) -> bool:
        """Does a message hold the text? Only those that hold its first line, often a tag, can."""
        first = text.partition("\n")[0]
        looked, holding = self._begun.get(first, (0, []))
        holding += [message.content for message in base[looked:] if first in message.content]
        self._begun[first] = (len(base), holding)
        return any(text in content for content in holding)

    def tokens(self, base: Sequence[Message], said: Sequence[str], text: str) -> int:
        """Tokens of the messages' contents, of the copies among them and of one more."""
        self._total += sum(self._count(message.content) for message in base[self._counted :])
        self._counted = len(base)
        return self._total + sum(map(self._length, (*said, text)))

    def _length(self, text: str) -> int:
        if text not in self._lengths:
            self._lengths[text] = self._count(text)
        return self._lengths[text]


def _at(placement: Placement | None, context: BarContext) -> BarContext:
    """The context, with the length of a text at a place that spells it otherwise."""
    if placement is None or printed_as_is(placement):
        return context
    return replace(context, count_printed=PrintedTokens(context.count_tokens, placement))


def _checked(bar: StatusBar, drawn: object) -> StatusText | None:
    if drawn is not None and not isinstance(drawn, StatusText):
        raise ConfigError(f"bar {bar.name}: {type(bar).__name__}.draw must return a StatusText or None")
    return drawn
