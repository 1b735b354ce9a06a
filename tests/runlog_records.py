"""Records for the run log's tests: a maker, a hypothesis strategy, and children that write a log."""

import os
import subprocess
import sys
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from harness.types import (
    Decoding,
    EvalRecord,
    Expectation,
    ModelOutput,
    ModelUsage,
    ParsedReply,
    Score,
    Span,
    Timing,
    ToolCall,
)

ROOT = Path(__file__).resolve().parents[1]
CONFIG: dict[str, Any] = {"model": {"name": "tiny", "seed": 1}, "conditions": ["control", "agent_status"]}


def make_record(number: int, *, batch: int = 0, outcome: Any = "compliant", tokens: int = 8) -> EvalRecord:
    """A whole record, the same for the same arguments but for its time."""
    return EvalRecord(
        cell_id=f"cell-{number:04d}",
        batch=batch,
        sample_id=f"sample-{number // 2}",
        scenario="xfinity",
        cluster=f"c{number // 4}",
        series="matched",
        side="forbidden" if number % 2 else "due",
        target="Xfinity",
        prior_calls=3,
        limit=3,
        filler_tokens=0,
        phrasing="mild",
        condition="agent_status",
        bar="agent_status",
        placement="tail",
        placebo_id=None,
        probe="act",
        thinking="off",
        epoch=0,
        seed=number,
        model="tiny",
        prompt_ids=tuple(range(number, number + tokens)),
        spans=(Span("system", 0, 3), Span("bar", 3, tokens)),
        prompt_hash="ab" * 8,
        bar_text="<agent_status>\ncalls left: 0 · “Xfinity”\n</agent_status>",
        bar_tokens=5,
        choices={"call": (5, 6), "reply": (7,)},
        decoding=Decoding(max_new_tokens=64),
        expectation=Expectation("forbidden", "phone_call", "merchant", "Xfinity", ("Comcast",)),
        tool_names=("phone_call", "reply"),
        output=ModelOutput(
            text=f"I cannot call again ({number}).",
            token_ids=(1, 2, number),
            finish_reason="stop",
            usage=ModelUsage(prompt_tokens=tokens, completion_tokens=3),
            timing=Timing(started_at=f"2026-01-01T00:00:{os.getpid() % 60:02d}+00:00", total=number / 7),
            choice_logprobs={"reply": -0.1, "call": -2.5},
        ),
        parsed=ParsedReply(
            None, "I cannot.", (ToolCall("reply", {"text": "no", "n": [1, {"a": None}]}),), "ok"
        ),
        score=Score(outcome=outcome, attempted=False, p_act=1 / 3, reason="declined"),
    )


def timeless(record: EvalRecord) -> EvalRecord:
    """The record as samples.parquet gives it back: without its time."""
    return replace(record, output=replace(record.output, timing=Timing(started_at="")))


_INTEGERS = st.integers(-(2**31), 2**31 - 1)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | _INTEGERS | _FLOATS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of any annotation that occurs in `harness.types`."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: _INTEGERS, float: _FLOATS, str: st.text(max_size=8), bool: st.booleans(), Any: _JSON,
    }  # fmt: skip
    if kind in plain:
        return plain[kind]
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return st.builds(kind, **{part.name: values(hints[part.name]) for part in fields(kind)})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*(st.none() if part is type(None) else values(part) for part in arguments))
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    assert origin is Mapping
    return st.dictionaries(st.text(max_size=4), values(arguments[1]), max_size=2)


RECORDS = values(EvalRecord)

WRITE = """
import sys
from pathlib import Path
from runlog_records import CONFIG, make_record
from harness.runlog import RunLog
with RunLog.open(Path(sys.argv[1]), {}, CONFIG) as log:
    print("open", len(log.finished), flush=True)
    for number in range(int(sys.argv[2])):
        if log.append(make_record(number, batch=number // 8, tokens=600)):
            print(f"cell-{number:04d}", flush=True)
print("closed", flush=True)
"""
"""A child that runs a plan of `argv[2]` cells into the folder `argv[1]` and names each finished cell."""


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that can import harness and this module; stdout and stderr are text pipes."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
