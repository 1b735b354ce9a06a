"""Prices come from a dated table with a source per line; what is not there or too old is unknown, never 0."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.budget import Price
from harness.config_checks import found_price
from harness.errors import ConfigError
from harness.paths import packaged_dir
from harness.prices import NAME, look_up, read_table

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


@pytest.mark.parametrize("name", ["gpt-5-pro", "gpt-5.1", "gpt", "gpt-5-mini-turbo", "gpt-52025-08-07", ""])
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
        ("input_per_million: 1.25, ", "", "input_per_million is missing"),
        ("source: a letter", "source: ''", "source: expected a text"),
        ("source: a letter", "sauce: a letter", "sauce: unknown key"),
        ("aliases: [five-mini]", "aliases: five-mini", "aliases: expected a list"),
        ("aliases: [five-mini]", "aliases: [gpt-5]", "gpt-5 has a price already, at .*:3"),
        ("prices:\n", "prices: 7\nx:\n", "currency and prices"),
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
