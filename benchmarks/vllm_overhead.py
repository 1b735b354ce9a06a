"""The harness over the bare vLLM engine: the same token ids, in the same order, on the same engine.

The harness renders, proves, submits, walks the choices, parses, scores and logs a part of the main job. What it
asks of the engine is written down call by call (requests, ends, steps) and then played to the engine with
nothing around it. Both sides start with an empty prefix cache, twice each, alternating; the medians are
compared. Also holds the measured cached tokens against the ledger's. For the environment of `make test-vllm`.
Prints one JSON object as its last line.
"""

import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from harness.commands.build import Bench, build, load_model
from harness.commands.run import _setting
from harness.compose import compose
from harness.models.vllm_engine import VllmModel
from harness.runlog import RunLog, read_records
from harness.runner import run_all

LIMIT_RATIO = 1.05
LIMIT_CACHED = 0.95
ROUNDS = 2
OVERRIDES = (
    "experiment=xfinity_small",
    "model=qwen2.5-coder-0.5b-vllm",
    "probe.choose.series.matched.clusters=2",
    "probe.choose.series.prior_calls.clusters=1",
    "probe.act.series.matched.clusters=2",
)


@dataclass
class Recorder:
    """Stands between the harness and the engine and writes down what passes."""

    engine: Any
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def add_request(self, name: str, prompt: Any, parameters: Any) -> Any:
        self.calls.append(("add", name, prompt, parameters.clone()))
        return self.engine.add_request(name, prompt, parameters)

    def abort_request(self, names: list[str]) -> Any:
        self.calls.append(("abort", list(names)))
        return self.engine.abort_request(names)

    def step(self) -> Any:
        self.calls.append(("step",))
        return self.engine.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


def harness_seconds(model: VllmModel) -> tuple[float, list[Any]]:
    """Prompts included, the engine's start not."""
    model._engine.reset_prefix_cache()
    begun = perf_counter()
    bench: Bench = build(compose(list(OVERRIDES)), lambda *_: None)
    with tempfile.TemporaryDirectory() as folder:
        with RunLog.open(Path(folder), {}, bench.config.digested()) as log:
            run_all(bench.preflight, model, log, _setting(bench), alone=None, progress=lambda *_: None)
        seconds = perf_counter() - begun
        return seconds, list(read_records(Path(folder)))


def bare_seconds(engine: Any, calls: list[tuple[Any, ...]], turn: int) -> float:
    engine.reset_prefix_cache()
    begun = perf_counter()
    for call in calls:
        if call[0] == "add":
            engine.add_request(f"{turn}/{call[1]}", call[2], call[3].clone())
        elif call[0] == "abort":
            engine.abort_request([f"{turn}/{name}" for name in call[1]])
        else:
            engine.step()
    while engine.has_unfinished_requests():
        engine.step()
    return perf_counter() - begun


def main() -> int:
    bench = build(compose(list(OVERRIDES)), lambda *_: None)
    model = load_model(bench, Path(tempfile.gettempdir()))
    assert isinstance(model, VllmModel)
    engine = model._engine
    harness_seconds(model)  # warm-up: kernels are made ready on first use
    ours, bare, rows, calls = [], [], [], []
    for turn in range(ROUNDS):
        recorder = Recorder(engine)
        model._engine = recorder
        seconds, rows = harness_seconds(model)
        model._engine, calls = engine, recorder.calls
        ours.append(seconds)
        bare.append(bare_seconds(engine, calls, turn))
    model.close()
    measured = sum(row.output.usage.cached_tokens or 0 for row in rows)
    predicted = sum(row.output.usage.predicted_cached_tokens or 0 for row in rows)
    ratio = statistics.median(ours) / statistics.median(bare)
    result = {
        "name": "vllm_overhead",
        "cells": len(rows),
        "requests": sum(call[0] == "add" for call in calls),
        "steps": sum(call[0] == "step" for call in calls),
        "harness_s": [round(seconds, 2) for seconds in ours],
        "bare_s": [round(seconds, 2) for seconds in bare],
        "ratio": round(ratio, 4),
        "predicted_cached": predicted,
        "measured_cached": measured,
        "cached_share": round(measured / predicted, 4),
        "limit": {"ratio": LIMIT_RATIO, "cached_share": LIMIT_CACHED},
        "ok": ratio <= LIMIT_RATIO and measured >= LIMIT_CACHED * predicted,
    }
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
