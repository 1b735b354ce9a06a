"""What the harness itself costs: 10,000 distinct cells with a scripted model.

Everything is real but the model: scenario draws, bars, the model's own chat template and tokenizer, the proof that
the arms differ by the bar alone, parsing, scoring, the run log with its syncs. The peer in the same process is
the least that any harness must do: rendering and encoding each prompt once with the tokenizer's own call.

Needs the 0.5B's tokenizer (fetched on first use). Prints one JSON object as its last line.
"""

import json
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from harness.commands.build import build
from harness.commands.run import _setting
from harness.compose import compose
from harness.conditions import apply
from harness.models.base import Then
from harness.runlog import RunLog
from harness.runner import run_all
from harness.types import CacheState, ModelOutput, ModelUsage, Request, Timing

CELLS = 10_000
LIMIT_SECONDS = 20.0
LIMIT_MEMORY_MB = 200.0

REPLIES = (
    '<tool_call>\n{"name": "phone_call", "arguments": {"merchant": "%s", "purpose": "ask for an update"}}\n</tool_call>',
    "I have called %s again and they confirmed that the matter is with the back office.",
    "I'm sorry, but I cannot call %s again: the limit of calls has been reached.",
    '{"name": "web_search", "arguments": {"query": "how to reach %s"}}',
    "Would you like me to call %s at another time?",
)


class ScriptedModel:
    """Replies from a list, at once. Each reply names a merchant, so that no two need be alike."""

    computed_tokens = 0

    @property
    def facts(self) -> dict[str, Any]:
        return {"engine": "scripted"}

    def share_prefix(self, ids: Sequence[int]) -> None:
        pass

    def run(self, requests: Sequence[Request], then: Then | None = None) -> Iterator[tuple[str, ModelOutput]]:
        for request in requests:
            usage = ModelUsage(len(request.prompt.ids), completion_tokens=20, cached_tokens=0)
            timing = Timing(started_at=datetime.now(UTC).isoformat())
            if request.choices:
                logprobs = {label: -1.0 - number for number, label in enumerate(request.choices)}
                yield request.cell_id, ModelOutput("", (), "choice", usage, timing, choice_logprobs=logprobs)
                continue
            text = REPLIES[request.seed % len(REPLIES)] % f"merchant {request.seed}"
            yield request.cell_id, ModelOutput(text, tuple(range(20)), "stop", usage, timing)

    @property
    def cache_block(self) -> int | None:
        return None

    @property
    def cache_blocks(self) -> int | None:
        return None

    def check_cache(self, cache: CacheState) -> None:
        raise NotImplementedError

    def run_alone(self, request: Request, cache: CacheState = "cold", shared: int = 0) -> ModelOutput:
        raise NotImplementedError

    def close(self) -> None:
        pass


def memory_mb() -> float:
    """Peak resident memory so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    config = compose(
        [
            "model=qwen2.5-coder-0.5b",
            "probe=[act]",
            "probe.act.series.matched.conditions=null",
            "probe.act.series.matched.clusters=834",
        ]
    )
    warm = config.model_copy(update={"probe": {"act": _clusters(config.probe["act"], 1)}})
    build(warm, lambda *_: None)  # loads tokenizer and libraries; not what is measured
    before = memory_mb()
    begun = perf_counter()
    bench = build(config, lambda *_: None)
    prepared = perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder, RunLog.open(Path(folder), {}, config.digested()) as log:
        tally = run_all(
            bench.preflight, ScriptedModel(), log, _setting(bench), alone=None, progress=lambda *_: None
        )
    seconds = perf_counter() - begun
    growth = memory_mb() - before
    # Scaled to 10,000: the plan has a few more, because clusters are whole.
    seconds *= CELLS / tally.cells
    peer = peer_seconds(bench) * CELLS
    ok = seconds < LIMIT_SECONDS and growth <= LIMIT_MEMORY_MB
    print(
        json.dumps(
            {
                "name": "overhead",
                "cells": tally.cells,
                "seconds_per_10000": round(seconds, 2),
                "of_which_preparing": round(prepared, 2),
                "ms_per_cell": round(seconds / CELLS * 1e3, 3),
                "peer": "apply_chat_template + encode of each prompt, nothing else",
                "peer_seconds_per_10000": round(peer, 2),
                "ratio": round(seconds / peer, 2),
                "memory_growth_mb": round(growth, 1),
                "limit": {"seconds_per_10000": LIMIT_SECONDS, "memory_growth_mb": LIMIT_MEMORY_MB},
                "ok": ok,
            }
        )
    )
    return 0 if ok else 1


def _clusters(probe: Any, count: int) -> Any:
    matched = probe.series["matched"].model_copy(update={"clusters": count})
    return probe.model_copy(update={"series": {"matched": matched}})


def peer_seconds(bench: Any, sample: int = 300) -> float:
    """Seconds per prompt of the tokenizer's own rendering and encoding, over `sample` prompts."""
    tokenizer, template = bench.template.tokenizer, bench.template
    cells = [ready.cell for batch in bench.preflight.batches for ready in batch.cells][:sample]
    by_name = {condition.name: condition for condition in bench.conditions}
    conversations = [apply(c.sample, by_name[c.condition], template.count).messages for c in cells]
    begun = perf_counter()
    for cell, messages in zip(cells, conversations, strict=True):
        text = template.text(messages, cell.sample.tools)
        tokenizer(text, add_special_tokens=False)
    return (perf_counter() - begun) / len(cells)


if __name__ == "__main__":
    sys.exit(main())
