"""Rows → totals per condition, what they cost, and where one policy's bill crosses another's.

Knows rows and prices; knows no transcript. Prompt tokens that the cache holds are weighed: with weight w a prompt of
u uncached and c cached tokens counts u + w·c, as many as that many uncached ones would. Unknown is None, never 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from harness.budget import Price
from harness.ledger.bill import Bill
from harness.ledger.rows import Row

_TIE = 1e-6


@dataclass(frozen=True, slots=True)
class Total:
    """One condition's requests together. `extra_*`: beyond its control; None for a control."""

    condition: str
    control: str
    requests: int
    prompt_tokens: int
    bar_tokens: int
    """Of all copies, added up over the requests that carry them."""
    newest_tokens: float | None
    """Mean length of the newest copy, over the requests that have one."""
    put_in: int
    resent: int
    resent_share: float | None
    """Copies that say what the one before said ÷ copies put in; None: none was put in."""
    stale_mean: float
    stale_most: int
    drawn: int
    """Requests at which the bar had something to say."""
    shown: int
    """Of the drawn ones, those with a copy in the context, whatever it says."""
    outdated: int
    """Of the shown ones, those whose newest copy no longer says what the bar says."""
    left_over: int
    """Requests with a copy in the context at which the bar had nothing to say."""
    kept_out_dedupe: int
    kept_out_budget: int
    rebilled_tokens: int
    rebilled_in_blocks: int
    cached_tokens: int
    weighed_tokens: float
    extra_prompt_tokens: int | None
    extra_rebilled_tokens: int | None
    extra_weighed_tokens: float | None
    output_tokens: int | None
    """None where a reply is not recorded."""


def totals(bill: Bill, weight: float) -> list[Total]:
    """In the order of the arms. `weight`: what a cached token counts, as a share of an uncached one."""
    found: dict[str, Total] = {}
    for arm in bill.arms:
        control = found.get(arm.control)
        found[arm.name] = _total(arm.name, arm.control, bill.of(arm.name), weight, control)
    return list(found.values())


def _total(name: str, control_name: str, rows: Sequence[Row], weight: float, control: Total | None) -> Total:
    put_in, resent = sum(row.put_in for row in rows), sum(row.resent for row in rows)
    newest = [row.newest_tokens for row in rows if row.newest_tokens is not None]
    outputs = [row.output_tokens for row in rows if row.output_tokens is not None]
    prompt, rebilled = sum(row.prompt_tokens for row in rows), sum(row.rebilled_tokens for row in rows)
    weighed = cumulative(rows, weight)[-1]
    return Total(
        condition=name,
        control=control_name,
        requests=len(rows),
        prompt_tokens=prompt,
        bar_tokens=sum(row.bar_tokens for row in rows),
        newest_tokens=sum(newest) / len(newest) if newest else None,
        put_in=put_in,
        resent=resent,
        resent_share=resent / put_in if put_in else None,
        stale_mean=sum(row.stale_copies for row in rows) / len(rows),
        stale_most=max(row.stale_copies for row in rows),
        drawn=sum(row.drawn for row in rows),
        shown=sum(row.drawn and row.copies > 0 for row in rows),
        outdated=sum(row.drawn and row.up_to_date is False for row in rows),
        left_over=sum(row.copies > 0 and not row.drawn for row in rows),
        kept_out_dedupe=sum(row.kept_out_dedupe for row in rows),
        kept_out_budget=sum(row.kept_out_budget for row in rows),
        rebilled_tokens=rebilled,
        rebilled_in_blocks=sum(row.rebilled_in_blocks for row in rows),
        cached_tokens=sum(row.cached_tokens for row in rows),
        weighed_tokens=weighed,
        extra_prompt_tokens=None if control is None else prompt - control.prompt_tokens,
        extra_rebilled_tokens=None if control is None else rebilled - control.rebilled_tokens,
        extra_weighed_tokens=None if control is None else weighed - control.weighed_tokens,
        output_tokens=sum(outputs) if len(outputs) == len(rows) else None,
    )


