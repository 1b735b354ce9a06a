"""A caption for every figure and table of a run, with its n, model, conditions, intervals, test and margin.

Knows what each figure and table shows; takes every number from the tables. Captures have captions of their own
(`attention_captions`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.comparisons import drawn
from harness.analysis.decisions import MATCHED, Row
from harness.analysis.publication.facts import (
    Counted,
    Facts,
    conditions_words,
    counted,
    model_words,
    n_words,
)
from harness.analysis.publication.latex import grids
from harness.analysis.publication.prose import name
from harness.analysis.table import UNKNOWN, Table, fixed, p_value, with_interval

NOTHING = "none"
PER_ROW = "per row, in its columns `margin from` and `to`"
WILSON = "95 % Wilson on the effective n over clusters [@wilson1927; @korn1998]"
STUDENT = "95 % t over clusters [@student1908]"
PERMUTED = "sign-flip permutation over clusters, two-sided [@fisher1935]"
EXPLORED = f"{PERMUTED}, exploratory, not corrected"
CONFIRMED = (
    f"{PERMUTED}; Holm over the confirmatory family [@holm1979], all else exploratory and not corrected"
)
OF_DIFFERENCES = (
    f"{STUDENT} for log odds and probabilities, Newcombe's for paired shares on the effective n [@newcombe1998; "
    "@zou2008], t on the log for ratios [@cochran1977]; 90 % for equivalence [@schuirmann1987]"
)
EQUIVALENCE = "; equivalence by two one-sided tests at 5 % [@schuirmann1987]"


@dataclass(frozen=True, slots=True)
class Method:
    """How the uncertainty of a figure or table was computed; `none` where there is no such thing."""

    interval: str
    test: str = NOTHING


@dataclass(frozen=True, slots=True)
class Caption:
    """`key`: path of the file without its ending, under figures/ or tables/. Texts carry the marks of `prose`."""

    kind: str
    key: str
    title: str
    text: str
    parts: tuple[Counted, ...]
    conditions: tuple[str, ...]
    method: Method
    margin: str
    run_id: str
    model: str
    complete: bool

    @property
    def whole(self) -> str:
        """Title and text as they stand below a figure."""
        return f"{self.title}. {self.text}"


@dataclass(frozen=True, slots=True)
class Item:
    """A figure or table of the kit. `files`: their paths; `below`: the run's folder with a slash, empty in a kit of one
    run."""

    caption: Caption
    files: tuple[str, ...]
    below: str
    measured: bool = True
    """False for a table that says why it is empty."""
    wide: bool = False
    """True for a figure whose float spans both columns: it is laid out so, or too tall with its caption in one."""


@dataclass(frozen=True, slots=True)
class Of:
    """What a figure or table is made of: cells of these probes and series (None: all)."""

    probes: tuple[str, ...] | None
    series: tuple[str, ...] | None
    method: Method


LENGTHS = ("filler", "moved_limit")
FIGURES: Mapping[str, Of] = {
    "both_sides": Of(("choose", "act"), (MATCHED,), Method(WILSON)),
    "sensitivity": Of(("choose",), (MATCHED,), Method(STUDENT, CONFIRMED)),
    "bars": Of(("choose",), (MATCHED,), Method(STUDENT, CONFIRMED + EQUIVALENCE)),
    "places": Of(("choose",), (MATCHED,), Method(STUDENT, EXPLORED + EQUIVALENCE)),
    "verdicts": Of(None, (MATCHED,), Method(OF_DIFFERENCES, CONFIRMED + EQUIVALENCE)),
    "prior_calls": Of(("choose", "act"), ("prior_calls",), Method(WILSON)),
    "tokens": Of(None, None, Method(STUDENT)),
    "length_filler": Of(("choose", "act"), ("filler",), Method(STUDENT)),
    "length_moved_limit": Of(("choose", "act"), ("moved_limit",), Method(STUDENT)),
}
TABLES: Mapping[str, Of] = {
    "cells": Of(None, None, Method(NOTHING)),
    "choose": Of(("choose",), (MATCHED,), Method(f"{STUDENT}; {WILSON} for probabilities and AUC [@mann1947]; BCa "
                                                 "cluster bootstrap in the CSV [@efron1987]")),
    "comparisons": Of(None, (MATCHED,), Method(OF_DIFFERENCES, CONFIRMED + EQUIVALENCE)),
    "places": Of(("choose",), (MATCHED,), Method(STUDENT, EXPLORED + EQUIVALENCE)),
    "rates": Of(("act",), (MATCHED,), Method(WILSON)),
    "outcomes": Of(("act",), (MATCHED,), Method(WILSON)),
    "detection": Of(("act",), (MATCHED,), Method(f"{NOTHING}; log-linear correction [@hautus1995]")),
    "ask": Of(("ask",), None, Method(WILSON)),
    "prior_calls": Of(("choose", "act"), ("prior_calls",), Method(WILSON)),
    "filler": Of(("choose", "act"), ("filler",), Method(WILSON)),
    "length": Of(None, LENGTHS, Method(f"{STUDENT}; {WILSON} for shares")),
    "slopes": Of(None, LENGTHS, Method(STUDENT, EXPLORED + EQUIVALENCE)),
    "tokens": Of(None, None, Method(STUDENT)),
    "throughput": Of(None, None, Method(NOTHING)),
    "cache": Of(None, None, Method(NOTHING)),
    "latency": Of(None, None, Method(f"{STUDENT}, on the log of paired ratios")),
}  # fmt: skip
WITH_MARGIN = {"figure": ("sensitivity", "bars", "places", "verdicts"), "table": ("comparisons", "places")}
TITLES = {
    "both_sides": "Both sides of the rule",
    "sensitivity": "Sensitivity and bias, per condition and between conditions",
    "bars": "Sensitivity of each bar beside its placebo, and the difference of the two",
    "places": "The same bar elsewhere: differences of its own effect",
    "verdicts": "Verdicts of all paired comparisons against their equivalence margins",
    "prior_calls": "Probability of the call against prior calls",
    "tokens": "Tokens of prompt and reply",
    "length_filler": "Against tokens of context",
    "length_moved_limit": "Against prior calls, the limit moved along",
}
SHOWN = {
    "both_sides": (
        "First panel: probability of the asked-for call in the forced choice, where the call is due and where it is "
        "forbidden. Second panel: how free answers ended; the interval stands on the class that keeps the rule. Cells "
        "that failed for good are written beside n and are in no share. A panel without data is left out."
    ),
    "sensitivity": (
        "Sensitivity is the log odds of the call where it is due minus those where it is forbidden; bias is minus "
        "their mean (higher: more cautious). Diamonds are confirmatory, all other differences exploratory."
    ),
    "bars": (
        "First panel: sensitivity, the log odds of the call where it is due minus those where it is forbidden, of each bar "
        "and of its placebo; dashed: without a bar. Second panel: their difference, with its verdict; shaded: the "
        "equivalence margin."
    ),
    "places": (
        "Each row is the sensitivity that the bar's content adds (bar − its placebo there) minus what the same bar's "
        "content adds at the place named in the title; shaded: the equivalence margin. All rows are exploratory."
    ),
    "verdicts": (
        "Each row is one condition minus another at the same decision points (a ratio: divided by it). Shaded: the "
        "equivalence margin. Thin line: 95 % interval; thick line: 90 % interval of the two one-sided tests. Bold: "
        "confirmatory; all else is exploratory."
    ),
    "prior_calls": (
        "One panel per placement of the bar. The dashed line is the limit: from it on the call is forbidden; beyond it "
        "the transcript has already broken the rule."
    ),
    "tokens": "Mean tokens a cell, with the bar's part of the prompt and the thinking's part of the reply hatched.",
    "length": (
        "Points are means over clusters at one length, moved apart a little so that they can be told; beside each panel "
        "the slope of a straight line fitted to each cluster. Everything here is exploratory."
    ),
}  # fmt: skip


def figure_caption(facts: Facts, stem: str) -> Caption:
    """The caption of a run's figure by its name in `figures.drawings`."""
    of = FIGURES[stem]
    shown = SHOWN["length"] if stem.startswith("length_") else SHOWN[stem]
    extra: list[str] = []
    if stem == "verdicts":
        extra += _left_out(facts.tables["comparisons"])
        extra.append(verdict_counts(facts.tables["comparisons"]))
    if stem in ("verdicts", "sensitivity", "bars"):
        extra += confirmatory_words(facts.tables["comparisons"])
    return _caption(facts, "figure", stem, TITLES[stem], [shown, *extra], of)


