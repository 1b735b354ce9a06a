"""An attention function for transformers that hands out the rows that are asked for, and can hide keys.

The model's own output comes from transformers' SDPA unchanged; softmax is computed a second time for the wanted
query rows alone, in float32 and in blocks, so that memory does not grow with the square of the length. Knows one
layer's queries, keys and mask at a time; knows no region, no record and no file.

Registered under `NAME` for attention *and* for its mask: without the second, transformers builds no mask for a name
that it does not know, and padding and sliding windows would silently be lost.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from harness.errors import AttentionError

NAME = "tailgauge_rows"
_BLOCK_NUMBERS = 2**20
"""Most attention weights that are worked on at once (4 MiB in float32, several times over while they are reduced)."""


class Taker(Protocol):
    """What is done with captured rows."""

    def take(self, rows: "Rows") -> None:
        """Called for every block of wanted rows of every wanted layer."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A block of captured rows of one layer."""

    layer: int
    positions: torch.Tensor
    """(Q,) positions of the queries in the sequence, on the CPU."""
    weights: torch.Tensor
    """(H, Q, K) float32, each row sums to 1."""
    values: torch.Tensor
    """(key-value heads, K, head size), the model's dtype."""
    module: Any
    """The attention layer, for its output projection."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Keys that later rows do not see. `spans`: token ranges [start, end); each is hidden from every row at or
    behind both its end and `from_row`. `layers` None: in all of them."""

    spans: tuple[tuple[int, int], ...]
    from_row: int = 0
    layers: frozenset[int] | None = None

    def at(self, row: int) -> tuple[tuple[int, int], ...]:
        """The spans that are hidden from the row at this position."""
        return tuple(span for span in self.spans if row >= max(span[1], self.from_row))


@dataclass(frozen=True, slots=True)
class Watch:
    """What holds for the passes computed while it is active. `rows`: wanted positions of the sequence, ascending."""

    rows: Sequence[int] = ()
    taker: Taker | None = None
    layers: frozenset[int] | None = None
    block: int = 64
    """Most query rows worked on at once."""
    hidden: Hidden | None = None


_ACTIVE: ContextVar[Watch | None] = ContextVar("watch", default=None)


def register() -> str:
    """Makes the attention function known to transformers; returns the name to load a model with."""
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """`watch` holds for every forward pass inside, of models loaded under `NAME`."""
    token = _ACTIVE.set(watch)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """`query` (1, H, Q, d), `key` and `value` (1, key-value heads, K, d), as transformers calls it."""
    if options.get("s_aux") is not None or options.get("position_bias") is not None:
        raise AttentionError(
            f"{type(module).__name__}: attention with learned sinks or a position bias cannot be captured; choose a model "
            "of the Qwen, Llama, SmolLM or Gemma families"
        )
    watch = _ACTIVE.get()
    layer = int(module.layer_idx)
    if watch is not None and watch.hidden is not None and _holds(watch.hidden.layers, layer):
        attention_mask = _hide(watch.hidden, attention_mask, query, key)
    if options.get("softcap") is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    else:
        output = _soft_capped(module, query, key, value, attention_mask, options)
    if watch is not None and watch.taker is not None and watch.rows and _holds(watch.layers, layer):
        _capture(watch, watch.taker, layer, module, (query, key, value), attention_mask, options)
    return output, None


def _holds(layers: frozenset[int] | None, layer: int) -> bool:
    return layers is None or layer in layers


def _capture(
    watch: Watch,
    taker: Taker,
    layer: int,
    module: Any,
    states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    mask: torch.Tensor | None,
    options: Any,
) -> None:
    query, key, value = states
    if query.shape[0] != 1:
        raise AttentionError(f"rows are captured of one sequence at a time, the pass has {query.shape[0]}")
    before = key.shape[2] - query.shape[2]
    wanted = [row - before for row in watch.rows if before <= row < key.shape[2]]
    size = max(1, min(watch.block, _BLOCK_NUMBERS // (query.shape[1] * key.shape[2])))
    for start in range(0, len(wanted), size):
        rows = torch.tensor(wanted[start : start + size], device=query.device)
        weights = _weights(query, key, mask, rows, _scaling(module, query, options), options.get("softcap"))
        taker.take(Rows(layer, rows.cpu() + before, weights[0], value[0], module))


def _scaling(module: Any, query: torch.Tensor, options: Any) -> float:
    given = options.get("scaling")
    return float(given) if given is not None else float(query.shape[-1] ** -0.5)


def _weights(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    rows: torch.Tensor,
    scaling: float,
    softcap: float | None,
) -> torch.Tensor:
    """(batch, H, rows, K) in float32. Query heads that share a key head are computed together, so that no key is
    repeated."""
    batch, heads, _, size = query.shape
    shared, length = key.shape[1], key.shape[2]
    few = query.index_select(2, rows).float().reshape(batch, shared, -1, size)
    scores = torch.matmul(few, key.float().transpose(2, 3)).mul_(scaling).reshape(batch, heads, -1, length)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is None:
        seen = _causal(rows, length - query.shape[2], length)
        scores.masked_fill_(~seen, -torch.inf)
    elif mask.dtype == torch.bool:
        scores.masked_fill_(~mask.index_select(2, rows)[..., :length], -torch.inf)
    else:
        scores += mask.index_select(2, rows)[..., :length].float()
    return torch.softmax(scores, dim=-1)


def _causal(rows: torch.Tensor, before: int, length: int) -> torch.Tensor:
    """Boolean (rows, length): each row sees itself and what stands before it."""
    return torch.arange(length, device=rows.device)[None, :] <= (rows + before)[:, None]


def _hide(
    hidden: Hidden, mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor
) -> torch.Tensor | None:
    """The mask without the hidden keys."""
    size, length = query.shape[2], key.shape[2]
    before = length - size
    if not any(hidden.at(row) for row in (before, length - 1)):
        return mask
    if mask is None:
        mask = _causal(torch.arange(size, device=query.device), before, length)[None, None]
    mask = mask.clone()
    nothing = False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
    for start, end in hidden.spans:
        first = max(end, hidden.from_row, before) - before
        mask[:, :, first:, start:end] = nothing
    return mask


def _soft_capped(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    options: Any,
) -> torch.Tensor:
    """Output (batch, Q, H, d) of attention with capped scores, which SDPA does not know (Gemma 2): block by
    block, so that memory stays linear in the length."""
    batch, heads, size, _ = query.shape
    shared, length = key.shape[1], key.shape[2]
    step = max(1, _BLOCK_NUMBERS // (heads * length))
    parts = []
    for start in range(0, size, step):
        rows = torch.arange(start, min(start + step, size), device=query.device)
        weights = _weights(query, key, mask, rows, _scaling(module, query, options), options["softcap"])
        grouped = weights.to(value.dtype).reshape(batch, shared, -1, length)
        parts.append(torch.matmul(grouped, value).reshape(batch, heads, len(rows), -1))
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous()
