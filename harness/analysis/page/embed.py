"""The cells that the page carries: drawn, described, and packed into one data block.

Reads the texts of the drawn rows alone. Knows bytes and limits; what a cell is shown with is `texts`' business.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.analysis.html import deflated
from harness.analysis.page.cells import CellIndex, read_index, tone
from harness.analysis.page.sample import MOST, Sampled, draw
from harness.analysis.page.texts import DETAIL, Texts, describe, shortened
from harness.runlog.pieces import read_pieces

TEXT_LIMITS = (200_000, 50_000, 12_000, 3_000, 600, 100)
"""Longest text in characters; the next is tried where the cells would take too much room."""
MOST_CHARACTERS = 16_000_000
"""Of all distinct texts: what a browser unpacks without pause."""
MOST_BYTES = 9_000_000
"""Of the packed cells, so that the page stays under 15 MB."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """`data`: deflated JSON in base64. `told`: what is shown of the run, in a sentence or two."""

    data: str
    told: str


def embed(index: CellIndex, pieces: dict[int, bytes], most: int = MOST) -> Embedded:
    """At most `most` cells of the run, with the texts that fit."""
    sampled = draw(index, most)
    texts = Texts(pieces)
    cells = describe_cells(index, sampled.cells, texts)
    for limit in TEXT_LIMITS:
        kept = shortened(texts.texts, limit)
        if limit != TEXT_LIMITS[-1] and sum(map(len, kept)) > MOST_CHARACTERS:
            continue
        data = deflated(
            json.dumps({"texts": kept, "cells": cells}, separators=(",", ":"), allow_nan=False).encode()
        )
        if len(data) <= MOST_BYTES:
            break
    cut = sum(len(text) > limit for text in texts.texts)
    return Embedded(data, _told(sampled, bool(pieces), cut, limit))


def embed_run(run_dir: Path) -> Embedded:
    """`embed` on a run folder. Raises ReportError or RunLogError when its files cannot be read."""
    return embed(read_index(run_dir), read_pieces(run_dir))


def describe_cells(index: CellIndex, cells: pd.DataFrame, texts: Texts) -> list[dict[str, Any]]:
    """Details of these rows of the index's frame, in their order."""
    rows = index.read(cells["row"].tolist(), DETAIL)
    return [
        describe(rows[row], outcome, tone(outcome, str(side)), texts)
        for row, outcome, side in zip(cells["row"], cells["outcome"], cells["side"], strict=True)
    ]


def _told(sampled: Sampled, pieces: bool, cut: int, limit: int) -> str:
    shown, total = f"{len(sampled.cells):,}", f"{sampled.total:,}"
    told = f"Shows {shown} of {total} cells"
    if not sampled.whole:
        told += (
            f": {sampled.points:,} of {sampled.all_points:,} decision points with their arms, drawn so that "
            f"{sampled.strata:,} of {sampled.all_strata:,} kinds of cell (probe × series × condition × outcome) are there; "
            "shares in this list are not those of the run. `tailgauge view` browses all of them"
        )
    told += "."
    if cut:
        told += f" The middle of {cut:,} texts longer than {limit:,} characters is left out; `tailgauge view` has it."
    if not pieces:
        told += " The run keeps no tokens.parquet, so of its prompts the bar alone can be shown as text."
    return told
