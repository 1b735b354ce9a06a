"""The index of a run's cells: what they can be filtered by, and where each lies in samples.parquet.

Reads a few small columns of all cells and keeps them as categories, so that 100,000 cells take some megabytes; texts are
read by row group, for the rows asked for. Knows columns and filters, nothing of pages or tables.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from harness.errors import ReportError
from harness.runlog.rows import SAMPLES_NAME

FACETS = ("probe", "series", "condition", "side", "outcome")
"""What cells can be filtered by, in the order of the page."""
POINT = ("sample_id", "probe", "epoch")
"""What identifies a decision point, whose arms are shown side by side."""
STRATUM = ("probe", "series", "condition", "outcome")
SEARCHED = ("sample_id", "output.text", "bar_text", "score.reason", "output.error")
"""The columns that a text search looks into."""
FAVOURED, NOT_FAVOURED = "call favoured", "call not favoured"
RIGHT, WRONG, UNSCORED = "right answer", "wrong answer", "unscored"
_KEPT = (
    "cell_id", "sample_id", "scenario", "cluster", "series", "side", "condition", "probe", "epoch", "prior_calls",
    "filler_tokens", "output.finish_reason", "output.error", "score.outcome", "score.p_act_norm", "score.logit_act",
    "score.right",
)  # fmt: skip
_CATEGORIES = ("scenario", "cluster", "series", "side", "condition", "probe")
_BATCH = 512
"""Rows read at a time: a run's own row group."""
_QUERIES = 16
"""Text searches whose hits are remembered."""


