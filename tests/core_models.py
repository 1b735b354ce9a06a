"""Tiny random models as folders, requests for them, and plain references that share nothing with the backend."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from harness.types import Decoding, RenderedPrompt, Request

VOCABULARY = 512
WINDOW = 8
"""Far shorter than any prompt here, so that a mask that forgets the window shows."""
_SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SLIDING = {
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"tie_word_embeddings": False}),
    "llama": ("LlamaConfig", {}),
    "gemma3": ("Gemma3TextConfig", {**_SLIDING, "query_pre_attn_scalar": 8}),
    "qwen2-sliding": ("Qwen2Config", {"use_sliding_window": True, **_SLIDING}),
    # All layers slide, and the configuration lists no layer kinds.
    "mistral": ("MistralConfig", {"sliding_window": WINDOW}),
}


def make_folder(kind: str, folder: Path) -> Path:
    """A random model of one architecture as a Hugging Face folder."""
    name, special = KINDS[kind]
    config = getattr(transformers, name)(**_SIZE, **special)
    torch.manual_seed(sum(map(ord, kind)))
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config = transformers.GenerationConfig(eos_token_id=2, pad_token_id=0)
    model.save_pretrained(folder)
    return folder


def reference(folder: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    return model


@torch.inference_mode()
def plain_logprobs(model: Any, request: Request) -> dict[str, float]:
    """One uncached forward over prompt, forced ids and choice, for each choice."""
    found = {}
    for label, choice in request.choices.items():
        ids = [*request.prompt.ids, *request.forced_ids, *choice]
        rows = torch.log_softmax(model(torch.tensor([ids]), use_cache=False).logits[0].float(), dim=-1)
        first = len(ids) - len(choice)
        found[label] = sum(float(rows[first - 1 + i, token]) for i, token in enumerate(choice))
    return found


@torch.inference_mode()
def plain_generate(model: Any, request: Request) -> tuple[int, ...]:
    """transformers' own greedy decoding of this prompt alone."""
    ids = torch.tensor([request.prompt.ids])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=request.decoding.max_new_tokens,
        do_sample=False,
        repetition_penalty=request.decoding.repetition_penalty,
        use_cache=True,
    )
    return tuple(out[0, ids.shape[1] :].tolist())


def prompt(ids: Sequence[int]) -> RenderedPrompt:
    return RenderedPrompt(tuple(ids), "", (), "", "")


def batch(
    seed: int = 0, *, new_tokens: int = 8, decoding: Decoding | None = None, trunk: int = 12
) -> list[Request]:
    """Two samples × three arms, both probes: prefixes shared at three depths, tails of different length."""
    rng = random.Random(seed)
    draw = lambda n: [rng.randrange(3, VOCABULARY) for _ in range(n)]  # noqa: E731
    shared = random.Random(99)
    head = [shared.randrange(3, VOCABULARY) for _ in range(trunk)]
    history, forced = draw(17), tuple(draw(3))
    stem = draw(2)
    choices = {
        "call:a": (*stem, *draw(3)),
        "call:b": (*stem, *draw(1)),
        "reply": tuple(draw(1)),
        "search": tuple(draw(4)),
    }
    requests = []
    for sample in range(2):
        follow_up = draw(5)
        for arm, bar in enumerate((draw(0), draw(9), draw(14))):
            ids = prompt(head + history + follow_up + bar + [7, 8])
            cell = f"s{sample}|arm{arm}"
            requests.append(Request(f"{cell}|choose", "choose", ids, Decoding(1), 0, forced, choices))
            chosen = decoding or Decoding(new_tokens)
            requests.append(Request(f"{cell}|act", "act", ids, chosen, seed=100 * sample + 1))
    return requests


def close(a: dict[str, float], b: dict[str, float], within: float = 1e-4) -> bool:
    """Do two sets of log-probabilities give the same probabilities?"""
    return a.keys() == b.keys() and all(abs(math.exp(a[k]) - math.exp(b[k])) <= within for k in a)
