"""Holds the runs of gpu_smoke.sh against what must be true of them; exits 1 when something is not.

`python benchmarks/gpu/check.py OUT`. Prints one JSON object as its last line.
"""

import json
import math
import sys
from pathlib import Path

from harness.attention.store import CellAttention, read_cells
from harness.runlog import read_records
from harness.types import EvalRecord

LIMIT_CACHED = 0.95
LIMIT_PROBABILITY = 0.02
LIMIT_MASS = 0.005
"""Masses are kept in half precision."""
LIMIT_REPLAY = 0.01


def rows(out: Path, name: str) -> dict[str, EvalRecord]:
    folders = [path.parent for path in (out / name).glob("*/*/samples.jsonl")]
    if len(folders) != 1:
        raise SystemExit(
            f"{out / name}: expected one run, found {len(folders)}; remove {out} and start again"
        )
    return {row.cell_id: row for row in read_records(folders[0])}


def cached(found: dict[str, EvalRecord]) -> tuple[int, int]:
    """Cached tokens as measured and as predicted."""
    usages = [row.output.usage for row in found.values()]
    measured = sum(usage.cached_tokens or 0 for usage in usages)
    return measured, sum(usage.predicted_cached_tokens or 0 for usage in usages)


def probabilities_differ(vllm: dict[str, EvalRecord], plain: dict[str, EvalRecord]) -> float:
    """Largest difference of any choice's probability."""
    worst = 0.0
    for cell, row in vllm.items():
        mine, theirs = row.output.choice_logprobs or {}, plain[cell].output.choice_logprobs or {}
        worst = max(worst, *(abs(math.exp(mine[label]) - math.exp(theirs[label])) for label in theirs))
    return worst


def captures(out: Path) -> dict[str, list[CellAttention]]:
    """Captured cells by run and folder."""
    found = {}
    for name, folder in (
        ("transformers", "attention"),
        ("transformers", "attention-bfloat16"),
        ("thinking", "attention"),
    ):
        (place,) = (out / name).glob(f"*/*/{folder}")
        found[f"{name}/{folder}"] = list(read_cells(place))
    return found


def main() -> int:
    out = Path(sys.argv[1])
    captured = captures(out)
    thinking, cold, warm = (rows(out, name) for name in ("thinking", "cold", "warm"))
    measured, predicted = cached(thinking)
    act = [row for row in thinking.values() if row.probe == "act"]
    checks = {
        "every cell came out": all(
            row.output.finish_reason != "error"
            for row in (*thinking.values(), *cold.values(), *warm.values())
        ),
        "thinking is counted": all(row.output.usage.reasoning_tokens is not None for row in act)
        and any(row.output.usage.reasoning_tokens for row in act),
        "four thoughts a cell": all(
            len(row.output.thoughts) == 4 for row in thinking.values() if row.probe == "choose"
        ),
        "the cache holds what the ledger predicts": measured >= LIMIT_CACHED * predicted > 0,
        "cold is cold": cached(cold) == (0, 0),
        "warm is warm": all(row.output.usage.cached_tokens for row in warm.values()),
        "lone requests are timed": all(
            row.output.timing.first_token for row in (*cold.values(), *warm.values())
        ),
    }
    rounding = [
        cell.replay_error for cell in captured["transformers/attention"] if cell.replay_error is not None
    ]
    checks["captured rows sum to 1"] = all(
        bool((abs(cell.mass.sum(-1) - 1) < LIMIT_MASS).all()) for cells in captured.values() for cell in cells
    )
    checks["the replay gives the recorded probabilities"] = bool(rounding) and max(rounding) <= LIMIT_REPLAY
    checks["thinking is followed row by row"] = any(
        row.kind == "thinking" for cell in captured["thinking/attention"] for row in cell.path
    )
    worst = probabilities_differ(rows(out, "vllm"), rows(out, "transformers"))
    checks["vLLM agrees with transformers in float32"] = worst <= LIMIT_PROBABILITY
    result = {
        "name": "gpu_smoke",
        "measured_cached": measured,
        "predicted_cached": predicted,
        "largest_difference": round(worst, 6),
        "limit": {"cached_share": LIMIT_CACHED, "probability": LIMIT_PROBABILITY},
        "failed": [name for name, held in checks.items() if not held],
        "ok": all(checks.values()),
    }
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
