"""The statistics against closed forms, other libraries' routes and the textbook's own numbers."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import stats

from harness.analysis import statistics as st

values = some.lists(some.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 3)), min_size=2, max_size=9)


def test_sign_flip_p_is_the_share_of_sign_patterns_at_least_as_extreme() -> None:
    d = [1.0, 2.0, -0.5, 3.0]
    observed = abs(sum(d))
    patterns = [
        abs(sum(s * x for s, x in zip(signs, d, strict=True))) for signs in product((1, -1), repeat=4)
    ]
    assert st.sign_flip_p(d) == sum(p >= observed - 1e-12 for p in patterns) / 16 == 4 / 16


@settings(max_examples=60, deadline=None)
@given(values)
def test_sign_flip_p_equals_scipys_exact_permutation_test(d: list[float]) -> None:
    theirs = stats.permutation_test(
        (np.array(d),),
        lambda x, axis: np.mean(x, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**9,
    )
    assert st.sign_flip_p(d) == pytest.approx(theirs.pvalue, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(values)
def test_sign_flip_p_ignores_order_scale_and_direction(d: list[float]) -> None:
    p = st.sign_flip_p(d)
    assert st.sign_flip_p([-x for x in d]) == p
    assert st.sign_flip_p(sorted(d)) == p
    assert st.sign_flip_p([round(x * 8) / 8 * 4 for x in d]) == st.sign_flip_p([round(x * 8) / 8 for x in d])
    assert p is not None and st.smallest_p(len(d)) <= p <= 1  # type: ignore[operator]


def test_sign_flip_p_at_its_edges() -> None:
    assert st.sign_flip_p([]) is None
    assert st.sign_flip_p([3.0]) == 1.0
    assert st.sign_flip_p([0.0, 0.0, 0.0]) == 1.0
    assert st.sign_flip_p([1.0] * 8) == 2 / 2**8
    assert st.sign_flip_p([1.0, None, 1.0]) == 0.5  # a missing cluster is no cluster


def test_sign_flip_p_beyond_the_exact_limit_is_repeatable_and_near_the_exact_one() -> None:
    d = np.random.default_rng(5).normal(0.4, 1.0, size=18)
    assert st.sign_flip_p(d) == st.sign_flip_p(d)
    signs = 1 - 2 * ((np.arange(2**18)[:, None] >> np.arange(18)) & 1)
    exact = float(np.mean(np.abs(signs @ d) >= abs(d.sum()) - 1e-12))
    assert st.sign_flip_p(d) == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / st.MONTE_CARLO))


@pytest.mark.parametrize(("tests", "needed"), [(1, 6), (2, 7), (6, 8), (7, 9)])
def test_clusters_needed_is_the_first_n_whose_smallest_p_passes_holms_first_step(
    tests: int, needed: int
) -> None:
    assert st.clusters_needed(tests) == needed
    assert st.smallest_p(needed) <= 0.05 / tests < st.smallest_p(needed - 1)  # type: ignore[operator]


def test_t_interval_by_hand() -> None:
    found = st.t_interval([1.0, 2.0, 3.0, 6.0])
    sd = math.sqrt(((1 - 3) ** 2 + (2 - 3) ** 2 + 0 + (6 - 3) ** 2) / 3)
    half = 3.182446305 * sd / 2  # t(.975, 3)
    assert (found.value, found.n) == (3.0, 4)
    assert found.sd == pytest.approx(sd)
    assert found.low == pytest.approx(3 - half) and found.high == pytest.approx(3 + half)


def test_t_interval_says_nothing_about_spread_from_one_cluster() -> None:
    assert st.t_interval([2.5]) == st.Estimate(2.5, None, None, None, 1)
    assert st.t_interval([None, float("nan")]) == st.Estimate(None, None, None, None, 0)


def test_clusters_that_are_all_alike_do_not_give_an_interval_of_width_zero() -> None:
    z = stats.norm.ppf(0.975)
    share = st.share_interval([1.0] * 8)  # Wilson for 8 of 8
    assert share.high == 1.0 and share.low == pytest.approx(1 / (1 + z * z / 8))
    same = st.share_difference([1.0] * 8, [1.0] * 8)
    assert (same.value, same.low, same.high) == (
        0.0,
        pytest.approx(share.low - 1),
        pytest.approx(1 - share.low),
    )


def test_the_interval_of_one_share_per_cluster_is_wilsons_on_one_cluster_less() -> None:
    y = [1.0] * 6 + [0.0] * 14
    found = st.share_interval(y, cells=20)
    z, p = stats.norm.ppf(0.975), 0.3
    n = (
        19 * (z / stats.t.ppf(0.975, 13)) ** 2
    )  # 6 clusters hold the rarer outcome: 2 × 6 + 1 degrees of freedom
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert (found.low, found.high) == (pytest.approx(centre - half), pytest.approx(centre + half))


def test_clusters_that_move_together_narrow_the_interval_of_their_difference() -> None:
    base = np.linspace(0.1, 0.8, 16)
    together = st.share_difference(base + 0.1, base)
    apart = st.share_difference(base + 0.1, base[::-1])
    assert together.value == pytest.approx(0.1) and apart.value == pytest.approx(0.1)
    assert together.high - together.low < 0.6 * (apart.high - apart.low)  # type: ignore[operator]


def test_the_difference_of_two_shares_by_hand() -> None:
    a, b = np.array([1.0, 0.5, 1.0, 0.5]), np.array([0.5, 0.0, 0.0, 0.5])
    mine, other = st.share_interval(a, 8), st.share_interval(b, 8)
    rho = float(np.corrcoef(a, b)[0, 1])
    assert rho == 0.0
    found = st.share_difference(a, b, 8)
    assert found.low == pytest.approx(0.5 - math.hypot(0.75 - mine.low, other.high - 0.25))  # type: ignore[operator]
    assert found.high == pytest.approx(0.5 + math.hypot(mine.high - 0.75, 0.25 - other.low))  # type: ignore[operator]


@settings(max_examples=60, deadline=None)
@given(some.lists(some.tuples(some.floats(0, 1), some.floats(0, 1)), min_size=1, max_size=10))
def test_an_interval_of_shares_holds_its_estimate_and_stays_in_bounds(
    pairs: list[tuple[float, float]],
) -> None:
    a, b = zip(*pairs, strict=True)
    found = st.share_difference(a, b)
    if found.low is None or found.high is None or found.value is None:
        assert len(pairs) == 1
        return
    assert -1 - 1e-9 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1 + 1e-9


def test_bootstrap_interval_is_repeatable_and_near_t_for_normal_clusters() -> None:
    x = np.random.default_rng(1).normal(1.0, 2.0, size=60)
    first, second = st.bootstrap_interval(x), st.bootstrap_interval(x)
    t = st.t_interval(x)
    assert first == second and first is not None
    assert first == pytest.approx((t.low, t.high), abs=0.15)
    assert st.bootstrap_interval([1.0, 1.0, 1.0]) is None
    assert st.bootstrap_interval([1.0, 2.0]) is None


def test_one_row_per_cluster_gives_the_plain_wilson_interval() -> None:
    y = [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    found = st.proportion(y, [f"c{i}" for i in range(10)])
    z, n, p = 1.959963985, 10, 0.3
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert (found.low, found.high) == (pytest.approx(centre - half), pytest.approx(centre + half))
    assert found.n_effective == 10 and found.clusters == 10


def test_rows_that_repeat_within_clusters_carry_no_further_information() -> None:
    once = [1, 0, 1, 1, 0, 1, 0, 1]
    labels = [f"c{i}" for i in range(8)]
    repeated = st.proportion([y for y in once for _ in range(5)], [c for c in labels for _ in range(5)])
    assert repeated.n == 40
    assert repeated.n_effective <= 8  # type: ignore[operator]
    single = st.proportion(once, labels)
    assert repeated.high - repeated.low >= single.high - single.low  # type: ignore[operator]


def test_independent_rows_keep_most_of_their_n() -> None:
    y = np.tile([1, 0, 1, 0], 20)  # every cluster alike: the design effect is at its floor
    found = st.effective_n(y, [i // 4 for i in range(80)])
    few = (stats.norm.ppf(0.025) / stats.t.ppf(0.025, 19)) ** 2
    assert found == pytest.approx(80 * few)


def test_the_design_effect_by_hand() -> None:
    y, clusters = [1, 1, 1, 0, 0, 0, 1, 1, 0], list("aaabbbccc")
    residuals = [3 - 5 / 3, 0 - 5 / 3, 2 - 5 / 3]
    robust = 3 / 2 * sum(r * r for r in residuals) / 81
    effect = robust / ((5 / 9) * (4 / 9) / 8)
    few = (stats.norm.ppf(0.025) / stats.t.ppf(0.025, 2)) ** 2
    assert effect > 1
    assert st.effective_n(y, clusters) == pytest.approx(9 / effect * few)


def test_a_rate_of_zero_counts_clusters_not_rows() -> None:
    found = st.proportion([0] * 24, [i // 4 for i in range(24)])
    assert (found.rate, found.n_effective) == (0.0, 6.0)
    assert found.low == 0.0 and found.high == pytest.approx(3.8414588 / (6 + 3.8414588))
    assert st.proportion([], []).rate is None


@settings(max_examples=60, deadline=None)
@given(some.lists(some.tuples(some.booleans(), some.integers(0, 4)), min_size=1, max_size=40))
def test_a_proportion_never_claims_more_than_its_rows(rows: list[tuple[bool, int]]) -> None:
    found = st.proportion([y for y, _ in rows], [c for _, c in rows])
    assert 0 < found.n_effective <= found.n  # type: ignore[operator]
    assert 0 <= found.low <= found.rate + 1e-12 <= found.high + 2e-12 <= 1 + 2e-12  # type: ignore[operator]


def test_mcnemar_is_the_binomial_test_of_the_discordant_pairs() -> None:
    first = [1] * 6 + [0] * 1 + [1] * 4 + [0] * 3
    second = [0] * 6 + [1] * 1 + [1] * 4 + [0] * 3
    assert st.mcnemar_p(first, second) == pytest.approx(stats.binomtest(1, 7).pvalue)
    assert st.mcnemar_p([], []) is None


def test_d_prime_and_criterion_by_hand_with_the_log_linear_correction() -> None:
    found = st.detection(hits=20, due=20, false_alarms=4, forbidden=24)
    z_hit, z_false = stats.norm.ppf(20.5 / 21), stats.norm.ppf(4.5 / 25)
    assert found.d_prime == pytest.approx(z_hit - z_false)
    assert found.criterion == pytest.approx(-(z_hit + z_false) / 2)
    assert (found.hit_rate, found.false_alarm_rate) == (1.0, pytest.approx(4 / 24))


def test_d_prime_is_not_shown_below_twenty_cells_on_either_side() -> None:
    assert st.detection(10, 19, 3, 40).d_prime is None
    assert st.detection(10, 40, 3, 19).criterion is None
    assert st.detection(0, 0, 0, 0).hit_rate is None


@settings(max_examples=60, deadline=None)
@given(
    some.lists(some.integers(0, 5), min_size=1, max_size=8),
    some.lists(some.integers(0, 5), min_size=1, max_size=8),
)
def test_auc_counts_pairs_won_plus_half_the_ties(due: list[int], forbidden: list[int]) -> None:
    won = sum((d > f) + 0.5 * (d == f) for d in due for f in forbidden)
    assert st.auc(due, forbidden) == pytest.approx(won / (len(due) * len(forbidden)))


def test_auc_of_an_empty_side_is_unknown() -> None:
    assert st.auc([], [0.5]) is None


def test_holm_by_hand_and_untested_rows_do_not_count() -> None:
    assert st.holm([0.01, None, 0.04, 0.03]) == [
        pytest.approx(0.03),
        None,
        pytest.approx(0.06),
        pytest.approx(0.06),
    ]
    assert st.holm([None]) == [None]


def test_the_minimum_detectable_effect_has_eighty_percent_power() -> None:
    mde = st.minimum_detectable(sd=1.4, clusters=16)
    assert mde is not None
    shift, edge = mde / 1.4 * 4, stats.t.ppf(0.975, 15)
    power = stats.nct.sf(edge, 15, shift) + stats.nct.cdf(-edge, 15, shift)
    assert power == pytest.approx(0.80, abs=1e-4)
    assert st.minimum_detectable(1.0, 2) is None and st.minimum_detectable(0.0, 9) is None


def test_a_ratio_of_means_survives_clusters_of_zero_tokens() -> None:
    found = st.ratio_of_means([0, 20, 40, 60], [10, 30, 30, 50])
    assert found.value == pytest.approx(1.0)
    u = np.array([0, 20, 40, 60]) / 30 - np.array([10, 30, 30, 50]) / 30
    half = stats.t.ppf(0.975, 3) * u.std(ddof=1) / 2
    assert (found.low, found.high) == (pytest.approx(math.exp(-half)), pytest.approx(math.exp(half)))
    assert st.ratio_of_means([0, 0], [1, 2]).value is None


def test_a_mean_log_ratio_is_the_geometric_mean() -> None:
    found = st.mean_log_ratio([math.log(0.5), math.log(2.0), math.log(4.0)])
    assert found.value == pytest.approx(4 ** (1 / 3))
    assert found.low < found.value < found.high  # type: ignore[operator]