def _left_out(table: Table) -> list[str]:
    """What the figure of verdicts does not draw of a run with many comparisons."""
    known = int(table.data["estimate"].notna().sum())
    shown = len(drawn(table.data))
    if shown == known:
        return []
    return [
        f"Drawn are the {shown} comparisons of bars with their placebos and with each other; the table has all {known}."
    ]


def table_caption(facts: Facts, table: Table) -> Caption:
    """The caption of a run's table: its title, how to read it, and what lies behind it."""
    of = TABLES.get(table.name, Of(None, None, Method("as stated in the text")))
    _, notes = grids(table)
    return _caption(facts, "table", table.name, table.title, [table.how_to_read, *notes], of)


def _caption(facts: Facts, kind: str, key: str, title: str, said: Sequence[str], of: Of) -> Caption:
    parts = tuple(counted(facts.tables, of.probes, of.series))
    conditions = tuple(dict.fromkeys(name_ for part in parts for name_ in part.conditions))
    margin = margin_words(facts.tables["comparisons"]) if key in WITH_MARGIN[kind] else NOTHING
    if key == "slopes":
        margin = PER_ROW
    text = [
        *said,
        n_words(parts),
        model_words(facts),
        conditions_words(conditions),
        *method_words(of.method, margin),
    ]
    return Caption(
        kind, key, f"{facts.warning()}{title}", " ".join(text), parts, conditions, of.method, margin, facts.run_id,
        facts.model, facts.complete,
    )  # fmt: skip


