"""What report.html and report.md say, gathered once, so that both say the same.

Knows the run, its tables and its figures; knows no markup.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.analysis import threats
from harness.analysis.frames import RunData
from harness.analysis.page import facts
from harness.analysis.page.lines import Line, Tables, lines
from harness.analysis.sentences import in_short, model_name, sentences
from harness.analysis.table import Table

MAIN_FIGURES = ("both_sides", "sensitivity")
MAIN_TABLES = ("choose", "rates")
"""What the part on both sides of the rule shows unfolded."""


@dataclass(frozen=True, slots=True)
class Block:
    """A table as texts; `body` is empty where nothing was measured, and `absent` says why."""

    name: str
    title: str
    how_to_read: str
    headers: list[str]
    body: list[list[str]]
    lost: list[str]
    notes: tuple[str, ...]
    absent: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: `path` of its PNG, and what is said of it."""

    path: Path
    title: str
    text: str
    main: bool


@dataclass(frozen=True, slots=True)
class Content:
    """A whole report."""

    title: str
    run_id: str
    basis: str
    below: str
    conditions: list[str]
    sentences: list[str]
    lines: list[Line]
    audit: threats.Audit
    pictures: list[Picture]
    blocks: list[Block]
    manifest: list[tuple[str, list[tuple[str, str]]]]
    manifest_json: str


def gather(run: RunData, tables: Tables, figures: Sequence[Path]) -> Content:
    """Everything that a report of this run says; `figures` are the files drawn of it."""
    experiment = run.manifest.get("experiment", "run")
    return Content(
        title=f"{experiment} on {model_name(run.manifest)}",
        run_id=str(run.manifest.get("run_id", run.path.name)),
        basis=facts.basis(run),
        below=facts.below(run),
        conditions=[arm.name for arm in run.arms],
        # The cards above them answer the main question already.
        sentences=[text for text in sentences(run, tables) if text != in_short(run, tables)],
        lines=lines(tables),
        audit=threats.audit(run, tables),
        pictures=[_picture(path) for path in figures if path.suffix == ".png"],
        blocks=[_block(table) for table in tables.values()],
        manifest=facts.manifest_groups(run),
        manifest_json=json.dumps(facts.masked(run.manifest), indent=2, ensure_ascii=False, default=str),
    )


def _picture(path: Path) -> Picture:
    title, text = facts.caption(path.stem)
    return Picture(path, title, text, path.stem in MAIN_FIGURES)


def _block(table: Table) -> Block:
    headers, body, lost = ([], [], []) if table.data.empty else table.texts()
    return Block(table.name, table.title, table.how_to_read, headers, body, lost, table.notes, table.absent)
