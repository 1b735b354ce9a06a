"""What a prompt has in common with those before it, against a brute-force reading of token ids."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cache import PrefixLedger, found_in_cache
from harness.ledger.pieces import History, Pieces

# Few tokens and short pieces, so that prompts share beginnings, also across other pieces.
PIECE = st.lists(st.integers(0, 1), min_size=1, max_size=3).map(tuple)
PROMPTS = st.lists(st.lists(PIECE, max_size=7), max_size=9)


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def flat(pieces: list[tuple[int, ...]]) -> list[int]:
    return list(chain.from_iterable(pieces))


@given(PROMPTS)
def test_the_history_knows_the_longest_prefix_shared_with_any_earlier_prompt(
    prompts: list[list[tuple[int, ...]]],
) -> None:
    pieces = Pieces()
    history = History(pieces)
    for number, each in enumerate(prompts):
        ids = flat(each)
        prompt = pieces.prompt([pieces.number(piece) for piece in each])
        assert prompt.tokens == len(ids)
        assert pieces.ids(prompt.pieces).tolist() == ids
        brute = max((common(ids, flat(other)) for other in prompts[:number]), default=0)
        assert history.visit(prompt) == brute


@given(PROMPTS, st.integers(1, 4))
def test_the_longest_prefix_says_what_a_cache_of_blocks_without_eviction_holds(
    prompts: list[list[tuple[int, ...]]], block: int
) -> None:
    ledger = PrefixLedger(block)
    for number, each in enumerate(prompts):
        ids = flat(each)
        shared = max((common(ids, flat(other)) for other in prompts[:number]), default=0)
        assert found_in_cache(shared, len(ids), block) == ledger.visit(ids)


@pytest.mark.parametrize(
    ("shared", "length", "block", "found"),
    [(0, 40, 16, 0), (15, 40, 16, 0), (16, 40, 16, 16), (39, 40, 16, 32), (32, 32, 16, 16), (33, 33, 16, 32), (5, 0, 4, 0)],
)  # fmt: skip
def test_whole_blocks_alone_are_found_and_the_last_token_is_always_computed(
    shared: int, length: int, block: int, found: int
) -> None:
    assert found_in_cache(shared, length, block) == found


def test_a_prefix_is_found_across_other_pieces_and_beyond_many_that_differ() -> None:
    pieces = Pieces()
    history = History(pieces)
    long = pieces.prompt([pieces.number((i, i + 1, i + 2)) for i in range(0, 300, 3)])
    single = pieces.prompt([pieces.number((i,)) for i in range(299)])
    assert history.visit(long) == 0
    assert history.visit(single) == 299
    assert history.visit(long) == 300


def test_more_pieces_than_there_was_room_for_keep_their_sizes() -> None:
    pieces = Pieces()
    numbers = [pieces.number((n,) * (n % 5 + 1)) for n in range(2500)]
    assert pieces.prompt(numbers).tokens == sum(n % 5 + 1 for n in range(2500))
    assert [pieces.number((n,) * (n % 5 + 1)) for n in range(2500)] == numbers
