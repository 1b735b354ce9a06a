"""Claims about the plan: what is run, in which order, in which batches, with which seeds."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from core_config import REMOVE, plain
from core_samples import arms, words, xfinity
from core_tokens import COUNTER, tiny_template
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config import resolve
from harness.errors import ConfigError, ConfoundError
from harness.models.prefix_tree import common_prefix
from harness.plan import Batch, Cell, build_plan, cell_seed
from harness.preflight import prepare
from harness.types import Decoding

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


# -- preflight ---------------------------------------------------------------------------------------------


DECODING = {"choose": Decoding(1), "act": Decoding(8)}


def test_every_cell_gets_its_request_in_the_plans_order() -> None:
    batches = plan(**SERIES)
    ready = prepare(batches, tiny_template(), arms(), DECODING)
    assert ready.cell_order == [cell.id for cell in cells(batches)]
    for batch, source in zip(ready.batches, batches, strict=True):
        assert batch.number == source.number
        for cell, planned in zip(batch.cells, source.cells, strict=True):
            request = cell.request
            assert cell.cell == planned and request.seed == planned.seed and request.probe == planned.probe
            assert bool(request.choices) == bool(request.forced_ids) == (planned.probe == "choose")
            assert request.decoding == DECODING[planned.probe]
            assert (
                (cell.bar_text != "") == (request.prompt.bar_tokens > 0) == (planned.condition != "control")
            )
            assert (cell.placebo_id is not None) == (planned.condition == "placebo")
            assert request.prompt.text == "", "token ids say all of it"


def test_the_shared_prefix_is_the_longest_that_every_prompt_has() -> None:
    ready = prepare(plan(**SERIES), tiny_template(), arms(), DECODING)
    prompts = [cell.request.prompt.ids for batch in ready.batches for cell in batch.cells]
    shared = ready.shared_prefix
    assert all(ids[: len(shared)] == shared and len(ids) > len(shared) for ids in prompts)
    assert len(shared) == common_prefix(prompts)


def test_a_plan_of_one_prompt_leaves_its_last_token_to_be_read() -> None:
    batches = plan()
    one = (replace(batches[0], cells=batches[0].cells[:1]),)
    ready = prepare(one, tiny_template(), arms(), DECODING)
    assert len(ready.shared_prefix) == len(ready.batches[0].cells[0].request.prompt.ids) - 1


def test_no_cells_are_no_requests() -> None:
    ready = prepare((), tiny_template(), arms(), DECODING)
    assert (ready.batches, ready.shared_prefix, ready.cell_order) == ((), (), [])


def test_the_arms_are_proved_before_any_model_runs() -> None:
    with pytest.raises(ConfoundError, match="changes more than the bar"):
        prepare(plan(), tiny_template(COUNTER), arms(), DECODING)
