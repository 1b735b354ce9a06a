"""A run folder's report: tables/, figures/, report.html, report.md, a terminal table and a few plain sentences.

Knows only the run folder: everything is rebuilt from samples.parquet, timings.parquet and manifest.json,
so a report can be made again at any time without a model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table as RichTable

from harness.analysis.figures import build_figures
from harness.analysis.frames import RunData, load
from harness.analysis.html import visible
from harness.analysis.page.build import write_report
from harness.analysis.sentences import interval, model_name, pick, sentences
from harness.analysis.table import UNKNOWN, Table, fixed, literal
from harness.analysis.tables import build_tables, write_tables

Tables = Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """What `build` wrote."""

    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    summary: Path
    """tables.md: the headline sentences and every table in Markdown."""
    page: Path
    """report.html: all of it in one file, with a browser of cells."""
    text: Path
    """report.md: the same without the browser."""


def build(run_dir: Path) -> ReportPaths:
    """Rebuild tables/, figures/, report.html and report.md; raises ReportError when the folder lacks the data."""
    run = load(run_dir)
    tables = build_tables(run)
    paths = write_tables(tables, run_dir / "tables")
    summary = run_dir / "tables" / "tables.md"
    summary.write_text(_summary(run, tables), encoding="utf-8", newline="\n")
    figures = build_figures(tables, run.arms, run_dir / "figures")
    page, text = write_report(run, tables, figures)
    return ReportPaths(tuple(paths), tuple(figures), summary, page, text)


def _summary(run: RunData, tables: Tables) -> str:
    title = literal(f"{run.manifest.get('experiment', 'run')} on {model_name(run.manifest)}")
    run_id = " ".join(str(run.manifest.get("run_id", run.path.name)).replace("`", "'").split("\n"))
    told = [f"- {literal(sentence)}" for sentence in sentences(run, tables)]
    parts = [f"# {title}\n", f"Run `{run_id}`.\n", *told, ""]
    return "\n".join(parts) + "\n" + "\n".join(table.to_markdown() for table in tables.values())


def terminal_table(run_dir: Path) -> RichTable:
    """The headline as a rich table, one row per condition; raises ReportError like `build`."""
    run = load(run_dir)
    tables = build_tables(run)
    title = f"{run.manifest.get('experiment', 'run')} · {model_name(run.manifest)}"
    caption = "in brackets: 95 % intervals, clusters as the unit"
    shown = RichTable(title=escape(visible(title)), caption=caption)
    columns = ("condition", "sensitivity (logit)", "− placebo", "verdict", "bias (logit)", "compliance",
               "over-refusal", "bar tokens")  # fmt: skip
    for i, column in enumerate(columns):
        shown.add_column(column, justify="right" if i else "left", no_wrap=i == 0)
    there = set(run.cells["condition"])
    for arm in (arm for arm in run.arms if arm.name in there):
        shown.add_row(escape(visible(arm.name)), *_terminal_cells(tables, arm.name))
    if not there:
        shown.add_row("no cells (n = 0)", *[UNKNOWN] * (len(columns) - 1))
    return shown


def _terminal_cells(tables: Tables, name: str) -> list[str]:
    chosen = pick(tables["choose"].data, condition=name)
    against = pick(tables["comparisons"].data, condition=name, measure="sensitivity", kind="bar - placebo")
    rates = [pick(tables["rates"].data, condition=name, measure=m) for m in ("compliance", "over_refusal")]
    tokens = pick(tables["tokens"].data, condition=name)
    return [
        interval(chosen, "sensitivity", 2), interval(against, "estimate", 2, ("low", "high")),
        str(against.get("verdict", UNKNOWN)), interval(chosen, "bias", 2),
        *(interval(rate, "rate", 2, ("low", "high")) for rate in rates), fixed(tokens.get("bar_tokens"), 0),
    ]  # fmt: skip


def headline(run_dir: Path) -> list[str]:
    """A few plain sentences on what came out; raises ReportError like `build`."""
    run = load(run_dir)
    return sentences(run, build_tables(run))
