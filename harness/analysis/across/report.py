"""The comparison of finished runs as files and sentences: tables, figures, tables.md, headline.

Knows only run folders; everything can be made again at any time without a model. Same runs, same bytes.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

from harness.analysis.across import runs
from harness.analysis.across.corner_figure import corner_figures
from harness.analysis.across.corners import corners_table, differences_table, found_corners, gaps_table
from harness.analysis.across.models import models_table, timing_notes
from harness.analysis.across.pareto import pareto_figure, pareto_table
from harness.analysis.across.quads import LARGE, SMALL_BAR, TITLES, pairs, quads
from harness.analysis.across.runs import Entry
from harness.analysis.decisions import Row
from harness.analysis.drawing import RC, save
from harness.analysis.frames import RunData
from harness.analysis.sentences import interval, pick
from harness.analysis.table import UNKNOWN, Shown, Table, fixed, frame, p_value
from harness.analysis.verdicts import Margins
from harness.errors import ReportError

RUN_COLUMNS: dict[str, int | None] = {
    "entry": None, "role": None, "run_id": None, "experiment": None, "scenario": None, "seed": None,
    "template": None, "engine": None, "cells": 0, "excluded": 0, "conditions": None,
}  # fmt: skip
_MOST_NAMES = 3
_HEADLINES = (("sensitivity", "sensitivity", "logits"), ("balanced_accuracy", "balanced accuracy", ""))
_MAIN = f"{TITLES[SMALL_BAR]} - {TITLES[LARGE]}"
_WORDS = {
    "better": "the small model with the bar does better", "worse": "the small model with the bar does worse",
    "equivalent": "the two are equivalent within the margin",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """The tables of a comparison by name, in reading order, and its headline."""

    entries: tuple[Entry, ...]
    tables: Mapping[str, Table]
    headline: tuple[str, ...]


def compare(
    entries: Sequence[Entry],
    small: Sequence[str] = (),
    large: Sequence[str] = (),
    margins: Margins | None = None,
) -> Comparison:
    """Every table of these entries. `small`, `large`: names of the smaller and larger models; by default each
    entry is smaller than those after it. `margins`: by default those that all runs state.

    Raises ReportError when a name is unknown or the runs state different margins.
    """
    held = runs.margins_for(entries) if margins is None else margins
    found = found_corners(quads(pairs(entries, small, large)))
    models = models_table(entries)
    made = [runs_table(entries), models, corners_table(found), differences_table(found, held), gaps_table(found),
            pareto_table(models, timing_notes(entries))]  # fmt: skip
    tables = {table.name: table for table in made}
    return Comparison(tuple(entries), tables, tuple(headline(entries, tables)))


def runs_table(entries: Sequence[Entry]) -> Table:
    """What is compared: every run with what must agree for the numbers to be comparable."""
    rows: list[Row] = []
    for entry in entries:
        rows.append(_run_row(entry, entry.run, "decisions"))
        rows += [_run_row(entry, run, "latency") for run in entry.timed if run is not entry.run]
    return Table(
        name="runs",
        title="Runs compared",
        how_to_read="Decision points are the same, and paired, where scenario and seed agree.",
        columns=RUN_COLUMNS,
        shown=(
            Shown("model", ("entry",)), Shown("read for", ("role",)), Shown("run", ("run_id",)),
            Shown("experiment", ("experiment",)), Shown("scenario", ("scenario",)), Shown("seed", ("seed",)),
            Shown("chat template", ("template",)), Shown("engine", ("engine",)), Shown("cells", ("cells",)),
            Shown("excluded", ("excluded",)), Shown("conditions", ("conditions",)),
        ),
        data=frame(RUN_COLUMNS, rows),
        absent="no run was given.",
    )  # fmt: skip


def _run_row(entry: Entry, run: RunData, role: str) -> Row:
    there = set(run.cells["condition"])
    return {
        "entry": entry.name, "role": role, "run_id": runs.run_id(run),
        "experiment": run.manifest.get("experiment"), "scenario": _short(runs.scenario(run)), "seed": runs.seed(run),
        "template": _short(runs.template(run)), "engine": runs.engine(run) or None, "cells": len(run.cells),
        "excluded": int(run.cells["excluded"].sum()),
        "conditions": " ".join(arm.name for arm in run.arms if arm.name in there),
    }  # fmt: skip


def _short(digest: str | None) -> str | None:
    return digest[:10] if digest else None


def headline(entries: Sequence[Entry], tables: Mapping[str, Table]) -> list[str]:
    """What came out for each pair of models and bar, in sentences; every number with interval, p and n."""
    data = tables["differences"].data
    if data.empty:
        return [
            f"{len(entries)} model(s) compared; no pair of them has a bar in the one and a control in the other."
        ]
    said = [
        "All that follows is exploratory: no p is corrected, and the models may differ in more than their size."
    ]
    for keys, rows in data[data["kind"] == _MAIN].groupby(["small", "large", "bar"], sort=False):
        where = dict(zip(("small", "large", "bar"), (str(key) for key in keys), strict=True))
        told = [_sentence(pick(rows, measure=name), words, unit) for name, words, unit in _HEADLINES
                if pick(rows, measure=name)]  # fmt: skip
        spent = [text for name in ("total", "cost", "thinking") if (text := _spent(pick(rows, measure=name)))]
        closed = [
            pick(tables["gap"].data, measure=name, of="bar - control", **where) for name, _, _ in _HEADLINES
        ]
        told += [
            text
            for row, (_, words, _) in zip(closed, _HEADLINES, strict=True)
            if (text := _closed(row, words))
        ]
        if told:
            said.append(f"{where['small']} with {where['bar']} against {where['large']} without a bar: "
                        + "; ".join([*told, *spent]) + ".")  # fmt: skip
    return said


def _sentence(row: Row, words: str, unit: str) -> str:
    change = interval(row, "estimate", 2, ("low", "high")) + (f" {unit}" if unit else "")
    n = f"{row['clusters']}" if row["clusters"] == row["clusters_against"] else (
        f"{row['clusters']} and {row['clusters_against']}")  # fmt: skip
    verdict = _WORDS.get(str(row["verdict"]), "undecided")
    more = fixed(row["more_clusters"], 0)
    if verdict == "undecided" and more != UNKNOWN:
        verdict = f"undecided, about {more} more episodes would settle it"
    return f"{words} differs by {change} ({row['points']}, {n} episodes, p {p_value(row['p'])}): {verdict}"


def _closed(row: Row, words: str) -> str:
    if not row:
        return ""
    if fixed(row["closed"], 2) == UNKNOWN:
        gap = interval(row, "gap", 2)
        return f"how much of the gap in {words} the bar closes is {row['note']} ({gap})"
    return f"of the gap in {words} the bar closes {interval(row, 'closed', 2)}"


def _spent(row: Row) -> str:
    what = {"total": "time for a whole reply", "cost": "cost", "thinking": "thinking tokens"}
    if not row or fixed(row["estimate"], 2) == UNKNOWN:
        return ""
    shown = interval(row, "estimate", 2, ("low", "high"))
    return f"{what[str(row['measure'])]}: {shown} times as much ({row['clusters']} episodes)"


def folder_name(entries: Sequence[Entry], options: Sequence[str] = ()) -> str:
    """The models' names and a digest of the run ids and options: the same comparison has the same folder."""
    names = [re.sub(r"[^A-Za-z0-9._-]+", "_", entry.name)[:40] for entry in entries[:_MOST_NAMES]]
    if len(entries) > _MOST_NAMES:
        names.append(f"{len(entries) - _MOST_NAMES}-more")
    ids = [runs.run_id(run) for entry in entries for run in (entry.run, *entry.timed)]
    digest = hashlib.sha256("\n".join([*ids, "--", *options]).encode()).hexdigest()[:8]
    return "+".join([*names, digest])


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write NAME.csv and NAME.md per table, tables.md and figures/; returns the paths in order.

    Raises ReportError when the folder is a run's, or cannot be written.
    """
    if (folder / "manifest.json").exists():
        raise ReportError(
            f"{folder}: a run lies there, and a comparison is not written into one; name another --out"
        )
    texts = {f"{table.name}.{suffix}": text for table in comparison.tables.values()
             for suffix, text in (("csv", table.to_csv()), ("md", table.to_markdown()))}  # fmt: skip
    texts["tables.md"] = _summary(comparison)
    paths = [folder / name for name in texts]
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8", newline="\n")
        with mpl.rc_context(RC):
            paths += _figures(comparison, folder / "figures")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ReportError(
            f"{folder}: cannot be written ({reason}); name another folder with --out"
        ) from error
    return paths


def _summary(comparison: Comparison) -> str:
    names = " · ".join(entry.name for entry in comparison.entries)
    parts = [f"# Comparison: {names}\n", *(f"- {sentence}" for sentence in comparison.headline), ""]
    return "\n".join(parts) + "\n" + "\n".join(table.to_markdown() for table in comparison.tables.values())


def _figures(comparison: Comparison, folder: Path) -> list[Path]:
    pareto = pareto_figure(comparison.tables["pareto"])
    drawn = {"pareto": pareto} if pareto is not None else {}
    drawn |= corner_figures(comparison.tables["corners"])
    return [path for stem, figure in drawn.items() for path in save(figure, folder / stem)]
