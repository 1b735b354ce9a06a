"""What keeps a copy out, what a copy is held against, and how long a placebo is at a place that spells it otherwise."""

from collections.abc import Sequence

import pytest
from core_samples import words
from hypothesis import given
from hypothesis import strategies as st
from test_delivery import BARS, bar_of, example

from harness.conditions import Condition, apply, unfold
from harness.delivery import _Seen
from harness.errors import ConfoundError
from harness.prompt import render_arms
from harness.statusbar import AgentStatus, LastResult, OwnAction, Placebo, Tail
from harness.statusbar.base import moment_of
from harness.statusbar.environment_details import EnvironmentDetails, EnvironmentDifference
from harness.statusbar.placements import Both, PrintedTokens
from harness.statusbar.policies import Append, Replace
from harness.template import ChatTemplate
from harness.types import Message

PIECES = st.sampled_from(("a", "b", "\n", "<t>", " "))
TEXTS = st.lists(PIECES, min_size=1, max_size=5).map("".join)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=8))
def test_looking_at_each_message_once_finds_what_reading_all_of_them_finds(
    steps: Sequence[tuple[str, str]],
) -> None:
    seen, base, said = _Seen(len), [], []  # type: ignore[var-annotated]
    for content, text in steps:
        base.append(Message("user", content))
        assert seen.says(base, text) == any(text in message.content for message in base)
        assert seen.tokens(base, said, text) == sum(map(len, (*(m.content for m in base), *said, text)))
        said.append(text)


def test_a_difference_is_held_against_copies_that_stay_and_never_against_the_one_taken_out() -> None:
    bar = EnvironmentDifference()
    kept = [len(d.injections) for d in unfold(example(), Condition("d", bar, Tail(), Append()), words)]
    assert kept[-1] > 1 and "Changed:" in str(
        apply(example(), Condition("d", bar, Tail(), Append()), words).bar
    )
    whole = EnvironmentDetails()
    for each, other in zip(
        unfold(example(), Condition("d", bar, Tail(), Replace()), words),
        unfold(example(), Condition("w", whole, Tail(), Replace()), words),
        strict=True,
    ):
        assert each.messages == other.messages


@pytest.mark.parametrize("name", BARS)
@pytest.mark.parametrize("place", [OwnAction(), Both()], ids=lambda place: place.name)
def test_every_bar_and_its_placebo_are_equally_long_copy_by_copy_also_where_they_are_spelt_as_json(
    place: OwnAction | Both, name: str, qwen: ChatTemplate
) -> None:
    """As the agent's own action the text stands in a call's arguments. `render_arms` refuses other lengths."""
    bar = bar_of(name)
    arms = [Condition(str(i), each, place, Append()) for i, each in enumerate((bar, Placebo(bar)))]
    try:
        made = render_arms(qwen, example(), arms)
    except ConfoundError as error:  # in two places at once, under parallel calls
        assert "of several calls made at once" in str(error)
        assert isinstance(place, Both) and moment_of(bar) != "request"
        return
    assert abs(made["0"].prompt.bar_tokens - made["1"].prompt.bar_tokens) <= 1
    assert made["0"].bar_text != made["1"].bar_text
    assert len(list(unfold(example(), arms[0], words))[-1].injections) >= 1


def test_a_text_counts_as_it_is_spelt_once_per_spelling() -> None:
    text = 'a "b"\nc'
    assert (
        PrintedTokens(len, Tail())(text) == PrintedTokens(len, Both(LastResult(), Tail()))(text) == len(text)
    )
    assert PrintedTokens(len, OwnAction())(text) == len(text) + 3
    assert PrintedTokens(len, Both(Tail(), OwnAction()))(text) == 2 * len(text) + 3
    assert PrintedTokens(len, OwnAction()) == PrintedTokens(len, OwnAction()), "lengths are remembered by it"


def test_moments_are_those_of_the_bar_that_is_stood_in_for() -> None:
    assert moment_of(Placebo(AgentStatus())) == "request"
