"""The prefix-cache ledger against a brute-force reading of its rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cache import PrefixLedger, sharing_order

PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=14), max_size=8)


def brute(seen: list[list[int]], ids: list[int], block: int) -> int:
    """Longest shared run of whole blocks with any earlier request, the last token left out."""
    best = 0
    for other in seen:
        for size in range(block, len(ids), block):
            if other[:size] == ids[:size] and len(other) >= size:
                best = max(best, size)
    return best


@given(PROMPTS, st.integers(1, 5))
def test_a_request_finds_the_longest_run_of_whole_blocks_left_before(
    prompts: list[list[int]], block: int
) -> None:
    ledger = PrefixLedger(block)
    for number, ids in enumerate(prompts):
        assert ledger.predict(ids) == brute(prompts[:number], ids, block)
        assert ledger.visit(ids) == brute(prompts[:number], ids, block)


def test_the_last_token_is_always_computed() -> None:
    ledger = PrefixLedger(4)
    assert ledger.visit([1, 2, 3, 4, 5, 6, 7, 8]) == 0
    assert ledger.visit([1, 2, 3, 4, 5, 6, 7, 8]) == 4
    assert ledger.visit([1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8


def test_the_same_block_after_another_beginning_is_another_block() -> None:
    ledger = PrefixLedger(2)
    ledger.visit([1, 2, 3, 4, 5])
    assert ledger.predict([9, 9, 3, 4, 5]) == 0


def test_a_full_cache_forgets_the_least_recent_request_from_its_end() -> None:
    ledger = PrefixLedger(2, capacity=3)
    ledger.visit([1, 1, 2, 2, 3])  # two blocks
    ledger.visit([5, 5, 6, 6, 7])  # four: the deeper block of the first goes
    assert ledger.predict([1, 1, 2, 2, 3]) == 2
    assert ledger.predict([5, 5, 6, 6, 7]) == 4


def test_clearing_empties_it_and_nonsense_is_refused() -> None:
    ledger = PrefixLedger(2)
    ledger.visit([1, 2, 3])
    ledger.clear()
    assert ledger.predict([1, 2, 3]) == 0
    for block, capacity in ((0, None), (2, 0)):
        with pytest.raises(ValueError, match="1 or more"):
            PrefixLedger(block, capacity)


@given(PROMPTS)
def test_the_sharing_order_leaves_no_prompt_out(prompts: list[list[int]]) -> None:
    assert sorted(sharing_order(prompts)) == list(range(len(prompts)))


def test_interleaved_clusters_meet_again_in_the_sharing_order() -> None:
    """With room for one cluster, alternating between two reuses nothing of them; sorted, all of it."""
    a = [[1] * 8 + [tail] * 2 for tail in range(4)]
    b = [[2] * 8 + [tail] * 2 for tail in range(4)]
    mixed = [prompt for pair in zip(a, b, strict=True) for prompt in pair]

    def reused(prompts: list[list[int]]) -> int:
        ledger = PrefixLedger(2, capacity=5)
        return sum(ledger.visit(prompt) for prompt in prompts)

    assert reused(mixed) < reused([mixed[i] for i in sharing_order(mixed)]) == 2 * 3 * 8
