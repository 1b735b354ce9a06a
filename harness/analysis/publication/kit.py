"""Everything of the publication kit but the folder: which files there are and what stands in each.

Knows the tables and figures of runs and captures and writes them into an empty folder. The same runs give the same
bytes: nothing here knows the time, the user or where the folder is.
"""

import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from harness.analysis.attention import figures as attention_figures
from harness.analysis.attention.arrangement import slug as slug_of
from harness.analysis.attention.frames import load as load_capture
from harness.analysis.attention.tables import build_tables as build_attention_tables
from harness.analysis.drawing import RC, WIDE, WIDTH, save
from harness.analysis.figures import drawings
from harness.analysis.frames import load
from harness.analysis.publication import attention_captions, captions, texts
from harness.analysis.publication.captions import Item
from harness.analysis.publication.facts import Capture, Facts
from harness.analysis.publication.folder import MADE_BY, MANIFEST, digest, json_text
from harness.analysis.publication.latex import tabulars
from harness.analysis.publication.methods import methods
from harness.analysis.publication.prose import cited
from harness.analysis.publication.references import bibtex
from harness.analysis.table import Table
from harness.analysis.tables import build_tables
from harness.attention.store import capture_folders
from harness.errors import ReportError

FORMATS = ("pdf", "svg", "png")
WIDTHS = {"column": WIDTH, "page": WIDE}
TALLEST = 4.5
"""Inches of a column figure above which its float takes the page's width."""
SOURCES = ("manifest.json", "samples.parquet", "timings.parquet")


def read(run_dirs: Sequence[Path], incomplete: bool) -> list[Facts]:
    """Read runs and their captures. Raises ReportError for a run that is unfinished, unless `incomplete`, or given
    twice."""
    found: list[Facts] = []
    for run_dir in run_dirs:
        run = load(run_dir)
        planned = run.manifest.get("cells")
        expected = planned if isinstance(planned, int) and not isinstance(planned, bool) else None
        slug = slug_of(str(run.manifest.get("run_id") or run_dir.resolve().name))
        if any(other.slug == slug for other in found):
            raise ReportError(f"{run_dir}: run {slug} is named twice; name each run once")
        facts = Facts(run, build_tables(run), _captures(run_dir), slug, expected)
        if not facts.complete and not incomplete:
            raise ReportError(f"{run_dir}: {_unfinished(facts)}")
        found.append(facts)
    return found


def _unfinished(facts: Facts) -> str:
    say = "or publish it as it is with --incomplete, which every caption will say"
    if facts.expected is None:
        return f"its manifest.json does not say how many cells were planned (`cells`); restore it, {say}"
    return (
        f"{len(facts.run.cells):,} of {facts.expected:,} cells are finished; finish the run with the command that started "
        f"it, {say}"
    )


def _captures(run_dir: Path) -> tuple[Capture, ...]:
    made = []
    for folder in capture_folders(run_dir):
        data = load_capture(folder)
        made.append(Capture(slug_of(folder.name), data, build_attention_tables(data)))
    return tuple(made)


def write(runs: Sequence[Facts], folder: Path) -> None:
    """Write the whole kit into an empty folder."""
    items: list[Item] = []
    for facts in runs:
        below = "" if len(runs) == 1 else f"{facts.slug}/"
        items += [*_figures(facts, folder, below), *_tables(facts, folder, below)]
    told = [methods(facts) for facts in runs]
    for path, text in texts.written(runs, items, told).items():
        _put(folder / path, text)
    said = [item.caption.whole for item in items] + [text for run in told for _, text in run]
    _put(folder / "references.bib", bibtex(key for text in said for key in cited(text)))
    _put(folder / "README.md", texts.readme(runs, items))
    _put(folder / MANIFEST, json_text(_manifest(runs, items, folder)))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "backslashreplace"))


def _figures(facts: Facts, folder: Path, below: str) -> Iterator[Item]:
    """Draw a run's figures in both widths, and its captures' at the width that each is laid out for."""
    out = folder / "figures" / below
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(RC):
        for stem, draw in drawings():
            paths: list[Path] = []
            for width, inches in WIDTHS.items():
                figure = draw(facts.tables, facts.run.arms, inches)
                if figure is not None:
                    paths += save(figure, out / f"{stem}_{width}", FORMATS)
            if paths:
                wide = _wide(out / f"{stem}_column.png")
                yield Item(captions.figure_caption(facts, stem), _relative(paths, folder), below, wide=wide)
    for capture in facts.captures:
        place = out / capture.folder
        place.mkdir()
        paths = attention_figures.build_figures(capture.data, capture.tables, place)
        for stem in dict.fromkeys(path.stem for path in paths):
            moved = [Path(shutil.move(path, place / path.name)) for path in paths if path.stem == stem]
            caption = attention_captions.figure_caption(facts, capture, stem)
            yield Item(caption, _relative(moved, folder), below, wide=_wide(place / f"{stem}.png"))
        (place / attention_figures.FOLDER).rmdir()


def _wide(png: Path) -> bool:
    """Whether a PNG of 300 dpi needs both columns: wider than one, or too tall to share it with a caption."""
    width, height = struct.unpack(">II", png.read_bytes()[16:24])  # the header's first two numbers
    return bool(width / 300 > WIDTH + 0.1 or height / 300 > TALLEST)


def _tables(facts: Facts, folder: Path, below: str) -> Iterator[Item]:
    for table in facts.tables.values():
        files = _write_table(table, folder / "tables" / below)
        yield Item(
            captions.table_caption(facts, table), _relative(files, folder), below, not table.data.empty
        )
    for capture in facts.captures:
        for table in capture.tables.values():
            files = _write_table(table, folder / "tables" / below / capture.folder)
            caption = attention_captions.table_caption(facts, capture, table)
            yield Item(caption, _relative(files, folder), below, not table.data.empty)


def _write_table(table: Table, folder: Path) -> list[Path]:
    """CSV, Markdown, and LaTeX: one file per tabular, the second and later ones numbered."""
    made = {f"{table.name}.csv": table.to_csv(), f"{table.name}.md": table.to_markdown()}
    for i, text in enumerate(tabulars(table)):
        made[f"{table.name}{f'_{i + 1}' if i else ''}.tex"] = text
    for file, text in made.items():
        _put(folder / file, text)
    return [folder / file for file in made]


def _relative(paths: Sequence[Path], folder: Path) -> tuple[str, ...]:
    return tuple(path.relative_to(folder).as_posix() for path in paths)


def _manifest(runs: Sequence[Facts], items: Sequence[Item], folder: Path) -> dict[str, Any]:
    """What was published from which runs: ids, digests of their files, and the SHA-256 of every file of the kit."""
    what = {file: item.caption.title for item in items for file in item.files} | dict(texts.FILES)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {
        "made_by": MADE_BY,
        "runs": [_source(facts) for facts in runs],
        "files": {
            file: {"sha256": digest(folder / file), "bytes": (folder / file).stat().st_size, "what": what.get(file, "")}
            for file in files if file != ".lock"
        },
    }  # fmt: skip


def _source(facts: Facts) -> Mapping[str, Any]:
    manifest, path = facts.manifest, facts.run.path
    return {
        "run_id": facts.run_id, "experiment": manifest.get("experiment"),
        "config_digest": manifest.get("config_digest"), "model": facts.model,
        "cells": len(facts.run.cells), "planned": facts.expected, "complete": facts.complete,
        "captures": [capture.folder for capture in facts.captures],
        "sha256": {file: digest(path / file) for file in SOURCES if (path / file).is_file()},
    }  # fmt: skip
