"""A provider's answer → the one form of text that is recorded, and the choice that it made.

The raw text is written as an open model writes it: thinking in its marks, calls in theirs (`harness.parsing` reads
both). Knows no provider.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence

from harness.models.api.base import Answer, Block
from harness.template import THINK_CLOSE, THINK_OPEN


def text_of(answer: Answer) -> str:
    """The whole reply as raw text; a call's arguments stand as they came, broken JSON included."""
    parts: list[str] = []
    last = len(answer.blocks) - 1
    for number, block in enumerate(answer.blocks):
        if block.kind == "thinking":
            cut = number == last and answer.stop == "length"
            parts.append(f"{THINK_OPEN}\n{block.text}" + ("" if cut else f"\n{THINK_CLOSE}\n\n"))
        elif block.kind == "text":
            parts.append(block.text)
        else:
            before = "\n" if parts and not parts[-1].endswith("\n") else ""
            name = json.dumps(block.name, ensure_ascii=False)
            arguments = block.text.strip() or "{}"
            parts.append(f'{before}<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>')
    return "".join(parts)


def chosen(answer: Answer, labels: Iterable[str]) -> str | None:
    """The label (`tool:value` or `tool`) of the first call; None where it is none of them, or there is none."""
    call = next((block for block in answer.blocks if block.kind == "call"), None)
    return None if call is None else label_of(call, frozenset(labels))


def label_of(call: Block, labels: frozenset[str]) -> str | None:
    """The label that a call stands for: its tool with the value of any of its arguments, or its tool alone."""
    try:
        arguments = json.loads(call.text or "{}")
    except ValueError:
        return None
    values = arguments.values() if isinstance(arguments, Mapping) else ()
    named = [f"{call.name}:{value}" for value in values if isinstance(value, str)]
    return next((label for label in (*named, call.name) if label in labels), None)


def drawn_logprobs(counts: Mapping[str, int], labels: Sequence[str]) -> dict[str, float]:
    """label → log of its share among the draws, half a draw added to each label and to "none of them" (Hautus 1995:
    so that no share is 0 or 1)."""
    total = sum(counts.values()) + 0.5 * (len(labels) + 1)
    return {label: math.log((counts.get(label, 0) + 0.5) / total) for label in labels}
