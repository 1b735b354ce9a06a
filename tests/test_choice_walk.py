"""Choices read off a generating engine: whatever it generates, every product is exact."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.models.choice_walk import ChoiceWalk

VOCABULARY = 6


class Generator:
    """An engine over a random but fixed next-token distribution; counts what it is asked for."""

    def __init__(self, seed: int) -> None:
        self.seed, self.steps, self.requests = seed, 0, 0

    def logprobs(self, path: tuple[int, ...]) -> list[float]:
        weights = [random.Random(f"{self.seed}{path}{token}").random() + 0.01 for token in range(VOCABULARY)]
        return [math.log(weight / sum(weights)) for weight in weights]

    def answer(self, walk: ChoiceWalk) -> None:
        while not walk.done:
            asks = walk.asks()
            assert asks, "nothing to ask and not done"
            for ask in asks:
                self.requests += 1
                path, generated = ask.path, ask.path
                for _ in range(ask.steps):
                    self.steps += 1
                    values = self.logprobs(generated)
                    sampled = max(range(VOCABULARY), key=values.__getitem__)
                    onward = walk.take(path, {token: values[token] for token in ask.watched}, sampled)
                    generated = (*generated, sampled)
                    if onward is None:
                        break
                    path = onward
                else:
                    walk.leave(path)


def prefix_free(paths: list[list[int]]) -> dict[str, tuple[int, ...]]:
    kept: list[tuple[int, ...]] = []
    for path in map(tuple, paths):
        if not any(path[: len(k)] == k or k[: len(path)] == path for k in kept):
            kept.append(path)
    return {f"c{number}": path for number, path in enumerate(kept)}


@given(
    st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6), min_size=1, max_size=6),
    st.integers(0, 10**6),
    st.sampled_from([VOCABULARY, 128]),
)
@settings(max_examples=300, deadline=None)
def test_totals_are_the_products_of_the_paths(paths: list[list[int]], seed: int, most: int) -> None:
    choices = prefix_free(paths)
    engine, walk = Generator(seed), ChoiceWalk(choices, most)
    engine.answer(walk)
    for label, ids in choices.items():
        wanted = sum(engine.logprobs(ids[:depth])[token] for depth, token in enumerate(ids))
        assert walk.totals()[label] == pytest.approx(wanted)


def test_a_chain_that_the_model_follows_costs_one_request() -> None:
    engine = Generator(3)
    path: tuple[int, ...] = ()
    for _ in range(8):
        values = engine.logprobs(path)
        path = (*path, max(range(VOCABULARY), key=values.__getitem__))
    walk = ChoiceWalk({"call": path}, 128)
    engine.answer(walk)
    assert (engine.requests, engine.steps) == (1, 8)


def test_no_node_is_asked_for_twice() -> None:
    choices = prefix_free([[0, 1, 2], [0, 1, 3], [0, 4], [5, 5]])
    walk = ChoiceWalk(choices, 128)
    assert [ask.path for ask in walk.asks()] == [()]
    assert walk.asks() == []
    assert walk.take((), {0: -1.0, 1: -1.0, 2: -1.0, 3: -1.0, 4: -1.0, 5: -1.0}, 3) is None
    assert sorted(ask.path for ask in walk.asks()) == [(0,), (5,)]


def test_more_choices_than_can_be_reported_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 3"):
        ChoiceWalk({str(token): (token,) for token in range(4)}, 3)
