"""Prices come from a dated table with a source per line; what is not there or too old is unknown, never 0."""

import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runlog_records import make_record

from harness.budget import Price, cost_of, most_cost
from harness.config_checks import found_price
from harness.errors import ConfigError
from harness.paths import packaged_dir
from harness.prices import NAME, look_up, read_table
from harness.types import Decoding, EvalRecord, ModelUsage, ProviderFacts, RenderedPrompt, Request

GOOD = """currency: USD
prices:
  - {provider: openai, model: gpt-5, input_per_million: 1.25, cached_per_million: 0.125, output_per_million: 10, as_of: 2026-11-01, source: "https://example.com/prices"}
  - {provider: openai, model: gpt-5-mini, aliases: [five-mini], input_per_million: 0.25, output_per_million: 2, as_of: 2026-01-01, source: "https://example.com/prices"}
  - {provider: anthropic, model: claude-x, input_per_million: 3, cache_written_per_million: 3.75, output_per_million: 15, as_of: 2026-11-01, source: a letter}
"""  # noqa: E501
TODAY = date(2026, 12, 1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(GOOD)
    return path


def found(
    table: Path, provider: str, model: str, *, age: int = 120, confirmed: bool = False
) -> tuple[Price | None, str]:
    told = look_up(str(table), provider, model, today=TODAY, max_age_days=age, confirmed=confirmed)
    return told.price, told.why


def test_a_model_is_found_by_its_name_its_alias_and_its_dated_name(table: Path) -> None:
    for name in ("gpt-5", "gpt-5-2025-08-07", "gpt-5-latest"):
        price, _ = found(table, "openai", name)
        assert price is not None and price.input_per_million == 1.25 and price.cached_per_million == 0.125
    price, _ = found(table, "openai", "five-mini", confirmed=True)
    assert price is not None and price.output_per_million == 2
    price, _ = found(table, "anthropic", "claude-x-20260514")
    assert price is not None and price.cache_written_per_million == 3.75
    assert (price.as_of, price.source, price.currency) == ("2026-11-01", "a letter", "USD")


def test_a_snapshot_with_a_line_of_its_own_does_not_take_its_models_price(table: Path) -> None:
    own = "  - {provider: openai, model: gpt-5-2025-08-07, input_per_million: 9, output_per_million: 99, as_of: 2026-11-01, source: s}\n"  # noqa: E501
    table.write_text(GOOD + own)
    for name, amount in (("gpt-5-2025-08-07", 9), ("gpt-5-2025-08-08", 1.25), ("gpt-5", 1.25)):
        price, _ = found(table, "openai", name)
        assert price is not None and price.input_per_million == amount


NAMES = st.sampled_from(
    ["gpt-5", "gpt-5-mini", "five-mini", "2025", "-08-07", "-20250514", "-latest", "-pro", "-", "x"]
)


@given(st.lists(NAMES, min_size=1, max_size=4).map("".join))
def test_only_a_listed_name_and_that_name_with_one_date_are_ever_found(name: str) -> None:
    listed = {"gpt-5": 1.25, "gpt-5-mini": 0.25, "five-mini": 0.25}
    dates = ("", "-20250514", "-2025-08-07", "-latest")
    expected = {f"{base}{date}": amount for base, amount in listed.items() for date in dates}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_text(GOOD)
        price, why = found(path, "openai", name, confirmed=True)
    assert (price.input_per_million if price else None) == expected.get(name)
    assert bool(why) is (price is None)


@pytest.mark.parametrize(
    "name",
    [
        "gpt-5-pro",
        "gpt-5.1",
        "gpt",
        "gpt-5-mini-turbo",
        "gpt-52025-08-07",
        "gpt-5-08-07",
        "gpt-5-2025-0807",
        "",
    ],
)
def test_a_model_is_never_taken_for_one_whose_name_it_begins_with(table: Path, name: str) -> None:
    price, why = found(table, "openai", name)
    assert price is None and "no price of openai's" in why and "model.price" in why


def test_a_model_of_another_provider_has_no_price(table: Path) -> None:
    assert found(table, "openrouter", "gpt-5")[0] is None


def test_an_old_line_is_refused_with_its_date_and_source_unless_somebody_confirms_it(table: Path) -> None:
    price, why = found(table, "openai", "gpt-5-mini")
    assert price is None
    assert (
        "2026-01-01" in why
        and "334 days" in why
        and "https://example.com/prices" in why
        and "prices.confirmed=true" in why
        and "prices.file=" in why
        and "model.price" in why
    )
    assert f"{table}:4" in why
    assert found(table, "openai", "gpt-5-mini", confirmed=True)[0] is not None
    assert found(table, "openai", "gpt-5-mini", age=334)[0] is not None
    assert found(table, "openai", "gpt-5-mini", age=333)[0] is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("currency: USD", "currency: 3", "currency"),
        ("currency: USD\n", "", "currency and prices"),
        ("as_of: 2026-11-01", "as_of: November", r":3: prices\[0\].as_of: expected a day"),
        ("as_of: 2026-11-01", "as_of: 2027-11-01", "is in the future"),
        (
            "input_per_million: 1.25",
            "input_per_million: -1",
            r"prices\[0\].input_per_million: expected an amount",
        ),
        ("input_per_million: 1.25", "input_per_million: true", "expected an amount"),
        ("input_per_million: 1.25", "input_per_million: null", "expected an amount"),
        ("input_per_million: 1.25", "input_per_million: .inf", "expected an amount"),
        ("cached_per_million: 0.125", "cached_per_million: .nan", r"cached_per_million: expected an amount"),
        ("output_per_million: 10,", f"output_per_million: 1{'0' * 400},", "expected an amount"),
        ("source: a letter", "source: a letter, note: 3", "note: expected a text"),
        ("as_of: 2026-11-01", "as_of: 20261101", "as_of: expected a day"),
        ("as_of: 2026-11-01", "as_of: 2026-W45-1", "as_of: expected a day"),
        ("as_of: 2026-11-01", "as_of: 2026-11-01T10:00:00", "as_of: expected a day"),
        ("input_per_million: 1.25, ", "", "input_per_million is missing"),
        ("source: a letter", "source: ''", "source: expected a text"),
        ("source: a letter", "sauce: a letter", "sauce: unknown key"),
        ("aliases: [five-mini]", "aliases: five-mini", "aliases: expected a list"),
        ("aliases: [five-mini]", "aliases: [gpt-5]", "gpt-5 has a price already, at .*:3"),
        ("prices:\n", "x: 7\nprices:\n", ":2: x: unknown key; expected currency and prices"),
        ("currency", "\tcurrency", "prices.yaml:1"),
    ],
)
def test_a_mistake_in_a_table_is_one_line_with_file_line_and_key(
    table: Path, old: str, new: str, said: str
) -> None:
    table.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError, match=said) as caught:
        found(table, "openai", "gpt-5")
    assert str(table) in str(caught.value) and "\n" not in str(caught.value)


