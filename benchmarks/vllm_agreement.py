"""vLLM against transformers on the same cells of the real 0.5B, both in float32.

The small experiment runs through both backends: greedy ids of every reply, probability of every choice. For the
environment of `make test-vllm`. Prints one JSON object as its last line.
"""

import json
import math
import sys
import tempfile
from pathlib import Path

from harness.commands.build import build, load_model
from harness.compose import compose
from harness.types import ModelOutput

LIMIT_SAME = 0.9
LIMIT_PROBABILITY = 0.02
OVERRIDES = ("experiment=xfinity_small", "probe.act.series.matched.clusters=4", "model.dtype=float32")


def outputs(model_name: str) -> dict[str, ModelOutput]:
    bench = build(compose([*OVERRIDES, f"model={model_name}"]), lambda *_: None)
    model = load_model(bench, Path(tempfile.gettempdir()))
    model.share_prefix(bench.preflight.shared_prefix)
    found: dict[str, ModelOutput] = {}
    for batch in bench.preflight.batches:
        found.update(model.run([cell.request for cell in batch.cells]))
    model.close()
    return found


def main() -> int:
    vllm, plain = outputs("qwen2.5-coder-0.5b-vllm"), outputs("qwen2.5-coder-0.5b")
    assert vllm.keys() == plain.keys()
    replies = [cell for cell, output in plain.items() if output.choice_logprobs is None]
    same = sum(vllm[cell].token_ids == plain[cell].token_ids for cell in replies)
    differences = [
        abs(math.exp(value) - math.exp((vllm[cell].choice_logprobs or {})[label]))
        for cell, output in plain.items()
        for label, value in (output.choice_logprobs or {}).items()
    ]
    result = {
        "name": "vllm_agreement",
        "replies": len(replies),
        "same_greedy_ids": same,
        "choices": len(differences),
        "largest_difference": round(max(differences), 7),
        "limit": {"same_share": LIMIT_SAME, "probability": LIMIT_PROBABILITY},
        "ok": same >= LIMIT_SAME * len(replies) and max(differences) <= LIMIT_PROBABILITY,
    }
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
