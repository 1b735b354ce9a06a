"""`tailgauge compare RUN RUN…`: models × conditions across finished runs; changes nothing in the runs' folders."""

import argparse
from pathlib import Path

from rich.markup import escape
from rich.table import Table as RichTable

from harness.analysis import across
from harness.analysis.decisions import Row
from harness.analysis.sentences import pick
from harness.analysis.table import fixed, with_interval
from harness.commands import console

RESULTS = Path("results") / "compare"
_COLUMNS = (
    ("sensitivity", "sensitivity (logit)", 2), ("balanced_accuracy", "balanced accuracy", 2),
    ("compliance", "compliance", 2), ("over_refusal", "over-refusal", 2), ("accuracy", "right answers", 2),
    ("total", "seconds a reply", 2), ("cost", "cost", 3),
)  # fmt: skip


def main(parsed: argparse.Namespace) -> int:
    entries = across.load_all([Path(run) for run in parsed.runs], parsed.different_scenarios)
    margins = across.margins_for(entries, parsed.margins_of)
    comparison = across.compare(entries, parsed.small, parsed.large, margins)
    named = ["small", *parsed.small, "large", *parsed.large, "margins", parsed.margins_of or ""]
    folder = Path(parsed.out) if parsed.out else RESULTS / across.folder_name(entries, named)
    across.write(comparison, folder)
    console.out.print(terminal_table(comparison))
    if not (parsed.small or parsed.large) and len(entries) > 1:
        console.note(
            f"taken as the smaller model, by the order given: {entries[0].name} (--small, --large say otherwise)"
        )
    for sentence in comparison.headline:
        console.out.print(sentence, markup=False)
    console.out.print(str(folder), markup=False)
    return 0


def terminal_table(comparison: across.Comparison) -> RichTable:
    """The table of models in short: one row per model and condition, the columns that anything is known of."""
    data = comparison.tables["models"].data
    columns = [column for column in _COLUMNS if (data["measure"] == column[0]).any()]
    shown = RichTable(caption="in brackets: 95 % intervals, episodes as the unit; exploratory")
    for i, header in enumerate(("condition", *(column[1] for column in columns))):
        shown.add_column(header, justify="right" if i else "left", no_wrap=i == 0)
    for model in dict.fromkeys(data["model"]):
        shown.add_section()
        shown.add_row(escape(str(model)), *[""] * len(columns), style="bold")
        for condition in dict.fromkeys(data[data["model"] == model]["condition"]):
            rows = [
                pick(data, model=str(model), condition=str(condition), measure=name) for name, _, _ in columns
            ]
            shown.add_row(
                f"  {escape(str(condition))}",
                *(_text(row, column[2]) for row, column in zip(rows, columns, strict=True)),
            )
    return shown


def _text(row: Row, decimals: int) -> str:
    return with_interval([fixed(row.get(key), decimals) for key in ("estimate", "low", "high")])
