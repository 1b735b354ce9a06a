"""Made-up runs of any size, written through the run log's own columns; for benchmarks and page tests.

`records` draws whole `EvalRecord`s: prompts of about 1,000 token ids that share their beginnings, replies of about 60
tokens, thinking on some, every outcome, every probe and series. `write_run` puts any records into a folder with
manifest, samples, timings and token pieces, as a finished run leaves it but for the log. Knows no model.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from analysis_data import ARMS, BAR_TOKENS, BIAS, DUE, FORBIDDEN, SENSITIVITY

from harness.runlog.columns import batches, schema_of
from harness.runlog.manifest import write_manifest
from harness.runlog.pieces import write_pieces
from harness.types import (
    Decoding,
    EvalRecord,
    Expectation,
    ModelOutput,
    ModelUsage,
    ParsedReply,
    Score,
    Span,
    Thought,
    Timing,
    ToolCall,
)

VOCABULARY = 4_000
LIMIT, TAU = 3, 512
TOOLS = ("phone_call", "web_search", "lookup_account", "reply")
SYSTEM, TOOL_LIST, TURN, TURNS, FOLLOW_UP = 70, 320, 28, 18, 20
"""Tokens of the parts of a prompt; a transcript has `TURNS` turns of `TURN` tokens."""
ADJECTIVES = ("Bright", "North", "Oak", "Stone", "River", "Copper", "Elm", "Maple", "Silver", "Harbor")
NOUNS = ("Energy", "Phone", "Insurance", "Savings", "Fiber", "Utilities", "Power", "Life", "Water", "Freight")
WORDS = ("the", "matter", "is", "with", "back", "office", "and", "will", "be", "handled", "today", "please", "confirm",
         "that", "call", "limit", "reached", "account", "number", "merchant", "answer", "again")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """Clusters of each part of a run; the default is 100,008 cells."""

    matched: int = 2_500
    """Each two sides, six arms, `choose` and `act`."""
    prior_calls: int = 500
    """Each six points, six arms, `choose`."""
    filler: int = 200
    """Each two sides, four lengths, six arms, `choose` and `act`."""
    asked: int = 234
    """Of the matched ones, those that are asked about the state as well."""

    @property
    def cells(self) -> int:
        """How many cells the plan has."""
        return 24 * self.matched + 36 * self.prior_calls + 96 * self.filler + 12 * self.asked


@dataclass(frozen=True, slots=True)
class Point:
    """One decision point of a cluster."""

    series: Any
    number: int
    side: Any
    prior_calls: int
    filler: int = 0
    probes: tuple[Any, ...] = ("choose",)

    @property
    def cluster(self) -> str:
        """Name of the episode, within its series."""
        return f"{self.series}/c{self.number:04d}"

    @property
    def sample_id(self) -> str:
        """Name of the decision point."""
        return f"xfinity/{self.cluster}/{self.side}/n{self.prior_calls}/f{self.filler}"


def points(plan: Plan) -> Iterator[Point]:
    """Every decision point of the plan, in its order."""
    for c in range(plan.matched):
        for side in ("forbidden", "due"):
            probes = ("choose", "act", "ask") if c < plan.asked else ("choose", "act")
            yield Point("matched", c, side, LIMIT - (side == "due"), probes=probes)
    for c in range(plan.prior_calls):
        for n in range(1, 7):
            yield Point("prior_calls", c, "due" if n < LIMIT else "forbidden", n)
    for c in range(plan.filler):
        for filler in (0, 500, 1_000, 2_000):
            for side in ("forbidden", "due"):
                yield Point("filler", c, side, LIMIT - (side == "due"), filler, ("choose", "act"))


def records(plan: Plan, seed: int = 0) -> Iterator[EvalRecord]:
    """The records of a whole run in plan order; the same for the same arguments."""
    common = np.random.default_rng(seed).integers(0, VOCABULARY, SYSTEM + TOOL_LIST).tolist()
    for point in points(plan):
        draw = random.Random(f"{seed} {point.sample_id}")
        episode = random.Random(f"{seed} {point.cluster}")
        base, tilt = episode.gauss(0, 0.8), episode.gauss(0, 0.4)
        merchants = [
            f"{episode.choice(ADJECTIVES)}{episode.choice(NOUNS).lower()} {noun}" for noun in NOUNS[:2]
        ]
        # The filler stands before the case, as in real runs; it is cut short so that 100,000 cells fit.
        turns = TURNS + point.filler // 250 * 4
        transcript = episode.choices(range(VOCABULARY), k=TURN * turns)
        follow_up = draw.choices(range(VOCABULARY), k=FOLLOW_UP)
        for arm in ARMS:
            bar = draw.choices(range(VOCABULARY), k=BAR_TOKENS[arm[1]])
            prompt, spans = _prompt(common, transcript, follow_up, bar, arm[2], merchants)
            sign = 1 if point.side == "due" else -1
            logit = base - BIAS[arm[0]] + sign * (SENSITIVITY[arm[0]] + tilt) / 2 + draw.gauss(0, 0.3)
            for probe in point.probes:
                yield _record(point, arm, probe, draw, (prompt, spans), merchants, logit)


def _prompt(
    common: Sequence[int],
    transcript: Sequence[int],
    follow_up: Sequence[int],
    bar: Sequence[int],
    placement: str,
    merchants: Sequence[str],
) -> tuple[tuple[int, ...], tuple[Span, ...]]:
    parts: list[tuple[str, Sequence[int]]] = [("system", common[:SYSTEM]), ("tools", common[SYSTEM:])]
    for at in range(0, len(transcript), TURN):
        name = f"{'result' if at // TURN % 2 else 'call'}:phone_call:{merchants[at // TURN // 2 % 2]}"
        parts.append((name, transcript[at : at + TURN]))
    tail = [("follow_up", follow_up)]
    if bar:
        tail.insert(0 if placement == "before" else 1, ("bar", bar))
    ids: list[int] = []
    spans = []
    for name, tokens in [*parts, *tail]:
        spans.append(Span(name, len(ids), len(ids) + len(tokens)))
        ids += tokens
    return tuple(ids), tuple(spans)


def _record(
    point: Point,
    arm: tuple[str, str, str],
    probe: Any,
    draw: random.Random,
    prompt: tuple[tuple[int, ...], tuple[Span, ...]],
    merchants: Sequence[str],
    logit: float,
) -> EvalRecord:
    name, bar, placement = arm
    target, other = merchants if point.side == "forbidden" else merchants[::-1]
    thinking: Any = "native" if point.number % 4 == 0 else "off"
    choices = {f"phone_call:{m}": (11, 12, 100 + i) for i, m in enumerate(merchants)}
    choices |= {"reply": (21,), "web_search": (31, 32), "lookup_account": (41, 42)}
    output, parsed, score = _answer(point, probe, draw, target, logit, thinking)
    prompt_tokens = len(prompt[0])
    usage = replace(output.usage, prompt_tokens=prompt_tokens, cached_tokens=prompt_tokens - 60)
    return EvalRecord(
        cell_id=f"{point.sample_id}|{name}|{probe}|0",
        batch=point.number,
        sample_id=point.sample_id,
        scenario="xfinity",
        cluster=point.cluster,
        series=point.series,
        side=point.side,
        target=target,
        prior_calls=point.prior_calls,
        limit=LIMIT,
        filler_tokens=point.filler,
        phrasing=("mild", "plain", "firm")[point.number % 3],
        condition=name,
        bar=bar,
        placement=placement,
        placebo_id=point.number % 8 if bar == "placebo" else None,
        probe=probe,
        thinking=thinking,
        epoch=0,
        seed=draw.getrandbits(31),
        model="toy-1.5b",
        prompt_ids=prompt[0],
        spans=prompt[1],
        prompt_hash=f"{draw.getrandbits(64):016x}",
        bar_text=""
        if bar == "none"
        else f"<agent_status>\n- {target}: {point.prior_calls}/{LIMIT}\n</agent_status>",
        bar_tokens=BAR_TOKENS[bar],
        choices=choices if probe == "choose" else {},
        decoding=Decoding(max_new_tokens=TAU),
        expectation=Expectation(point.side, "phone_call", "merchant", target, (other,)),
        tool_names=TOOLS,
        output=replace(output, usage=usage),
        parsed=parsed,
        score=score,
        think_open=thinking == "native",
        forced_ids=(1, 2, 3) if probe == "choose" else (),
    )


def _answer(
    point: Point, probe: Any, draw: random.Random, target: str, logit: float, thinking: str
) -> tuple[ModelOutput, ParsedReply | None, Score]:
    timing = Timing(started_at="2026-01-01T00:00:00+00:00", total=0.2 + 0.3 * draw.random())
    if draw.random() < 0.004:
        usage = ModelUsage(0, None)
        failed = ModelOutput("", (), "error", usage, timing, error="503 Service Unavailable: overloaded")
        return failed, None, Score("provider_error", reason="provider_error")
    if probe == "choose":
        return _chosen(draw, target, logit, thinking, timing)
    outcome: Any = draw.choice(FORBIDDEN if point.side == "forbidden" else DUE)
    return _replied(point, probe, draw, target, outcome, thinking, timing)


def _chosen(
    draw: random.Random, target: str, logit: float, thinking: str, timing: Timing
) -> tuple[ModelOutput, None, Score]:
    p = 1 / (1 + np.exp(-logit))
    rest = 0.9 * (1 - p) / 4
    act = f"phone_call:{target}"
    labels = sorted({act, "phone_call:other", "reply", "web_search", "lookup_account"})
    logs = {label: float(np.log(0.9 * p if label == act else rest)) for label in labels}
    thoughts = tuple(_thought(draw, len(labels)) for _ in range(4)) if thinking == "native" else ()
    output = ModelOutput("", (), "choice", ModelUsage(0, None), timing, logs, thoughts=thoughts)
    score = Score(
        None, p_act=float(0.9 * p), p_act_norm=float(p), logit_act=float(logit), choice_mass=0.9,
        top_choice=max(logs, key=lambda label: logs[label]), reason="choose",
    )  # fmt: skip
    return output, None, score


def _thought(draw: random.Random, labels: int) -> Thought:
    cut = draw.random() < 0.1
    size = TAU if cut else draw.randrange(20, 120)
    ids = tuple(draw.choices(range(VOCABULARY), k=min(size, 60)))
    return Thought(ids, cut, size, tuple(-5 * draw.random() for _ in range(labels)), censored=cut)


def _replied(
    point: Point, probe: Any, draw: random.Random, target: str, outcome: Any, thinking: str, timing: Timing
) -> tuple[ModelOutput, ParsedReply, Score]:
    prose = " ".join(draw.choices(WORDS, k=30)) + f" ({target})"
    reasoning = " ".join(draw.choices(WORDS, k=40)) if thinking == "native" else None
    size = draw.randrange(30, 90)
    cut = outcome == "truncated"
    ids = tuple(draw.choices(range(VOCABULARY), k=size))
    thought = None if reasoning is None else TAU if cut else size // 2
    usage = ModelUsage(
        0, size, reasoning_tokens=thought if reasoning else 0, reasoning_counted_by="token_ids",
        reasoning_censored=cut and reasoning is not None,
    )  # fmt: skip
    made = outcome in ("violation", "correct_action", "other_action") and probe == "act"
    tool = "web_search" if outcome == "other_action" else "phone_call"
    calls = (ToolCall(tool, {"merchant": target}),) if made else ()
    broken = '{"name": "phone_call", "arguments": {' if outcome == "malformed_call" else ""
    parsed = ParsedReply(
        reasoning, prose, calls, "malformed" if broken else "ok" if calls else "none",
        thinking_start_missing=reasoning is None, thinking_end_missing=reasoning is None or cut,
        malformed_names=("phone_call",) if broken else (), malformed_text=broken,
    )  # fmt: skip
    text = (f"<think>{reasoning}</think>" if reasoning else "") + prose + broken
    output = ModelOutput(text, ids, "length" if cut else "stop", usage, timing)
    if probe == "ask":
        said = point.prior_calls if draw.random() < 0.7 else point.prior_calls + 1
        score = Score("truncated" if cut else None, reason="number", answer=None if cut else said,
                      right=not cut and said == point.prior_calls)  # fmt: skip
        return output, parsed, score
    return output, parsed, Score(
        outcome, attempted=made and tool == "phone_call", claimed=outcome == "claimed_action",
        malformed_attempt=bool(broken), reason=f"talk: {prose[:40]}" if outcome == "compliant" else outcome,
    )  # fmt: skip


# -- writing ---------------------------------------------------------------------------------------------


def vocabulary(seed: int = 0) -> dict[int, bytes]:
    """Token id → the bytes that it stands for."""
    draw = random.Random(f"{seed} vocabulary")
    return {i: f" {draw.choice(WORDS)}".encode() for i in range(VOCABULARY)}


def manifest(cells: int, **fields: Any) -> dict[str, Any]:
    """What a finished run says of itself, with the keys of a real one."""
    throughput = {"cells": cells, "seconds": 3_600.0, "prompt_tokens": 1_000 * cells, "computed_tokens": 100 * cells,
                  "new_tokens": 60 * cells}  # fmt: skip
    session = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T01:00:00+00:00", "failed": 0}
    return {
        "run_id": "toy-1.5b-0123456789", "config_digest": "0123456789", "experiment": "big", "measure": "throughput",
        "model": {"name": "toy-1.5b", "source": "made up", "sha256": "0" * 64, "revision": None},
        "conditions": [_condition(*arm) for arm in ARMS],
        "inputs": {"scenario": "1" * 64, "template": "2" * 16, "weights": "0" * 64},
        "cells": cells, "left_out": [], "shared_prefix_tokens": SYSTEM + TOOL_LIST, "started": session["started"],
        "harness": "0.1.0", "packages": {"tailgauge": "0.1.0"}, "python": "3.11", "platform": "made up",
        "cpu": {"model": "made up", "count": 2}, "memory_bytes": 2**34, "gpus": [],
        "git": {"revision": "3" * 40, "dirty": False}, "config": {"seed": 0, "experiment": "big"},
        "engine": {"engine": "made up"}, "sessions": [session | throughput], "throughput": throughput,
        "ended": session["ended"],
    } | fields  # fmt: skip


def _condition(name: str, bar: str, placement: str) -> dict[str, str]:
    entry = {"name": name, "bar": bar, "placement": placement}
    if bar == "placebo":
        entry["placebo_of"] = name.replace("placebo", "agent_status")
    return entry


def write_run(
    folder: Path,
    cells: Iterable[EvalRecord],
    about: Mapping[str, Any],
    pieces: Mapping[int, bytes] | None = None,
) -> Path:
    """A finished run's folder without its log: the bytes that `harness.runlog.finalize` gives, without the detour.

    `pieces`: token id → bytes for tokens.parquet; without them the run has none, as older runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    timings: list[tuple[str, Timing]] = []

    def noted() -> Iterator[EvalRecord]:
        for record in cells:
            timings.append((record.cell_id, record.output.timing))
            yield record

    schema = schema_of(EvalRecord)
    with pq.ParquetWriter(folder / "samples.parquet", schema, compression="zstd") as writer:
        for batch in batches(noted(), EvalRecord):
            writer.write_batch(batch)
    pq.write_table(_timings(timings), folder / "timings.parquet", compression="zstd")
    write_manifest(folder, about)
    if pieces is not None:
        write_pieces(folder, lambda number: pieces[number])
    return folder


def _timings(timings: Sequence[tuple[str, Timing]]) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "cell_id": pa.array([cell for cell, _ in timings], pa.string()),
        "measure": pa.array(["throughput"] * len(timings), pa.string()),
        "cache_state": pa.array([timing.cache or "shared" for _, timing in timings], pa.string()),
        "started_at": pa.array([timing.started_at for _, timing in timings], pa.string()),
    }
    for name in ("total", "first_token", "first_answer_token"):
        columns[name] = pa.array([getattr(timing, name) for _, timing in timings], pa.float64())
    return pa.table(columns)


def big_run(folder: Path, plan: Plan | None = None, seed: int = 0) -> Path:
    """The run of `plan` in `folder`."""
    plan = plan or Plan()
    return write_run(folder, records(plan, seed), manifest(plan.cells), vocabulary(seed))
