"""Paired ratios of tokens and seconds between arms, as rows of the table of comparisons.

Tokens: mean ÷ mean over clusters at the decision points both arms have, thinking restricted to the limit τ. Seconds:
geometric mean of the paired ratios, from requests that were timed one at a time. Everything here is exploratory.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.costs import LATENCIES, OUTPUT, timed
from harness.analysis.decisions import MATCHED, Row
from harness.analysis.frames import KEYS, RunData, by_cluster, common
from harness.analysis.pairs import lost, pairs
from harness.analysis.verdicts import LEVEL, few_clusters

TOKENS = {"thinking": ("act", "thinking"), "output": ("act", OUTPUT), "thought": ("choose", "thought_tokens")}
"""What is counted → the probe that has it, and the column."""


def ratio_rows(run: RunData) -> list[Row]:
    """One row per pair of arms and measure that both have: thinking and output tokens, then seconds."""
    return [*_token_rows(run), *_second_rows(run)]


def _token_rows(run: RunData) -> Iterator[Row]:
    for name, (probe, column) in TOKENS.items():
        cells = run.part(probe, MATCHED)
        if not (cells[column].fillna(0) > 0).any():  # nobody thinks, or nothing was generated
            continue
        for pair in pairs(run.arms, cells):
            both = common(cells, pair.arm.name, pair.against.name, column)
            a, b = (by_cluster(both, arm.name, column) for arm in (pair.arm, pair.against))
            a, b = a.align(b, join="inner")
            row = pair.row(probe, "thinking" if name == "thought" else name, "ratio")
            wide, narrow = st.ratio_of_means(a, b), st.ratio_of_means(a, b, LEVEL)
            yield row | _tested(a - b, wide, narrow) | lost(cells, pair)


def _second_rows(run: RunData) -> Iterator[Row]:
    cells = timed(run)
    cells = cells[cells["series"] == MATCHED]
    for (probe, cache), part in cells.groupby(["probe", "cache_state"]):
        for measure in LATENCIES:
            known = part[part[measure] > 0]
            for pair in pairs(run.arms, known):
                columns = [*KEYS, "cluster", measure]
                mine, other = (
                    known[known["condition"] == arm.name][columns] for arm in (pair.arm, pair.against)
                )
                both = mine.merge(other, on=[*KEYS, "cluster"], suffixes=("", "_other"))
                logs = pd.Series(np.log(both[measure] / both[f"{measure}_other"]), index=both.index)
                by = logs.groupby(both["cluster"]).mean()
                wide, narrow = st.mean_log_ratio(by), st.mean_log_ratio(by, LEVEL)
                gone = lost(run.part(str(probe), MATCHED), pair)
                row = pair.row(str(probe), measure, "ratio") | _tested(by, wide, narrow) | gone
                yield row | {"note": "; ".join(filter(None, (f"cache {cache}", str(row["note"]))))}


def _tested(differences: "pd.Series[float]", found: st.Estimate, narrow: st.Estimate) -> Row:
    return {
        "label": "exploratory", "clusters": found.n, "estimate": found.value, "low": found.low, "high": found.high,
        "p": st.sign_flip_p(differences), "sd": found.sd, "equivalence_low": narrow.low,
        "equivalence_high": narrow.high, "note": few_clusters(found.n, 1),
    }  # fmt: skip
