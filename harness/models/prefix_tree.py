"""A prefix tree over token sequences and the order in which an engine computes it.

Pure: no tensor, no model. Sequences that share a prefix share its nodes; the plan walks the tree so that
every node is computed exactly once. Long unshared or shared runs are *extended* onto a chain that stays in
the key-value cache; bushy parts are *packed*: several branches in one forward pass, each token seeing
the chain and its own ancestors. Packing is what makes short branches cheap: a forward pass of ten
tokens costs nearly as much as one of a hundred.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ROOT = -1


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass. `chain`: tokens already in the cache that stay there. `nodes`: what to compute,
    parents first. `keep`: the nodes form a run that is to join the chain (the chain is first cut back
    to `chain`)."""

    chain: int
    nodes: tuple[int, ...]
    keep: bool


@dataclass(slots=True)
class PrefixTree:
    """Nodes 0 … n−1, one per distinct (prefix, token), numbered in the order of first insertion."""

    base: int = 0
    """Tokens in front of the root that the engine holds already (the run's shared prefix)."""
    token: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    """Position of the token in its sequence, from 0."""
    _children: dict[int, dict[int, int]] = field(default_factory=dict)

    def insert(self, sequence: Sequence[int], after: int = ROOT) -> tuple[int, ...]:
        """Nodes of `sequence` hung under node `after`; existing nodes are shared."""
        nodes = []
        at = after
        for token in sequence:
            children = self._children.setdefault(at, {})
            node = children.get(token)
            if node is None:
                node = len(self.token)
                self.token.append(token)
                self.parent.append(at)
                self.depth.append(self.depth[at] + 1 if at != ROOT else self.base)
                children[token] = node
            nodes.append(node)
            at = node
        return tuple(nodes)

    def children(self, node: int) -> tuple[int, ...]:
        return tuple(self._children.get(node, {}).values())

    def path(self, node: int) -> list[int]:
        """Nodes from the root to `node`."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = self.parent[node]
        return nodes[::-1]

    def plan(self, budget: int) -> list[Step]:
        """Forward passes that compute every node once, none above `budget` tokens."""
        sizes = self._sizes()
        steps: list[Step] = []
        # A stack instead of recursion: a transcript may be deeper than Python's recursion limit.
        todo: list[tuple[tuple[int, ...], int]] = [(self.children(ROOT), self.base)]
        while todo:
            siblings, chain = todo.pop()
            deferred: list[int] = []
            pack: list[int] = []
            for child in siblings:
                if sizes[child] > budget:
                    deferred.append(child)
                    continue
                below = self._below(child)
                if len(pack) + len(below) > budget:
                    steps.append(Step(chain, tuple(pack), keep=False))
                    pack = []
                pack.extend(below)
            if pack:
                steps.append(Step(chain, tuple(pack), keep=False))
            if deferred:
                # The stack is last-in first-out: put the siblings back, then the run on top of them,
                # so that a run's own subtree is finished before the chain is cut back.
                first, rest = deferred[0], tuple(deferred[1:])
                if rest:
                    todo.append((rest, chain))
                run = self._run(first, budget)
                steps.append(Step(chain, tuple(run), keep=True))
                todo.append((self.children(run[-1]), chain + len(run)))
        return steps

    def _run(self, node: int, budget: int) -> list[int]:
        """From `node` down to the next branching, at most `budget` nodes."""
        run = [node]
        children = self.children(node)
        while len(children) == 1 and len(run) < budget:
            run.append(children[0])
            children = self.children(children[0])
        return run

    def _below(self, node: int) -> list[int]:
        """`node` and everything under it, parents first."""
        found, todo = [], [node]
        while todo:
            at = todo.pop()
            found.append(at)
            todo.extend(reversed(self.children(at)))
        return found

    def _sizes(self) -> list[int]:
        sizes = [1] * len(self.token)
        for node in range(len(self.token) - 1, -1, -1):
            if self.parent[node] != ROOT:
                sizes[self.parent[node]] += sizes[node]
        return sizes


def common_prefix(sequences: Iterable[Sequence[int]]) -> int:
    """Length of the longest prefix that all sequences share."""
    every = [tuple(sequence) for sequence in sequences]
    if not every:
        return 0
    # What the first and the last in dictionary order share, all in between share.
    first, last = min(every), max(every)
    for length, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return length
    return min(len(first), len(last))