def test_the_packaged_table_is_valid_and_every_line_says_since_when_and_by_whom() -> None:
    lines = read_table(packaged_dir("conf") / NAME)
    assert {line.provider for line in lines} == {"openai", "anthropic", "gemini"}
    for line in lines:
        assert line.price.source and line.price.source.startswith("https://") and line.as_of <= date.today()
        assert (line.price.cached_per_million or 0) < (line.price.input_per_million or 0)


@pytest.mark.parametrize(
    ("model", "address", "known"),
    [
        ("openai", None, True), ("anthropic", None, True), ("gemini", None, True),
        ("openai", "http://localhost:8000/v1", False), ("openrouter", None, False),
    ],
)  # fmt: skip
def test_a_server_of_ones_own_has_no_vendors_price(model: str, address: str | None, known: bool) -> None:
    from harness.compose import compose

    given = [
        f"model={model}",
        "prices.confirmed=true",
        *([f"model.api.address={address}"] if address else []),
    ]
    config = compose(given)
    assert config.model.price.known is known
    if not known:
        assert found_price(config).why
    assert compose(given).digested() == compose([*given, "prices.max_age_days=5000"]).digested()


def test_a_cap_on_money_needs_a_price_that_may_be_used() -> None:
    from harness.compose import compose

    with pytest.raises(ConfigError, match=r"max_spend=5: .*prices\.confirmed=true"):
        compose(["model=openai", "max_spend=5"])
    assert compose(["model=openai", "max_spend=5", "prices.confirmed=true"]).model.price.known


# -- what tokens cost ------------------------------------------------------------------------------------

AMOUNTS = st.floats(0, 100, allow_nan=False)
COUNTS = st.integers(0, 10**6)


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_no_request_costs_more_than_the_most_that_is_set_aside_for_it(
    plain: float,
    cached: float,
    written: float,
    output: float,
    prompt: int,
    from_cache: int,
    to_cache: int,
    replied: int,
) -> None:
    price = Price(
        currency="USD",
        input_per_million=plain,
        cached_per_million=min(cached, plain),
        cache_written_per_million=written,
        output_per_million=output,
    )
    cost = price.of_tokens(prompt, min(from_cache, prompt), replied, min(to_cache, prompt))
    assert cost is not None and 0 <= cost <= price.most_of(prompt, replied) * (1 + 1e-9) + 1e-12


