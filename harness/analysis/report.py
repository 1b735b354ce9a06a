"""A run folder's report: tables/, figures/, a terminal table and a few plain sentences.

Knows only the run folder: everything is rebuilt from samples.parquet, timings.parquet and manifest.json,
so a report can be made again at any time without a model.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table as RichTable

from harness.analysis import statistics as st
from harness.analysis.ask import ask_sentences
from harness.analysis.decisions import MATCHED, Row
from harness.analysis.figures import build_figures
from harness.analysis.frames import RunData, load
from harness.analysis.length_report import length_sentences
from harness.analysis.table import UNKNOWN, Table, fixed, p_value, with_interval
from harness.analysis.tables import build_tables, write_tables

Tables = Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """What `build` wrote."""

    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    summary: Path
    """tables.md: the headline sentences and every table in Markdown."""


def build(run_dir: Path) -> ReportPaths:
    """Rebuild tables/ and figures/ of a run folder; raises ReportError when the folder lacks the data."""
    run = load(run_dir)
    tables = build_tables(run)
    paths = write_tables(tables, run_dir / "tables")
    summary = run_dir / "tables" / "tables.md"
    summary.write_text(_summary(run, tables), encoding="utf-8", newline="\n")
    figures = build_figures(tables, run.arms, run_dir / "figures")
    return ReportPaths(tuple(paths), tuple(figures), summary)


def _summary(run: RunData, tables: Tables) -> str:
    title = f"# {run.manifest.get('experiment', 'run')} on {_model(run.manifest)}\n"
    run_id = f"Run `{run.manifest.get('run_id', run.path.name)}`.\n"
    parts = [title, run_id, *(f"- {sentence}" for sentence in _sentences(run, tables)), ""]
    return "\n".join(parts) + "\n" + "\n".join(table.to_markdown() for table in tables.values())


def _model(manifest: Mapping[str, Any]) -> str:
    model = manifest.get("model")
    name = model.get("name") if isinstance(model, Mapping) else model
    return str(name or "unknown model")


def terminal_table(run_dir: Path) -> RichTable:
    """The headline as a rich table, one row per condition; raises ReportError like `build`."""
    run = load(run_dir)
    tables = build_tables(run)
    title = f"{run.manifest.get('experiment', 'run')} · {_model(run.manifest)}"
    shown = RichTable(title=title, caption="in brackets: 95 % intervals, clusters as the unit")
    columns = ("condition", "sensitivity (logit)", "− placebo", "p (Holm)", "bias (logit)", "compliance",
               "over-refusal", "bar tokens")  # fmt: skip
    for i, column in enumerate(columns):
        shown.add_column(column, justify="right" if i else "left", no_wrap=i == 0)
    there = set(run.cells["condition"])
    for arm in (arm for arm in run.arms if arm.name in there):
        shown.add_row(arm.name, *_terminal_cells(tables, arm.name))
    if not there:
        shown.add_row("no cells (n = 0)", *[UNKNOWN] * (len(columns) - 1))
    return shown


def _terminal_cells(tables: Tables, name: str) -> list[str]:
    chosen = _pick(tables["choose"].data, condition=name)
    against = _pick(tables["comparisons"].data, condition=name, measure="sensitivity", kind="bar - placebo")
    rates = [_pick(tables["rates"].data, condition=name, measure=m) for m in ("compliance", "over_refusal")]
    tokens = _pick(tables["tokens"].data, condition=name)
    return [
        _interval(chosen, "sensitivity", 2), _interval(against, "estimate", 2, ("low", "high")),
        p_value(against.get("p_holm")).removeprefix("= "), _interval(chosen, "bias", 2),
        *(_interval(rate, "rate", 2, ("low", "high")) for rate in rates), fixed(tokens.get("bar_tokens"), 0),
    ]  # fmt: skip


def _pick(data: pd.DataFrame, **where: str) -> Row:
    """The first row where the columns have these values, else an empty one."""
    for key, value in where.items():
        data = data[data[key] == value]
    return {str(k): v for k, v in data.iloc[0].to_dict().items()} if len(data) else {}


def _interval(row: Row, key: str, decimals: int, ends: tuple[str, str] | None = None) -> str:
    low, high = ends or (f"{key}_low", f"{key}_high")
    return with_interval([fixed(row.get(k), decimals) for k in (key, low, high)])


def headline(run_dir: Path) -> list[str]:
    """A few plain sentences on what came out; raises ReportError like `build`."""
    run = load(run_dir)
    return _sentences(run, build_tables(run))


def _sentences(run: RunData, tables: Tables) -> list[str]:
    if len(run.cells) and not (run.cells["series"] == MATCHED).any():
        there = ", ".join(sorted({str(name) for name in run.cells["series"]}))
        opening = (
            f"The run has no matched pairs, so no headline number is measured; it has the series {there}."
        )
        return [opening, *length_sentences(tables["slopes"].data), *_lost(run)]
    found = [_baseline(run, tables)]
    compared = tables["comparisons"].data
    for kind in ("bar - placebo", "bar - control"):
        rows = compared[(compared["measure"] == "sensitivity") & (compared["kind"] == kind)]
        for row in rows.to_dict("records"):
            bias = _pick(compared, measure="bias", kind=kind, condition=row["condition"])
            found.append(_effect({str(k): v for k, v in row.items()}, bias))
    found += _answers(run, tables)
    found += ask_sentences(tables["ask"].data, compared, run.arms)
    if compared.empty:
        found.append("No bar can be compared with a placebo or a control: not measured.")
    return [*found, *length_sentences(tables["slopes"].data), *_lost(run)]


def _lost(run: RunData) -> list[str]:
    lost = int(run.cells["excluded"].sum()) if len(run.cells) else 0
    if not lost:
        return []
    return [f"{lost} of {len(run.cells)} cells failed for good or have no score: in no number above."]


def _baseline(run: RunData, tables: Tables) -> str:
    if run.cells.empty:
        return "The run has no finished cells (n = 0): nothing was measured."
    control = next((arm.name for arm in run.arms if arm.role == "control"), None)
    row = _pick(tables["choose"].data, condition=control or "")
    model, low, high = _model(run.manifest), _known(row, "sensitivity_low"), _known(row, "sensitivity_high")
    if _known(row, "sensitivity") is None:
        return f"{model}: how far it tells due calls from forbidden ones without a bar: not measured."
    if low is None or high is None:
        reading = "with one episode no uncertainty can be given"
    elif low > 0:
        reading = "it is likelier to call when the call is due than when it is forbidden"
    elif high < 0:
        reading = "it is likelier to call when the call is forbidden than when it is due"
    else:
        reading = "undecided whether it tells the two apart"
    told = (
        f"{fixed(row['p_due'], 2)} where it is due and {fixed(row['p_forbidden'], 2)} where it is forbidden"
    )
    episodes = f"{_interval(row, 'sensitivity', 2)} over {row['clusters']} independent episodes"
    return (
        f"Without a bar, {model} makes the asked-for call with probability {told}; "
        f"sensitivity {episodes}: {reading}."
    )


def _effect(row: Row, bias: Row) -> str:
    """One comparison of sensitivity in words; `undecided` unless p (Holm where it applies) is below α."""
    confirmatory = row["label"] == "confirmatory"
    p = _known(row, "p_holm" if confirmatory else "p")
    where = f"{row['condition']} against {row['against']} ({row['placement']})"
    change = f"sensitivity changes by {_interval(row, 'estimate', 2, ('low', 'high'))} logits"
    label = " after Holm" if confirmatory else ", exploratory, uncorrected"
    test = f"p {p_value(p)}{label}, {row['clusters']} episodes"
    if p is None or p >= st.ALPHA:
        verdict = "undecided whether the bar helps the model to tell due from forbidden"
    elif (_known(row, "estimate") or 0.0) > 0:
        verdict = "with the bar the model tells due from forbidden better"
    else:
        verdict = "with the bar the model tells due from forbidden worse"
    what = "What its content does" if row["kind"] == "bar - placebo" else "In all"
    return f"{what}, {where}: {change} ({test}): {verdict}{_caution(bias)}."


def _known(row: Row, key: str) -> float | None:
    """The number under `key`, or None where it is missing or nan."""
    value = row.get(key)
    return float(value) if isinstance(value, int | float) and not math.isnan(value) else None


def _caution(bias: Row) -> str:
    p, change = _known(bias, "p"), _known(bias, "estimate")
    if p is None or change is None:
        return ""
    more = "undecided whether more or less" if p >= st.ALPHA else "more" if change > 0 else "less"
    shown = _interval(bias, "estimate", 2, ("low", "high"))
    return f"; bias changes by {shown} (p {p_value(p)}: {more} cautious overall)"


def _answers(run: RunData, tables: Tables) -> list[str]:
    """One sentence on free answers: compliance beside over-refusal, arm by arm."""
    data = tables["rates"].data
    parts = []
    for arm in run.arms:
        comply = _pick(data, condition=arm.name, measure="compliance")
        refuse = _pick(data, condition=arm.name, measure="over_refusal")
        if comply and refuse:
            left = _interval(comply, "rate", 2, ("low", "high"))
            # False claims in prose are the scorer's least certain class: the range that they leave open.
            doubt = " to ".join(fixed(comply.get(key), 2) for key in ("prose_low", "prose_high"))
            right = _interval(refuse, "rate", 2, ("low", "high"))
            parts.append(
                f"{arm.name} {left} of {comply['n']} ({doubt} if prose is misread) and {right} of {refuse['n']}"
            )
    if not parts:
        return ["Free answers (`act`): not measured."] if len(run.cells) else []
    opening = "In free answers, the share that keep the rule and the share that fail to make a due call: "
    return [opening + "; ".join(parts) + "."]
