"""How much a run may use: what a limit means, what cells cost, and whether the next batch still fits.

Knows records, prices and seconds; knows no engine, no file and no other key of the configuration. Unknown is never
0: a reply whose tokens nobody counted has no known cost, and a run under `max_spend` does not go on from there.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.types import EvalRecord, ProviderFacts, Request

HOUR = 3600.0
_MILLION = 1e6
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")

Amount = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
"""Money; a number, never `true`."""
Reason = Literal["max_time", "max_spend", "spend_unknown", "sequential"]


def seconds_of(text: object) -> float:
    """`90s`, `30m`, `2h`, `1h30m`, `1.5h` → seconds. A bare number is refused: minutes and seconds are too easily
    mistaken for each other. Raises ValueError saying what was expected."""
    matched = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if matched is None or not any(matched.groups()):
        raise ValueError("expected a duration with its unit, such as 90s, 30m, 2h or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in matched.groups())
    total = hours * HOUR + minutes * 60 + seconds
    if total <= 0:
        raise ValueError("expected a duration above 0, such as 90s, 30m, 2h or 1h30m")
    return total


def duration(seconds: float) -> str:
    """Seconds as people say them: `2.5 s`, `45 s`, `12 min`, `1 h 30 min`."""
    if seconds < 9.95:
        return f"{seconds:.{1 if seconds >= 1 else 2}f} s".replace(".00 s", " s").replace(".0 s", " s")
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


class Price(BaseModel):
    """What a model costs (key `model.price`): by token (a provider), by hour (a rented machine), or both. All null:
    unknown, and never taken for 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    currency: str | None = None
    """Of all amounts, and of `max_spend`; such as USD."""
    input_per_million: Amount | None = None
    cached_per_million: Amount | None = None
    """Prompt tokens that the provider had in its cache; null: they cost as much as others."""
    cache_written_per_million: Amount | None = None
    """Prompt tokens that the provider stores in its cache; null: they cost as much as others."""
    output_per_million: Amount | None = None
    """Generated tokens, thinking included."""
    per_hour: Amount | None = None
    as_of: str | None = None
    """Date of the price, ISO 8601, where it comes from a price table."""
    source: str | None = None
    """Where the table has it from."""

    @model_validator(mode="after")
    def _is_whole(self) -> "Price":
        tokens = {"input_per_million": self.input_per_million, "output_per_million": self.output_per_million}
        missing = [key for key, amount in tokens.items() if amount is None]
        details = (self.cached_per_million, self.cache_written_per_million)
        if len(missing) == 1 or (missing and any(amount is not None for amount in details)):
            raise ValueError(
                f"{missing[0]} is missing; a price by token needs input and output (0 is allowed)"
            )
        if self.known and not self.currency:
            raise ValueError("currency is missing, e.g. USD")
        return self

    @property
    def by_token(self) -> bool:
        return self.input_per_million is not None and self.output_per_million is not None

    @property
    def known(self) -> bool:
        """Whether anything can be said of what a run costs."""
        return self.by_token or self.per_hour is not None

    def of_tokens(
        self, prompt: float, cached: float | None, output: float | None, written: float | None = None
    ) -> float | None:
        """Cost of tokens; `cached` of the `prompt` tokens came out of a cache, `written` of them were stored in one. An
        unknown `cached` counts as none, which is the most that it can cost, an unknown `written` as none, too. None
        where `output` is unknown; 0 where tokens are not charged."""
        if self.input_per_million is None or self.output_per_million is None:
            return 0.0
        if output is None:
            return None
        cheap = min(cached or 0.0, prompt) if self.cached_per_million is not None else 0.0
        dear = min(written or 0.0, prompt - cheap) if self.cache_written_per_million is not None else 0.0
        total = (prompt - cheap - dear) * self.input_per_million + output * self.output_per_million
        total += cheap * (self.cached_per_million or 0.0) + dear * (self.cache_written_per_million or 0.0)
        return total / _MILLION

    def most_of(self, prompt: float, output: float) -> float:
        """The most that a request of so many tokens can cost: its whole prompt at the dearest of the prices that it can
        be billed at, which is that of plain input, or of storing it."""
        if self.input_per_million is None or self.output_per_million is None:
            return 0.0
        details = (self.cached_per_million, self.cache_written_per_million)
        dearest = max(self.input_per_million, *(amount or 0.0 for amount in details))
        return (prompt * dearest + output * self.output_per_million) / _MILLION

    def stated(self) -> dict[str, Any]:
        """For a manifest: the keys that were always there, and of the later ones those that are set."""
        later = ("cache_written_per_million", "as_of", "source")
        return {k: v for k, v in self.model_dump().items() if v is not None or k not in later}

    def of_seconds(self, seconds: float) -> float:
        """Cost of holding the machine; 0 where hours are not charged."""
        return seconds / HOUR * (self.per_hour or 0.0)

    def said(self, amount: float) -> str:
        """`12.30 USD`, `0.0123 USD`: three digits that count below 1."""
        digits = ".2f" if amount >= 1 else ".3g"
        return f"{amount:{digits}} {self.currency or ''}".strip()


