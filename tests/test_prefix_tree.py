"""Claims about the prefix tree: every node once, after its parent, seeing exactly its ancestors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.models.prefix_tree import ROOT, PrefixTree, common_prefix

# Few tokens and long sequences: much is shared, and at every depth.
SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=14), min_size=1, max_size=12)
RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=6).map(
    lambda parts: [[7] * sum(n for _, n in parts[: i + 1]) + [token] for i, (token, _) in enumerate(parts)]
)
BUDGETS = st.integers(1, 20)


def build(sequences: list[list[int]], base: int = 0) -> tuple[PrefixTree, list[tuple[int, ...]]]:
    tree = PrefixTree(base=base)
    return tree, [tree.insert(sequence) for sequence in sequences]


def simulate(tree: PrefixTree, budget: int) -> dict[int, tuple[int, ...]]:
    """Runs the steps on a fake cache. Per node: the tokens that it saw, itself included."""
    chain: list[int] = [-1] * tree.base  # what the engine holds before the root
    seen: dict[int, tuple[int, ...]] = {}
    for step in tree.plan(budget):
        assert tree.base <= step.chain <= len(chain), "a step may only cut the chain back"
        assert 1 <= len(step.nodes) <= budget
        del chain[step.chain :]
        place = {node: i for i, node in enumerate(step.nodes)}
        local: list[tuple[int, ...]] = []
        for i, node in enumerate(step.nodes):
            assert node not in seen, "computed twice"
            parent = place.get(tree.parent[node], -1)
            assert parent < i, "a parent comes before its children"
            before = local[parent] if parent >= 0 else tuple(chain)
            assert len(before) == tree.depth[node], "the position is what stands before the token"
            local.append((*before, tree.token[node]))
            seen[node] = local[i]
        if step.keep:
            assert all(tree.parent[b] == a for a, b in zip(step.nodes, step.nodes[1:], strict=False))
            chain.extend(tree.token[node] for node in step.nodes)
    return seen


@settings(max_examples=300, deadline=None)
@given(sequences=SEQUENCES | RUNS, budget=BUDGETS, base=st.integers(0, 3))
def test_every_node_is_computed_once_and_sees_exactly_its_ancestors(
    sequences: list[list[int]], budget: int, base: int
) -> None:
    tree, paths = build(sequences, base)
    seen = simulate(tree, budget)
    assert sorted(seen) == list(range(len(tree.token)))
    for sequence, path in zip(sequences, paths, strict=True):
        assert seen[path[-1]] == (*[-1] * base, *sequence)


@given(sequences=SEQUENCES)
def test_a_prefix_that_is_shared_is_one_run_of_nodes(sequences: list[list[int]]) -> None:
    tree, paths = build(sequences)
    assert len(tree.token) == len({tuple(s[: i + 1]) for s in sequences for i in range(len(s))})
    for sequence, path in zip(sequences, paths, strict=True):
        assert [tree.token[node] for node in path] == sequence
        assert tree.path(path[-1]) == list(path)
        assert all(tree.parent[b] == a for a, b in zip((ROOT, *path), path, strict=False))


@given(sequences=SEQUENCES, more=st.lists(st.integers(0, 2), max_size=4))
def test_a_sequence_hung_under_a_node_continues_it(sequences: list[list[int]], more: list[int]) -> None:
    tree, paths = build(sequences, base=5)
    hung = tree.insert(more, paths[0][-1])
    assert [tree.token[node] for node in tree.path(hung[-1] if hung else paths[0][-1])] == sequences[0] + more
    assert [tree.depth[node] for node in hung] == [5 + len(sequences[0]) + i for i in range(len(more))]


@given(sequences=SEQUENCES, budget=BUDGETS)
def test_the_plan_does_not_depend_on_when_it_is_made(sequences: list[list[int]], budget: int) -> None:
    assert build(sequences)[0].plan(budget) == build(sequences)[0].plan(budget)


def test_a_transcript_deeper_than_the_recursion_limit_is_planned() -> None:
    tree, _ = build([[1] * 5000 + [2], [1] * 5000 + [3]])
    assert len(simulate(tree, 64)) == 5002


def test_short_branches_share_a_pass_and_a_long_run_has_its_own() -> None:
    tree, _ = build([[9] * 30 + [i, i] for i in range(4)])
    assert [(step.chain, len(step.nodes), step.keep) for step in tree.plan(10)] == [
        (0, 10, True),
        (10, 10, True),
        (20, 10, True),
        (30, 8, False),
    ]


def test_an_empty_tree_needs_no_pass() -> None:
    assert PrefixTree(base=4).plan(16) == []


@pytest.mark.parametrize(
    ("rows", "length"),
    [([[1, 2, 3], [1, 2]], 2), ([[1]], 1), ([[1], [2]], 0), ([(1, 2), (1, 2)], 2), ([], 0)],
)
def test_the_common_prefix_is_the_longest_that_all_share(rows: list, length: int) -> None:
    assert common_prefix(rows) == length
