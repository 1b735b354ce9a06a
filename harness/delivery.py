"""A bar over a whole trajectory: the fold of an update policy over messages, one result per request.

Knows bars, placements, policies and the state; knows no sample, no tokenizer and no template. `harness.conditions`
is its only user, and so stays the only way in which a bar enters a prompt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from harness.errors import ConfigError
from harness.state import AgentState, StateBuilder
from harness.statusbar.base import BarContext, StatusBar, StatusText, looks_back, moment_of
from harness.statusbar.placements import Placement, has_place, parts_of
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
        copy stays, and which does not look at the copy before, is drawn this once."""
        ends = requests(messages)
        if not ends or ends[-1] < len(messages):
            return None
        once = not self.policy.keeps and (
            self.bar is None or (moment_of(self.bar) == "request" and not looks_back(self.bar))
        )
        fold = _Fold(self, StateBuilder(tools), context)
        for number, message in enumerate(messages, start=1):
            fold.take(message)
            if number in ends[:-1] and not once:
                fold.request(place=False)
        return fold.request()


class _Fold:
    """The transcript as one condition keeps it. Not frozen: it is the fold's own working memory."""

    def __init__(self, delivery: Delivery, builder: StateBuilder, context: BarContext) -> None:
        self.delivery = delivery
        self.builder = builder
        self.context = context
        self.base: list[Message] = []
        self.injections: list[Injection] = []
        self.said: list[str] = []
        """What each of them says; a StatusText writes its text anew whenever it is asked."""
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
        bar = self.delivery.bar
        if bar is None or moment_of(bar) == "request":
            return
        wanted = ("tool",) if moment_of(bar) == "result" else ("tool", "user")
        if message.role in wanted:
            self._occasion(self.builder.state(), boundary=False)

    def request(self, place: bool = True) -> Delivered:
        boundary = self._compact()
        bar, growing = self.delivery.bar, self.growing
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
        self.injections, self.said, self.put_in = [], [], None
        return True

    def _occasion(self, state: AgentState, boundary: bool) -> None:
        policy, bar, placement = self.delivery.policy, self.delivery.bar, self.delivery.placement
        assert bar is not None and placement is not None
        earlier = tuple(self.said)
        last = earlier[-1] if earlier else None
        context = replace(self.context, previous=last, earlier=earlier)
        self.drawn = drawn = _checked(bar, bar.draw(state, context))
        text = drawn.said if drawn else None
        since = None if self.put_in is None else self.count - self.put_in
        due = policy.due(Occasion(text, state, last, since, boundary)) and drawn is not None
        if not policy.keeps:
            self.injections, self.said = [], []
        # Where there is no place yet (no result to stand in) a framework has nothing to hang the bar on.
        if not due or drawn is None or not has_place(placement, self.base):
            return
        rule = self._against(drawn.said)
        if rule is not None:
            self.kept_out.append(rule)
            return
        self.injections.append(Injection(len(self.base), drawn))
        self.said.append(drawn.said)
        self.put_in = self.count

    def _against(self, text: str) -> str | None:
        """The rule that keeps the copy out; None: none does."""
        rules = self.delivery.rules
        if rules.dedupe and (text in self.said or any(text in message.content for message in self.base)):
            return "dedupe"
        if rules.max_tokens is None:
            return None
        contents = [message.content for message in self.base]
        tokens = sum(map(self.context.count_tokens, (*contents, *self.said, text)))
        return "max_tokens" if tokens > rules.max_tokens else None


def _checked(bar: StatusBar, drawn: object) -> StatusText | None:
    if drawn is not None and not isinstance(drawn, StatusText):
        raise ConfigError(f"bar {bar.name}: {type(bar).__name__}.draw must return a StatusText or None")
    return drawn