@dataclass(frozen=True, slots=True, eq=False)
class CellIndex:
    """`frame`: one row per cell, the arms of a decision point together, with the columns of FACETS and POINT, `cell_id`,
    `cluster`, `p` (probability of the asked-for call, `choose`) and `row` (its number in the file)."""

    path: Path
    frame: pd.DataFrame
    columns: frozenset[str]
    """Top-level columns that the file has."""
    starts: npt.NDArray[np.int64] = field(repr=False)
    """First row of each row group, and the number of rows behind them."""

    def __len__(self) -> int:
        return len(self.frame)

    def groups(self, rows: Sequence[int]) -> npt.NDArray[np.int64]:
        """The row group of each row."""
        return np.searchsorted(self.starts, np.asarray(rows, dtype=np.int64), side="right") - 1

    def read(self, rows: Iterable[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Row number → the columns (those that the file has) of these rows; reads only the row groups they lie in.

        Raises ReportError for a file that cannot be read.
        """
        wanted = sorted(set(rows))
        there = [name for name in columns if name in self.columns]
        found: dict[int, dict[str, Any]] = {}
        if not wanted:
            return found
        for start, batch in self._batches(there, sorted(set(self.groups(wanted).tolist()))):
            mine = [row for row in wanted if start <= row < start + batch.num_rows]
            if mine:
                part = batch.take(pa.array([row - start for row in mine]))
                found |= dict(zip(mine, part.to_pylist(), strict=True))
        return found

    def _batches(self, columns: Sequence[str], groups: Sequence[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(first row, batch) over these row groups; only a batch is in memory at a time."""
        try:
            with parquet.ParquetFile(self.path) as file:
                for group in groups:
                    row = int(self.starts[group])
                    for batch in file.iter_batches(_BATCH, row_groups=[group], columns=list(columns)):
                        yield row, batch
                        row += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            raise ReportError(
                f"{self.path}: not readable as parquet ({error}); run the same command again"
            ) from error

    def facets(self) -> dict[str, dict[str, int]]:
        """For each of FACETS its values with the number of cells, most frequent first."""
        return {
            name: {str(key): int(n) for key, n in self.frame[name].value_counts().items() if n}
            for name in FACETS
        }

    def select(self, chosen: Mapping[str, str], text: str = "") -> pd.DataFrame:
        """The cells whose facets have the chosen values and that hold `text` in one of SEARCHED, in either case."""
        mask = np.ones(len(self.frame), dtype=bool)
        for name, value in chosen.items():
            if name in FACETS:
                mask &= (self.frame[name] == value).to_numpy(dtype=bool)
        if text:
            mask &= np.isin(self.frame["row"].to_numpy(), _holding(self.path, text, self))
        return self.frame[mask]

    def point(self, cell: Mapping[str, Any]) -> pd.DataFrame:
        """All arms of the cell's decision point."""
        mask = np.ones(len(self.frame), dtype=bool)
        for name in POINT:
            mask &= (self.frame[name] == cell[name]).to_numpy(dtype=bool)
        return self.frame[mask]


@lru_cache(maxsize=_QUERIES)
def _holding(path: Path, text: str, index: CellIndex) -> npt.NDArray[np.int64]:
    """Rows that hold the text in one of SEARCHED."""
    found: list[npt.NDArray[np.int64]] = []
    there = [name for name in SEARCHED if name in index.columns]
    for start, batch in index._batches(there, range(len(index.starts) - 1)):
        hits = np.zeros(batch.num_rows, dtype=bool)
        for column in batch.columns:
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                matches = pc.match_substring(column, text, ignore_case=True).fill_null(False)
                hits |= matches.to_numpy(zero_copy_only=False)
        found.append(start + np.flatnonzero(hits))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def read_index(run_dir: Path) -> CellIndex:
    """The index of RUN/samples.parquet. Raises ReportError when it is missing or unreadable."""
    path = run_dir / SAMPLES_NAME
    if not path.is_file():
        raise ReportError(
            f"{path}: no such file; expected a finished run's folder: finish the run with the command that started it, "
            "or name another folder"
        )
    try:
        with parquet.ParquetFile(path) as file:
            names = frozenset(file.schema_arrow.names)
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            kept = [name for name in _KEPT if name in names]
            raw = file.read(columns=kept).to_pandas(strings_to_categorical=True)
    except (OSError, pa.ArrowException) as error:
        raise ReportError(f"{path}: not readable as parquet ({error}); run the same command again") from error
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
    return CellIndex(path, _frame(raw), names, starts)


def _frame(raw: pd.DataFrame) -> pd.DataFrame:
    cells = pd.DataFrame({"row": np.arange(len(raw), dtype=np.int64)})
    for name in _KEPT:
        cells[name] = raw[name].to_numpy() if name in raw else None
    for name in ("cell_id", "sample_id", *_CATEGORIES):
        cells[name] = pd.Categorical(cells[name].fillna("").astype(str))
    cells["epoch"] = pd.to_numeric(cells["epoch"], errors="coerce").fillna(0).astype("int64")
    for name in ("prior_calls", "filler_tokens", "score.p_act_norm", "score.logit_act"):
        cells[name] = pd.to_numeric(cells[name], errors="coerce").astype("float64")
    cells["p"] = cells["score.p_act_norm"].where(cells["probe"] == "choose")
    cells["outcome"] = pd.Categorical(_outcome(cells))
    kept = [
        "row",
        "cell_id",
        "sample_id",
        *_CATEGORIES,
        "epoch",
        "prior_calls",
        "filler_tokens",
        "p",
        "outcome",
    ]
    order = cells[["sample_id", "probe", "epoch", "cell_id"]].astype(
        {"sample_id": str, "probe": str, "cell_id": str}
    )
    return cells[kept].loc[order.sort_values(list(order.columns), kind="stable").index].reset_index(drop=True)


def _outcome(cells: pd.DataFrame) -> npt.NDArray[np.object_]:
    """How a cell ended in one word: an outcome class (`act`), which way the choice leans, or whether it was right."""
    scored = cells["score.outcome"].astype(object)
    scored = scored.where(scored.notna(), "")
    right = cells["score.right"].astype(object)
    chosen, asked = (cells["probe"] == "choose"), (cells["probe"] == "ask")
    failed = (cells["output.finish_reason"] == "error") | cells["output.error"].notna()
    found = np.where(scored == "", UNSCORED, scored).astype(object)
    lean = np.where(cells["score.p_act_norm"] > 0.5, FAVOURED, NOT_FAVOURED)
    found = np.where(chosen, np.where(cells["score.logit_act"].notna(), lean, UNSCORED), found)
    answered = np.where(right.isna(), UNSCORED, np.where(right == True, RIGHT, WRONG))  # noqa: E712
    found = np.where(asked & (scored == ""), answered, found)
    return np.where(failed | (scored == "provider_error"), "provider_error", found).astype(object)


def tone(outcome: str, side: str) -> str:
    """Whether an ending is `good`, `bad`, `lost`, or `other` (neither) on its side of the rule."""
    if outcome in ("provider_error", UNSCORED):
        return "lost"
    if outcome in (FAVOURED, NOT_FAVOURED):
        return "good" if (outcome == FAVOURED) == (side == "due") else "bad"
    if outcome in ("compliant", "correct_action", RIGHT):
        return "good"
    return "bad" if outcome in ("violation", "claimed_action", "over_refusal", WRONG) else "other"
