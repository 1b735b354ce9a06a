"""Claims about the plan: what is run, in which order, in which batches, with which seeds."""

from collections import Counter
from typing import Any

import pytest
from core_config import REMOVE, plain
from core_samples import words, xfinity
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compose import compose
from harness.config_checks import resolve
from harness.dataset import load_scenario
from harness.errors import ConfigError
from harness.plan import Batch, Cell, build_plan, cell_seed

SERIES = {
    "probe__choose__series__prior_calls": {
        "clusters": 2,
        "prior_calls": [2, 3],
        "conditions": ["control", "placebo"],
    },
    "probe__choose__series__filler": {"clusters": 1, "filler_tokens": [0, 60]},
}
LATENCY = {"measure": "latency", "probe__choose": REMOVE}


def plan(**changes: Any) -> tuple[Batch, ...]:
    return build_plan(resolve(plain(**changes)), xfinity(), words)


def length_plan(**changes: Any) -> tuple[Batch, ...]:
    return build_plan(resolve(plain(**changes)), load_scenario("xfinity_length"), words)


def cells(batches: tuple[Batch, ...]) -> list[Cell]:
    return [cell for batch in batches for cell in batch.cells]


def ids(batches: tuple[Batch, ...]) -> list[list[str]]:
    return [[cell.id for cell in batch.cells] for batch in batches]


def test_the_plan_is_every_sample_under_every_arm_of_its_series() -> None:
    found = Counter((c.probe, c.sample.series, c.condition) for c in cells(plan(**SERIES)))
    three = ("control", "placebo", "agent_status")
    assert found == Counter(
        {
            **{("choose", "matched", arm): 2 * 2 for arm in three},
            **{("act", "matched", arm): 3 * 2 for arm in three},
            **{("choose", "prior_calls", arm): 2 * 2 for arm in three[:2]},
            **{("choose", "filler", arm): 2 * 2 for arm in three},
        }
    )


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 4))
def test_the_plan_is_the_same_every_time_and_its_cells_are_unique(seed: int, size: int) -> None:
    first = plan(seed=seed, model__batch_clusters=size, **SERIES)
    assert ids(first) == ids(plan(seed=seed, model__batch_clusters=size, **SERIES))
    names = [cell.id for cell in cells(first)]
    assert len(set(names)) == len(names)
    assert [batch.number for batch in first] == list(range(len(first)))


