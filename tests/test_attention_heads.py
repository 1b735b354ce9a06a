"""Head finding: what the discovery half chooses, the test half judges, and luck passes in at most 1 of 20 data sets."""

import math
from itertools import product
from pathlib import Path

import attention_data as made_up
import numpy as np
import pytest

from harness.analysis.attention import heads
from harness.analysis.attention.frames import load
from harness.analysis.attention.head_table import BAR, RECORDS, head_table

SETS = 400


def simulated(rng: np.random.Generator, clusters: int, width: int = 60, effect: float = 0.0) -> np.ndarray:
    """Heads that move together (a shared part), of different spreads; the first three have the effect."""
    shared = rng.normal(size=(clusters, 1))
    values = (0.7 * shared + rng.normal(size=(clusters, width))) * np.linspace(0.2, 3, width)
    values[:, :3] += effect * np.linspace(0.2, 3, width)[:3]
    return np.asarray(values)


def test_every_cluster_is_in_one_half_and_the_split_is_fixed_by_the_seed() -> None:
    split = heads.halves(13, seed=7)
    assert sorted(split.discovery + split.test) == list(range(13))
    assert (len(split.discovery), len(split.test)) == (6, 7)
    assert heads.halves(13, seed=7) == split
    assert len({heads.halves(13, seed) for seed in range(8)}) > 1


@pytest.mark.parametrize("clusters", [10, 12])
def test_without_any_effect_a_head_passes_in_at_most_one_of_twenty_data_sets(clusters: int) -> None:
    rng = np.random.default_rng(clusters)
    false = 0
    for i in range(SETS):
        found = heads.find(simulated(rng, clusters), heads.halves(clusters, i))
        false += heads.passed(found) > 0
    # The bound is 5 %; 2.6 standard errors of a simulation of this size lie above it.
    assert false / SETS <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / SETS)
    assert false > 0, "a test that never passes anything would hold any bound"


def test_lopsided_values_pass_no_more_often_where_the_head_treats_both_spans_alike() -> None:
    rng = np.random.default_rng(4)
    false = 0
    for i in range(SETS):
        bar, placebo = (np.exp(rng.normal(size=(12, 60))) for _ in range(2))
        false += heads.passed(heads.find(bar - placebo, heads.halves(12, i))) > 0
    assert false / SETS <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / SETS)


def test_choosing_and_testing_on_the_same_clusters_would_pass_far_too_often() -> None:
    rng = np.random.default_rng(3)
    false = 0
    for _ in range(100):
        values = simulated(rng, 12)
        best = heads.find(values, heads.Halves(tuple(range(12)), tuple(range(12))))
        false += heads.passed(best) > 0
    assert false / 100 > 0.15, "the split into halves is what holds the error rate"


def test_a_strong_reader_is_found_beside_heads_that_do_nothing() -> None:
    rng = np.random.default_rng(5)
    right = wrong = 0
    for i in range(60):
        found = heads.find(simulated(rng, 16, effect=4.0), heads.halves(16, i))
        good = {finding.head for finding in found if finding.p is not None and finding.p <= 0.05}
        right += len(good & {0, 1, 2})
        wrong += bool(good - {0, 1, 2})
    assert right / (60 * 3) > 0.9
    # Strong control: the readers' presence does not let others in.
    assert wrong / 60 <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 60)


def test_adjusted_p_equals_a_plain_enumeration_of_all_sign_patterns() -> None:
    values = np.random.default_rng(1).normal(0.4, 1, (6, 4))

    def t(x: np.ndarray) -> np.ndarray:
        return np.asarray(x.mean(0) / (x.std(0, ddof=1) / math.sqrt(len(x))))

    observed = t(values)
    patterns = [np.array(signs)[:, None] * values for signs in product((1, -1), repeat=6)]
    order = list(np.argsort(-observed))
    expected, reached = np.empty(4), 0.0
    for place, head in enumerate(order):
        left = order[place:]
        count = sum(t(pattern)[left].max() >= observed[head] - 1e-9 for pattern in patterns)
        reached = max(reached, count / 64)
        expected[head] = reached
    assert heads.max_t(values) == pytest.approx(expected)


def test_a_head_never_gets_a_smaller_p_than_one_with_a_larger_statistic() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        values = rng.normal(0.5, 1, (6, 5)) * np.array([1, 1, 1, 1, 30])
        statistic = values.sum(0) / np.sqrt((values**2).sum(0))
        assert (np.diff(heads.max_t(values)[np.argsort(-statistic)]) >= 0).all()


def test_no_p_is_below_one_in_two_to_the_number_of_clusters() -> None:
    values = np.random.default_rng(1).normal(50, 1, (5, 3))
    assert heads.max_t(values) == pytest.approx([1 / 32] * 3)
    assert heads.smallest_p(5) == 1 / 32
    assert heads.needed() == 10


def test_more_clusters_than_can_be_enumerated_are_drawn_with_the_observed_pattern_among_them() -> None:
    values = np.random.default_rng(1).normal(5, 1, (15, 2))
    assert heads.max_t(values) == pytest.approx([1 / 10_001] * 2)
    assert heads.max_t(values).tolist() == heads.max_t(values).tolist()


def test_a_head_with_a_negative_mean_or_an_unknown_value_is_not_chosen() -> None:
    values = np.random.default_rng(1).normal(0, 0.1, (12, 4)) + np.array([1.0, -1.0, 1.0, 1.0])
    values[3, 2] = np.nan
    assert {finding.head for finding in heads.find(values, heads.halves(12, 0))} == {0, 3}


def test_with_fewer_than_four_clusters_a_half_there_is_a_ranking_and_no_p() -> None:
    values = np.random.default_rng(1).normal(1, 0.1, (7, 3))
    found = heads.find(values, heads.halves(7, 0))
    assert [finding.p for finding in found] == [None] * 3
    assert {finding.discovery.n for finding in found} == {7}


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up.make_folder(tmp_path_factory.mktemp("attention"), 12, thinking=2)


def test_the_table_finds_the_readers_of_the_bar_and_nothing_else(twelve: Path) -> None:
    table = head_table(load(twelve)).data
    bar = table[table["target"] == BAR]
    good = {(row.layer, row.head) for row in bar.itertuples() if row.passed == "yes"}
    assert good == set(made_up.READERS)
    assert set(bar["discovery_n"]) == {6} and set(bar["test_n"]) == {6}
    # Made-up records draw nothing from anybody.
    assert not (table[table["target"] == RECORDS]["passed"] == "yes").any()


def test_too_few_clusters_are_said_to_be_too_few(tmp_path: Path) -> None:
    three = head_table(load(made_up.make_folder(tmp_path / "three", 3, thinking=1)))
    assert "not tested: 3 clusters, 8 needed" in three.to_markdown()
    assert three.data["p_fwer"].isna().all()
    eight = head_table(load(made_up.make_folder(tmp_path / "eight", 8, thinking=1)))
    assert "no head can pass: smallest possible p is 0.0625, 10 clusters needed" in eight.to_markdown()


def test_without_a_placebo_or_a_control_there_is_no_target_and_the_table_says_why(tmp_path: Path) -> None:
    table = head_table(load(made_up.make_folder(tmp_path, 2, conditions=["agent_status"], thinking=1)))
    assert table.data.empty
    assert "neither a bar with its placebo" in table.to_markdown()
