"""Probabilities of choices, read off the tokens of one forced call."""

import math

import pytest

from harness.models.api.base import Answer, ApiUsage, Block, TokenChances
from harness.models.api.chances import FLOOR, chances_of

LABELS = ["phone_call:Comcast", "phone_call:Xfinity", "reply"]


def ln(p: float) -> float:
    return math.log(p)


def tokens(*given: tuple[str, float, dict[str, float]]) -> tuple[TokenChances, ...]:
    return tuple(
        TokenChances(text, ln(p), {k: ln(v) for k, v in {text: p, **others}.items()})
        for text, p, others in given
    )


def answer(name: str, arguments: str, chances: tuple[TokenChances, ...]) -> Answer:
    return Answer((Block("call", arguments, name),), "stop", "stop", ApiUsage(), 1.0, chances=chances)


CALLED = tokens(
    ('{"name": "', 1.0, {}),
    ("phone", 0.7, {"reply": 0.25, "re": 0.01}),
    ("_call", 0.99, {}),
    ('", "arguments": {"merchant": "', 1.0, {}),
    ("X", 0.6, {"Com": 0.3, "C": 0.05}),
    ("finity", 0.9, {}),
    ('"', 1.0, {"'s": 0.0001}),
    ("}}", 1.0, {}),
)


def test_the_drawn_choice_has_the_product_of_its_tokens() -> None:
    told = chances_of(answer("phone_call", '{"merchant": "Xfinity"}', CALLED), LABELS)
    assert told is not None
    assert told["phone_call:Xfinity"] == pytest.approx(ln(0.7 * 0.99 * 0.6 * 0.9))


def test_another_value_is_read_where_it_parts_from_the_drawn_one() -> None:
    told = chances_of(answer("phone_call", '{"merchant": "Xfinity"}', CALLED), LABELS)
    assert told is not None
    assert told["phone_call:Comcast"] == pytest.approx(ln(0.7 * 0.99 * (0.3 + 0.05)))


def test_another_tool_is_read_at_the_name() -> None:
    told = chances_of(answer("phone_call", '{"merchant": "Xfinity"}', CALLED), LABELS)
    assert told is not None
    assert told["reply"] == pytest.approx(ln(0.25 + 0.01))


def test_a_choice_that_is_not_among_the_likeliest_gets_the_floor() -> None:
    rare = tokens(
        ('{"name": "', 1.0, {}), ("reply", 0.999, {"search": 0.001}), ('", "arguments": {}}', 1.0, {})
    )
    told = chances_of(answer("reply", "{}", rare), ["phone_call:Xfinity", "reply"])
    assert told is not None
    assert told["phone_call:Xfinity"] == pytest.approx(FLOOR)


def test_two_choices_that_part_from_the_drawn_one_together_are_not_told_apart() -> None:
    replied = tokens(
        ('{"name": "', 1.0, {}), ("reply", 0.6, {"phone": 0.4}), ('", "arguments": {}}', 1.0, {})
    )
    assert chances_of(answer("reply", "{}", replied), LABELS) is None


def test_tokens_that_do_not_hold_the_call_tell_nothing() -> None:
    assert chances_of(answer("reply", "{}", tokens(("Hello", 0.5, {}))), LABELS) is None
    assert chances_of(answer("reply", "{}", ()), LABELS) is None
    assert chances_of(answer("unknown", "{}", CALLED), LABELS) is None
    plain = Answer((Block("text", "Hi"),), "stop", "stop", ApiUsage(), 1.0, chances=CALLED)
    assert chances_of(plain, LABELS) is None


def test_what_every_choice_begins_with_is_forced_and_costs_nothing() -> None:
    """Between two values of one tool the name is no choice."""
    told = chances_of(answer("phone_call", '{"merchant": "Xfinity"}', CALLED), LABELS[:2])
    assert told is not None
    assert told["phone_call:Xfinity"] == pytest.approx(ln(0.6 * 0.9))
    assert told["phone_call:Comcast"] == pytest.approx(ln(0.35))
