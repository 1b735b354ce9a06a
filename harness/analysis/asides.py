"""What replies do besides obeying the rule: words of a bar that reach the user, and calls that are made a second time.

Knows the recorded texts (prompt, bar, parsed reply) and where each message of a prompt stands; reads them from the run's
own files, since no other table needs them. Exploratory: nobody is told by a rule not to do either.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow import parquet

from harness.analysis import statistics as st
from harness.analysis.decisions import MATCHED, Row, arms_there
from harness.analysis.frames import Arm, RunData, control_for, placebo_for
from harness.analysis.table import Shown, Table, frame
from harness.runlog.pieces import read_pieces, text_of

RUN = 5
"""So many words in a row that a bar alone holds are no coincidence."""
COLUMNS: dict[str, int | None] = {
    "condition": None, "measure": None, "placement": None, "n": 0, "clusters": 0, "n_effective": 1, "count": 0,
    "rate": 3, "low": 3, "high": 3, "against": None, "difference": 3, "difference_low": 3, "difference_high": 3, "p": 6,
}  # fmt: skip
MEASURES = ("leak", "repeated_call")
_BATCH = 256
_READ = ["cell_id", "sample_id", "series", "condition", "probe", "prompt_ids", "spans", "bar_text", "parsed",
         "expectation.tool", "expectation.reply_tool"]  # fmt: skip
_BARS = ("bar", "stale_bar")
_AROUND = 16
"""Tokens around a call's span that hold its braces."""
_TAG = re.compile(r"</?([A-Za-z][\w.:-]*)[^<>\n]*>")
_WORD = re.compile(r"\w+")
Grams = frozenset[tuple[str, ...]]
Call = tuple[str, str]
"""A tool's name and its arguments as canonical JSON."""


def asides(run: RunData) -> Table | None:
    """Leaks and repeated calls of `act` on matched pairs, per arm; None for a run without such cells or without its
    texts."""
    cells = run.part("act", MATCHED)
    pieces = read_pieces(run.path) if len(cells) else {}
    marks = pd.DataFrame(_marks(run.path / "samples.parquet", pieces)) if pieces else pd.DataFrame()
    if marks.empty:
        return None
    marked = cells[~cells["excluded"]].merge(marks, on="cell_id", how="inner")
    rows = [_row(run, marked, arm, measure) for arm in arms_there(run, cells) for measure in MEASURES]
    return Table(
        name="asides",
        title="Besides the rule: leaks to the user, and calls made again (free answers)",
        how_to_read=(
            f"`leak`: the text for the user holds a tag of the arm's bar, or {RUN} words in a row that stand in the bar and "
            "nowhere else in the conversation (without a bar: in the bars of the sample's other arms, as a base rate). "
            "`repeated call`: a call of a tool without a rule, with arguments that the transcript has already (canonical "
            "JSON). Brackets: 95 % Wilson intervals on the effective n. The difference is that to the arm's own placebo, "
            "of a placebo to the arm without a bar, paired by cluster (Student's t; p by sign flips, not corrected)."
        ),
        columns=COLUMNS,
        shown=(
            Shown("condition", ("condition",)), Shown("measure", ("measure",)), Shown("n", ("n",)),
            Shown("clusters", ("clusters",)), Shown("count", ("count",)), Shown("rate", ("rate", "low", "high")),
            Shown("minus", ("against",)),
            Shown("difference", ("difference", "difference_low", "difference_high")), Shown("p", ("p",)),
        ),
        data=frame(COLUMNS, rows),
        absent="the run has no cells of probe `act` on matched pairs.",
    )  # fmt: skip


def _row(run: RunData, marked: pd.DataFrame, arm: Arm, measure: str) -> Row:
    mine = marked[(marked["condition"] == arm.name) & marked[measure].notna()]
    found = st.proportion(mine[measure].astype(bool), list(mine["cluster"]))
    other = control_for(arm, run.arms) if arm.role == "placebo" else placebo_for(arm, run.arms)
    other = other if arm.role != "control" and other is not None and other.name != arm.name else None
    d = _by_cluster(marked, arm.name, measure) - _by_cluster(marked, other.name, measure) if other else None
    between = st.t_interval(d.dropna()) if d is not None else None
    return {
        "condition": arm.name, "measure": measure, "placement": arm.placement, "n": found.n,
        "clusters": found.clusters, "n_effective": found.n_effective, "count": found.count, "rate": found.rate,
        "low": found.low, "high": found.high, "against": other.name if other else None,
        "difference": between.value if between else None, "difference_low": between.low if between else None,
        "difference_high": between.high if between else None,
        "p": st.sign_flip_p(d.dropna()) if d is not None else None,
    }  # fmt: skip


