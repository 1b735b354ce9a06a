"""One loaded causal language model and its key-value chain.

Knows transformers and torch; knows no request and no probe. Keys and values are held here as plain
tensors, one pair per layer, and handed to a fresh `DynamicCache` for each pass: the names and methods of
the cache class change between transformers releases, its `update` does not.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, DynamicCache

from harness.errors import ModelError, ProviderError

KeyValues = list[tuple[torch.Tensor, torch.Tensor]]
"""Per layer keys and values, each (batch, heads, tokens, head size)."""
_NO_MEMORY = ("not enough memory", "can't allocate memory")
_FORKABLE = {"full_attention", "sliding_attention"}


class Engine:
    """Loads the model. `chunk` bounds the tokens of one plain prefill pass; `attention` is the name of an attention
    function of transformers."""

    def __init__(
        self,
        path: str | Path,
        *,
        dtype: str,
        device: str,
        threads: int | None,
        chunk: int,
        attention: str = "sdpa",
    ) -> None:
        self.device = torch.device(_device(device))
        self.dtype = _dtype(dtype, self.device)
        if threads:
            torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        try:
            self.model: Any = AutoModelForCausalLM.from_pretrained(
                str(path), dtype=self.dtype, attn_implementation=attention
            )
            self.model.eval()
            self.model.to(self.device)
        except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
            raise ModelError(
                f"{path}: the model does not load: {error}. Check model.path, or run `tailgauge doctor`"
            ) from error
        config = self.model.config.get_text_config()
        window = getattr(config, "sliding_window", None)
        listed, layers = getattr(config, "layer_types", None), config.num_hidden_layers
        # Without a list of kinds all layers are of one kind (Mistral, Phi-3: sliding).
        kinds = set(listed or (["sliding_attention"] if window else ["full_attention"]))
        if kinds - _FORKABLE:
            raise ModelError(
                f"{path}: layers of kind {sorted(kinds - _FORKABLE)} keep a state that cannot be forked; "
                "choose a model with full or sliding-window attention"
            )
        self._window: int | None = window if "sliding_attention" in kinds else None
        self.windows: tuple[int | None, ...] = tuple(
            window if kind == "sliding_attention" else None for kind in listed or list(kinds) * layers
        )
        """Sliding window of each layer in tokens; None sees everything before it."""
        self._mixed = bool(listed)
        names = inspect.signature(self.model.forward).parameters
        # `cache` from transformers 5.24 on, `past_key_values` before.
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self._attention = attention
        self._chunk = chunk
        self._chain: KeyValues = []
        self._pinned: KeyValues = []

    def wait(self) -> None:
        """Returns when what was asked of the device is computed."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says about the engine."""
        gpu = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None
        return {
            "engine": "transformers",
            "engine_version": transformers.__version__,
            "torch": torch.__version__,
            "device": str(self.device),
            "gpu": gpu,
            "dtype": str(self.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "attention": self._attention,
        }

    def close(self) -> None:
        self._chain, self._pinned = [], []
        del self.model
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    # -- the chain -----------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Tokens in the chain."""
        return self._chain[0][0].shape[2] if self._chain else 0

    def reset(self) -> None:
        self._chain, self._pinned = [], []

    def pin(self) -> None:
        """Keep the present chain: `rewind` comes back to exactly these tensors."""
        self._pinned = self._chain

    def rewind(self, length: int) -> None:
        """Cut the chain back to its first `length` tokens (the pinned part at least comes back)."""
        if self._pinned and length == self._pinned[0][0].shape[2]:
            self._chain = self._pinned
        elif length == 0:
            self._chain = []
        elif length < self.length:
            self._chain = [(k[:, :, :length], v[:, :, :length]) for k, v in self._chain]

    def branch(self, chain: int, own: Sequence[int]) -> KeyValues:
        """A copy of the keys and values of one branch: the first `chain` tokens, then the tokens `own`
        (numbers within the last pass)."""
        picked = torch.tensor([*range(chain), *(chain + i for i in own)], device=self.device)
        return [(k.index_select(2, picked), v.index_select(2, picked)) for k, v in self._chain]

    # -- passes --------------------------------------------------------------------------------------

    def extend(self, tokens: Sequence[int]) -> torch.Tensor:
        """Prefill a plain run onto the chain; logits of its last token, shape (1, vocabulary)."""
        logits = torch.empty(0)
        for start in range(0, len(tokens), self._chunk):
            part = tokens[start : start + self._chunk]
            at = self.length
            logits = self.compute(part, range(at, at + len(part)), range(-1, len(part) - 1), [len(part) - 1])
        return logits

    def compute(
        self, tokens: Sequence[int], positions: Sequence[int], parents: Sequence[int], read: Sequence[int]
    ) -> torch.Tensor:
        """One pass over `tokens` behind the chain, which it joins. `parents[i]` is the number of the
        token that i follows within the pass, −1 for the chain itself. Logits (len(read), vocabulary)."""
        plain = all(parent == i - 1 for i, parent in enumerate(parents))
        mask = None if plain else self._tree_mask(parents, positions)
        past, self._chain = list(self._chain), []  # handed over: see `forward`
        output, self._chain = self.forward(
            torch.tensor([list(tokens)], device=self.device),
            torch.tensor([list(positions)], device=self.device),
            mask,
            past,
            torch.tensor(list(read), device=self.device, dtype=torch.long),
        )
        return output[0]

    @torch.inference_mode()
    def forward(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: Any, past: KeyValues, keep: torch.Tensor
    ) -> tuple[torch.Tensor, KeyValues]:
        """`ids`, `positions` (batch, new); `mask` as transformers takes it; logits at the new tokens
        `keep`, shape (batch, len(keep), vocabulary), and the longer keys and values. Empties `past`: the cache copies
        each layer, and both at once would double the memory of a long chain."""
        cache = DynamicCache()
        for layer in range(len(past)):
            cache.update(*past.pop(0), layer)
        # No row is read where a pass only extends the chain; one costs next to nothing.
        rows = keep if keep.numel() else torch.zeros(1, dtype=torch.long, device=self.device)
        output = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            use_cache=True,
            logits_to_keep=rows,
            **{self._cache_name: cache},
        )
        return output.logits, [(layer.keys, layer.values) for layer in cache.layers]

    def _tree_mask(self, parents: Sequence[int], positions: Sequence[int]) -> Any:
        """Boolean (1, 1, new, chain + new): each token sees the chain, itself and its ancestors."""
        size, chain = len(parents), self.length
        seen = torch.zeros(size, chain + size, dtype=torch.bool)
        for i, parent in enumerate(parents):
            if parent >= 0:
                seen[i] = seen[parent]
            else:
                seen[i, :chain] = True
            seen[i, chain + i] = True
        whole = seen[None, None].to(self.device)
        if self._window is None:
            return whole
        at = torch.tensor([*range(chain), *positions])
        near = torch.tensor(list(positions))[:, None] - at[None, :] < self._window
        sliding = (seen & near)[None, None].to(self.device)
        return {"full_attention": whole, "sliding_attention": sliding} if self._mixed else sliding


@contextmanager
def memory_guard() -> Iterator[None]:
    """Running out of memory inside costs the cells at hand a `provider_error` row, not the run. (On the CPU
    torch says so in a plain RuntimeError; every other one is a fault and passes.)"""
    try:
        yield
    except RuntimeError as error:
        words = str(error)
        if not isinstance(error, torch.OutOfMemoryError) and not any(mark in words for mark in _NO_MEMORY):
            raise
        raise ProviderError(
            f"out of memory; lower model.batch_clusters or model.pack_tokens ({words.splitlines()[0]})"
        ) from error


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"model.device={name}: no GPU is visible to torch; set model.device=cpu or auto")
    try:
        index = torch.device(name).index
    except RuntimeError as error:
        raise ModelError(f"model.device={name}: not a device; expected cpu, cuda, cuda:N or auto") from error
    if name.startswith("cuda") and index is not None and index >= torch.cuda.device_count():
        raise ModelError(f"model.device={name}: there are {torch.cuda.device_count()} GPUs, counted from 0")
    return name


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
