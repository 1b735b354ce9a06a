"""Rows of samples.parquet → what the browser shows of a cell, with every distinct text kept once.

A prompt is a list of (region, number of its text): the arms of a sample share all but the bar, and all samples share
system prompt and tools, so few texts are many prompts. Token ids become text by the run's own pieces
(tokens.parquet); a run without them has no prompt texts, and says so. Knows records and regions, nothing of pages.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.runlog.pieces import text_of

DETAIL = (
    "cell_id", "sample_id", "cluster", "series", "side", "target", "prior_calls", "limit", "filler_tokens", "phrasing",
    "condition", "bar", "placement", "probe", "thinking", "epoch", "seed", "prompt_ids", "spans", "bar_text",
    "bar_tokens", "forced_ids", "expectation.tool", "decoding.temperature", "decoding.max_new_tokens",
    "output.text", "output.finish_reason", "output.error", "output.choice_logprobs", "output.thoughts",
    "output.usage.prompt_tokens", "output.usage.completion_tokens", "output.usage.cached_tokens",
    "output.usage.reasoning_tokens", "output.usage.reasoning_censored", "parsed", "score.outcome", "score.reason",
    "score.p_act", "score.p_act_norm", "score.logit_act", "score.choice_mass", "score.answer", "think_open",
)  # fmt: skip
"""The columns that `describe` reads."""
GAP = "template"
"""What the chat template writes between the regions."""
_PLAIN = (
    "cell_id", "sample_id", "cluster", "series", "side", "target", "prior_calls", "limit", "filler_tokens", "phrasing",
    "condition", "bar", "placement", "probe", "thinking", "epoch", "seed", "bar_tokens", "think_open",
)  # fmt: skip
_RENAMED = {
    "expectation.tool": "tool", "decoding.temperature": "temperature", "decoding.max_new_tokens": "max_new_tokens",
    "output.finish_reason": "finish", "output.usage.prompt_tokens": "prompt_tokens",
    "output.usage.completion_tokens": "completion_tokens", "output.usage.cached_tokens": "cached_tokens",
    "output.usage.reasoning_tokens": "reasoning_tokens", "output.usage.reasoning_censored": "censored",
    "score.p_act": "p_act", "score.p_act_norm": "p_act_norm", "score.logit_act": "logit_act",
    "score.choice_mass": "choice_mass", "score.answer": "answer",
}  # fmt: skip


@dataclass(slots=True)
class Texts:
    """A pool of distinct texts; token ids are decoded once for each distinct stretch."""

    pieces: Mapping[int, bytes]
    texts: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _stretches: dict[tuple[int, ...], int] = field(default_factory=dict)

    def number(self, text: str | None) -> int | None:
        """The number of a text in the pool; None for no text."""
        if text is None:
            return None
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found

    def of_ids(self, ids: Sequence[int]) -> int:
        """The number of the text of these token ids."""
        key = tuple(ids)
        found = self._stretches.get(key)
        if found is None:
            found = self.number(text_of(key, self.pieces)) or 0
            self._stretches[key] = found
        return found


def describe(row: Mapping[str, Any], outcome: str, tone: str, texts: Texts) -> dict[str, Any]:
    """One cell as plain data for the browser; its longer texts go into `texts` and stand as numbers."""
    parsed = _parsed(row.get("parsed"))
    shown: dict[str, Any] = {name: _plain(row.get(name)) for name in _PLAIN}
    shown |= {name: _plain(row.get(column)) for column, name in _RENAMED.items()}
    shown |= {
        "outcome": outcome,
        "tone": tone,
        "reason": texts.number(row.get("score.reason") or None),
        "error": texts.number(row.get("output.error")),
        "prompt": _prompt(row, texts),
        "bar_text": texts.number(row.get("bar_text") or None),
        "reply": texts.number(row.get("output.text") or None),
        "thinking_text": texts.number(parsed.get("reasoning")),
        "content": texts.number(parsed.get("content") or None),
        "calls": [_call(call, texts) for call in parsed.get("tool_calls") or ()],
        "parse_status": parsed.get("status"),
        "malformed": texts.number(parsed.get("malformed_text") or None),
        "forced": texts.of_ids(row["forced_ids"]) if texts.pieces and row.get("forced_ids") else None,
        "choices": _choices(row.get("output.choice_logprobs")),
        "thoughts": [_thought(thought, texts) for thought in row.get("output.thoughts") or ()],
    }
    return shown


def _parsed(text: object) -> Mapping[str, Any]:
    found = json.loads(text) if isinstance(text, str) and text else {}
    return found if isinstance(found, Mapping) else {}


def _plain(value: Any) -> Any:
    """A number, text or flag as JSON has it; what is unknown or endless is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _call(call: Mapping[str, Any], texts: Texts) -> list[int | None]:
    arguments = call.get("arguments")
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, indent=1)
    return [texts.number(str(call.get("name", ""))), texts.number(shown)]


def _choices(text: object) -> list[list[Any]]:
    """(label, raw probability, share of all choices), likeliest first."""
    logs = json.loads(text) if isinstance(text, str) and text else {}
    masses = {str(label): math.exp(value) for label, value in logs.items() if isinstance(value, int | float)}
    total = sum(masses.values())
    ordered = sorted(masses.items(), key=lambda item: (-item[1], item[0]))
    return [[label, mass, mass / total if total else None] for label, mass in ordered]


def _thought(thought: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    ids = thought.get("token_ids") or ()
    return {
        "text": texts.of_ids(ids) if texts.pieces and ids else None,
        "tokens": thought.get("reasoning_tokens"),
        "cut": bool(thought.get("cut")),
        "censored": bool(thought.get("censored")),
    }


def _prompt(row: Mapping[str, Any], texts: Texts) -> list[list[Any]] | None:
    """[region, text] in order; None where the run has no pieces or the row no ids."""
    ids = row.get("prompt_ids")
    if not texts.pieces or not ids:
        return None
    return [
        [region, texts.of_ids(ids[start:end])]
        for region, start, end in _stretches(row.get("spans"), len(ids))
    ]


def _stretches(spans: Sequence[Mapping[str, Any]] | None, size: int) -> Iterator[tuple[str, int, int]]:
    """Every token once: the spans in order, and what lies between them as GAP."""
    at = 0
    for span in sorted(spans or (), key=lambda span: (span["start"], span["end"])):
        start, end = max(int(span["start"]), at), min(int(span["end"]), size)
        if end <= start:
            continue
        if start > at:
            yield GAP, at, start
        yield str(span["region"]), start, end
        at = end
    if at < size:
        yield GAP, at, size


def shortened(texts: Sequence[str], most: int) -> list[str]:
    """The texts, each longer than `most` characters with its middle left out and the place marked."""
    half = most // 2
    return [
        text
        if len(text) <= most
        else f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out here …]\n{text[-half:]}"
        for text in texts
    ]
