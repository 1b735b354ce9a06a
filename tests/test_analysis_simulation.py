"""The estimator's own false-alarm rate and coverage, by simulation.

Every simulated run passes through the same code as a real one: rows of `choose` cells → per-cluster
sensitivity → paired difference → sign-flip p and t interval. Tolerance: two simulation errors.
"""

import math

import numpy as np
import pandas as pd
import pytest

from harness.analysis import statistics as st
from harness.analysis.frames import choose_by_cluster

RUNS = 800


def simulate(clusters: int, seed: int, skewed: bool) -> pd.DataFrame:
    """`RUNS` runs of two arms with the same mean sensitivity (1.0), as one frame of per-cluster values.

    Cluster effects are random on the level and on each arm's sensitivity; with `skewed` the latter are
    exponential instead of normal. Returns sensitivity with rows (run, cluster) and columns a, b.
    """
    rng = np.random.default_rng(seed)
    shape = (RUNS, clusters, 2, 2)  # run, cluster, arm, side
    level = rng.normal(0, 1.0, size=(RUNS, clusters, 1, 1))
    draws = rng.exponential(1.0, size=shape[:3]) - 1 if skewed else rng.normal(size=shape[:3])
    slope = 1.0 + 0.7 * draws[..., None]
    logit = level + slope * np.array([-0.5, 0.5]) + rng.normal(0, 0.4, size=shape)
    run, cluster, arm, side = (index.ravel() for index in np.indices(shape))
    cells = pd.DataFrame(
        {
            "condition": run * 2 + arm,
            "cluster": cluster,
            "side": np.array(["forbidden", "due"])[side],
            "excluded": False,
            "score.logit_act": logit.ravel(),
            "score.p_act": 0.5,
            "score.p_act_norm": 0.5,
        }
    )
    found = choose_by_cluster(cells)
    found["run"], found["arm"] = found["condition"] // 2, np.where(found["condition"] % 2, "b", "a")
    return found.pivot(index=["run", "cluster"], columns="arm", values="sensitivity")


def error(rate: float) -> float:
    return 2 * math.sqrt(rate * (1 - rate) / RUNS)


@pytest.mark.parametrize("skewed", [False, True], ids=["normal", "skewed"])
@pytest.mark.parametrize("clusters", [8, 12, 16])
def test_the_permutation_test_raises_no_more_false_alarms_than_it_states(clusters: int, skewed: bool) -> None:
    wide = simulate(clusters, seed=100 + clusters, skewed=skewed)
    differences = (wide["a"] - wide["b"]).to_numpy().reshape(RUNS, clusters)
    p = np.array([st.sign_flip_p(d) for d in differences])
    alarms = float(np.mean(p <= st.ALPHA))
    assert alarms <= st.ALPHA + error(st.ALPHA)
    assert alarms >= st.ALPHA - 0.012 - error(
        st.ALPHA
    )  # at 8 clusters p steps by .0078: slightly conservative


@pytest.mark.parametrize("clusters", [8, 12, 16])
def test_the_interval_of_sensitivity_covers_the_truth_as_often_as_it_states(clusters: int) -> None:
    wide = simulate(clusters, seed=200 + clusters, skewed=False)
    own = wide["a"].to_numpy().reshape(RUNS, clusters)
    paired = own - wide["b"].to_numpy().reshape(RUNS, clusters)
    for sample, truth in ((own, 1.0), (paired, 0.0)):
        found = [st.t_interval(x) for x in sample]
        covered = float(np.mean([f.low <= truth <= f.high for f in found]))  # type: ignore[operator]
        assert abs(covered - 0.95) <= error(0.95)


def test_the_interval_of_a_rare_rate_in_clusters_covers_far_better_than_a_bootstrap_would() -> None:
    rng = np.random.default_rng(7)
    rates = rng.beta(0.05 * 4, 0.95 * 4, size=(RUNS, 12))  # mean .05, intra-class correlation .2
    hits = rng.random((RUNS, 12, 4)) < rates[..., None]
    labels = [c for c in range(12) for _ in range(4)]
    found = [st.proportion(h.ravel(), labels) for h in hits]
    covered = float(np.mean([f.low <= 0.05 <= f.high for f in found]))  # type: ignore[operator]
    assert covered >= 0.93 - error(0.93)


def test_a_real_effect_of_the_stated_minimum_is_found_in_about_eighty_percent_of_runs() -> None:
    rng = np.random.default_rng(11)
    mde = st.minimum_detectable(1.0, 12)
    assert mde is not None
    p = np.array([st.sign_flip_p(d) for d in rng.normal(mde, 1.0, size=(RUNS, 12))])
    assert abs(float(np.mean(p <= st.ALPHA)) - 0.80) <= error(0.80) + 0.02
