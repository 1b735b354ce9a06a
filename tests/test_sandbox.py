"""Scenario templates render what they should and nothing that could run away."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import TemplateError
from harness.sandbox import MAX_OUTPUT, MAX_TEMPLATE, render, used_names

WHERE = "file.yaml:3: pools.closings[0]"


def test_variables_conditions_and_filters_render() -> None:
    template = (
        "{% if topic == 'a fee' %}{{ merchant|upper }}{% else %}none{% endif %}: {{ topic|capitalize }}"
    )
    assert render(template, {"topic": "a fee", "merchant": "Xfinity"}, where=WHERE) == "XFINITY: A fee"


@given(st.text(alphabet=st.characters(exclude_characters="{}\r", exclude_categories=("Cs",)), max_size=200))
def test_text_without_braces_comes_back_unchanged(text: str) -> None:
    assert render(text, {}, where=WHERE) == text


@given(st.text(max_size=100))
def test_a_value_is_never_read_as_a_template(value: str) -> None:
    assert render("{{ merchant }}", {"merchant": value}, where=WHERE) == value


def test_a_value_that_looks_like_a_template_stays_text() -> None:
    assert render("{{ merchant }}", {"merchant": "{{ 7 * 7 }}"}, where=WHERE) == "{{ 7 * 7 }}"


RUNAWAYS = {
    "endless loop": "{% for i in range(10**9) %}x{% endfor %}",
    "nested loops": "{% for i in 'ab' %}{% for j in 'ab' %}x{% endfor %}{% endfor %}",
    "huge string": "{{ 'a' * 10**9 }}",
    "huge power": "{{ 9 ** 9 ** 9 }}",
    "doubling": "{% set a = 'aaaa' %}" + "{% set a = a ~ a %}" * 40 + "{{ a }}",
    "namespace": "{% set n = namespace(x='a') %}{{ n.x }}",
    "wide format": "{{ '%1000000000d'|format(1) }}",
    "centred": "{{ merchant|center(1000000000) }}",
    "joined": "{{ merchant ~ merchant }}",
    "recursive macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "include": "{% include 'other' %}",
    "import": "{% import 'other' as o %}",
    "extends": "{% extends 'other' %}",
    "attribute": "{{ merchant.__class__ }}",
    "item": "{{ merchant['x'] }}",
    "method": "{{ merchant.format(1) }}",
    "global": "{{ lipsum(n=1000) }}",
    "deep brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "deep lists": "{{ " + "[" * 60 + "]" * 60 + " }}",
    "deep ifs": "{% if merchant %}" * 200 + "x" + "{% endif %}" * 200,
    "long condition": "{{ " + "merchant and " * 300 + "merchant }}",
    "long number": "{{ " + "9" * 6000 + " }}",
}


@pytest.mark.parametrize("template", RUNAWAYS.values(), ids=RUNAWAYS.keys())
def test_what_could_run_away_is_refused_at_once_in_one_line(template: str) -> None:
    start = time.perf_counter()
    with pytest.raises(TemplateError) as caught:
        render(template, {"merchant": "Xfinity"}, where=WHERE)
    assert time.perf_counter() - start < 1
    assert str(caught.value).startswith(WHERE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("template", ["{{ nobody }}", "{% if false %}{{ nobody }}{% endif %}", "{{ range }}"])
def test_an_unknown_variable_is_refused_in_every_branch_and_the_known_ones_are_named(template: str) -> None:
    with pytest.raises(TemplateError, match=r"unknown variable.*merchant, topic"):
        render(template, {"merchant": "Xfinity", "topic": "a fee"}, where=WHERE)


def test_broken_syntax_names_place_and_template_line() -> None:
    with pytest.raises(TemplateError, match=r"closings\[0\]: template line 2"):
        render("fine\n{{ merchant", {"merchant": "x"}, where=WHERE)


def test_a_filter_with_wrong_arguments_is_a_template_error() -> None:
    with pytest.raises(TemplateError, match="the template fails"):
        render("{{ merchant|upper(1, 2, 3) }}", {"merchant": "x"}, where=WHERE)


def test_template_and_output_length_are_bounded() -> None:
    with pytest.raises(TemplateError, match="longer than"):
        render("x" * (MAX_TEMPLATE + 1), {}, where=WHERE)
    with pytest.raises(TemplateError, match="grows beyond"):
        render("{{ a }}{{ a }}", {"a": "x" * (MAX_OUTPUT - 1)}, where=WHERE)


def test_used_names_sees_every_branch() -> None:
    names = used_names("{% if a %}{{ b }}{% else %}{{ c|upper }}{% endif %}", where=WHERE)
    assert names == {"a", "b", "c"}
