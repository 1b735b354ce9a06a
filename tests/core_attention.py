"""Helpers of the attention tests: tiny models of many kinds, and references that share nothing with the capture.

The reference is transformers' eager attention with a mask of our own in every layer, worked out here from the window
and from what is to be hidden; it gives every row of every head, and the logits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from core_models import KINDS as COMMON
from transformers import AutoModelForCausalLM

from harness.attention.capture import Hidden, Rows, Watch, register, watching
from harness.models.forward import Engine

VOCABULARY, LAYERS, HEADS, WINDOW = 320, 3, 8, 7
_SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]
_SIZE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    # Large enough that rows differ plainly from an even spread.
    "initializer_range": 0.4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_MIXED = {"sliding_window": WINDOW, "layer_types": _SLIDING}
KINDS: dict[str, tuple[str, dict[str, Any], tuple[int | None, ...]]] = {
    "qwen2": ("Qwen2Config", {}, (None,) * LAYERS),
    "qwen2-sliding": ("Qwen2Config", {"use_sliding_window": True, **_MIXED}, (WINDOW, None, WINDOW)),
    "qwen3": ("Qwen3Config", {}, (None,) * LAYERS),
    "llama": ("LlamaConfig", {}, (None,) * LAYERS),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW}, (WINDOW,) * LAYERS),
    "gemma2": (
        "Gemma2Config",
        {**_MIXED, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0},
        (WINDOW, None, WINDOW),
    ),
    "gemma3": ("Gemma3TextConfig", {**_MIXED, "query_pre_attn_scalar": 16}, (WINDOW, None, WINDOW)),
    "smollm3": ("SmolLM3Config", {}, (None,) * LAYERS),
}
"""Configuration class, what it has of its own, and the window of each layer."""
assert COMMON.keys() <= KINDS.keys(), "what the backend is tested on, the capture is tested on"


def make_folder(kind: str, folder: Path) -> Path:
    """A random model with grouped heads (8 on 2) as a Hugging Face folder."""
    name, special, _ = KINDS[kind]
    torch.manual_seed(sum(map(ord, kind)))
    model = AutoModelForCausalLM.from_config(getattr(transformers, name)(**_SIZE, **special))
    model.generation_config = transformers.GenerationConfig(eos_token_id=2, pad_token_id=0)
    model.save_pretrained(folder)
    return folder


def engine(folder: Path, *, chunk: int = 64, dtype: str = "float32", attention: str | None = None) -> Engine:
    return Engine(
        folder, dtype=dtype, device="cpu", threads=1, chunk=chunk, attention=attention or register()
    )


def tokens(count: int, seed: int = 0) -> list[int]:
    drawn = np.random.default_rng(seed).integers(3, VOCABULARY, count)
    return [int(token) for token in drawn]


class Kept:
    """Keeps every captured row whole."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], torch.Tensor] = {}
        """(layer, position) → (H, K)"""
        self.blocks: list[int] = []

    def take(self, rows: Rows) -> None:
        self.blocks.append(len(rows.positions))
        for i, position in enumerate(rows.positions.tolist()):
            assert (rows.layer, position) not in self.rows, "each row comes once"
            self.rows[rows.layer, position] = rows.weights[:, i].clone()


def captured(model: Engine, ids: Sequence[int], rows: Sequence[int], **watch: Any) -> tuple[Kept, Any]:
    """Rows of a fresh pass over `ids`, and the logits of its last token."""
    kept = Kept()
    model.reset()
    with watching(Watch(rows, kept, **watch)):
        logits = model.extend(ids)[-1]
    return kept, logits


@dataclass(frozen=True)
class Eager:
    """`weights` (L, H, S, S), `logits` (S, V)."""

    weights: torch.Tensor
    logits: torch.Tensor


@torch.no_grad()
def eager(
    folder: Path,
    ids: Sequence[int],
    *,
    windows: Sequence[int | None] | None = None,
    hidden: Hidden | None = None,
    dtype: torch.dtype = torch.float32,
) -> Eager:
    """transformers' own; with `windows` under masks of our own, and with `hidden` keys left out of them."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=dtype)
    model.eval()
    if windows is not None:
        for layer, each in enumerate(model.model.layers):
            mask = masked(len(ids), windows[layer], hidden, layer)
            put = partial(_put, mask=mask)
            each.self_attn.register_forward_pre_hook(put, with_kwargs=True)
    output = model(torch.tensor([list(ids)]), output_attentions=True, use_cache=False)
    return Eager(torch.cat(output.attentions).float(), output.logits[0].float())


def _put(module: Any, args: Any, options: Mapping[str, Any], mask: torch.Tensor) -> Any:
    return args, {**options, "attention_mask": mask}


def masked(size: int, window: int | None, hidden: Hidden | None, layer: int) -> torch.Tensor:
    """(1, 1, S, S): 0 where the row sees the key, −inf where not; as the words say it."""
    row, key = torch.arange(size)[:, None], torch.arange(size)[None, :]
    seen = (key <= row) & (row - key < (window or size))
    if hidden is not None and (hidden.layers is None or layer in hidden.layers):
        for start, end in hidden.spans:
            seen &= ~((start <= key) & (key < end) & (row >= end) & (row >= hidden.from_row))
    return torch.zeros(size, size).masked_fill(~seen, -torch.inf)[None, None]


def farthest(kept: Kept, weights: torch.Tensor) -> float:
    """Largest difference between captured rows and the reference's; keys behind the row count as 0."""
    worst = 0.0
    for (layer, position), row in kept.rows.items():
        padded = torch.zeros(weights.shape[1], weights.shape[-1])
        padded[:, : row.shape[-1]] = row
        worst = max(worst, float((padded - weights[layer, :, position]).abs().max()))
    return worst