def test_cached_and_written_tokens_have_their_own_prices() -> None:
    price = Price(
        currency="USD",
        input_per_million=3,
        cached_per_million=0.3,
        cache_written_per_million=3.75,
        output_per_million=15,
    )
    assert price.of_tokens(1000, 600, 100, 200) == pytest.approx(
        (200 * 3 + 600 * 0.3 + 200 * 3.75 + 100 * 15) / 1e6
    )
    assert price.of_tokens(1000, None, 100, None) == pytest.approx((1000 * 3 + 100 * 15) / 1e6)
    assert price.of_tokens(1000, 600, None, 200) is None


def test_of_cells_that_have_not_run_the_most_counts_the_price_of_storing_their_prompts() -> None:
    prompt = RenderedPrompt(tuple(range(1000)), "", (), "", "")
    request = Request(cell_id="c", probe="act", prompt=prompt, decoding=Decoding(50), seed=1)
    assert most_cost([request, request], CACHING) == pytest.approx(2 * (1000 * 3.75 + 50 * 15) / 1e6)


CACHING = Price(
    currency="USD",
    input_per_million=3,
    cached_per_million=0.3,
    cache_written_per_million=3.75,
    output_per_million=15,
)


def asked(facts: ProviderFacts, *, failed: bool = False, **usage: int | None) -> EvalRecord:
    """A cell of `act` at a provider, with at most 50 new tokens. By the reference tokenizer its prompt has 900."""
    made = make_record(0)
    counted = ModelUsage(prompt_tokens=900, **({"completion_tokens": None} | usage))
    reason = "error" if failed else "stop"
    output = replace(made.output, usage=counted, provider=facts, finish_reason=reason)
    return replace(made, decoding=Decoding(50), output=output)


ANSWERED: dict[str, int | None] = {
    "reported_prompt_tokens": 1000, "cached_tokens": 600, "cache_written_tokens": 200, "completion_tokens": 40,
}  # fmt: skip
ANSWER = 200 * 3 + 600 * 0.3 + 200 * 3.75 + 40 * 15


def test_an_answered_request_costs_what_the_provider_counted() -> None:
    assert cost_of(asked(ProviderFacts(), **ANSWERED), CACHING) == pytest.approx(ANSWER / 1e6)


def test_tries_that_were_refused_cost_nothing_and_those_that_broke_off_the_most_that_they_can() -> None:
    one = asked(ProviderFacts(tries=4), **ANSWERED)
    assert cost_of(one, CACHING) == pytest.approx(ANSWER / 1e6)
    broken = asked(ProviderFacts(tries=4, broken=2), **ANSWERED)
    assert cost_of(broken, CACHING) == pytest.approx((ANSWER + 2 * (1000 * 3.75 + 50 * 15)) / 1e6)


def test_of_a_cell_of_draws_a_broken_try_costs_as_much_prompt_as_one_draw() -> None:
    drawn = asked(
        ProviderFacts(requests=4, tries=5, broken=1), reported_prompt_tokens=4000, completion_tokens=80
    )
    assert cost_of(drawn, CACHING) == pytest.approx((4000 * 3 + 80 * 15 + 1000 * 3.75 + 50 * 15) / 1e6)


def test_a_failed_cell_costs_its_broken_tries_and_the_draws_that_were_answered_before() -> None:
    nothing = asked(ProviderFacts(requests=0, tries=7), failed=True)
    assert cost_of(nothing, CACHING) == 0
    torn = asked(ProviderFacts(requests=0, tries=7, broken=3), failed=True)
    assert cost_of(torn, CACHING) == pytest.approx(3 * (900 * 3.75 + 50 * 15) / 1e6)
    drawn = asked(ProviderFacts(requests=1, tries=3), failed=True, **ANSWERED)
    assert cost_of(drawn, CACHING) == pytest.approx(ANSWER / 1e6)


@pytest.mark.parametrize("lost", ["reported_prompt_tokens", "completion_tokens"])
def test_what_the_provider_did_not_count_has_no_known_cost(lost: str) -> None:
    assert cost_of(asked(ProviderFacts(), **(ANSWERED | {lost: None})), CACHING) is None
    assert (
        cost_of(asked(ProviderFacts(), **(ANSWERED | {lost: None})), Price(currency="USD", per_hour=2)) == 0
    )


def test_a_manifest_keeps_the_keys_that_it_always_had() -> None:
    plain = Price(currency="USD", input_per_million=1, output_per_million=2)
    assert set(plain.stated()) == {
        "currency",
        "input_per_million",
        "cached_per_million",
        "output_per_million",
        "per_hour",
    }
    dated = Price(currency="USD", input_per_million=1, output_per_million=2, as_of="2026-01-01", source="s")
    assert dated.stated()["as_of"] == "2026-01-01"
