"""All tables of a capture, in reading order, and the two long data files beside them.

Knows the list of tables; each is built in the module of its subject.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from harness.analysis.attention.differences import differences, spread_differences
from harness.analysis.attention.frames import AttentionData, CellSummary, arms, over_heads
from harness.analysis.attention.head_table import head_table
from harness.analysis.attention.lines import lines
from harness.analysis.attention.masking import masking, masking_differences
from harness.analysis.attention.regions import regions, spread
from harness.analysis.decisions import Row
from harness.analysis.table import Shown, Table, frame
from harness.attention.store import GROUPS
from harness.runlog.files import atomic_file

CAPTURED_COLUMNS: dict[str, int | None] = {
    "probe": None, "series": None, "condition": None, "placement": None, "cells": 0, "skipped": 0, "clusters": 0,
    "rows": None, "layers": 0, "heads": 0, "path_rows": 1, "masked_cells": 0, "bar_tokens": 1, "replay_error": 8,
}  # fmt: skip


def captured(data: AttentionData) -> Table:
    """What was captured: cells, clusters, rows, layers and heads per probe, series and condition."""
    rows: list[Row] = []
    keys = dict.fromkeys((c.cell.probe, c.cell.series) for c in data.cells)
    for probe, series in keys:
        for arm in arms(data):
            cells = [
                c
                for c in data.cells
                if (c.cell.probe, c.cell.series, c.cell.condition) == (probe, series, arm.name)
            ]
            if cells:
                rows.append(
                    {"probe": probe, "series": series, "condition": arm.name, "placement": arm.placement}
                    | _counts(cells)
                    | {"skipped": _skipped(data, probe, arm.name)}
                )
    return Table(
        name="captured",
        title="What was captured",
        how_to_read=(
            "Cells replayed from recorded token ids, and the clusters (independently drawn episodes) they "
            "belong to. Skipped: cells that cannot be replayed, such as those whose every thought was cut; the "
            "capture's manifest has the reasons. Path rows: rows along the generated tokens, mean over cells. "
            "Replay error: largest difference between a recorded and the replayed log-probability of a choice, "
            "where one was recorded."
        ),
        columns=CAPTURED_COLUMNS,
        shown=tuple(Shown(key.replace("_", " "), (key,)) for key in CAPTURED_COLUMNS if key != "placement"),
        data=frame(CAPTURED_COLUMNS, rows),
        absent="no cell was captured.",
    )


def _skipped(data: AttentionData, probe: str, condition: str) -> int:
    """Cells of a condition that were not replayed. A cell's id is sample|condition|probe|epoch."""
    skipped = data.manifest.get("skipped")
    names = [str(cell).split("|") for cell in skipped] if isinstance(skipped, Mapping) else []
    return sum(parts[-3:-1] == [condition, probe] for parts in names)


def _counts(cells: list[CellSummary]) -> Row:
    errors = [cell.replay_error for cell in cells if cell.replay_error is not None]
    return {
        "cells": len(cells), "clusters": len({cell.cell.cluster for cell in cells}),
        "rows": ", ".join(dict.fromkeys(kind for cell in cells for kind in cell.kinds)),
        "layers": max(len(cell.layers) for cell in cells), "heads": max(len(cell.heads) for cell in cells),
        "path_rows": float(np.mean([len(cell.path) for cell in cells])),
        "masked_cells": sum(bool(cell.masking) for cell in cells),
        "bar_tokens": float(np.mean([cell.cell.bar_tokens for cell in cells])),
        "replay_error": max(errors, default=None),
    }  # fmt: skip


def build_tables(data: AttentionData) -> dict[str, Table]:
    """Every table by name, in reading order; a table without data says so."""
    made = [
        captured(data), regions(data), spread(data), differences(data), spread_differences(data), lines(data),
        head_table(data), masking(data), masking_differences(data),
    ]  # fmt: skip
    return {table.name: table for table in made}


_KEYS: dict[str, pa.DataType] = {
    name: pa.string()
    for name in (
        "cell_id",
        "sample_id",
        "cluster",
        "side",
        "condition",
        "bar",
        "placement",
        "probe",
        "series",
    )
}
SUMMARY_SCHEMA = pa.schema({
    **_KEYS, "epoch": pa.int32(), "row": pa.string(), "row_name": pa.string(), "position": pa.int32(),
    "group": pa.string(), **{name: pa.float64() for name in ("tokens", "mass", "share", "lift", "norm_share")},
})  # fmt: skip
MASKING_SCHEMA = pa.schema({
    **_KEYS, "epoch": pa.int32(), "mask": pa.string(), "scope": pa.string(), "layers": pa.string(),
    "masked_tokens": pa.int32(), **{name: pa.float64() for name in ("p_act", "p_act_norm", "logit_act")},
})  # fmt: skip


def summary_frame(data: AttentionData) -> pd.DataFrame:
    """One line per cell, row and group that is there: `tokens`, `mass`, `share`, `lift`, means over layers and heads
    (`lift`: mean share ÷ mean uniform share is `regions`' business; here the mean of the heads' own)."""
    rows: list[Row] = []
    for cell in data.cells:
        for i, row in enumerate(cell.rows):
            of = {"tokens": cell.seen[:, None, i], "mass": cell.mass[:, :, i], "share": cell.share[:, :, i],
                  "lift": cell.lift[:, :, i]}  # fmt: skip
            if cell.norm_share is not None:
                of["norm_share"] = cell.norm_share[:, :, i]
            means = {name: over_heads(values) for name, values in of.items()}
            for j, group in enumerate(GROUPS):
                if means["tokens"][j] > 0:
                    known = {name: float(value[j]) for name, value in means.items() if np.isfinite(value[j])}
                    place: Row = {
                        "row": row.kind,
                        "row_name": row.name,
                        "position": row.position,
                        "group": group,
                    }
                    rows.append(_key(cell) | place | known)
    return pd.DataFrame(rows, columns=pd.Index(SUMMARY_SCHEMA.names))


def masking_frame(data: AttentionData) -> pd.DataFrame:
    """One line per cell, mask and scope, the plain replay (mask `none`) among them."""
    rows: list[Row] = [
        _key(cell) | {name: getattr(masked, name) for name in MASKING_SCHEMA.names if hasattr(masked, name)}
        for cell in data.cells
        for masked in cell.masking
    ]
    return pd.DataFrame(rows, columns=pd.Index(MASKING_SCHEMA.names))


def _key(cell: CellSummary) -> Row:
    return {name: getattr(cell.cell, name) for name in (*_KEYS, "epoch")}


def write_frames(data: AttentionData) -> list[Path]:
    """Write summary.parquet and masking.parquet into the capture's folder; unknown is null."""
    paths: list[Path] = []
    for name, made, schema in (
        ("summary.parquet", summary_frame(data), SUMMARY_SCHEMA),
        ("masking.parquet", masking_frame(data), MASKING_SCHEMA),
    ):
        buffer = io.BytesIO()
        table = pa.Table.from_pandas(made, schema=schema, preserve_index=False)
        parquet.write_table(table.replace_schema_metadata(None), buffer, compression="zstd")
        path = data.folder / name
        with atomic_file(path) as handle:
            handle.write(buffer.getvalue())
        paths.append(path)
    return paths
