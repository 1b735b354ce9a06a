"""Looking after every cluster raises no more false alarms than one look, and costs power: by simulation."""

import math

import numpy as np
import pytest

from harness.analysis import sequential as sq

MOST = 120
MARGIN = 0.5


def first_settled(d: np.ndarray, margin: float, tests: int = 1, least: int = 8) -> int | None:
    """Number of clusters, taken in order and from `least` on, at which the comparison is settled; None: never."""
    return next((n for n in range(least, d.size + 1) if sq.look(d[:n], margin, tests).settled), None)


def alarms(draws: np.ndarray, rho: float) -> float:
    """Share of runs (rows) in which the running evidence ever rejects 0 at .05."""
    s, v = draws.cumsum(axis=1), 1 + rho**2 * (draws**2).cumsum(axis=1)
    e = rho**2 * s**2 / (2 * v) - np.log(v) / 2
    return float(np.mean((e >= math.log(20)).any(axis=1)))


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "lumps", "growing"])
def test_looking_after_every_cluster_keeps_the_false_alarms_below_five_percent(kind: str) -> None:
    rng = np.random.default_rng(3)
    shape = (4_000, MOST)
    draws = {
        "normal": lambda: rng.normal(0, 1.2, shape),
        "heavy tails": lambda: rng.standard_t(2, shape),
        "lumps": lambda: rng.choice([-2.0, 0.0, 2.0], shape, p=[0.05, 0.9, 0.05]),
        "growing": lambda: rng.normal(0, 1, shape) * np.linspace(0.3, 3, MOST),
    }[kind]()
    assert alarms(draws, sq.scale_for(MARGIN)) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 4_000)


def test_the_permutation_test_looked_at_as_often_would_raise_far_more() -> None:
    from harness.analysis import statistics as st

    rng = np.random.default_rng(4)
    looked = [
        any((st.sign_flip_p(d[:n]) or 1.0) < 0.05 for n in range(8, 41, 4))
        for d in rng.normal(0, 1.2, (120, 40))
    ]
    assert float(np.mean(looked)) > 0.1


def test_the_interval_covers_at_every_number_of_clusters_at_once() -> None:
    rng, rho = np.random.default_rng(5), sq.scale_for(MARGIN)
    missed = 0
    for d in rng.normal(0.6, 1.0, (200, 40)):
        looks = (sq.anytime_interval(d[:n], rho) for n in range(8, 41, 2))
        missed += any(found is not None and not found[0] <= 0.6 <= found[1] for found in looks)
    assert missed / 200 <= 0.05


def test_a_real_effect_stops_the_run_early_and_a_void_one_is_shown_to_be_small() -> None:
    rng = np.random.default_rng(6)
    real = [first_settled(d, MARGIN) for d in rng.normal(1.2, 1.0, (60, MOST))]
    assert all(n is not None for n in real) and float(np.median(real)) < 25  # type: ignore[arg-type]
    void = [first_settled(d, MARGIN) for d in rng.normal(0.0, 0.8, (60, MOST))]
    assert sum(n is not None for n in void) > 54


def test_p_and_interval_agree_about_zero() -> None:
    rng, rho = np.random.default_rng(7), sq.scale_for(MARGIN)
    for d in rng.normal(0.5, 1.0, (40, 30)):
        found = sq.anytime_interval(d, rho)
        assert found is not None
        assert (sq.anytime_p(d, rho) < 0.05) == (not found[0] <= 0 <= found[1])


def test_the_closed_form_is_the_mixture_over_lambda() -> None:
    d, rho = np.array([0.4, -0.2, 1.1, 0.7]), 0.8
    grid = np.linspace(-8, 8, 160_001)
    density = np.exp(-(grid**2) / (2 * rho**2)) / (rho * math.sqrt(2 * math.pi))
    values = np.exp(grid * d.sum() - grid**2 * (d**2).sum() / 2)
    assert sq.log_e_value(d, 0.0, rho) == pytest.approx(
        math.log(np.trapezoid(values * density, grid)), abs=1e-9
    )


def test_nothing_can_be_said_of_no_cluster_and_one_settles_nothing() -> None:
    assert sq.anytime_interval([], 1.0) is None
    assert sq.anytime_p([], 1.0) == 1.0
    assert not sq.look([5.0], MARGIN).settled


def test_more_comparisons_ask_for_more_evidence() -> None:
    d = np.random.default_rng(8).normal(1.0, 1.0, MOST)
    assert first_settled(d, MARGIN, tests=4) > first_settled(d, MARGIN, tests=1)  # type: ignore[operator]
