"""Texts for made-up cells: a vocabulary of numbered words, prompts with a call and a bar, replies that quote and repeat."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

WORDS = [f"w{number} " for number in range(60)]
CALL = (
    '<tool_call>\n{"name": "',
    'web_search", "arguments": {"query": "',
    '"}}\n</tool_call>',
    "<agent_status>",
    "</agent_status>",
)
PIECES = [*WORDS, *CALL]
OPEN, NAMED, CLOSE, TAG, END = range(len(WORDS), len(PIECES))


def texts(cell: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Prompt, spans, bar and reply for a cell of `act`; every sample and arm says something else."""
    talk = [int(word) for word in rng.integers(0, 40, 25)]
    query = int(rng.integers(0, 40))
    prompt = [*talk, OPEN, NAMED, query, CLOSE, *(int(word) for word in rng.integers(0, 40, 5))]
    spans = [{"region": "call:web_search", "start": 26, "end": 28}]
    bar: list[int] = []
    if cell["bar"] != "none":
        # Some of its words in a row stand in the conversation as well.
        bar = [*talk[:6], *(int(word) for word in rng.integers(30, 60, 8))]
        spans.append({"region": "bar", "start": len(prompt), "end": len(prompt) + len(bar) + 2})
        prompt += [TAG, *bar, END]
    text = f"<agent_status>\n{_written(bar)}\n</agent_status>" if bar else ""
    return {
        "prompt_ids": prompt, "spans": spans, "bar_text": text, "expectation.tool": "phone_call",
        "expectation.reply_tool": "reply", "parsed": json.dumps(_reply(talk, bar, query, rng)),
    }  # fmt: skip


def _reply(talk: list[int], bar: list[int], query: int, rng: np.random.Generator) -> dict[str, Any]:
    words = [int(word) for word in rng.integers(0, 60, 4)]
    start = int(rng.integers(0, 10))
    quoted = (bar or talk)[start : start + int(rng.integers(3, 8))] if rng.random() < 0.6 else []
    spoken = _written([*words, *quoted])
    calls: list[dict[str, Any]] = []
    if rng.random() < 0.5:
        other = query if rng.random() < 0.5 else int(rng.integers(0, 40))
        calls.append({"name": "web_search", "arguments": {"query": PIECES[other]}})
    if rng.random() < 0.2:
        calls.append({"name": "phone_call", "arguments": {"merchant": "w1"}})
    if rng.random() < 0.5:
        calls.append({"name": "reply", "arguments": {"message": spoken, "urgent": True}})
        spoken = "Done. <agent_status>" if rng.random() < 0.1 else ""
    for call in calls:
        call |= {"id": "", "in_reasoning": bool(rng.random() < 0.2)}
    return {"content": spoken, "tool_calls": calls}


def _written(ids: list[int]) -> str:
    return "".join(PIECES[number] for number in ids).strip()


def write_pieces(run_dir: Path) -> None:
    """tokens.parquet of these texts."""
    ids = pd.Series(range(len(PIECES)), dtype="int32")
    pd.DataFrame({"id": ids, "piece": [text.encode() for text in PIECES]}).to_parquet(
        run_dir / "tokens.parquet"
    )
