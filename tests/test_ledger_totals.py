"""Totals, money and crossings from rows that were written by hand."""

from dataclasses import replace

import pytest

from harness.budget import Price
from harness.conditions import Condition
from harness.ledger import Arm, Bill, NamedPrice, Row, crossing, cumulative, money, totals
from harness.ledger.totals import price_bases

ZERO = Row(
    condition="never", request=1, messages=2, prompt_tokens=0, bar_tokens=0, newest_tokens=None, copies=0,
    stale_copies=0, put_in=0, resent=0, kept_out_dedupe=0, kept_out_budget=0, drawn=False, up_to_date=None,
    shared_tokens=0, rebilled_tokens=0, cached_tokens=0, rebilled_in_blocks=0, output_tokens=10,
)  # fmt: skip


def rows(condition: str, *uncached_and_cached: tuple[int, int]) -> list[Row]:
    """One request for each pair."""
    return [
        replace(
            ZERO, condition=condition, request=number, prompt_tokens=uncached + cached,
            rebilled_in_blocks=uncached, rebilled_tokens=uncached, cached_tokens=cached,
        )
        for number, (uncached, cached) in enumerate(uncached_and_cached, start=1)
    ]  # fmt: skip


def made(**found: list[Row]) -> Bill:
    first = next(iter(found))
    arms = tuple(Arm(Condition(name), first) for name in found)
    return Bill(arms, len(found[first]), tuple(row for each in found.values() for row in each), False)


NEVER = rows("never", (1000, 0), (100, 1000))
DOLLARS = Price(currency="USD", input_per_million=10, cached_per_million=1, output_per_million=100)


def test_cached_tokens_count_their_weight_and_uncached_ones_themselves() -> None:
    assert cumulative(NEVER, 0.1) == pytest.approx([1000, 1200])
    assert cumulative(NEVER, 0.0) == [1000, 1100]
    assert cumulative(NEVER, 1.0) == [1000, 2100]


def test_what_a_bar_costs_is_its_condition_less_the_control() -> None:
    found = {
        each.condition: each
        for each in totals(made(never=NEVER, bar=rows("bar", (1050, 0), (150, 1000))), 0.1)
    }
    assert found["bar"].extra_weighed_tokens == pytest.approx(100)
    assert found["bar"].extra_prompt_tokens == found["bar"].extra_rebilled_tokens == 100
    assert found["never"].extra_weighed_tokens is None, "a control has nothing to be dearer than"


def test_money_by_hand() -> None:
    sums = totals(made(never=NEVER, bar=rows("bar", (1050, 0), (150, 1000))), 0.1)
    never, bar = money(sums, [NamedPrice("dollars", "2026-01-02", DOLLARS)])
    # 1,100 uncached at 10 and 1,000 cached at 1 per million; 20 tokens of replies at 100.
    assert never["input_cost"] == pytest.approx(0.011 + 0.001)
    assert never["output_cost"] == pytest.approx(0.002)
    assert never["cost"] == pytest.approx(0.014)
    assert bar["input_cost"] == pytest.approx(0.013)
    assert bar["extra_input_cost"] == pytest.approx(0.001)
    assert never["extra_input_cost"] is None
    assert (bar["price"], bar["as_of"], bar["currency"]) == ("dollars", "2026-01-02", "USD")


def test_without_a_price_for_cached_tokens_they_cost_what_others_cost() -> None:
    full = Price(currency="USD", input_per_million=10, output_per_million=100)
    never = money(totals(made(never=NEVER), 0.1), [NamedPrice("full", "", full)])[0]
    assert never["input_cost"] == pytest.approx(0.021)
    assert NamedPrice("full", "", full).weight == 1.0


@pytest.mark.parametrize("price", [Price(), Price(currency="USD", per_hour=2)])
def test_an_unknown_price_gives_no_amount_and_never_zero(price: Price) -> None:
    for row in money(
        totals(made(never=NEVER, bar=rows("bar", (1, 1), (1, 1))), 0.1), [NamedPrice("nobody", "", price)]
    ):
        assert {row[key] for key in ("input_cost", "extra_input_cost", "output_cost", "cost")} == {None}
    assert NamedPrice("nobody", "", price).weight is None


def test_a_reply_of_unknown_length_leaves_the_prompts_cost_known() -> None:
    lost = [*NEVER[:-1], replace(NEVER[-1], output_tokens=None)]
    row = money(totals(made(never=lost), 0.1), [NamedPrice("dollars", "", DOLLARS)])[0]
    assert row["input_cost"] == pytest.approx(0.012)
    assert row["output_cost"] is None and row["cost"] is None


