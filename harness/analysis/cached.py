"""The table of the prefix cache: tokens that the ledger predicts against tokens that the engine reports.

Knows the two columns of samples.parquet and that unknown is not 0. Knows nothing of how either is made.
"""

from collections.abc import Mapping

import pandas as pd

from harness.analysis.decisions import Row, arms_there
from harness.analysis.frames import RunData
from harness.analysis.table import Shown, Table, frame

MEASURED, PREDICTED = "output.usage.cached_tokens", "output.usage.predicted_cached_tokens"
PROMPT = "output.usage.prompt_tokens"
ALL = "all"
COLUMNS: dict[str, int | None] = {
    "probe": None, "series": None, "condition": None, "cells": 0, "n": 0, "unknown": 0, "prompt": 0,
    "predicted": 0, "measured": 0, "measured_share": 4, "cached_share": 4,
}  # fmt: skip


def cache(run: RunData) -> Table:
    """Predicted and measured cached tokens per probe, series and condition, and of the whole run."""
    rows: list[Row] = []
    if run.cells[PREDICTED].notna().any():
        rows.append(_row(run.cells) | {"probe": ALL, "series": ALL, "condition": ALL})
        for (probe, series), part in run.cells.groupby(["probe", "series"]):
            for arm in arms_there(run, part):
                mine = part[part["condition"] == arm.name]
                rows.append(_row(mine) | {"probe": probe, "series": series, "condition": arm.name})
    return Table(
        name="cache",
        title="Prompt tokens taken from the prefix cache",
        how_to_read=(
            "Predicted is what the ledger expects: for each prompt the longest prefix, in whole blocks, that earlier "
            "requests of this session left behind, from token ids alone. Measured is what the engine reports. Both "
            "are sums over the cells where both are known; a cell where either is unknown is counted in `unknown` "
            "alone. A session that resumes a run starts with an empty cache. So this table, like the throughput, "
            "is about the sessions that made the run and not about the model."
        ),
        columns=COLUMNS,
        shown=(
            Shown("probe", ("probe",)), Shown("series", ("series",)), Shown("condition", ("condition",)),
            Shown("cells", ("cells",)), Shown("unknown", ("unknown",)), Shown("prompt tokens", ("prompt",)),
            Shown("predicted", ("predicted",)), Shown("measured", ("measured",)),
            Shown("measured ÷ predicted", ("measured_share",)),
            Shown("share of the prompt", ("cached_share",)),
        ),
        data=frame(COLUMNS, rows),
        absent="the run holds no prediction of cached tokens; an engine without a prefix cache has none.",
        notes=_block(run.manifest),
    )  # fmt: skip


def _row(cells: pd.DataFrame) -> Row:
    known = cells[cells[PREDICTED].notna() & cells[MEASURED].notna() & cells[PROMPT].notna()]
    row: Row = {"cells": len(cells), "n": len(known), "unknown": len(cells) - len(known)}
    if known.empty:
        return row
    prompt, predicted, measured = (float(known[name].sum()) for name in (PROMPT, PREDICTED, MEASURED))
    return row | {
        "prompt": prompt, "predicted": predicted, "measured": measured,
        "measured_share": measured / predicted if predicted else None,
        "cached_share": measured / prompt if prompt else None,
    }  # fmt: skip


def _block(manifest: Mapping[str, object]) -> tuple[str, ...]:
    ledger = manifest.get("ledger")
    size = ledger.get("block_size") if isinstance(ledger, Mapping) else None
    return (f"Tokens in a block: {size}.",) if isinstance(size, int) else ()
