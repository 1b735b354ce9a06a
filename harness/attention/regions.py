"""Keys of a replayed sequence → regions with names: messages, call records, the bar's lines, sinks.

Every key belongs to exactly one region. Knows spans of a record and token texts; knows no attention.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from harness.attention.rows import Sequenced
from harness.attention.store import MASKS, Ints, Region
from harness.types import EvalRecord, Span

_PLAIN = {
    "system": "system",
    "tools": "tools",
    "user": "user",
    "assistant": "assistant",
    "follow_up": "follow_up",
    "stale_bar": "bar",
}
"""Older copies of the bar are of its group and have no line of their own."""


@dataclass(frozen=True, slots=True)
class Regions:
    """`of_key` (K,): number of each key's region in `names`."""

    names: tuple[Region, ...]
    of_key: Ints


class _Map:
    """Regions in the order in which they appear, and who owns which key."""

    def __init__(self, size: int) -> None:
        self.names = [Region("template", "template")]
        self.of_key: Ints = np.zeros(size, np.int64)

    def put(self, region: Region, start: int, end: int) -> None:
        if start < end:
            self.of_key[start:end] = len(self.names)
            self.names.append(region)


def regions(record: EvalRecord, cell: Sequenced, sinks: tuple[int, ...]) -> Regions:
    """`sinks`: positions, the same in every arm; they are taken out of whatever they stand in."""
    found = _Map(len(cell.ids))
    seen: Counter[str] = Counter()
    for span in record.spans:
        if span.region == "bar":
            seen["bar"] += 1
            for region, start, end in _lines(span, cell, record.bar_text):
                again = f", copy {seen['bar']}" if seen["bar"] > 1 else ""
                found.put(replace(region, name=region.name + again), start, end)
            continue
        seen[span.region] += 1
        found.put(
            Region(_name(span.region, seen[span.region]), _group(span.region, record)), span.start, span.end
        )
    found.put(Region("forced", "forced"), *cell.forced)
    for number, (start, end) in enumerate(cell.thinking, start=1):
        found.put(Region(f"thinking {number}", "thinking"), start, end)
    found.put(Region("answer", "answer"), *cell.answer)
    found.names.append(Region("sinks", "sinks"))
    found.of_key[list(sinks)] = len(found.names) - 1
    return Regions(tuple(found.names), found.of_key)


def _name(region: str, number: int) -> str:
    """Regions that recur are numbered; the others have their name to themselves."""
    return region if region in ("system", "tools", "follow_up") else f"{region} {number}"


def _group(region: str, record: EvalRecord) -> str:
    """The group of a span: records of the counted tool by what was asked for, of tools without a rule apart."""
    if region in _PLAIN:
        return _PLAIN[region]
    kind, _, record_of = region.partition(":")
    ends = "calls" if kind == "call" else "results"
    expected = record.expectation
    if record_of == f"{expected.tool}:{expected.target}":
        return f"target_{ends}"
    return f"other_{ends}" if record_of.startswith(f"{expected.tool}:") else f"unruled_{ends}"


def _lines(span: Span, cell: Sequenced, text: str) -> list[tuple[Region, int, int]]:
    """The bar's lines. A token that ends a line and begins the next belongs to the line that it ends."""
    shown = text.split("\n")
    found, line, start = [], 0, span.start
    for position in range(span.start, span.end):
        breaks = cell.pieces[position].count("\n")
        last = position == span.end - 1
        if breaks or last:
            words = shown[line] if line < len(shown) else ""
            found.append((Region(f"bar {line + 1}", "bar", line + 1, words), start, position + 1))
            start, line = position + 1, line + max(breaks, 1)
    return found


def group_spans(record: EvalRecord, cell: Sequenced, mask: str) -> tuple[tuple[int, int], ...]:
    """Token ranges of a mask's spans (a group of GROUPS, or a name of MASKS), ascending."""
    generated = {"thinking": cell.thinking, "forced": (cell.forced,), "answer": (cell.answer,)}
    if mask in generated:
        return tuple(span for span in generated[mask] if span[0] < span[1])
    groups = MASKS.get(mask, (mask,))
    return tuple(
        (span.start, span.end)
        for span in record.spans
        if ("bar" if span.region == "bar" else _group(span.region, record)) in groups
    )
