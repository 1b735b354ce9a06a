"""Run folders for the tests of exports: a real one, and one made of hand-written records of every awkward kind."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from runlog_records import make_record

from harness.runlog.columns import batches, schema_of
from harness.runlog.pieces import write_pieces
from harness.types import (
    EvalRecord,
    ModelOutput,
    ModelUsage,
    ParsedReply,
    Score,
    Span,
    Thought,
    Timing,
    ToolCall,
)

REFERENCE = Path(__file__).resolve().parents[1] / "results" / "reference"
HOSTILE = "</script><img src=x onerror=alert(1)>\x00\x1b[31m‮ \ud800"
TIMING = Timing(started_at="")
WORDS = (
    "<|im_start|>system\n", "Be kind.", "<|im_end|>\n<|im_start|>user\n", "Call them?", "<|im_end|>\n<|im_start|>user\n",
    "<agent_status>\nfull\n</agent_status>", "<|im_end|>\n<|im_start|>assistant\n",
)  # fmt: skip
"""A tiny vocabulary: token id → text. Ids in order are a whole prompt."""
SPANS = (Span("system", 1, 2), Span("follow_up", 3, 4), Span("bar", 5, 6))


def real_run(name: str, folder: Path) -> Path:
    """A copy of a published run, without its captures."""
    shutil.copytree(REFERENCE / name, folder, ignore=shutil.ignore_patterns("attention"))
    return folder


def awkward() -> list[EvalRecord]:
    """One cell each: thinking before a call, a call inside the thinking, a broken call, a failed request, an unknown
    count, a choice after thoughts, hostile text; and a second epoch of the first."""
    usage = ModelUsage(prompt_tokens=7, completion_tokens=5, cached_tokens=4, reasoning_tokens=3)
    inside = ToolCall("web_search", {"query": "x"}, in_reasoning=True)
    made = ToolCall("phone_call", {"merchant": "Xfinity"})
    thought = ParsedReply("One call is left.", "", (inside, made), "ok")
    broken = ParsedReply(
        None, "", (), "malformed", malformed_names=("phone_call",), malformed_text='{"name": '
    )
    hostile = ParsedReply(HOSTILE, HOSTILE, (ToolCall("phone_call", {"merchant": HOSTILE}),), "ok")
    logs = {"phone_call:Xfinity": -0.1, "reply": -3.0}
    chosen = ModelOutput(
        "", (), "choice", ModelUsage(7, None), TIMING, logs,
        thoughts=(Thought((1, 3), True, 2, (-0.1, -3.0), censored=True),),
    )  # fmt: skip
    return [
        _cell(0, "act", output=_said("<think>…", usage), parsed=thought, score=Score("correct_action", True)),
        _cell(0, "act", 1, output=_said("again", usage), parsed=thought, score=Score("correct_action", True)),
        _cell(1, "act", output=_said("{", usage), parsed=broken, score=Score("malformed_call", False, False, True)),
        _cell(
            2, "act", parsed=None, score=Score("provider_error", reason="503"),
            output=ModelOutput("", (), "error", ModelUsage(7, None), TIMING, error="503 unavailable"),
        ),
        _cell(3, "act", output=_said("?", ModelUsage(7, None)), parsed=ParsedReply(None, "?", (), "none"),
              score=Score("clarification", False)),
        _cell(4, "choose", output=chosen, parsed=None,
              score=Score(None, p_act=0.9, p_act_norm=0.95, logit_act=2.9, choice_mass=0.95, top_choice="reply")),
        _cell(5, "act", output=_said(HOSTILE, usage), parsed=hostile, score=Score("violation", True)),
    ]  # fmt: skip


def _said(text: str, usage: ModelUsage) -> ModelOutput:
    return ModelOutput(text, (1, 2), "stop", usage, TIMING)


def _cell(number: int, probe: str, epoch: int = 0, **parts: object) -> EvalRecord:
    base = replace(make_record(number), **parts)  # type: ignore[arg-type]
    side = base.side if number != 5 else "forbidden"
    return replace(
        base,
        cell_id=f"hand/c{number}/{side}|agent_status|{probe}|{epoch}",
        sample_id=f"hand/c{number}/{side}",
        side=side,
        probe=probe,  # type: ignore[arg-type]
        epoch=epoch,
        prompt_ids=tuple(range(len(WORDS))),
        spans=SPANS,
        choices={"phone_call:Xfinity": (1,), "reply": (2,)} if probe == "choose" else {},
    )


def write_run(folder: Path, records: Iterable[EvalRecord]) -> Path:
    """A finished run's folder around `records`."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = list(records)
    tables = list(batches(iter(kept), EvalRecord))
    pq.write_table(pa.Table.from_batches(tables, schema_of(EvalRecord)), folder / "samples.parquet")
    write_pieces(folder, lambda i: (WORDS[i] if i < len(WORDS) else f"t{i}").encode())
    manifest = {
        "run_id": "hand-made", "experiment": "hand", "measure": "throughput", "cells": len(kept),
        "model": {"name": "tiny"}, "engine": {"engine": "none"}, "started": "2026-01-01T00:00:00+00:00",
        "config": {"seed": 7, "epochs": 2, "model": {"name": "tiny", "api_key": "sk-abcdefghijklmnop"}},
        "conditions": [{"name": "agent_status", "bar": "agent_status", "placement": "tail"}],
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder
