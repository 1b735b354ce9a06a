"""Prefix tree against one uncached forward pass per cell, on the default experiment's `choose` cells.

Both compute the same numbers on the 0.5B with the same threads: the probability of every choice of every cell.
The peer prefills each cell's whole prompt (one uncached pass) and scores the choices on that cell's own
keys and values, in plain transformers. `--every K` times the peer on every K-th cell and scales up; the
full comparison takes most of an hour on two cores. Also checks that probabilities agree and that greedy
ids do. Prints one JSON object as its last line.
"""

import argparse
import inspect
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from harness.commands.build import Bench, build, load_model
from harness.compose import compose
from harness.models.hf import TransformersModel
from harness.types import Request

LIMIT_RATIO = 4.0
LIMIT_PROBABILITY = 1e-4
GREEDY_TOKENS = 16


def choose_requests(bench: Bench) -> list[list[Request]]:
    """The `choose` requests of the default experiment, in its batches."""
    return [
        [r.request for r in batch.cells if r.request.probe == "choose"]
        for batch in bench.preflight.batches
        if any(r.request.probe == "choose" for r in batch.cells)
    ]


def run_tree(
    model: TransformersModel, batches: Sequence[Sequence[Request]], prefix: Sequence[int]
) -> dict[str, Any]:
    model.share_prefix(prefix)
    found: dict[str, Any] = {}
    for number, batch in enumerate(batches, start=1):
        found.update({cell: output.choice_logprobs for cell, output in model.run(batch)})
        print(f"tree: batch {number}/{len(batches)}", file=sys.stderr)
    return found


@torch.inference_mode()
def run_cell(plain: Any, request: Request, cache_name: str) -> dict[str, float]:
    """One cell without any sharing across cells."""
    prompt = torch.tensor([list(request.prompt.ids + request.forced_ids)])
    first = plain(input_ids=prompt, use_cache=True, logits_to_keep=1)
    cache = first.past_key_values
    cache.batch_repeat_interleave(len(request.choices))
    choices = list(request.choices.values())
    width = max(len(choice) - 1 for choice in choices)
    rows = [[*choice[:-1], *[0] * (width - len(choice) + 1)] for choice in choices]
    logits = first.logits[:, -1:].expand(len(choices), -1, -1)
    if width:
        later = plain(input_ids=torch.tensor(rows), use_cache=True, **{cache_name: cache})
        logits = torch.cat([logits, later.logits], dim=1)
    values = torch.log_softmax(logits.float(), dim=-1)
    return {
        label: sum(float(values[row, at, token]) for at, token in enumerate(choice))
        for row, (label, choice) in enumerate(request.choices.items())
    }


@torch.inference_mode()
def greedy_agree(model: TransformersModel, plain: Any, bench: Bench, cells: int = 6) -> bool:
    """Do batched decoding from forked prompts and a lone `generate` give the same greedy ids?"""
    requests = [r.request for r in bench.preflight.batches[0].cells if r.request.probe == "act"][:cells]
    outputs = dict(model.run(requests))
    for request in requests:
        ids = torch.tensor([list(request.prompt.ids)])
        alone = plain.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=GREEDY_TOKENS, do_sample=False
        )[0, ids.shape[1] :].tolist()
        if alone != list(outputs[request.cell_id].token_ids[: len(alone)]):
            return False
    return bool(requests)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, metavar="K", help="time the peer on every K-th cell")
    every = parser.parse_args().every
    bench = build(
        compose(
            ["experiment=xfinity", "model=qwen2.5-coder-0.5b", f"probe.act.max_new_tokens={GREEDY_TOKENS}"]
        ),
        lambda *_: None,
    )
    model = load_model(bench, Path(tempfile.gettempdir()))
    assert isinstance(model, TransformersModel)
    plain = model._engine.model
    names = inspect.signature(plain.forward).parameters
    cache_name = "cache" if "cache" in names else "past_key_values"
    batches = choose_requests(bench)
    requests = [request for batch in batches for request in batch]

    begun = perf_counter()
    tree = run_tree(model, batches, bench.preflight.shared_prefix)
    tree_seconds = perf_counter() - begun

    chosen = requests[::every]
    run_cell(plain, chosen[0], cache_name)  # warm-up
    begun, worst = perf_counter(), 0.0
    for number, request in enumerate(chosen, start=1):
        alone = run_cell(plain, request, cache_name)
        for label, value in alone.items():
            worst = max(worst, abs(math.exp(value) - math.exp(tree[request.cell_id][label])))
        if number % 10 == 0:
            left = (perf_counter() - begun) / number * (len(chosen) - number)
            print(f"peer: cell {number}/{len(chosen)}, about {left / 60:.1f} min left", file=sys.stderr)
    peer_seconds = (perf_counter() - begun) * len(requests) / len(chosen)
    same = greedy_agree(model, plain, bench)
    ratio = peer_seconds / tree_seconds
    ok = ratio >= LIMIT_RATIO and worst <= LIMIT_PROBABILITY and same
    print(
        json.dumps(
            {
                "name": "prefix_fork",
                "cells": len(requests),
                "peer": "one uncached forward pass per cell (transformers, same model, same threads)",
                "peer_cells_timed": len(chosen),
                "threads": torch.get_num_threads(),
                "tree_seconds": round(tree_seconds, 1),
                "peer_seconds": round(peer_seconds, 1),
                "ratio": round(ratio, 2),
                "largest_probability_difference": worst,
                "greedy_ids_equal": same,
                "limit": {"ratio": LIMIT_RATIO, "probability": LIMIT_PROBABILITY},
                "ok": ok,
            }
        )
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
