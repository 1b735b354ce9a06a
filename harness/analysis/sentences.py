"""The headline of a run in plain sentences, from its tables.

Knows tables and words, no file. The verdicts are those of the table of comparisons.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.analysis.ask import ask_sentences
from harness.analysis.decisions import MATCHED, Row
from harness.analysis.frames import RunData, control_of
from harness.analysis.length_report import length_sentences
from harness.analysis.table import Table, fixed, known, p_value, with_interval
from harness.analysis.verdicts import MIN_CLUSTERS

Tables = Mapping[str, Table]


def sentences(run: RunData, tables: Tables) -> list[str]:
    """What came out, most important first; every number with its interval, p and n."""
    if len(run.cells) and not (run.cells["series"] == MATCHED).any():
        there = ", ".join(sorted({str(name) for name in run.cells["series"]}))
        opening = (
            f"The run has no matched pairs, so no headline number is measured; it has the series {there}."
        )
        return [opening, *length_sentences(tables["slopes"].data), *_lost(run)]
    found = [sentence for sentence in (in_short(run, tables), _baseline(run, tables)) if sentence]
    compared = tables["comparisons"].data
    for kind in ("bar - placebo", "bar - control"):
        rows = compared[(compared["measure"] == "sensitivity") & (compared["kind"] == kind)]
        for row in rows.to_dict("records"):
            bias = pick(compared, measure="bias", kind=kind, condition=row["condition"])
            found.append(_effect({str(k): v for k, v in row.items()}, bias))
    found += _answers(run, tables)
    found += ask_sentences(tables["ask"].data, compared, run.arms)
    if compared.empty:
        found.append("No bar can be compared with a placebo or a control: not measured.")
    return [*found, *length_sentences(tables["slopes"].data), *_lost(run)]


def _lost(run: RunData) -> list[str]:
    """What is missing from the numbers: cells that a stopped run never made, and cells that failed."""
    found = []
    planned, stopped = run.manifest.get("cells"), run.manifest.get("stopped")
    if isinstance(planned, int) and planned > len(run.cells):
        known_stop = stopped if isinstance(stopped, Mapping) and "said" in stopped else {}
        why = f" ({known_stop['said']})" if known_stop else ""
        ended = "ended early, by its rule" if known_stop.get("reason") == "sequential" else "is not finished"
        found.append(f"The run {ended}: {len(run.cells)} of {planned} cells{why}.")
    lost = int(run.cells["excluded"].sum()) if len(run.cells) else 0
    if lost:
        found.append(
            f"{lost} of {len(run.cells)} cells failed for good or have no score: in no number above."
        )
    return found


def _baseline(run: RunData, tables: Tables) -> str:
    if run.cells.empty:
        return "The run has no finished cells (n = 0): nothing was measured."
    bare = control_of(run.arms)
    control = bare.name if bare else None
    row = pick(tables["choose"].data, condition=control or "")
    model, low, high = (
        model_name(run.manifest),
        known(row, "sensitivity_low"),
        known(row, "sensitivity_high"),
    )
    if known(row, "sensitivity") is None:
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
    episodes = f"{interval(row, 'sensitivity', 2)} over {row['clusters']} independent episodes"
    return (
        f"Without a bar, {model} makes the asked-for call with probability {told}; "
        f"sensitivity {episodes}: {reading}."
    )


def _effect(row: Row, bias: Row) -> str:
    """One comparison of sensitivity in words, with its verdict."""
    confirmatory = row["label"] == "confirmatory"
    where = f"{row['condition']} against {row['against']} ({row['placement']})"
    change = f"sensitivity changes by {interval(row, 'estimate', 2, ('low', 'high'))} logits"
    corrected = ", anytime-valid" if str(row["note"]).startswith("anytime") else " after Holm"
    label = corrected if confirmatory else ", exploratory, uncorrected"
    test = f"p {p_value(known(row, 'p_holm' if confirmatory else 'p'))}{label}, {row['clusters']} episodes"
    what = "What its content does" if row["kind"] == "bar - placebo" else "In all"
    return f"{what}, {where}: {change} ({test}): {_verdict(row)}{_caution(bias)}."


def _verdict(row: Row) -> str:
    match row["verdict"]:
        case "equivalent":
            return (
                "if the bar makes a difference to how well the model tells due from forbidden, it is smaller than the "
                f"margin of {fixed(row['margin_high'], 2)} logits"
            )
        case "inconclusive":
            more = known(row, "more_clusters")
            needed = f"; about {more:.0f} more episodes would settle it" if more else ""
            return (
                f"undecided whether the bar helps the model to tell due from forbidden{_guard(row)}{needed}"
            )
        case word:
            return f"with the bar the model tells due from forbidden {word}"


def _guard(row: Row) -> str:
    """Why there is no verdict however small p is."""
    if str(row["note"]).startswith("looked at"):
        return ", no verdict in a run that was looked at after every episode"
    few = (known(row, "clusters") or 0) < MIN_CLUSTERS
    return f", no verdict below {MIN_CLUSTERS} episodes" if few else ""


def _caution(bias: Row) -> str:
    if known(bias, "estimate") is None:
        return ""
    more = {
        "equivalent": "no more and no less cautious overall, within the margin",
        "inconclusive": f"undecided whether more or less cautious overall{_guard(bias)}",
    }.get(str(bias["verdict"]), f"{bias['verdict']} overall")
    shown = interval(bias, "estimate", 2, ("low", "high"))
    return f"; bias changes by {shown} (p {p_value(known(bias, 'p'))}: {more})"


def in_short(run: RunData, tables: Tables) -> str:
    """The answer to the question that the run was made for, in one sentence for readers who know no statistics;
    empty where the run compares no bar with a placebo."""
    compared = tables["comparisons"].data
    rows = compared[compared["label"] == "confirmatory"].to_dict("records")
    if not rows:
        return ""
    answers = [f"{row['condition']}: {_plainly({str(k): v for k, v in row.items()})}" for row in rows]
    question = "Does what the bar says help the model to act when it may and to hold back when it may not"
    how = (
        " (in 4 of 5 such runs, if the difference is as seen here)"
        if "more episodes would" in "".join(answers)
        else ""
    )
    return f"{question}, compared with a neutral text in the same place? {'; '.join(answers)}{how}."


def _plainly(row: Row) -> str:
    match row["verdict"]:
        case "better":
            return "yes"
        case "worse":
            return "no, it does harm"
        case "equivalent":
            return "no, at most by less than what was agreed on as mattering"
        case _:
            more = known(row, "more_clusters")
            return "these data do not settle it" + (f", about {more:.0f} more episodes would" if more else "")


def _answers(run: RunData, tables: Tables) -> list[str]:
    """One sentence on free answers: compliance beside over-refusal, arm by arm."""
    data = tables["rates"].data
    parts = []
    for arm in run.arms:
        comply = pick(data, condition=arm.name, measure="compliance")
        refuse = pick(data, condition=arm.name, measure="over_refusal")
        if comply and refuse:
            left = interval(comply, "rate", 2, ("low", "high"))
            # False claims in prose are the scorer's least certain class: the range that they leave open.
            doubt = " to ".join(fixed(comply.get(key), 2) for key in ("prose_low", "prose_high"))
            right = interval(refuse, "rate", 2, ("low", "high"))
            parts.append(
                f"{arm.name} {left} of {comply['n']} ({doubt} if prose is misread) and {right} of {refuse['n']}"
            )
    if not parts:
        return ["Free answers (`act`): not measured."] if len(run.cells) else []
    opening = "In free answers, the share that keep the rule and the share that fail to make a due call: "
    return [opening + "; ".join(parts) + "."]


def pick(data: pd.DataFrame, **where: str) -> Row:
    """The first row where the columns have these values, else an empty one."""
    for key, value in where.items():
        data = data[data[key] == value]
    return {str(k): v for k, v in data.iloc[0].to_dict().items()} if len(data) else {}


def interval(row: Row, key: str, decimals: int, ends: tuple[str, str] | None = None) -> str:
    low, high = ends or (f"{key}_low", f"{key}_high")
    return with_interval([fixed(row.get(k), decimals) for k in (key, low, high)])


def model_name(manifest: Mapping[str, Any]) -> str:
    model = manifest.get("model")
    name = model.get("name") if isinstance(model, Mapping) else model
    return str(name or "unknown model")
