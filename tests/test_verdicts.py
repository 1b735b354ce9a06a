"""What a comparison is called, and how many more clusters would settle it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from statsmodels.stats.weightstats import DescrStatsW

from harness.analysis import power
from harness.analysis import statistics as st
from harness.analysis.verdicts import LEVEL, MIN_CLUSTERS, Evidence, Margins, decide, margins_of
from harness.errors import ReportError

MARGINS = Margins()


def judged(d: np.ndarray, measure: str = "sensitivity", margins: Margins = MARGINS) -> str:
    wide, narrow = st.t_interval(d), st.t_interval(d, LEVEL)
    assert narrow.low is not None and narrow.high is not None
    p = st.sign_flip_p(d)
    return decide(
        Evidence(measure, "logit", wide.value, wide.sd, wide.n, p, (narrow.low, narrow.high)), margins
    ).word


def around(mean: float, sd: float = 0.5, clusters: int = 16) -> np.ndarray:
    x = np.linspace(-1, 1, clusters)
    return np.asarray(mean + sd * x / x.std(ddof=1))


def test_the_four_words() -> None:
    assert judged(around(1.0)) == "better"
    assert judged(around(-1.0)) == "worse"
    assert judged(around(0.1)) == "equivalent"
    assert judged(around(0.4, sd=1.5)) == "inconclusive"


def test_a_difference_proven_to_be_negligible_is_equivalent_even_where_p_is_small() -> None:
    d = around(0.2, sd=0.1)
    assert (st.sign_flip_p(d) or 1.0) < 0.001
    assert judged(d) == "equivalent"
    assert judged(d, margins=Margins(logit=0.15)) == "better"


def test_fewer_than_eight_clusters_get_no_verdict_however_clear_they_look() -> None:
    assert judged(around(5.0, sd=0.1, clusters=MIN_CLUSTERS)) == "better"
    assert judged(around(5.0, sd=0.1, clusters=MIN_CLUSTERS - 1)) == "inconclusive"


@pytest.mark.parametrize(
    ("measure", "up", "down"),
    [
        ("compliance", "better", "worse"), ("over_refusal", "worse", "better"), ("accuracy", "better", "worse"),
        ("thinking", "worse", "better"), ("total", "worse", "better"), ("bias", "more cautious", "less cautious"),
    ],
)  # fmt: skip
def test_which_way_is_better_depends_on_the_measure(measure: str, up: str, down: str) -> None:
    assert judged(around(1.0), measure) == up
    assert judged(around(-1.0), measure) == down


def test_ratios_are_judged_around_one_and_their_margin_is_symmetric_in_logs() -> None:
    low, high = MARGINS.bounds("ratio")
    assert low == pytest.approx(0.8) and high == 1.25
    slower = Evidence("total", "ratio", 1.6, 0.2, 12, 0.001, (1.4, 1.8))
    assert decide(slower, MARGINS).word == "worse"
    assert decide(Evidence("total", "ratio", 0.6, 0.2, 12, 0.001, (0.5, 0.7)), MARGINS).word == "better"
    assert decide(Evidence("total", "ratio", 1.02, 0.1, 12, 0.6, (0.95, 1.1)), MARGINS).word == "equivalent"


@settings(max_examples=60, deadline=None)
@given(some.lists(some.floats(-2, 2), min_size=8, max_size=30))
def test_equivalence_is_what_statsmodels_two_one_sided_tests_say(values: list[float]) -> None:
    d = np.array(values)
    if d.std() < 1e-3:
        return
    p = DescrStatsW(d).ttost_mean(-MARGINS.logit, MARGINS.logit)[0]
    if abs(p - st.ALPHA) > 1e-9:
        assert (judged(d) == "equivalent") == (p < st.ALPHA)


def test_what_is_inconclusive_says_how_many_clusters_are_missing_and_that_many_do_settle_it() -> None:
    d = around(0.6, sd=1.6, clusters=16)
    wide, narrow = st.t_interval(d), st.t_interval(d, LEVEL)
    found = decide(
        Evidence(
            "sensitivity", "logit", wide.value, wide.sd, 16, st.sign_flip_p(d), (narrow.low, narrow.high)
        ),  # type: ignore[arg-type]
        MARGINS,
    )
    assert found.word == "inconclusive" and found.more_clusters
    n = 16 + found.more_clusters
    draws = np.random.default_rng(1).normal(0.6, 1.6, (400, n))
    settled = float(np.mean([judged(x) != "inconclusive" for x in draws]))
    assert 0.74 <= settled <= 0.95
    fewer = np.random.default_rng(1).normal(0.6, 1.6, (400, n // 2))
    assert float(np.mean([judged(x) != "inconclusive" for x in fewer])) < settled - 0.15


def test_no_difference_is_settled_by_showing_that_it_is_small() -> None:
    assert power.clusters_to_detect(0.0, 1.0) is None
    needed = power.clusters_to_settle(0.0, 1.0, 0.5)
    assert needed == power.clusters_for_equivalence(0.0, 1.0, 0.5)


def test_a_difference_right_at_the_margin_needs_no_more_than_an_interval_half_as_wide() -> None:
    assert power.clusters_for_equivalence(0.5, 1.0, 0.5) is None
    needed = power.clusters_to_settle(0.4999, 1.0, 0.5)
    assert needed is not None and needed <= 62


@pytest.mark.parametrize("clusters", [8, 12, 30])
def test_the_planned_number_of_clusters_finds_the_planned_difference(clusters: int) -> None:
    effect = st.minimum_detectable(1.0, clusters)
    assert effect is not None
    assert power.detecting(effect, 1.0, clusters) == pytest.approx(0.80, abs=1e-6)
    assert power.clusters_to_detect(effect, 1.0) in (clusters, clusters + 1)


def test_the_power_of_two_one_sided_tests_is_what_simulation_gives() -> None:
    draws = np.random.default_rng(2).normal(0.1, 0.8, (2_000, 24))
    hit = np.mean([DescrStatsW(d).ttost_mean(-0.5, 0.5)[0] < 0.05 for d in draws])
    assert power.showing_equivalence(0.1, 0.8, 0.5, 24) == pytest.approx(float(hit), abs=0.03)


def test_a_rise_of_a_rate_that_a_design_finds_grows_with_likeness_and_shrinks_with_clusters() -> None:
    found = {
        (n, icc): power.detectable_share(power.ShareDesign(n, (4,), 0.3, icc)) or 1.0
        for n in (12, 50)
        for icc in (0.0, 0.8)
    }
    assert found[12, 0.0] < found[12, 0.8] and found[50, 0.0] < found[12, 0.0]
    assert power.detectable_share(power.ShareDesign(5, (4,), 0.3)) is None  # p cannot go below .0625


def test_clusters_drawn_for_planning_have_the_stated_rate_and_likeness() -> None:
    design = power.ShareDesign(4_000, (4,), 0.3, 0.5)
    first, second = power.draw_shares(design, 0.2, 1, np.random.default_rng(3))
    assert first.mean() == pytest.approx(0.5, abs=0.02) and second.mean() == pytest.approx(0.3, abs=0.02)
    between = 0.3 * 0.7 * (0.5 + 0.5 / 4)
    assert second.var() == pytest.approx(between, rel=0.06)
    assert np.corrcoef(first[0], second[0])[0, 1] > 0.3


def test_margins_are_those_of_the_manifest_and_the_defaults_for_an_older_run() -> None:
    assert margins_of({}) == Margins()
    for broken in ({"logit": 0}, {"logit": True}, {"ratio": 1.0}, {"foo": 1}, {"share": "much"}):
        with pytest.raises(ReportError, match=r"manifest\.json: margins: expected"):
            margins_of({"margins": broken})
    assert margins_of({"margins": {"logit": 0.3, "share": 0.05, "ratio": 1.1}}) == Margins(0.3, 0.05, 1.1)
