"""The length sweep: a limit that moves along with the calls, and small talk up to a long context."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from core_samples import arms, words
from core_tokens import tiny_template
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dataset import COUNTING, called, counted, pairs

from harness.conditions import apply
from harness.dataset import expand, load_scenario
from harness.dataset.series import MOVED_CALLS
from harness.errors import ConfigError, ConfoundError, ScenarioError
from harness.prompt import render_arms
from harness.template import ChatTemplate
from harness.types import Sample

SCENARIOS = Path(__file__).parent.parent / "scenarios"
LENGTH = load_scenario(SCENARIOS / "xfinity_length.yaml")
XFINITY = load_scenario(SCENARIOS / "xfinity.yaml")
seeds = st.integers(min_value=0, max_value=2**32)


def moved(seed: int = 7, clusters: int = 1, prior_calls: list[int] | None = None) -> list[Sample]:
    return expand(LENGTH, series="moved_limit", clusters=clusters, seed=seed, prior_calls=prior_calls)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_the_sides_differ_in_the_limit_alone(seed: int) -> None:
    """Same calls, same follow-up, same target: what forbids or allows is the number in the rule."""
    for forbidden, due in pairs(moved(seed, clusters=2)):
        n = forbidden.prior_calls
        assert (forbidden.limit, due.limit, due.prior_calls) == (n, n + 1, n)
        assert (forbidden.expectation.side, due.expectation.side) == ("forbidden", "due")
        assert forbidden.messages[1:] == due.messages[1:]
        told = forbidden.messages[0].content
        assert told == LENGTH.system(n) and due.messages[0].content == LENGTH.system(n + 1)
        assert f"at most {n} time" in told
        as_due = replace(
            forbidden,
            id=due.id,
            limit=n + 1,
            rules=(replace(forbidden.rules[0], limit=n + 1),),
            messages=(due.messages[0], *forbidden.messages[1:]),
            expectation=replace(forbidden.expectation, side="due"),
        )
        assert as_due == due


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_the_truth_is_what_the_messages_hold_and_no_text_repeats(seed: int) -> None:
    for sample in moved(seed):
        other = sample.expectation.others[0]
        assert sample.truth == counted(sample.messages)
        assert sample.truth["phone_call"] == {other: 1, sample.expectation.target: sample.prior_calls}
        assert sample.expectation.target in sample.messages[-1].content
        assert called(sample)[0] == other
        results = [m.content for m in sample.messages if m.role == "tool"]
        asked = [str(c.arguments) for m in sample.messages for c in m.tool_calls]
        assert len(set(results)) == len(results) and len(set(asked)) == len(asked)


def test_a_longer_transcript_extends_the_shorter_one_up_to_its_closing() -> None:
    for one, other in pairwise(moved(prior_calls=[1, 2, 7, 20])[::2]):
        body = one.messages[1:-2]
        assert other.messages[1 : 1 + len(body)] == body
        assert other.messages[-1] == one.messages[-1]


def test_ids_say_calls_and_side_and_the_default_goes_up_to_twenty() -> None:
    found = moved()
    assert [s.id for s in found[:2]] == [
        "xfinity_length/moved_limit/c000/n1/forbidden",
        "xfinity_length/moved_limit/c000/n1/due",
    ]
    assert [s.prior_calls for s in found[::2]] == list(MOVED_CALLS) and MOVED_CALLS[-1] == 20
    assert {s.cluster for s in found} == {"moved_limit/c000"}


def test_asking_for_other_numbers_changes_no_sample() -> None:
    known = {s.id: s for s in moved(clusters=2)}
    assert all(known[s.id] == s for s in moved(clusters=2, prior_calls=[20, 3]))
    assert moved(clusters=3)[: len(known)] == list(known.values())


def test_a_system_prompt_that_states_a_fixed_limit_cannot_move_it() -> None:
    with pytest.raises(
        ScenarioError, match=r"xfinity\.yaml: system: states the same for limits 2 and 3.*\{\{ limit"
    ):
        expand(XFINITY, series="moved_limit", clusters=1, seed=0, prior_calls=[2])


def test_more_calls_than_there_are_texts_is_one_clear_line() -> None:
    with pytest.raises(
        ScenarioError, match=r"pools\.(results|purposes): an episode needs \d+ different texts"
    ):
        moved(prior_calls=[40])


@pytest.mark.parametrize("calls", [[], [0], [3, 3]])
def test_numbers_that_do_not_fit_are_one_clear_line(calls: list[int]) -> None:
    with pytest.raises(ConfigError, match="one or more different numbers, each 1 or more"):
        moved(prior_calls=calls)


# --- bars --------------------------------------------------------------------------------------------


def test_every_bar_follows_the_moved_limit() -> None:
    status, mismatched = arms()[3], arms()[2]
    for sample in moved(prior_calls=[1, 5, 20]):
        n, limit, target = sample.prior_calls, sample.limit, sample.expectation.target
        stands = f"maximum reached ({n}/{n})" if limit == n else f"1 call left ({n}/{n + 1})"
        for condition, name in ((status, target), (mismatched, sample.decoys[1])):
            bar = apply(sample, condition, words).bar
            assert bar is not None
            assert f"at most {limit} time{'s' if limit > 1 else ''} per merchant" in bar.text
            assert f"{name}: {stands}" in bar.text
        assert target not in apply(sample, mismatched, words).bar.text  # type: ignore[union-attr]


def check_arms(template: ChatTemplate) -> None:
    for sample in moved(prior_calls=[1, 5, 20]):
        found = render_arms(template, sample, arms())
        assert found["placebo"].prompt.bar_tokens == found["agent_status"].prompt.bar_tokens
        assert found["control"].messages == sample.messages
        for name, arm in found.items():
            assert (arm.bar_text in "".join(m.content for m in arm.messages)) and (
                arm.messages != sample.messages or name == "control"
            )


def test_on_a_made_up_tokenizer_every_arm_of_both_sides_is_proved() -> None:
    check_arms(tiny_template())


@pytest.mark.weights
def test_on_the_real_template_every_arm_of_both_sides_is_proved(qwen: ChatTemplate) -> None:
    check_arms(qwen)


# --- the shipped scenario ----------------------------------------------------------------------------


def test_the_length_scenario_differs_from_its_base_in_what_the_sweep_needs_alone() -> None:
    assert LENGTH.system(3) == XFINITY.spec.system
    assert (LENGTH.tools, LENGTH.rules) == (XFINITY.tools, XFINITY.rules)
    mine, base = LENGTH.spec.pools, XFINITY.spec.pools
    grown = {"results", "purposes", "fillers"}
    assert mine.model_dump(exclude=grown) == base.model_dump(exclude=grown)
    for pool in grown:
        assert getattr(mine, pool)[: len(getattr(base, pool))] == getattr(base, pool)


def test_its_texts_suffice_for_twenty_calls_and_some_more() -> None:
    assert len(LENGTH.spec.pools.results) >= 21 + 5 and len(LENGTH.spec.pools.purposes) >= 21 + 5


def test_its_texts_hold_no_number_and_no_word_about_limits_or_calls() -> None:
    pools = LENGTH.spec.pools
    texts = [t for r in pools.results for t in (r.text, r.gist)] + list(pools.purposes)
    texts += [t for f in pools.fillers for t in (f.user, f.assistant)]
    assert {text: match.group() for text in texts if (match := COUNTING.search(text))} == {}


@pytest.mark.weights
def test_small_talk_comes_once_up_to_eight_thousand_tokens_and_at_most_twice_at_sixteen(
    qwen: ChatTemplate,
) -> None:
    """A text that stands in the context already can be copied instead of read."""
    for tokens, most in ((8000, 1), (16000, 2)):
        forbidden, due = expand(
            LENGTH, series="filler", clusters=1, seed=7, filler_tokens=(tokens,), count_tokens=qwen.count
        )
        start = expand(LENGTH, series="filler", clusters=1, seed=7)[0]
        talk = forbidden.messages[1 : 1 + len(forbidden.messages) - len(start.messages)]
        assert tokens <= sum(qwen.count(m.content) for m in talk) < tokens + 150
        assert max(Counter(m.content for m in talk).values()) == most
        assert due.messages[:-1] == forbidden.messages[:-1]


def test_a_bar_that_cannot_be_drawn_for_a_moved_limit_is_still_a_confound() -> None:
    bare = replace(moved(prior_calls=[1])[0], decoys=())
    with pytest.raises(ConfoundError, match="decoys"):
        apply(bare, arms()[2], words)