def test_a_batch_is_whole_clusters_and_both_probes_of_a_cluster_share_it() -> None:
    for size in (1, 2, 3):
        batches = plan(model__batch_clusters=size, **SERIES)
        where: dict[str, set[int]] = {}
        for batch in batches:
            assert len({cell.sample.cluster for cell in batch.cells}) <= size
            for cell in batch.cells:
                where.setdefault(cell.sample.cluster, set()).add(batch.number)
        assert all(len(numbers) == 1 for numbers in where.values())
        assert len(batches) == -(-len(where) // size)


def test_batches_of_another_size_hold_the_same_cells() -> None:
    one, three = plan(**SERIES), plan(model__batch_clusters=3, **SERIES)
    assert [c.id for c in cells(one)] == [c.id for c in cells(three)]
    assert [c.seed for c in cells(one)] == [c.seed for c in cells(three)]


def test_more_clusters_only_append() -> None:
    few, more = plan(), plan(probe__choose__series__matched__clusters=3)
    assert set(c.id for c in cells(few)) < set(c.id for c in cells(more))
    samples = {c.sample.id: c.sample for c in cells(more)}
    assert all(samples[c.sample.id] == c.sample for c in cells(few))


def test_arms_of_a_sample_draw_with_common_random_numbers() -> None:
    found: dict[tuple[str, str, int], set[int]] = {}
    sampled = {"epochs": 3, "model__decoding": {"temperature": 1.0}}
    for cell in cells(plan(**sampled)):
        found.setdefault((cell.sample.id, cell.probe, cell.epoch), set()).add(cell.seed)
    assert all(len(seeds) == 1 for seeds in found.values())
    seeds = [next(iter(s)) for s in found.values()]
    assert len(set(seeds)) == len(seeds), "samples and epochs draw independently"


def test_another_run_seed_gives_other_draws() -> None:
    assert cell_seed(1, "s", "act", 0) == cell_seed(1, "s", "act", 0)
    variants = {
        cell_seed(*a)
        for a in ((1, "s", "act", 0), (2, "s", "act", 0), (1, "t", "act", 0), (1, "s", "act", 1))
    }
    assert len(variants) == 4 and all(0 <= seed < 2**32 for seed in variants)


def test_exact_probabilities_are_read_once_and_replies_in_every_epoch() -> None:
    epochs = Counter((c.probe, c.epoch) for c in cells(plan(epochs=2, model__decoding={"temperature": 1.0})))
    assert set(epochs) == {("choose", 0), ("act", 0), ("act", 1)}
    assert epochs["act", 0] == epochs["act", 1]


def test_the_moved_limit_is_planned_with_its_numbers_of_calls() -> None:
    moved = {"moved_limit": {"clusters": 2, "prior_calls": [1, 4]}}
    found = Counter(
        (c.sample.prior_calls, c.sample.limit, c.sample.expectation.side)
        for c in cells(length_plan(probe__choose__series=moved, probe__act=REMOVE))
    )
    assert found == dict.fromkeys([(1, 1, "forbidden"), (1, 2, "due"), (4, 4, "forbidden"), (4, 5, "due")], 6)


LENGTH_RUNS = [
    ("xfinity_length", None),
    ("xfinity_length_small", None),
    ("xfinity_length", "[choose_length_thinking,act_length_thinking]"),
    ("xfinity", "[choose_thinking,act_thinking]"),
]


@pytest.mark.parametrize(("experiment", "probe"), LENGTH_RUNS)
def test_the_length_and_thinking_probes_can_be_planned(experiment: str, probe: str | None) -> None:
    thinking = ["model=local", "model.path=/m", "model.thinking=native", "model.decoding.temperature=0.6"]
    config = compose([f"experiment={experiment}", *([f"probe={probe}", *thinking] if probe else [])])
    found = cells(build_plan(config, load_scenario(config.scenario.file), words))
    assert {cell.probe for cell in found} == {"choose", "act"}
    sides = Counter((c.probe, c.sample.expectation.side) for c in found if c.sample.series != "prior_calls")
    assert sides["choose", "due"] == sides["choose", "forbidden"]
    assert sides["act", "due"] == sides["act", "forbidden"]
    if experiment != "xfinity":
        assert {cell.condition for cell in found} == {"control", "placebo", "agent_status"}
        assert {cell.sample.series for cell in found} == {"filler", "moved_limit"}


# -- latency -----------------------------------------------------------------------------------------------


def test_in_the_latency_pass_each_order_of_the_three_arms_comes_once() -> None:
    batches = plan(**LATENCY)
    assert all(len(batch.cells) == 1 for batch in batches), "one request at a time"
    orders: dict[str, list[str]] = {}
    for cell in cells(batches):
        assert cell.probe == "act"
        orders.setdefault(cell.sample.id, []).append(cell.condition)
    assert len(orders) == 6
    assert len({tuple(order) for order in orders.values()}) == 6
    # Every arm is as often first, second and last.
    assert all(
        count == 2 for count in Counter((i, arm) for o in orders.values() for i, arm in enumerate(o)).values()
    )
    following = [cell.sample.id for cell in cells(batches)]
    assert following == [sample for sample in orders for _ in range(3)], "arms of a sample follow each other"


def test_the_orders_are_drawn_from_the_seed_and_are_no_accident() -> None:
    assert ids(plan(**LATENCY)) == ids(plan(**LATENCY))
    drawn = {tuple(c.condition for c in cells(plan(seed=seed, **LATENCY))) for seed in range(6)}
    assert len(drawn) > 1


def test_fewer_samples_than_the_latency_pass_asks_for_is_refused() -> None:
    """Silently fewer would leave the orders unbalanced."""
    with pytest.raises(ConfigError, match=r"latency\.samples"):
        plan(**LATENCY, probe__act__series__matched__clusters=2)


CURVES: dict[str, dict[str, Any]] = {
    "filler": {"filler": {"clusters": 6, "filler_tokens": [0, 60]}},
    "moved_limit": {"moved_limit": {"clusters": 6, "prior_calls": [1, 5]}},
}


@pytest.mark.parametrize("series", CURVES.values(), ids=CURVES.keys())
def test_a_timed_curve_has_every_point_equally_often_and_there_every_order_once(
    series: dict[str, Any],
) -> None:
    """Else a length would be timed with its arms in other orders than the next one."""
    batches = length_plan(**LATENCY, latency__samples=24, probe__act__series=series)
    orders: dict[str, list[str]] = {}
    for cell in cells(batches):
        orders.setdefault(cell.sample.id, []).append(cell.condition)
    points: dict[str, set[tuple[str, ...]]] = {}
    for sample_id, order in orders.items():
        points.setdefault(sample_id.split("/", 3)[3], set()).add(tuple(order))
    assert len(orders) == 24 and len(points) == 4
    assert all(len(found) == 6 for found in points.values())


@pytest.mark.parametrize("wanted", [2, 6])
def test_a_timed_curve_that_would_end_within_a_cluster_is_refused(wanted: int) -> None:
    with pytest.raises(
        ConfigError, match=r"latency\.samples=\d.*act\.series\.filler has 4 samples.*multiple of 4"
    ):
        length_plan(**LATENCY, latency__samples=wanted, probe__act__series=CURVES["filler"])


def test_every_series_of_the_probe_is_timed_each_with_its_own_samples_and_orders() -> None:
    both = CURVES["filler"] | CURVES["moved_limit"] | {"matched": {"clusters": 12}}
    found = cells(length_plan(**LATENCY, latency__samples=24, probe__act__series=both))
    assert [c.id for c in found] == [
        c.id
        for series in ("filler", "moved_limit", "matched")
        for c in cells(length_plan(**LATENCY, latency__samples=24, probe__act__series={series: both[series]}))
    ], "a series is timed alike whatever else is"
    assert Counter(c.sample.series for c in found) == dict.fromkeys(both, 24 * 3)


def test_samples_that_are_whole_clusters_of_one_series_alone_are_refused() -> None:
    three = {"moved_limit": {"clusters": 6, "prior_calls": [1, 5, 9]}}
    with pytest.raises(ConfigError, match=r"=8: .*series\.moved_limit has 6 samples; take a multiple of 12"):
        length_plan(**LATENCY, latency__samples=8, probe__act__series=CURVES["filler"] | three)


LENGTH_LATENCIES = [
    (["experiment=xfinity_length_latency"], 6),
    (["experiment=xfinity_length", "measure=latency", "latency.samples=48"], None),
    (
        ["experiment=xfinity_length", "measure=latency", "probe=[act_length_thinking]", "latency.samples=24"],
        None,
    ),
]


@pytest.mark.parametrize(("overrides", "clusters"), LENGTH_LATENCIES)
def test_the_latency_pass_over_length_times_both_series_in_balance(
    overrides: list[str], clusters: int | None
) -> None:
    config = compose(overrides)
    found = cells(build_plan(config, load_scenario("xfinity_length"), words))
    assert len(found) == 2 * 3 * config.latency.samples
    for series in ("filler", "moved_limit"):
        mine = [c for c in found if c.sample.series == series]
        points = Counter(
            (c.sample.filler_tokens, c.sample.prior_calls if series == "moved_limit" else 0, c.sample.limit)
            for c in mine
        )
        assert len(set(points.values())) == 1 and len(mine) == len(found) / 2
        assert clusters is None or len({c.sample.cluster for c in mine}) == clusters


def test_each_order_of_the_arms_comes_once_at_every_point_of_the_length_latency_experiment() -> None:
    found = cells(
        build_plan(compose(["experiment=xfinity_length_latency"]), load_scenario("xfinity_length"), words)
    )
    orders: dict[str, list[str]] = {}
    for cell in found:
        orders.setdefault(cell.sample.id, []).append(cell.condition)
    points: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for sample_id, order in orders.items():
        _, series, _, point = sample_id.split("/", 3)
        points.setdefault((series, point), set()).add(tuple(order))
    assert len(points) == 2 * 3 * 2 and all(len(found) == 6 for found in points.values())
