"""A capture's report: tables, data files, figures and the interactive page, rebuilt from the files of the capture.

Knows only the capture's folder; needs no model, so it can be made again at any time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.analysis.attention.figures import build_figures
from harness.analysis.attention.frames import AttentionData, load
from harness.analysis.attention.page import build_page
from harness.analysis.attention.sentences import sentences
from harness.analysis.attention.tables import build_tables, write_frames
from harness.analysis.table import Table
from harness.analysis.tables import write_tables


@dataclass(frozen=True, slots=True)
class AttentionPaths:
    """What `build` wrote."""

    tables: tuple[Path, ...]
    summary: Path
    """tables.md: the sentences and every table in Markdown."""
    data: tuple[Path, ...]
    """summary.parquet and masking.parquet."""
    figures: tuple[Path, ...]
    page: Path | None
    """attention.html; None where no captured cell can be browsed."""
    sentences: tuple[str, ...]


def build(folder: Path) -> AttentionPaths:
    """Rebuild all that follows from a capture's files. Raises AttentionError where nothing was captured."""
    data = load(folder)
    tables = build_tables(data)
    paths = write_tables(tables, folder / "tables")
    said = sentences(data, tables)
    summary = folder / "tables.md"
    summary.write_text(_summary(data, tables, said), encoding="utf-8", newline="\n")
    frames = write_frames(data)
    figures = build_figures(data, tables, folder)
    return AttentionPaths(
        tuple(paths), summary, tuple(frames), tuple(figures), build_page(folder), tuple(said)
    )


def _summary(data: AttentionData, tables: Mapping[str, Table], said: list[str]) -> str:
    parts = [
        f"# Attention of {data.model}\n",
        f"Run `{data.manifest.get('run_id', data.folder.parent.name)}`. {_budget(data)}\n",
        *(f"- {line}" for line in said),
        "",
    ]
    return "\n".join(parts) + "\n" + "\n".join(table.to_markdown() for table in tables.values())


def _budget(data: AttentionData) -> str:
    """The capture's size, from the manifest."""
    budget = data.manifest.get("budget")
    size = budget.get("bytes") if isinstance(budget, Mapping) else None
    cells = len(data.cells)
    if not isinstance(size, int):
        return f"{cells} cells."
    return f"{cells} cells in {size / 1e6:.1f} MB ({size / cells / 1e3:.0f} kB a cell)."
