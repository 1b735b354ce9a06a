"""What a design asks of a model, counted before it runs: cells, clusters, tokens, and tokens really computed.

Counts on the requests that the run would make, so that the numbers are the run's own. Without the model's tokenizer
only what the configuration says is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.cache import PrefixLedger, sharing_order
from harness.config import RunConfig
from harness.models.prefix_tree import PrefixTree
from harness.plan import Cell
from harness.preflight import Preflight
from harness.types import Request

_TREE = "harness.models.hf.TransformersModel"
_BLOCKS = "harness.models.vllm_engine.VllmModel"
VLLM_BLOCK = 16
"""Tokens in a block of vLLM's prefix cache where `model.engine.block_size` does not say."""


@dataclass(frozen=True, slots=True)
class Part:
    """One probe × series × condition of a design. `prompt`: tokens of all its requests together, None without a
    tokenizer."""

    probe: str
    series: str
    condition: str
    cells: int
    clusters: int
    prompt: int | None
    draws: int
    """Replies or thoughts that are generated, over all cells."""
    tau: int
    """Most tokens of one reply or thought; 0 where nothing is generated."""

    @property
    def most_new(self) -> int:
        """Tokens that are generated when every reply (or thought) reaches its limit."""
        return self.draws * self.tau


def parts_of(config: RunConfig, cells: Iterable[Cell], requests: Mapping[str, Request] | None) -> list[Part]:
    """The parts of a design in the order of the plan. `requests`: by cell id; None where no tokenizer is there."""
    found: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.probe, cell.sample.series, cell.condition), []).append(cell)
    return [_part(config, mine, requests) for mine in found.values()]


def _part(config: RunConfig, cells: list[Cell], requests: Mapping[str, Request] | None) -> Part:
    first = cells[0]
    probe = config.probe[first.probe]
    choose, api = first.probe == "choose", config.model.api
    per_cell = (probe.thoughts or 0) if choose else 1
    asked = 1
    if choose and api is not None:
        # Fewer where the API tells token probabilities, which nobody knows before.
        per_cell = asked = api.draws
    prompt = None
    if requests is not None:
        prompt = asked * sum(len(requests[cell.id].prompt.ids) for cell in cells)
    return Part(
        probe=first.probe,
        series=first.sample.series,
        condition=first.condition,
        cells=len(cells),
        clusters=len({cell.sample.cluster for cell in cells}),
        prompt=prompt,
        draws=per_cell * len(cells),
        tau=probe.max_new_tokens if per_cell else 0,
    )


def _requests(preflight: Preflight) -> list[Request]:
    return [ready.request for batch in preflight.batches for ready in batch.cells]


def computed_tokens(config: RunConfig, preflight: Preflight) -> int | None:
    """Prompt tokens that the engine puts through the model once prefixes are shared, as `Model.computed_tokens`
    counts them. Exact for transformers; for vLLM by the ledger, without what a choice asks for beyond its first
    token. None where it cannot be told: a server, or thoughts, whose tokens are prompts of what follows."""
    target = config.model.target
    if target not in (_TREE, _BLOCKS) or any(request.thoughts for request in _requests(preflight)):
        return None
    if config.measure == "latency":
        if config.latency.cache == "natural" and target != _TREE:
            return None
        first = preflight.batches[0].cells[0].request
        alone = sum(len(request.prompt.ids) for request in _requests(preflight))
        return alone + config.latency.warmups * len(first.prompt.ids)
    if target == _TREE:
        return len(preflight.shared_prefix) + sum(
            _tree_size([ready.request for ready in batch.cells]) - len(preflight.shared_prefix)
            for batch in preflight.batches
        )
    engine = config.model.engine
    return _after_cache(preflight, (engine.block_size if engine else None) or VLLM_BLOCK)


def _tree_size(batch: Sequence[Request]) -> int:
    """Distinct (prefix, token) of a batch, as the transformers backend computes it."""
    tree = PrefixTree()
    for request in batch:
        own = tree.insert(request.prompt.ids + request.forced_ids)
        for choice in request.choices.values():
            tree.insert(choice[:-1], own[-1])
    return len(tree.token)


def _after_cache(preflight: Preflight, block: int) -> int:
    """Tokens that a cache of blocks does not hold, in the order in which the runner asks."""
    ledger = PrefixLedger(block)
    computed = len(preflight.shared_prefix) - ledger.visit(preflight.shared_prefix)
    for batch in preflight.batches:
        sent = [ready.request.prompt.ids + ready.request.forced_ids for ready in batch.cells]
        computed += sum(len(sent[at]) - ledger.visit(sent[at]) for at in sharing_order(sent))
    return computed