# -- copies that are shown ---------------------------------------------------------------------------------


def test_a_standing_copy_counts_as_shown_only_where_the_bar_has_something_to_say() -> None:
    standing = {"drawn": True, "copies": 1, "up_to_date": True}
    outdated = {"drawn": True, "copies": 1, "up_to_date": False}
    silent, hidden = {"copies": 1, "up_to_date": None}, {"drawn": True}
    kinds = [hidden, standing, outdated, outdated, silent, silent, silent, {}]
    given = [replace(row, **kind) for row, kind in zip(rows("bar", *[(1, 0)] * 8), kinds, strict=True)]
    (found,) = totals(made(bar=given), 0.1)
    assert (found.drawn, found.shown, found.outdated, found.left_over) == (4, 3, 2, 3)


# -- crossings --------------------------------------------------------------------------------------------


def crossed(a: list[tuple[int, int]], b: list[tuple[int, int]], weight: float = 0.1) -> tuple[object, ...]:
    bill = made(replace=rows("replace", *a), append=rows("append", *b))
    found = crossing(bill, "replace", "append", weight, "b")
    return found.dearer, found.since, found.turns, found.sentence


def test_the_request_at_which_append_becomes_dearer() -> None:
    a = [(100, 0)] * 4
    b = [(90, 0), (90, 0), (130, 0), (130, 0)]  # 90, 180, 310, 440 against 100, 200, 300, 400
    assert crossed(a, b) == ("append", 3, 1, "append becomes dearer than replace at request 3 (b)")


def test_the_weight_of_cached_tokens_moves_the_crossing() -> None:
    a, b = [(50, 0)] * 5, [(10, 100), (10, 300), (10, 500), (10, 700), (10, 900)]
    assert crossed(a, b, 0.1)[:2] == ("append", 5)
    assert crossed(a, b, 0.25)[:2] == ("append", 2)
    assert crossed(a, b, 0.0)[:3] == ("replace", 1, 0)


def test_where_the_order_never_turns_there_is_no_crossing() -> None:
    told = "no crossover within 2 requests: the same up to request 1, from request 2 on append is dearer than replace (b)"
    assert crossed([(10, 0), (10, 0)], [(10, 0), (11, 0)]) == ("append", 2, 0, told)
    told = "no crossover within 4 requests: the same up to request 2, from request 3 on append is dearer than replace (b)"
    assert crossed([(10, 0)] * 4, [(10, 0), (10, 0), (11, 0), (10, 0)]) == ("append", 3, 0, told)
    told = "no crossover within 2 requests: at every request replace is dearer than append (b)"
    assert crossed([(12, 0), (10, 0)], [(10, 0), (11, 0)]) == ("replace", 1, 0, told)


def test_bills_that_are_even_at_the_end_have_no_dearer_one() -> None:
    same = [(10, 5), (10, 5)]
    assert crossed(same, same) == (None, None, 0, "append and replace cost the same after 2 requests (b)")
    assert crossed([(10, 0), (10, 0)], [(12, 0), (8, 0)])[:2] == (None, None)


def test_bills_that_are_even_in_between_are_said_to_be() -> None:
    told = (
        "no crossover within 3 requests: at every request append is dearer than replace, but for 1 at which they are "
        "even (b)"
    )
    assert crossed([(10, 0), (12, 0), (10, 0)], [(12, 0), (10, 0), (11, 0)]) == ("append", 1, 0, told)
    told = "append becomes dearer than replace at request 2, but for 1 at which they are even (b)"
    a, b = [(10, 0), (10, 0), (12, 0), (10, 0)], [(9, 0), (12, 0), (11, 0), (11, 0)]
    assert crossed(a, b) == ("append", 2, 1, told)
    told = "append becomes dearer than replace at request 3 (b)"
    assert crossed([(10, 0)] * 3, [(9, 0), (11, 0), (11, 0)]) == ("append", 3, 1, told), (
        "even before it turned"
    )


def test_several_turns_are_counted() -> None:
    told = "append becomes dearer than replace at request 3, after the order turned 2 times (b)"
    assert crossed([(10, 0), (20, 0), (10, 0)], [(11, 0), (10, 0), (40, 0)]) == ("append", 3, 2, told)


def test_every_known_price_has_its_own_weight() -> None:
    named = [NamedPrice("tenth", "", DOLLARS), NamedPrice("unknown", "", Price())]
    assert list(price_bases(0.5, named).values()) == [0.5, 0.1]
