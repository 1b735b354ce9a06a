"""One cluster: what is drawn for it, and the messages that the draws become.

Knows the draws, the order of calls and how a call turns into messages. Does not know series, sides or
token counts. Draws depend on (scenario content, series, seed, cluster index) alone, each pool through a
generator of its own: asking for more clusters, or for more of one pool, moves nothing that was there.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.dataset.load import Scenario
from harness.dataset.schema import CaseBlock, ResultBlock, SearchBlock
from harness.dataset.script import FOLLOW_UP, filled, further, standing, timed, variables, written
from harness.errors import ScenarioError
from harness.sandbox import render
from harness.types import Message, Series, ToolCall

T = TypeVar("T")


def generator(*key: object) -> random.Random:
    """A generator that is the same in every process for the same key."""
    return random.Random(hashlib.sha256("\x1f".join(map(str, key)).encode()).hexdigest())


def merchant_pair(scenario: Scenario, series: Series, seed: int, index: int) -> tuple[str, str, list[str]]:
    """Merchants (a, b) of a cluster, and the others in a drawn order.

    The pairs are the matches of a round-robin tournament (circle method) over the shuffled pool: while a
    round lasts no merchant comes twice, and no pair comes twice before every pair has come once.
    """
    pool = list(scenario.spec.pools.merchants)
    generator(scenario.content_hash, series, seed, "merchants").shuffle(pool)
    flagship = scenario.spec.flagship
    seats: list[str | None] = [*pool]
    if len(pool) % 2:
        seats.insert(0, None)
    skip = len(pool) % 2  # the match against the empty seat is always the first of a round
    count = len(seats)
    if flagship is not None:
        for name, seat in ((flagship.at_limit, skip), (flagship.other, count - 1 - skip)):
            now = seats.index(name)
            seats[now], seats[seat] = seats[seat], seats[now]
    per_round = count // 2 - skip
    turn, match = divmod(index, per_round)
    turn %= count - 1
    moved = [seats[0], *seats[1 + turn :], *seats[1 : 1 + turn]]
    pair = moved[match + skip], moved[count - 1 - match - skip]
    if flagship is None or index:
        # The circle method keeps one seat fixed; which side of a pair is at its limit is drawn apart.
        pair = (
            pair
            if generator(scenario.content_hash, series, seed, index, "side").random() < 0.5
            else pair[::-1]
        )
    a, b = pair
    if a is None or b is None:
        raise AssertionError("the empty seat was drawn")
    rest = [name for name in pool if name not in (a, b)]
    generator(scenario.content_hash, series, seed, index, "rest").shuffle(rest)
    return a, b, rest


@dataclass(frozen=True)
class Draws:
    """Everything drawn for one cluster. Pools come whole, in drawn order; texts are taken in turn."""

    index: int
    a: str
    b: str
    decoys: tuple[str, ...]
    case: CaseBlock | None
    """None, and `closing` empty, in a scripted episode."""
    purposes: tuple[str, ...]
    results: tuple[ResultBlock, ...]
    searches: tuple[SearchBlock, ...]
    closing: str
    strength: str
    phrasing: str
    key: tuple[object, ...]
    """Key of this cluster's generators, for what else is drawn."""
    others: tuple[str, ...] = ()
    """Further names that a script may use."""
    variables: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Each pool of `pools.variables` in drawn order."""


def draw(scenario: Scenario, series: Series, seed: int, index: int) -> Draws:
    """The draws of cluster `index`."""
    pools = scenario.spec.pools
    key = (scenario.content_hash, series, seed, index)

    def order(name: str, pool: Sequence[T]) -> tuple[T, ...]:
        return tuple(generator(*key, name).sample(pool, len(pool)))

    a, b, rest = merchant_pair(scenario, series, seed, index)
    others, unused = further(rest) if scenario.spec.episode.script else ((), rest[:2])
    labels = tuple(pools.phrasings)
    # Shifted by one after each cycle, so that over labels² clusters strength crosses the call order.
    strength = labels[(index + index // len(labels)) % len(labels)]
    return Draws(
        index=index,
        a=a,
        b=b,
        decoys=tuple(unused),
        case=next(iter(order("cases", pools.cases)), None),
        purposes=order("purposes", pools.purposes),
        results=order("results", pools.results),
        searches=order("searches", pools.searches),
        closing=next(iter(order("closings", pools.closings)), ""),
        strength=strength,
        phrasing=order("phrasing", pools.phrasings[strength])[0],
        key=key,
        others=tuple(others),
        variables={name: order(f"variables.{name}", pool) for name, pool in pools.variables.items()},
    )


@dataclass
class Transcript:
    """Messages under construction, and the truth about them, counted where a call is decided on."""

    scenario: Scenario
    draws: Draws
    messages: list[Message] = field(default_factory=list)
    truth: dict[str, dict[str, int]] = field(default_factory=dict)
    last_called: str = ""
    last_result: ResultBlock | None = None
    calls: int = 0
    asides: int = 0
    values: Mapping[str, str] = field(default_factory=dict)
    """The variables of a script that was played."""

    def fork(self) -> "Transcript":
        """An independent copy that can be continued in another way."""
        truth = {tool: dict(counts) for tool, counts in self.truth.items()}
        return Transcript(
            self.scenario, self.draws, list(self.messages), truth,
            self.last_called, self.last_result, self.calls, self.asides, self.values,
        )  # fmt: skip

    def say(self, role: str, text: str) -> None:
        if role == "user":
            self.messages.append(Message("user", text))
        elif role == "assistant":
            self.messages.append(Message("assistant", text))
        else:
            self.messages.append(Message("system", text))

    def play(self, first: str) -> None:
        """All messages of a scripted episode; `first` is that one of a and b which comes first in its lists. Raises
        ScenarioError where a does not end at its limit and b one call below."""
        draws, scenario, rule = self.draws, self.scenario, self.scenario.rule
        self.values = variables((draws.a, draws.b), first, draws.others, draws.variables)
        keys = {each.tool: each.key for each in scenario.rules}
        for number, entry in enumerate(scenario.spec.episode.script):
            call_id = f"{generator(*draws.key, 'id', number).getrandbits(36):09x}"
            made = written(entry, number, self.values, scenario.source, call_id)
            self.messages.extend(made)
            for call in made[0].tool_calls:
                self._count(call.name, call.arguments[keys[call.name]] if call.name in keys else "")
        wrong = standing(self.truth.get(rule.tool, {}), draws.a, draws.b, rule.limit, rule.tool)
        if wrong is not None:
            raise ScenarioError(f"{scenario.source}: episode.script: {wrong}")

    def open(self, first: str, second: str) -> None:
        """The customer's opening message, which names two merchants in this order."""
        assert self.draws.case is not None
        values = {"first": first, "second": second}
        self.say("user", self._render(self.draws.case.opening, values, "pools.cases"))

    def call(self, merchant: str) -> None:
        """One counted call to `merchant` and its result."""
        rule = self.scenario.rule
        result = _take(self.draws.results, self.calls, self.scenario, "pools.results")
        values = {"merchant": merchant}
        if self.scenario.spec.pools.purposes:
            purpose = _take(self.draws.purposes, self.calls, self.scenario, "pools.purposes")
            values["purpose"] = self._render(purpose, {}, "pools.purposes")
        arguments = {rule.key: merchant}
        for name in self._parameters(rule.tool):
            if name != rule.key:
                template = self.scenario.spec.episode.call[name]
                arguments[name] = self._render(template, values, f"episode.call.{name}")
        text = self._render(result.text, {"merchant": merchant}, "pools.results")
        self._exchange(rule.tool, arguments, text)
        self._count(rule.tool, merchant)
        self.last_called, self.last_result = merchant, result
        self.calls += 1

    def aside(self) -> None:
        """One call to the tool without a rule, and its result."""
        aside = self.scenario.spec.episode.aside
        if aside is None:
            return
        search = _take(self.draws.searches, self.asides, self.scenario, "pools.searches")
        values = {"query": self._render(search.query, {}, "pools.searches")}
        arguments = {
            name: self._render(aside.arguments[name], values, f"episode.aside.arguments.{name}")
            for name in self._parameters(aside.tool)
        }
        self._exchange(aside.tool, arguments, self._render(search.result, {}, "pools.searches"))
        self._count(aside.tool, "")
        self.asides += 1

    def close(self) -> None:
        """The assistant's closing sentence, about the last counted call."""
        if self.last_result is None:
            raise AssertionError("closing before any call")
        gist = self._render(self.last_result.gist, {}, "pools.results")
        values = {"merchant": self.last_called, "gist": gist}
        self.say("assistant", self._render(self.draws.closing, values, "pools.closings"))

    def follow_up(self, merchant: str) -> None:
        """The customer's last message, which asks for the action on `merchant`."""
        variable = "name" if self.scenario.spec.episode.script else "merchant"
        text = self._render(self.draws.phrasing, {variable: merchant}, "pools.phrasings")
        beside, source = self.scenario.spec.episode.follow_up, self.scenario.source
        if beside is None:
            self.say("user", text)
            return
        time = timed(beside, self.values, source, FOLLOW_UP)
        known = filled(beside.known, self.values, source, (*FOLLOW_UP, "known"))
        self.messages.append(Message("user", text, time=time, known=known))

    def _parameters(self, tool: str) -> list[str]:
        spec = next(t for t in self.scenario.tools if t.name == tool)
        return list(spec.parameters["properties"])

    def _render(self, template: str, values: Mapping[str, str], key: str) -> str:
        where = f"{self.scenario.source}: {key}"
        topic = {"topic": self.draws.case.topic} if self.draws.case is not None else {}
        return render(template, {**topic, **values}, where=where)

    def _exchange(self, tool: str, arguments: Mapping[str, str], result: str) -> None:
        # Nine letters and digits, as the strictest templates ask; drawn, since a running number would count.
        token = generator(*self.draws.key, "id", self.calls, self.asides).getrandbits(36)
        call_id = f"{token:09x}"
        self.messages.append(Message("assistant", tool_calls=(ToolCall(tool, dict(arguments), call_id),)))
        self.messages.append(Message("tool", result, tool_call_id=call_id, name=tool))

    def _count(self, tool: str, value: str) -> None:
        counts = self.truth.setdefault(tool, {})
        counts[value] = counts.get(value, 0) + 1


