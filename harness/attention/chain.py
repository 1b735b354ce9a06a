"""One sequence after the other through an engine, computing anew only what the last one does not share.

Two sequences share a token only if it was computed under the same hidden spans: a row that could not see a span has
other keys and values than one that could. Knows an engine; knows no record.
"""

from collections.abc import Mapping, Sequence

import torch

from harness.attention.capture import Hidden, Taker, Watch, watching
from harness.models.forward import Engine
from harness.models.prefix_tree import PrefixTree

_TAIL = 256
"""Most tokens of a stem that are computed together with the choices behind it."""
Computed = tuple[int, tuple[tuple[int, int], ...], tuple[int, ...]]
"""A token id, the spans that were hidden from it, and in which layers (none named: in all of them)."""


class Chain:
    """The engine's key-value chain and what each of its tokens was computed under. `watch` holds what is the same
    for every capture: layers and block size."""

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine = engine
        self._watch = watch
        self._have: list[Computed] = []
        self._pinned: list[Computed] = []
        self.computed_tokens = 0

    def pin(self) -> None:
        """Keep the present tokens, such as what all prompts begin with."""
        self._engine.pin()
        self._pinned = self._have

    def unwind(self) -> None:
        """Back to what is pinned: what follows is computed in the same passes whatever came before, to the bit."""
        self._engine.rewind(len(self._pinned))
        self._have = list(self._pinned)

    def extend(
        self,
        ids: Sequence[int],
        hidden: Hidden | None = None,
        rows: Sequence[int] = (),
        taker: Taker | None = None,
    ) -> torch.Tensor:
        """Brings the chain to exactly `ids`; logits of the last token, shape (vocabulary,). `rows`: ascending
        positions whose attention goes to `taker`; they are computed anew even where they are there."""
        wanted = signed(ids, hidden)
        keep = self._kept(wanted, min(rows[0] if rows else len(ids), len(ids) - 1))
        self._engine.rewind(keep)
        self._have = wanted
        self.computed_tokens += len(ids) - keep
        watch = self._watching(hidden, rows, taker)
        with watching(watch):
            return self._engine.extend(ids[keep:])[-1]

    def choice_logprobs(
        self, stem: Sequence[int], choices: Mapping[str, tuple[int, ...]], hidden: Hidden | None = None
    ) -> dict[str, float]:
        """Choice → natural log of the raw product of its tokens' probabilities behind `stem`."""
        wanted = signed(stem, hidden)
        keep = self._kept(wanted, len(stem) - 1)
        if len(stem) - keep > _TAIL:
            self.extend(stem[:-1], hidden)
            keep = len(stem) - 1
        # What is left of the stem and all choices in one pass: a pass of one token takes nearly as long.
        tree = PrefixTree(base=keep)
        trunk = tree.insert(stem[keep:])
        # The last token of a choice is only predicted, never computed.
        paths = {label: tree.insert(ids[:-1], trunk[-1]) for label, ids in choices.items()}
        self._engine.rewind(keep)
        read = range(trunk[-1], len(tree.token))
        with watching(self._watching(hidden, (), None)):
            logits = self._engine.compute(tree.token, tree.depth, tree.parent, read)
        self.computed_tokens += len(tree.token)
        self._engine.rewind(len(stem))  # the trunk was inserted first: the choices go
        self._have = wanted
        after = torch.log_softmax(logits.float(), dim=-1)
        found = {}
        for label, nodes in paths.items():
            rows = [after[node - trunk[-1]] for node in (trunk[-1], *nodes)]
            found[label] = sum(float(row[token]) for row, token in zip(rows, choices[label], strict=True))
        return found

    def _kept(self, wanted: Sequence[Computed], most: int) -> int:
        """Tokens of the chain that `wanted` goes on from."""
        keep = min(self._shared(wanted), most)
        # Rewound to their length, the engine brings back the pinned tensors.
        other = keep == len(self._pinned) and list(wanted[:keep]) != self._pinned
        return keep - 1 if other else keep

    def _shared(self, wanted: Sequence[Computed]) -> int:
        for length, (old, new) in enumerate(zip(self._have, wanted, strict=False)):
            if old != new:
                return length
        return min(len(self._have), len(wanted))

    def _watching(self, hidden: Hidden | None, rows: Sequence[int], taker: Taker | None) -> Watch:
        return Watch(rows, taker, self._watch.layers, self._watch.block, hidden)


def signed(ids: Sequence[int], hidden: Hidden | None) -> list[Computed]:
    """Every token with the spans that are hidden from it, and in which layers."""
    if hidden is None or hidden.layers == frozenset():
        return [(token, (), ()) for token in ids]
    layers = tuple(sorted(hidden.layers or ()))
    spans = [hidden.at(position) for position in range(len(ids))]
    return [(token, at, layers if at else ()) for token, at in zip(ids, spans, strict=True)]
