"""Plain sentences on the series over length: how sensitivity and thinking change, and what the bar changes in that.

Knows the data frame of the table `slopes` alone. Says `undecided` unless p is below α.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.decisions import Row
from harness.analysis.slopes import PER
from harness.analysis.table import fixed, known, p_value, with_interval

SAID = {"sensitivity": ("choose", 3, "logits", "Sensitivity"), "thinking": ("act", 2, "tokens", "Thinking")}
"""Measure → the probe that the sentence is on, decimals, unit, and the word that opens it."""
AXES = {"filler": "tokens of context", "moved_limit": "prior calls"}


def length_sentences(slopes: pd.DataFrame) -> list[str]:
    """One sentence per series over length and measure of `SAID` that has slopes."""
    found = []
    for series in PER:
        for measure in SAID:
            rows = slopes[(slopes["series"] == series) & (slopes["measure"] == measure)]
            probes = [SAID[measure][0], *sorted({str(name) for name in rows["probe"]} - {SAID[measure][0]})]
            rows = next((part for name in probes if len(part := rows[rows["probe"] == name])), rows)
            if len(rows) and not (measure == "thinking" and (rows["slope"] == 0).all()):  # nobody thinks
                found.append(_sentence(series, measure, [_plain(row) for row in rows.to_dict("records")]))
    return found


def _plain(row: Mapping[Any, Any]) -> Row:
    return {str(key): value for key, value in row.items()}


def _sentence(series: str, measure: str, rows: list[Row]) -> str:
    _, decimals, unit, word = SAID[measure]
    own = [row for row in rows if row["kind"] in ("control", "bar") and known(row, "slope") is not None]
    texts = [f"{_slope(row, decimals)} with {row['condition']} ({_direction(row)})" for row in own]
    scale = 1000 if series == "filler" else 1
    ends = " to ".join(f"{(known(rows[0], key) or 0) * scale:,.0f}" for key in ("from", "to"))
    per = f"{unit} per {PER[series]}"
    opening = f"{word} over {ends} {AXES[series]} (exploratory, p uncorrected) changes by"
    return ". ".join([f"{opening} {'; '.join(texts)} {per}", *_compared(rows, decimals, unit)]) + "."


def _slope(row: Row, decimals: int) -> str:
    return with_interval([fixed(row[key], decimals) for key in ("slope", "low", "high")])


def _decided(row: Row) -> bool:
    p = known(row, "p")
    return p is not None and p < st.ALPHA


def _up(row: Row) -> bool:
    return (known(row, "slope") or 0.0) > 0


def _direction(row: Row) -> str:
    verdict = ("rises" if _up(row) else "falls") if _decided(row) else "undecided"
    return f"{verdict}, p {p_value(known(row, 'p'))}"


def _compared(rows: list[Row], decimals: int, unit: str) -> list[str]:
    """The bar's slope against its placebo's, and against the control's where no bar has a placebo."""
    against = [row for row in rows if row["kind"] == "bar - placebo"]
    against = against or [row for row in rows if row["kind"] == "bar - control"]
    texts = []
    for row in against:
        verdict = "undecided whether length matters more or less with the bar"
        if _decided(row):
            verdict = f"the slope is {'higher' if _up(row) else 'lower'} with the bar"
        pair = f"The slope of {row['condition']} minus that of {row['against']} is {_slope(row, decimals)} {unit}"
        texts.append(f"{pair} (p {p_value(known(row, 'p'))}, {row['clusters']} episodes): {verdict}")
    return texts