def _by_cluster(marked: pd.DataFrame, name: str, measure: str) -> "pd.Series[float]":
    mine = marked[(marked["condition"] == name) & marked[measure].notna()]
    return mine[measure].astype(float).groupby(mine["cluster"]).mean()


# -- cells -------------------------------------------------------------------------------------------------


def _marks(path: Path, pieces: Mapping[int, bytes]) -> Iterator[Row]:
    """One row per parsed reply of `act` on matched pairs: whether it leaks, and repeats a call (None: not known)."""
    with parquet.ParquetFile(path) as file:
        there = {file.schema.column(i).path.split(".list.")[0] for i in range(len(file.schema.names))}
        if not set(_READ) <= there:
            return
        texts = _bar_texts(file)
        for batch in file.iter_batches(batch_size=_BATCH, columns=_READ):
            for cell in batch.to_pylist():
                if cell["probe"] == "act" and cell["series"] == MATCHED and cell["parsed"]:
                    yield _marked(cell, texts[cell["sample_id"]], pieces)


def _bar_texts(file: parquet.ParquetFile) -> dict[str, set[str]]:
    """Sample → what its arms' bars say."""
    found: dict[str, set[str]] = {}
    for batch in file.iter_batches(batch_size=_BATCH, columns=["sample_id", "bar_text"]):
        for cell in batch.to_pylist():
            found.setdefault(cell["sample_id"], set()).add(cell["bar_text"] or "")
    return found


def _marked(cell: Mapping[str, Any], all_texts: Iterable[str], pieces: Mapping[int, bytes]) -> Row:
    reply, spans = json.loads(cell["parsed"]), cell["spans"]
    made = [call for call in reply.get("tool_calls", ()) if not call.get("in_reasoning")]
    said = "\n".join((reply.get("content", ""), *_spoken(made, cell["expectation.reply_tool"])))
    bars = [cell["bar_text"]] if cell["bar_text"] else sorted(all_texts)
    told = _grams(_conversation(cell["prompt_ids"], spans, pieces))
    own = frozenset().union(*(_grams(_TAG.sub(" ", text)) for text in bars)) - told
    tags = {tag for text in bars for tag in _TAG.findall(text)}
    leaks = bool(own & _grams(said)) or bool(tags & set(_TAG.findall(said)))
    rest = [c for c in made if c["name"] not in (cell["expectation.tool"], cell["expectation.reply_tool"])]
    before = _calls(cell["prompt_ids"], spans, pieces)
    again = None if before is None else any(_call(c["name"], c["arguments"]) in before for c in rest)
    return {"cell_id": cell["cell_id"], "leak": leaks, "repeated_call": again}


def _spoken(calls: Sequence[Mapping[str, Any]], reply_tool: str) -> Iterator[str]:
    """Texts that the tool which answers the user was called with."""
    for call in calls:
        if call["name"] == reply_tool and isinstance(call["arguments"], Mapping):
            yield from (value for value in call["arguments"].values() if isinstance(value, str))


def _grams(text: str) -> Grams:
    words = _WORD.findall(text.casefold())
    return frozenset(tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1))


def _conversation(ids: Sequence[int], spans: Sequence[Mapping[str, Any]], pieces: Mapping[int, bytes]) -> str:
    """The prompt's text without its bars."""
    parts, at = [], 0
    for span in sorted((s for s in spans if s["region"] in _BARS), key=lambda s: int(s["start"])):
        parts.append(text_of(ids[at : span["start"]], pieces))
        at = max(at, span["end"])
    return " ".join((*parts, text_of(ids[at:], pieces)))


def _calls(
    ids: Sequence[int], spans: Sequence[Mapping[str, Any]], pieces: Mapping[int, bytes]
) -> set[Call] | None:
    """Calls that the transcript holds; None where it has some and the template writes none of them as JSON."""
    regions = [span for span in spans if span["region"].startswith("call:")]
    found = {call for span in regions if (call := _read_call(ids, span, pieces)) is not None}
    return None if regions and not found else found


def _read_call(ids: Sequence[int], span: Mapping[str, Any], pieces: Mapping[int, bytes]) -> Call | None:
    """A span of a call goes from its name to its last text; the braces around them lie just outside."""
    before = text_of(ids[max(0, span["start"] - _AROUND) : span["start"]], pieces)
    text = before[max(0, before.rfind("{")) :] + text_of(ids[span["start"] : span["end"] + _AROUND], pieces)
    start = text.find("{")
    try:
        plain, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else (None, 0)
    except ValueError:
        return None
    if not isinstance(plain, Mapping) or not isinstance(plain.get("name"), str):
        return None
    return _call(plain["name"], plain.get("arguments", plain.get("parameters")))


def _call(name: str, arguments: object) -> Call:
    return name, json.dumps(arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
