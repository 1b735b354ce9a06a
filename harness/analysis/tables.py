"""All tables of a run, in reading order, and their files.

Knows the list of tables; each is built in the module of its subject. Writes CSV and Markdown.
"""

from pathlib import Path

from harness.analysis.asides import asides
from harness.analysis.ask import ask
from harness.analysis.cached import cache
from harness.analysis.comparisons import comparisons
from harness.analysis.costs import latency, throughput, tokens
from harness.analysis.curves import filler, prior_calls
from harness.analysis.decisions import Row, arms_there, choose, detection, outcomes, rates
from harness.analysis.frames import RunData
from harness.analysis.lengths import length
from harness.analysis.places import places
from harness.analysis.provider import provider
from harness.analysis.slopes import slopes
from harness.analysis.table import Shown, Table, frame

CELL_COLUMNS: dict[str, int | None] = {
    "probe": None, "series": None, "condition": None, "placement": None, "cells": 0, "provider_error": 0,
    "unscored": 0, "scored": 0, "truncated": 0, "clusters": 0,
}  # fmt: skip


def cells(run: RunData) -> Table:
    """How many cells each arm has and how many were lost, so that no denominator shrinks silently."""
    rows: list[Row] = []
    for (probe, series), part in run.cells.groupby(["probe", "series"]):
        for arm in arms_there(run, part):
            mine = part[part["condition"] == arm.name]
            lost, blank = int(mine["excluded"].sum()), int(mine["unscored"].sum())
            rows.append({
                "probe": probe, "series": series, "condition": arm.name, "placement": arm.placement,
                "cells": len(mine), "provider_error": lost - blank, "unscored": blank,
                "scored": len(mine) - lost, "truncated": int(mine["truncated"].sum()),
                "clusters": int(mine["cluster"].nunique()),
            })  # fmt: skip
    shown = tuple(Shown(key.replace("_", " "), (key,)) for key in CELL_COLUMNS if key != "placement")
    return Table(
        name="cells",
        title="Cells of the run",
        how_to_read=(
            "What was measured: cells per condition, and those that failed for good (`provider error`), "
            "which are in no rate or mean below but are counted here. A cluster is one independently drawn "
            "episode."
        ),
        columns=CELL_COLUMNS,
        shown=shown,
        data=frame(CELL_COLUMNS, rows),
        absent="the run has no cells.",
    )


def build_tables(run: RunData) -> dict[str, Table]:
    """Every table by name, in reading order; a table without data says so. `places` only where a bar stands at two,
    `asides` only where there are free answers and their texts, `provider` only for a run on an API."""
    made = (
        cells(run), choose(run), comparisons(run), places(run), rates(run), outcomes(run), detection(run),
        asides(run), ask(run),
        prior_calls(run), filler(run), length(run), slopes(run), tokens(run), throughput(run), cache(run),
        latency(run), provider(run),
    )  # fmt: skip
    return {table.name: table for table in made if table is not None}


def write_tables(tables: dict[str, Table], folder: Path) -> list[Path]:
    """Write NAME.csv and NAME.md for each table; returns the paths in order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for table in tables.values():
        for suffix, text in (("csv", table.to_csv()), ("md", table.to_markdown())):
            path = folder / f"{table.name}.{suffix}"
            path.write_text(text, encoding="utf-8", newline="\n")
            paths.append(path)
    return paths
