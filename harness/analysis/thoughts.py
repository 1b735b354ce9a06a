"""Thoughts drawn before a choice (`choose` on a model that thinks) → numbers of a cell.

Knows the column `output.thoughts` of samples.parquet: per cell a list of {cut, censored, reasoning_tokens,
logprobs}, the last in the sorted order of the cell's choices. Knows nothing of arms, clusters or tables. Works on
flat arrays of all thoughts at once, since a long run has hundreds of thousands.
"""

import json
from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

THOUGHTS = "output.thoughts"
LABELS = ("choices", "expectation.tool")
"""Columns that name the choices whose probabilities a thought holds."""
_NAMED = (*LABELS, "target")


def read_thoughts(table: pa.Table) -> pd.DataFrame:
    """One row per thought: `cell` (row of the table), `cut`, `censored`, `tokens`, and `share`, the asked-for action's
    probability renormalised over the choices (nan where the labels do not fit the numbers)."""
    column = table[THOUGHTS].combine_chunks() if THOUGHTS in table.column_names else None
    if column is None or not pa.types.is_list(column.type):
        return pd.DataFrame({"cell": [], "cut": [], "censored": [], "tokens": [], "share": []})
    cell = np.asarray(pc.list_parent_indices(column))
    flat = pc.list_flatten(column)
    return pd.DataFrame(
        {
            "cell": cell, "cut": _flags(flat, "cut"), "censored": _flags(flat, "censored"),
            "tokens": np.asarray(pc.cast(pc.struct_field(flat, "reasoning_tokens"), pa.float64())),
            "share": _shares(flat, cell, table),
        }
    )  # fmt: skip


def _flags(thoughts: pa.StructArray, name: str) -> NDArray[np.bool_]:
    """A flag of every thought; rows written before the flag existed have none set."""
    if thoughts.type.get_field_index(name) < 0:
        return np.zeros(len(thoughts), dtype=bool)
    return np.asarray(pc.fill_null(pc.struct_field(thoughts, name), False), dtype=bool)


def _shares(thoughts: pa.StructArray, cell: NDArray[np.int64], table: pa.Table) -> NDArray[np.float64]:
    """P(act) over the choices after every thought."""
    shares = np.full(len(thoughts), np.nan)
    if any(name not in table.column_names for name in _NAMED):
        return shares
    cells, inverse = np.unique(cell, return_inverse=True)
    rows = table.select(_NAMED).take(pa.array(cells))
    named = zip(*(rows[name].to_pylist() for name in _NAMED), strict=True)
    places = np.array([_place(*names) for names in named], dtype=np.int64).reshape(-1, 2)[inverse]
    logprobs = pc.struct_field(thoughts, "logprobs")
    lengths = np.asarray(pc.fill_null(pc.list_value_length(logprobs), 0))
    fits = (places[:, 0] >= 0) & (places[:, 1] == lengths)
    if not fits.any():
        return shares
    flat = np.asarray(pc.list_flatten(logprobs.filter(pa.array(fits))), dtype=np.float64)
    starts = np.concatenate([[0], np.cumsum(lengths[fits])[:-1]])
    totals = np.logaddexp.reduceat(flat, starts)
    known = np.isfinite(totals)
    found = np.full(len(totals), np.nan)
    found[known] = np.exp(flat[starts + places[fits, 0]][known] - totals[known])
    shares[fits] = found
    return shares


@lru_cache(maxsize=4096)
def _place(choices: str | None, tool: str | None, target: str | None) -> tuple[int, int]:
    """The asked-for action's place among the sorted labels, and how many there are; −1 where it is not there."""
    labels = sorted(json.loads(choices) if choices else {})
    act = f"{tool}:{target}"
    return (labels.index(act) if act in labels else -1), len(labels)


def mark_thoughts(cells: pd.DataFrame, drawn: pd.DataFrame) -> None:
    """Add to `cells`, which are in the order of the table that `drawn` was read from, what their thoughts were.

    `thoughts`: how many were drawn. `thoughts_cut`: how many were closed by rule, having no end of their own.
    `thoughts_censored`: how many were cut by a limit inside their block, the cells' `tau` included; their count
    is a lower bound. `thought_tokens`: mean tokens of a thought restricted to τ, a censored one counting as τ and
    every other as long as it is. `thought_sd`: standard deviation over the cell's thoughts of the asked-for
    action's probability, renormalised over the choices; unknown below two thoughts.
    """
    at = drawn["cell"].to_numpy(dtype=np.int64)
    tau = cells["tau"].to_numpy(dtype=np.float64)[at]
    tokens, share = drawn["tokens"].to_numpy(), drawn["share"].to_numpy()
    censored = drawn["censored"].to_numpy(dtype=bool) | (tokens > tau)

    def total(weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        return np.bincount(at, weights=weights, minlength=len(cells)).astype(np.float64)

    count = total()
    some, several = np.where(count > 0, count, np.nan), np.where(count > 1, count, np.nan)
    cells["thoughts"] = count
    cells["thoughts_cut"] = total(drawn["cut"].to_numpy(dtype=np.float64))
    cells["thoughts_censored"] = total(censored.astype(np.float64))
    cells["thought_tokens"] = total(np.where(censored, tau, tokens)) / some
    deviations = share - (total(share) / some)[at]
    cells["thought_sd"] = np.sqrt(total(deviations**2) / (several - 1))