def method_words(method: Method, margin: str) -> list[str]:
    """Interval, test and margin as short sentences; what there is none of is said as well."""
    return [f"Intervals: {method.interval}.", f"Test: {method.test}.", f"Equivalence margin: {margin}."]


def margin_words(table: Table) -> str:
    """The stated margins by unit, such as `−0.5 to 0.5 (logit)`."""
    if "margin_low" not in table.data.columns:
        return NOTHING
    known = table.data[table.data["margin_low"].notna() & table.data["margin_high"].notna()]
    found: dict[tuple[str, str], list[str]] = {}
    for row in known[["unit", "margin_low", "margin_high"]].drop_duplicates().to_dict("records"):
        ends = _signed(f"{row['margin_low']:g}"), f"{row['margin_high']:g}"
        found.setdefault(ends, []).append(str(row["unit"]))
    return (
        "; ".join(f"{low} to {high} ({', '.join(units)})" for (low, high), units in found.items()) or NOTHING
    )


def verdict_counts(table: Table) -> str:
    """How often each verdict was given."""
    verdicts = [str(verdict) for verdict in table.data["verdict"] if not pd.isna(verdict)]
    counts = "; ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    return f"Of {len(verdicts)} comparisons: {counts or UNKNOWN}."


def confirmatory_words(table: Table) -> list[str]:
    """One sentence per confirmatory comparison, its numbers as the table prints them."""
    data = table.data
    return [
        _compared({str(key): value for key, value in row.items()}, table)
        for row in data[data["label"] == "confirmatory"].to_dict("records")
    ]


def _compared(row: Row, table: Table) -> str:
    shown = with_interval([fixed(row[key], table.columns[key]) for key in ("estimate", "low", "high")])
    pair = f"{name(row['condition'])} − {name(row['against'])}"
    more = fixed(row.get("more_clusters"), 0)
    settle = "" if more == UNKNOWN else f" (about {more} more clusters would settle it)"
    clusters = fixed(row["clusters"], 0)
    return (
        f"{pair}: {row['measure']} {_signed(shown)}, p (Holm) {p_value(row['p_holm'])}, {clusters} clusters: "
        f"{row['verdict']}{settle}."
    )


def _signed(text: str) -> str:
    """Numbers with a true minus sign."""
    return text.replace("-", "−")