def cost_of(record: EvalRecord, price: Price) -> float | None:
    """What a finished cell's tokens cost; None when nobody counted its output.

    The prompt is billed by the provider's count where it gives one. A request that failed may have been billed or
    not: it counts at the most it can have cost, its prompt and a reply of full length.
    """
    usage = record.output.usage
    if record.output.provider is not None:
        return _api_cost(record, record.output.provider, price)
    prompt = usage.prompt_tokens if usage.reported_prompt_tokens is None else usage.reported_prompt_tokens
    output: float | None = usage.completion_tokens
    drawn = record.probe != "choose" or bool(record.output.thoughts)
    if record.output.finish_reason == "error":
        # How many thoughts a failed cell was to draw is not in its row.
        known = record.probe != "choose" or record.thinking == "off"
        output = (record.decoding.max_new_tokens if drawn else 0) if known else None
    elif not drawn:
        output = 0  # probabilities are read, nothing is generated
    return price.of_tokens(prompt, usage.cached_tokens, output)


def _api_cost(record: EvalRecord, facts: ProviderFacts, price: Price) -> float | None:
    """What a cell at a provider cost: the requests that were answered by its own counts, and those that broke off in the
    middle of an answer at the most that they can have cost, since nobody says whether they were billed.

    A broken request's prompt is as long as the answered ones'; where none was answered, as the reference tokenizer
    counts it. None when the provider left the prompt or the output of an answered request uncounted.
    """
    usage, most_new = record.output.usage, record.decoding.max_new_tokens
    if not price.by_token:
        return 0.0
    if not facts.requests:
        return facts.broken * price.most_of(usage.prompt_tokens, most_new)
    prompt = usage.reported_prompt_tokens
    if prompt is None:
        return None
    answered = price.of_tokens(
        prompt, usage.cached_tokens, usage.completion_tokens, usage.cache_written_tokens
    )
    if answered is None:
        return None
    return answered + facts.broken * price.most_of(prompt / facts.requests, most_new)


def most_new_tokens(request: Request) -> int:
    """The most tokens that a cell can generate: its reply, or each of its thoughts, at full length."""
    draws = 1 if request.probe != "choose" else request.thoughts
    return draws * request.decoding.max_new_tokens


def most_cost(requests: Iterable[Request], price: Price) -> float:
    """What the tokens of these cells cost at most: nothing cached, every reply at full length."""
    return sum(price.most_of(len(request.prompt.ids), most_new_tokens(request)) for request in requests)


@dataclass(frozen=True, slots=True)
class Limits:
    """`seconds`: most time of one session, the engine's start included. `spend`: most money of a run, all of its
    sessions together. None: no limit."""

    seconds: float | None = None
    spend: float | None = None
    price: Price = field(default_factory=Price)


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run ended before its plan did."""

    reason: Reason
    said: str


class Watch(Protocol):
    """Whoever may end a run between two batches."""

    def computing(self) -> None:
        """From here on time is the batches' own: engine and warm-ups are done."""

    def add(self, record: EvalRecord) -> None:
        """A cell that this session finished."""

    def stop(self, batch: Sequence[Request]) -> Stop | None:
        """Why this batch is not to be run; None when it is."""


@dataclass(frozen=True, slots=True)
class Watches:
    """Several at once; the first that says stop is heard."""

    each: Sequence[Watch]

    def computing(self) -> None:
        for watch in self.each:
            watch.computing()

    def add(self, record: EvalRecord) -> None:
        for watch in self.each:
            watch.add(record)

    def stop(self, batch: Sequence[Request]) -> Stop | None:
        return next((stop for watch in self.each if (stop := watch.stop(batch))), None)