def _take(pool: Sequence[T], position: int, scenario: Scenario, key: str) -> T:
    if position >= len(pool):
        need = position + 1
        raise ScenarioError(
            f"{scenario.source}: {key}: an episode needs {need} different texts, got {len(pool)}"
        )
    return pool[position]


def call_order(limit: int, index: int, rng: random.Random) -> tuple[str, ...]:
    """Order of `limit` calls to 'a' and `limit - 1` to 'b'; who opens and closes it cycles with `index`."""
    if limit == 1:
        return ("a",)
    cycle = [(x, y) for x in "ab" for y in "ab" if not (limit == 2 and (x, y) == ("b", "b"))]
    first, last = cycle[index % len(cycle)]
    middle = ["a"] * limit + ["b"] * (limit - 1)
    middle.remove(first)
    middle.remove(last)
    rng.shuffle(middle)
    return (first, *middle, last)


def fill(transcript: Transcript, tokens: int, count_tokens: Callable[[str], int]) -> None:
    """Add small talk until it holds at least `tokens` tokens (contents alone), at most one exchange over.

    Exchanges are drawn without replacement; when the pool is used up it is shuffled anew, and its texts
    repeat word for word.
    """
    pool = transcript.scenario.spec.pools.fillers
    total = 0
    turn = 0
    while total < tokens:
        for filler in generator(*transcript.draws.key, "fillers", turn).sample(pool, len(pool)):
            if total >= tokens:
                return
            before = total
            for role, text in (("user", filler.user), ("assistant", filler.assistant)):
                transcript.say(role, text)
                total += count_tokens(text)
            if total <= before:
                raise ScenarioError(
                    f"{transcript.scenario.source}: pools.fillers: an exchange counts no tokens"
                )
        turn += 1