def cumulative(rows: Sequence[Row], weight: float) -> list[float]:
    """Weighed prompt tokens of all requests up to each one."""
    uncached = accumulate(row.rebilled_in_blocks for row in rows)
    cached = accumulate(row.cached_tokens for row in rows)
    return [u + weight * c for u, c in zip(uncached, cached, strict=True)]


# -- money ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedPrice:
    """A price by token, and the day on which it was taken down ('': not stated)."""

    name: str
    as_of: str
    price: Price

    @property
    def weight(self) -> float | None:
        """What a cached token costs as a share of an uncached one; None: unknown, or input is free."""
        price = self.price
        if not price.input_per_million:
            return None
        return 1.0 if price.cached_per_million is None else price.cached_per_million / price.input_per_million


def money(totals: Sequence[Total], prices: Sequence[NamedPrice]) -> list[dict[str, object]]:
    """What each condition's prompts and recorded replies cost at each price. Every amount of a price that is not known
    by token is None."""
    by_name = {total.condition: total for total in totals}
    return [
        _cost(total, by_name[total.control], named)
        for named in prices
        for total in totals
    ]  # fmt: skip


def _cost(total: Total, control: Total, named: NamedPrice) -> dict[str, object]:
    given = _input(total, named.price)
    before = _input(control, named.price)
    output = named.price.of_tokens(0, 0, total.output_tokens) if named.price.by_token else None
    return {
        "price": named.name,
        "as_of": named.as_of,
        "currency": named.price.currency,
        "condition": total.condition,
        "input_cost": given,
        "extra_input_cost": None if total is control or given is None or before is None else given - before,
        "output_cost": output,
        "cost": None if given is None or output is None else given + output,
    }


def _input(total: Total, price: Price) -> float | None:
    return price.of_tokens(total.prompt_tokens, total.cached_tokens, 0) if price.by_token else None


# -- where two bills cross -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossing:
    """Two conditions' bills up to each request. `dearer`: the one that is dearer at the last; None: they are even.
    `since`: the request from which on it is and the other one never is; `even`: requests after that at which neither
    is; `turns`: how often the order turned round before."""

    first: str
    second: str
    basis: str
    weight: float
    requests: int
    dearer: str | None
    since: int | None
    turns: int
    even: int = 0

    @property
    def sentence(self) -> str:
        """What came out, in words."""
        if self.dearer is None:
            return (
                f"{self.second} and {self.first} cost the same after {self.requests} requests ({self.basis})"
            )
        cheaper = self.first if self.dearer == self.second else self.second
        since = self.since or 1
        but = "" if not self.even else f", but for {self.even} at which they are even"
        if self.turns:
            often = "" if self.turns == 1 else f", after the order turned {self.turns} times"
            return (
                f"{self.dearer} becomes dearer than {cheaper} at request {since}{often}{but} ({self.basis})"
            )
        same = "" if since == 1 else f"the same up to request {since - 1}, "
        on = "at every request" if since == 1 else f"from request {since} on"
        return (
            f"no crossover within {self.requests} requests: {same}{on} {self.dearer} is dearer than {cheaper}{but} "
            f"({self.basis})"
        )


def crossing(bill: Bill, first: str, second: str, weight: float, basis: str) -> Crossing:
    """Where the cumulative bill of `second` crosses that of `first`, both at the same weight of cached tokens."""
    pairs = zip(cumulative(bill.of(first), weight), cumulative(bill.of(second), weight), strict=True)
    dearer = since = None
    turns = ties = 0
    for request, (a, b) in enumerate(pairs, start=1):
        now = None if abs(a - b) < _TIE else second if b > a else first
        if now is None:
            ties += 1
        elif now != dearer:
            turns += dearer is not None
            dearer, since, ties = now, request, 0
    if abs(a - b) < _TIE:
        dearer, since, ties = None, None, 0
    return Crossing(first, second, basis, weight, bill.requests, dearer, since, turns, ties)


def price_bases(weight: float, prices: Sequence[NamedPrice]) -> Mapping[str, float]:
    """Every weight of cached tokens that a crossing is looked for at: words → weight."""
    bases = {f"a cached token counts {weight:g}": weight}
    for named in prices:
        if named.weight is not None:
            bases[f"at the price {named.name}, where it counts {named.weight:.3g}"] = named.weight
    return bases
