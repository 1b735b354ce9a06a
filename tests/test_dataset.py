"""Episodes: matched where they must match, balanced, nested, and the same in every process."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.dataset import expand, load_scenario
from harness.dataset.episode import call_order, generator, merchant_pair
from harness.dataset.load import Scenario
from harness.errors import ConfigError, ScenarioError
from harness.types import Message, Sample

XFINITY = load_scenario(Path(__file__).parent.parent / "scenarios" / "xfinity.yaml")
POOLS = XFINITY.spec.pools
seeds = st.integers(min_value=0, max_value=2**32)


def words(text: str) -> int:
    return len(text.split())


def counted(messages: tuple[Message, ...]) -> dict[str, dict[str, int]]:
    """Calls per tool and merchant, read from the messages; a tool without a rule counts under ''."""
    out: dict[str, Counter[str]] = {}
    for message in messages:
        for call in message.tool_calls:
            value = call.arguments["merchant"] if call.name == "phone_call" else ""
            out.setdefault(call.name, Counter())[value] += 1
    return {tool: dict(counts) for tool, counts in out.items()}


def everything(messages: tuple[Message, ...]) -> str:
    calls = [str(dict(c.arguments)) for m in messages for c in m.tool_calls]
    return "\n".join([m.content for m in messages] + calls)


def called(sample: Sample) -> list[str]:
    return [c.arguments["merchant"] for m in sample.messages for c in m.tool_calls if c.name == "phone_call"]


def pairs(samples: list[Sample]) -> list[tuple[Sample, Sample]]:
    return list(zip(samples[::2], samples[1::2], strict=True))


def digest(samples: list[Sample]) -> str:
    return hashlib.sha256(repr(samples).encode()).hexdigest()


# --- matched -----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_both_sides_differ_in_the_last_message_alone_and_there_in_the_name_alone(seed: int) -> None:
    for forbidden, due in pairs(expand(XFINITY, series="matched", clusters=8, seed=seed)):
        assert (forbidden.expectation.side, due.expectation.side) == ("forbidden", "due")
        assert forbidden.messages[:-1] == due.messages[:-1]
        assert (forbidden.tools, forbidden.rules, forbidden.truth) == (due.tools, due.rules, due.truth)
        assert (forbidden.phrasing, forbidden.decoys) == (due.phrasing, due.decoys)
        a, b = forbidden.expectation.target, due.expectation.target
        assert forbidden.messages[-1].content.replace(a, b) == due.messages[-1].content
        assert forbidden.messages[-1].role == "user"
        assert (forbidden.expectation.others, due.expectation.others) == ((b,), (a,))


@settings(max_examples=25, deadline=None)
@given(seeds, st.sampled_from(["matched", "prior_calls"]))
def test_the_generators_truth_is_what_the_messages_hold(seed: int, series: str) -> None:
    for sample in expand(XFINITY, series=series, clusters=4, seed=seed):
        assert sample.truth == counted(sample.messages)
        assert sample.truth["phone_call"][sample.expectation.target] == sample.prior_calls


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_one_merchant_is_at_its_limit_and_the_other_one_below(seed: int) -> None:
    for forbidden, due in pairs(expand(XFINITY, series="matched", clusters=4, seed=seed)):
        assert (forbidden.prior_calls, forbidden.limit) == (3, 3)
        assert (due.prior_calls, due.limit) == (2, 3)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_the_follow_up_names_the_target_alone_and_no_decoy_occurs_anywhere(seed: int) -> None:
    for sample in expand(XFINITY, series="matched", clusters=4, seed=seed):
        named = [m for m in POOLS.merchants if m.casefold() in sample.messages[-1].content.casefold()]
        assert named == [sample.expectation.target]
        assert len(set(sample.decoys)) == 2
        text = everything(sample.messages).casefold()
        present = {m for m in POOLS.merchants if m.casefold() in text}
        assert present == {sample.expectation.target, *sample.expectation.others}
        assert not present & set(sample.decoys)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_order_opening_and_phrasing_are_balanced_over_eight_clusters(seed: int) -> None:
    samples = [s for s in expand(XFINITY, series="matched", clusters=8, seed=seed) if s.prior_calls == 3]
    cells = []
    for sample in samples:
        a, b = sample.expectation.target, sample.expectation.others[0]
        order, opening = called(sample), sample.messages[1].content
        cells.append((order[0] == a, order[-1] == a, opening.index(a) < opening.index(b)))
    assert set(Counter(cells).values()) == {1} and len(cells) == 8
    assert Counter(s.phrasing for s in samples) == dict.fromkeys(POOLS.phrasings, 2)


def test_phrasing_strength_is_crossed_with_the_order_of_calls_over_sixteen_clusters() -> None:
    cells = Counter()
    for sample in expand(XFINITY, series="matched", clusters=16, seed=3)[::2]:
        order, a = called(sample), sample.expectation.target
        cells[order[0] == a, order[-1] == a, sample.phrasing] += 1
    assert len(cells) == 16 and set(cells.values()) == {1}


def test_asides_stand_between_calls() -> None:
    for sample in expand(XFINITY, series="matched", clusters=12, seed=5):
        tools = [c.name for m in sample.messages for c in m.tool_calls]
        assert tools[0] == tools[-1] == "phone_call"
        assert tools.count("web_search") == 2


def test_every_call_is_followed_by_its_own_result_and_ids_do_not_count() -> None:
    for sample in expand(XFINITY, series="matched", clusters=4, seed=5):
        body = sample.messages[2:-2]
        ids = []
        for call, result in zip(body[::2], body[1::2], strict=True):
            (made,) = call.tool_calls
            assert (call.role, result.role) == ("assistant", "tool")
            assert (result.tool_call_id, result.name) == (made.id, made.name)
            ids.append(made.id)
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch("[0-9a-f]{9}", i) for i in ids)
        assert [m.role for m in sample.messages[:2]] == ["system", "user"]
        assert [m.role for m in sample.messages[-2:]] == ["assistant", "user"]


def test_the_key_argument_comes_first() -> None:
    sample = expand(XFINITY, series="matched", clusters=1, seed=0)[0]
    calls = [c for m in sample.messages for c in m.tool_calls if c.name == "phone_call"]
    assert all(list(c.arguments) == ["merchant", "purpose"] for c in calls)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_texts_do_not_repeat_within_an_episode(seed: int) -> None:
    for sample in expand(XFINITY, series="prior_calls", clusters=2, seed=seed, prior_calls=[6]):
        results = [m.content for m in sample.messages if m.role == "tool"]
        arguments = [str(sorted(c.arguments.items())) for m in sample.messages for c in m.tool_calls]
        assert len(set(results)) == len(results)
        assert len(set(arguments)) == len(arguments)


def test_ids_and_clusters_are_spelt_as_documented() -> None:
    samples = expand(XFINITY, series="matched", clusters=4, seed=0)
    assert [s.id for s in samples[6:]] == ["xfinity/matched/c003/forbidden", "xfinity/matched/c003/due"]
    assert samples[6].cluster == "matched/c003"


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_the_flagship_pair_is_cluster_zero_whatever_the_seed(seed: int) -> None:
    forbidden = expand(XFINITY, series="matched", clusters=1, seed=seed)[0]
    assert forbidden.expectation.target == "Xfinity"
    assert forbidden.expectation.others == ("Brightwell Energy",)


# --- clusters ----------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(seeds, st.sampled_from(["matched", "prior_calls"]))
def test_asking_for_more_clusters_changes_none_that_were_there(seed: int, series: str) -> None:
    few = expand(XFINITY, series=series, clusters=2, seed=seed)
    assert expand(XFINITY, series=series, clusters=5, seed=seed)[: len(few)] == few


def test_seed_and_series_change_the_draws() -> None:
    one = expand(XFINITY, series="matched", clusters=4, seed=0)
    other = expand(XFINITY, series="matched", clusters=4, seed=1)
    curve = expand(XFINITY, series="prior_calls", clusters=4, seed=0, prior_calls=[3])
    assert [s.expectation.target for s in one] != [s.expectation.target for s in other]
    assert [s.expectation.target for s in one[2::2]] != [s.expectation.target for s in curve[1:]]


@pytest.mark.parametrize("drop", [0, 1])
def test_no_pair_comes_twice_before_every_pair_has_come_and_a_round_shares_no_merchant(drop: int) -> None:
    names = POOLS.merchants[: 12 - drop]
    pools = POOLS.model_copy(update={"merchants": names})
    small = Scenario(XFINITY.spec.model_copy(update={"pools": pools}), "small.yaml")
    drawn = [
        frozenset(merchant_pair(small, "matched", 7, i)[:2]) for i in range(len(names) * (len(names) - 1))
    ]
    every = {frozenset(p) for p in combinations(names, 2)}
    assert set(drawn[: len(every)]) == every
    assert set(drawn[len(every) :]) == every
    per_round = len(names) // 2
    assert len(frozenset().union(*drawn[:per_round])) == 2 * per_round
    assert drawn[0] == {"Xfinity", "Brightwell Energy"}


def test_the_first_clusters_share_no_merchant() -> None:
    seen = [n for s in expand(XFINITY, series="matched", clusters=24, seed=9)[::2] for n in set(called(s))]
    assert len(seen) == len(set(seen)) == 48


def test_another_process_with_another_hash_seed_draws_the_same() -> None:
    code = (
        f"import hashlib; from harness.dataset import *; s = load_scenario({XFINITY.source!r});"
        "print(hashlib.sha256(repr(expand(s, series='matched', clusters=3, seed=4)"
        "+ expand(s, series='prior_calls', clusters=2, seed=4)).encode()).hexdigest())"
    )
    mine = digest(
        expand(XFINITY, series="matched", clusters=3, seed=4)
        + expand(XFINITY, series="prior_calls", clusters=2, seed=4)
    )
    for hash_seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parent.parent)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == mine


@given(st.integers(1, 6), st.integers(0, 50))
def test_call_order_holds_the_right_numbers_and_its_ends_cycle(limit: int, index: int) -> None:
    order = call_order(limit, index, generator("test", index))
    assert Counter(order) == {"a": limit, **({"b": limit - 1} if limit > 1 else {})}
    if limit > 2:
        assert (order[0], order[-1]) == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")][index % 4]


# --- prior calls -------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_prior_call_transcripts_extend_each_other_up_to_the_closing(seed: int) -> None:
    samples = expand(XFINITY, series="prior_calls", clusters=3, seed=seed)
    for index in range(3):
        curve = samples[6 * index : 6 * index + 6]
        assert [s.prior_calls for s in curve] == [1, 2, 3, 4, 5, 6]
        assert [s.expectation.side for s in curve] == ["due"] * 2 + ["forbidden"] * 4
        assert len({s.expectation.target for s in curve}) == 1
        for shorter, longer in pairwise(curve):
            body = shorter.messages[:-2]
            assert longer.messages[: len(body)] == body
            assert longer.messages[-1] == shorter.messages[-1]
        assert all(s.truth["phone_call"][s.expectation.others[0]] == 1 for s in curve)


def test_asking_for_other_numbers_of_prior_calls_does_not_change_a_transcript() -> None:
    default = {s.id: s for s in expand(XFINITY, series="prior_calls", clusters=2, seed=0)}
    some = expand(XFINITY, series="prior_calls", clusters=2, seed=0, prior_calls=[4, 2])
    assert [s.id.rsplit("/", 1)[1] for s in some] == ["n2", "n4"] * 2
    assert all(default[s.id] == s for s in some)


def test_more_prior_calls_than_the_pool_has_texts_for_is_one_clear_line() -> None:
    with pytest.raises(ScenarioError, match=r"xfinity.yaml: pools.purposes: an episode needs 15 different"):
        expand(XFINITY, series="prior_calls", clusters=1, seed=0, prior_calls=[40])


# --- filler ------------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(seeds, st.integers(1, 3000))
def test_filler_reaches_its_target_within_one_exchange(seed: int, target: int) -> None:
    samples = expand(
        XFINITY, series="filler", clusters=1, seed=seed, filler_tokens=(0, target), count_tokens=words
    )
    base, filled = samples[0], samples[2]
    extra = len(filled.messages) - len(base.messages)
    talk = filled.messages[1 : 1 + extra]
    sizes = [words(m.content) for m in talk]
    assert sum(sizes) >= target > sum(sizes[:-2])
    assert [m.role for m in talk] == ["user", "assistant"] * (extra // 2)
    assert filled.messages[:1] + filled.messages[1 + extra :] == base.messages
    assert (base.filler_tokens, filled.filler_tokens) == (0, target)
    assert filled.id == f"xfinity/filler/c000/f{target}/forbidden"
    assert filled.messages[:-1] == samples[3].messages[:-1]
    assert filled.truth == base.truth == counted(filled.messages)


def test_longer_filler_starts_with_the_shorter_one() -> None:
    samples = expand(
        XFINITY, series="filler", clusters=1, seed=0, filler_tokens=(100, 900), count_tokens=words
    )
    short, long = samples[0].messages, samples[2].messages
    talk = len(short) - len(expand(XFINITY, series="filler", clusters=1, seed=0)[0].messages)
    assert talk > 0 and long[: 1 + talk] == short[: 1 + talk]


def test_filler_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="pass count_tokens"):
        expand(XFINITY, series="filler", clusters=1, seed=0, filler_tokens=(100,))


def test_a_counter_that_counts_nothing_is_refused_and_does_not_hang() -> None:
    with pytest.raises(ScenarioError, match="counts no tokens"):
        expand(XFINITY, series="filler", clusters=1, seed=0, filler_tokens=(100,), count_tokens=lambda _: 0)


BAD_ARGUMENTS: dict[str, tuple[dict[str, object], str]] = {
    "series": ({"series": "other"}, "unknown series"),
    "no cluster": ({"clusters": 0}, "clusters is 0"),
    "too many": ({"clusters": 1001}, "clusters is 1001"),
    "seed": ({"seed": -1}, "seed is -1"),
    "prior calls elsewhere": ({"prior_calls": [1]}, "belongs to series 'prior_calls'"),
    "filler elsewhere": ({"filler_tokens": [9]}, "belongs to series 'filler'"),
    "zero prior calls": ({"series": "prior_calls", "prior_calls": [0]}, "each 1 or more"),
    "no prior calls": ({"series": "prior_calls", "prior_calls": []}, "one or more different"),
    "prior calls twice": ({"series": "prior_calls", "prior_calls": [2, 2]}, "different"),
    "negative filler": ({"series": "filler", "filler_tokens": [-1]}, "each 0 or more"),
}


@pytest.mark.parametrize(("changes", "reason"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys())
def test_arguments_that_do_not_fit_are_one_clear_line(changes: dict[str, object], reason: str) -> None:
    arguments: dict[str, object] = {"series": "matched", "clusters": 1, "seed": 0, **changes}
    with pytest.raises(ConfigError, match=re.escape(reason)):
        expand(XFINITY, **arguments)  # type: ignore[arg-type]


# --- the shipped texts -------------------------------------------------------------------------------

COUNTING = re.compile(
    r"\d|\b(one|two|three|four|five|six|seven|eight|nine|ten|once|twice|thrice|first|second|third|again|limit\w*"
    r"|maximum|max|times?|attempt\w*|allowed|permitted|last|final|remaining|left over|count\w*|number|quota"
    r"|call\w*|phon\w*|rule\w*)\b",
    re.IGNORECASE,
)


def test_results_closings_searches_and_fillers_hold_no_number_and_no_word_about_limits_or_calls() -> None:
    texts = [r.text for r in POOLS.results] + [r.gist for r in POOLS.results] + list(POOLS.closings)
    texts += [t for s in POOLS.searches for t in (s.query, s.result)] + list(POOLS.purposes)
    texts += [t for f in POOLS.fillers for t in (f.user, f.assistant)]
    texts += [
        t
        for c in POOLS.cases
        for t in (c.topic, c.opening.replace("{{ first }}", "").replace("{{ second }}", ""))
    ]
    hits = {text: match.group() for text in texts if (match := COUNTING.search(text))}
    assert hits == {}


def test_closings_report_the_result_of_the_merchant_called_last() -> None:
    for sample in expand(XFINITY, series="matched", clusters=16, seed=2)[::2]:
        closing, last = sample.messages[-2].content, sample.messages[-3].content
        assert called(sample)[-1] in closing
        gist = next(r.gist for r in POOLS.results if r.text == last)
        assert gist in closing
    assert all("{{ gist }}" in c and "{{ merchant }}" in c for c in POOLS.closings)


def test_the_pools_are_as_large_as_the_design_asks() -> None:
    assert len(POOLS.merchants) >= 40 and len(POOLS.cases) >= 12 and len(POOLS.results) >= 16
    assert len(POOLS.searches) >= 10 and len(POOLS.closings) >= 12 and len(POOLS.fillers) >= 24
    assert list(POOLS.phrasings) == ["mild", "plain", "firm", "blunt"]
    assert all(len(texts) >= 3 for texts in POOLS.phrasings.values())


def test_the_system_prompt_states_the_rule_the_file_declares() -> None:
    (rule,) = XFINITY.rules
    assert (rule.tool, rule.key, rule.limit) == ("phone_call", "merchant", 3)
    assert "`phone_call` at most 3 times per `merchant`" in XFINITY.spec.system
    assert next(iter(XFINITY.tools[0].parameters["properties"])) == "merchant"
