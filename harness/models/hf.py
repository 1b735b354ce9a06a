"""The transformers backend: any causal language model with full or sliding-window attention.

A batch's prompts form a prefix tree (`prefix_tree`); each shared prefix is prefilled once and forked.
`choose` reads the probabilities of the choices' tokens from the same passes; `act` and `ask` decode all their
cells in one left-padded batch. Nothing here depends on which cells are already done: the same batch gives the
same numbers whenever it is computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import torch

from harness.config import ModelConfig
from harness.models.base import Then, in_passes
from harness.models.decode import Decoder, Row
from harness.models.forward import Engine, memory_guard
from harness.models.prefix_tree import ROOT, PrefixTree, Step, common_prefix
from harness.types import CacheState, ModelOutput, ModelUsage, Request, Timing

Nodes = tuple[int, ...]


class TransformersModel:
    """A local model in transformers. `path`: a Hugging Face folder; `dtype` and `device` may be `auto`
    (a GPU in bfloat16 when there is one, else the CPU in float32). `pack_tokens` bounds one forward
    pass. Raises ModelError when the model cannot be loaded or has layers that cannot be forked."""

    def __init__(
        self,
        path: str | Path,
        tokenizer: Any,
        *,
        dtype: str = "auto",
        device: str = "auto",
        threads: int | None = None,
        pack_tokens: int = 1024,
    ) -> None:
        self.tokenizer = tokenizer
        self._engine = Engine(path, dtype=dtype, device=device, threads=threads, chunk=pack_tokens)
        self._decoder = Decoder(self._engine, tokenizer)
        self._pack_tokens = pack_tokens
        self._trunk: tuple[int, ...] = ()
        self.computed_tokens = 0

    @classmethod
    def from_config(cls, path: Path, tokenizer: Any, settings: ModelConfig, log_dir: Path) -> Self:
        """Raises ModelError when the model cannot be loaded."""
        return cls(
            path,
            tokenizer,
            dtype=settings.dtype,
            device=settings.device,
            threads=settings.threads,
            pack_tokens=settings.pack_tokens,
        )

    @property
    def cache_block(self) -> int | None:
        """None: the prefix tree shares every token and knows no blocks."""
        return None

    @property
    def cache_blocks(self) -> int | None:
        return None

    def check_cache(self, cache: CacheState) -> None:
        """Every state is to be had. Nothing is kept from one lone request to the next, so that `natural`, by which a
        model is held against one behind an API, is a cold start here."""

    @property
    def facts(self) -> dict[str, Any]:
        return self._engine.facts

    def share_prefix(self, ids: Sequence[int]) -> None:
        self._trunk = tuple(ids)
        self._engine.reset()
        if ids:
            self._engine.extend(self._trunk)
            self._engine.pin()
            self.computed_tokens += len(ids)

    def close(self) -> None:
        self._engine.close()

    # -- a batch -------------------------------------------------------------------------------------

    def run(self, requests: Sequence[Request], then: Then | None = None) -> Iterator[tuple[str, ModelOutput]]:
        with memory_guard():
            yield from in_passes(self._run, requests, then)

    def _run(self, requests: Sequence[Request]) -> Iterator[tuple[str, ModelOutput]]:
        started = datetime.now(UTC).isoformat()
        tree, paths, fresh = self._grow(requests)
        wanted = _wanted_edges(requests, paths, tree)
        # For replies: the prompt's last node → logits there and a copy of the branch's keys and values.
        found: dict[int, Any] = {paths[r.cell_id][0][-1]: None for r in requests if r.probe != "choose"}
        logprobs: dict[tuple[int, int], float] = {}
        self._engine.rewind(len(self._trunk))
        for step in tree.plan(self._pack_tokens):
            self._step(tree, step, wanted, logprobs, found)
        for request in requests:
            if request.probe == "choose":
                yield request.cell_id, self._chosen(request, paths, logprobs, fresh, started)
        rows = [
            Row(request, *found[paths[request.cell_id][0][-1]])
            for request in requests
            if request.probe != "choose"
        ]
        if rows:
            yield from self._decoder.decode(rows, fresh, started)

    def _grow(self, requests: Sequence[Request]) -> tuple[PrefixTree, dict[str, list[Nodes]], dict[str, int]]:
        """The batch's tree; per cell the nodes of its prompt and of each choice's computed tokens;
        per cell the prompt tokens that no earlier cell of the batch had computed."""
        base = len(self._trunk)
        prompts = [r.prompt.ids + r.forced_ids for r in requests]
        if any(ids[:base] != self._trunk or len(ids) <= base for ids in prompts):
            raise ValueError("a prompt does not start with the run's shared prefix")
        tree = PrefixTree(base=base)
        # The last token of a prompt stays outside the shared run: its logits are read.
        shared = min(common_prefix(prompts), min(map(len, prompts)) - 1)
        stem = tree.insert(prompts[0][base:shared])
        after = stem[-1] if stem else ROOT
        paths: dict[str, list[Nodes]] = {}
        fresh: dict[str, int] = {}
        for request, ids in zip(requests, prompts, strict=True):
            before = len(tree.token) if paths else 0
            own = stem + tree.insert(ids[shared:], after)
            fresh[request.cell_id] = sum(node >= before for node in own[: len(request.prompt.ids) - base])
            # The last token of a choice is only predicted, never computed.
            forks = [tree.insert(choice[:-1], own[-1]) for choice in request.choices.values()]
            paths[request.cell_id] = [own, *forks]
        return tree, paths, fresh

    def _step(
        self,
        tree: PrefixTree,
        step: Step,
        wanted: Mapping[int, Sequence[int]],
        logprobs: dict[tuple[int, int], float],
        found: dict[int, Any],
    ) -> None:
        nodes = step.nodes
        index = {node: i for i, node in enumerate(nodes)}
        ends = [node for node in nodes if node in found]
        read = [node for node in nodes if node in wanted or node in found]
        self._engine.rewind(step.chain)
        parents = [index.get(tree.parent[node], -1) for node in nodes]
        logits = self._engine.compute(
            [tree.token[node] for node in nodes],
            [tree.depth[node] for node in nodes],
            parents,
            [index[node] for node in read],
        )
        self.computed_tokens += len(nodes)
        for row, node in enumerate(read):
            if node in wanted:
                values = torch.log_softmax(logits[row].float(), dim=-1)
                for token in wanted[node]:
                    logprobs[node, token] = float(values[token])
        for node in ends:
            own = [index[n] for n in tree.path(node) if n in index]
            found[node] = (logits[read.index(node)].float().clone(), self._engine.branch(step.chain, own))
        if not step.keep:
            self._engine.rewind(step.chain)

    def _chosen(
        self,
        request: Request,
        paths: Mapping[str, Sequence[Nodes]],
        logprobs: Mapping[tuple[int, int], float],
        fresh: Mapping[str, int],
        started: str,
    ) -> ModelOutput:
        own, *forks = paths[request.cell_id]
        totals = {}
        for (label, tokens), fork in zip(request.choices.items(), forks, strict=True):
            nodes = (own[-1], *fork)
            totals[label] = sum(logprobs[node, token] for node, token in zip(nodes, tokens, strict=True))
        usage = ModelUsage(
            prompt_tokens=len(request.prompt.ids),
            completion_tokens=None,
            cached_tokens=len(request.prompt.ids) - fresh[request.cell_id],
        )
        return ModelOutput("", (), "choice", usage, Timing(started_at=started), choice_logprobs=totals)

    # -- one at a time -------------------------------------------------------------------------------

    def run_alone(self, request: Request, cache: CacheState = "cold", shared: int = 0) -> ModelOutput:
        self.check_cache(cache)
        ids = request.prompt.ids
        there = min(shared, len(ids) - 1) if cache == "warm" else 0
        trunk, self._trunk = self._trunk, ()
        try:
            with memory_guard():
                self._engine.rewind(0)
                if there:
                    self._engine.extend(ids[:there])
                    self._engine.wait()  # a GPU works on after the call
                started, clock = datetime.now(UTC).isoformat(), perf_counter()
                logits = self._engine.extend(ids[there:])
                row = Row(request, logits[-1].float(), self._engine.branch(len(ids), []))
                ((_, output),) = self._decoder.decode(
                    [row], {request.cell_id: len(ids) - there}, started, clock=clock
                )
            self.computed_tokens += len(ids)
            return replace(output, timing=replace(output.timing, cache=cache))
        finally:
            self.share_prefix(trunk)


def _wanted_edges(
    requests: Sequence[Request], paths: Mapping[str, Sequence[Nodes]], tree: PrefixTree
) -> dict[int, list[int]]:
    """node → next tokens whose probability some choice needs."""
    wanted: dict[int, set[int]] = {}
    for request in requests:
        own, *forks = paths[request.cell_id]
        for tokens, fork in zip(request.choices.values(), forks, strict=True):
            for node, token in zip((own[-1], *fork), tokens, strict=True):
                wanted.setdefault(node, set()).add(token)
    return {node: sorted(tokens) for node, tokens in wanted.items()}