@dataclass(slots=True)
class Meter:
    """What a run has used, and before each batch whether it still fits.

    `clock` in seconds; `begun` is its time when the session began. `earlier_seconds`: time that earlier sessions
    held the machine. `earlier_pace`: their seconds per cell, None where there was none.
    """

    limits: Limits
    clock: Callable[[], float]
    earlier_seconds: float = 0.0
    earlier_pace: float | None = None
    begun: float = field(init=False)
    cells: int = field(default=0, init=False)
    """Of this session."""
    _from: float | None = field(default=None, init=False)
    _costs: list[float] = field(default_factory=list, init=False)
    _uncounted: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.begun = self.clock()

    def add_earlier(self, record: EvalRecord) -> None:
        """A row of an earlier session; a failed one that was tried again counts, too."""
        self._count(record)

    def add(self, record: EvalRecord) -> None:
        """A cell that this session finished."""
        self.cells += 1
        self._count(record)

    def _count(self, record: EvalRecord) -> None:
        if self.limits.price.by_token:
            cost = cost_of(record, self.limits.price)
            if cost is None:
                self._uncounted += 1
            else:
                self._costs.append(cost)

    def computing(self) -> None:
        """From here on time is the batches' own: engine and warm-ups are done."""
        self._from = self.clock()

    @property
    def seconds(self) -> float:
        """Of this session so far."""
        return self.clock() - self.begun

    @property
    def pace(self) -> float | None:
        """Mean seconds per cell of the batches so far, of this session where it has had one; None: unknown."""
        if self.cells and self._from is not None:
            return (self.clock() - self._from) / self.cells
        return self.earlier_pace

    @property
    def spent(self) -> float | None:
        """Money of all sessions so far; None where it is not known."""
        price = self.limits.price
        if not price.known or self._uncounted:
            return None
        return sum(self._costs) + price.of_seconds(self.earlier_seconds + self.seconds)

    def stop(self, batch: Sequence[Request]) -> Stop | None:
        """Why this batch is not to be run; None when it fits, as far as can be known before."""
        return self._late(len(batch)) or self._dear(batch)

    def _late(self, cells: int) -> Stop | None:
        most = self.limits.seconds
        if most is None:
            return None
        need = None if self.pace is None else self.pace * cells
        if self.seconds + (need or 0.0) <= most:
            return None
        told = "how long a batch takes is not known" if need is None else _next(cells, duration(need))
        return Stop("max_time", f"max_time={duration(most)}: {duration(self.seconds)} used, and {told}")

    def _dear(self, batch: Sequence[Request]) -> Stop | None:
        most, price = self.limits.spend, self.limits.price
        if most is None:
            return None
        spent = self.spent
        if spent is None:
            return Stop("spend_unknown", self._unknown(most))
        need = self._need(batch)
        if spent + need <= most:
            return None
        told = _next(len(batch), price.said(need))
        return Stop("max_spend", f"max_spend={price.said(most)}: {price.said(spent)} spent, and {told}")

    def _need(self, batch: Sequence[Request]) -> float:
        """By the mean of the cells so far; of the first batch, the most that its tokens can cost."""
        price = self.limits.price
        if self._costs:
            tokens = sum(self._costs) / len(self._costs) * len(batch)
        else:
            tokens = most_cost(batch, price)
        return tokens + price.of_seconds((self.pace or 0.0) * len(batch))

    def _unknown(self, most: float) -> str:
        return (
            f"max_spend={self.limits.price.said(most)}: of {self._uncounted} finished cells the output tokens are not "
            "known, so neither is what was spent (nothing is taken for 0)"
        )


def _next(cells: int, need: str) -> str:
    return f"the next batch of {cells} cells needs about {need}"


def held_seconds(
    sessions: Sequence[tuple[float, float]], rows: Iterable[float], pace: float | None = None
) -> float:
    """Seconds that earlier sessions held the machine, from their (start, end) and the start times of all rows, on
    one clock. A session that was killed has left rows alone: it counts from its first row to its last, and one
    more cell of `pace` seconds."""
    known = sorted(sessions)
    lost: dict[int, list[float]] = {}
    for at in rows:
        if not any(start <= at <= end for start, end in known):
            lost.setdefault(sum(end < at for _, end in known), []).append(at)
    return sum(end - start for start, end in known) + sum(
        max(times) - min(times) + (pace or 0.0) for times in lost.values()
    )
