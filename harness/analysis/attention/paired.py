"""What the tables of attention share: values of a row, and a paired difference with its interval and test.

Knows clusters and the statistics of `harness.analysis.statistics`; knows no single table. Student's t interval
is shown first and the BCa cluster bootstrap beside it, since the latter covers too little with few clusters.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.attention.frames import AttentionData, CellSummary, Floats, over_heads
from harness.analysis.decisions import Row
from harness.analysis.pairs import few_note
from harness.attention.store import GROUPS

EXPLORATORY = "exploratory"
TESTED: dict[str, int | None] = {
    "clusters": 0, "estimate": 6, "low": 6, "high": 6, "boot_low": 6, "boot_high": 6, "p": 6, "sd": 6, "mde": 6,
}  # fmt: skip
"""The columns of `tested`, for tables in shares and lifts."""


def present(cell: CellSummary, row: int) -> npt.NDArray[np.bool_]:
    """(len(GROUPS),) the groups of which the row sees a token in any layer."""
    return np.asarray(cell.seen[:, row].sum(axis=0) > 0)


def row_share(cell: CellSummary, row: int) -> Floats:
    """(len(GROUPS),) share, mean over layers and heads; nan for the sinks and for a group that is not there."""
    return np.where(present(cell, row), over_heads(cell.share[:, :, row]), np.nan)


def row_norm_share(cell: CellSummary, row: int) -> Floats:
    """Like `row_share`, norm-weighted; nan where it was not captured."""
    if cell.norm_share is None:
        return np.full(len(GROUPS), np.nan)
    return np.where(present(cell, row), over_heads(cell.norm_share[:, :, row]), np.nan)


def row_mass(cell: CellSummary, row: int) -> Floats:
    """(len(GROUPS),) raw mass, mean over layers and heads; nan for a group that is not there."""
    return np.where(present(cell, row), over_heads(cell.mass[:, :, row]), np.nan)


def row_uniform(cell: CellSummary, row: int) -> Floats:
    """(len(GROUPS),) the share that each group would get if every visible key but the sinks got alike."""
    seen = cell.seen[:, row]
    sinks = np.array([group == "sinks" for group in GROUPS])
    shares = seen / np.maximum(seen[:, ~sinks].sum(axis=-1, keepdims=True), 1)
    return np.where(present(cell, row) & ~sinks, shares.mean(axis=0), np.nan)


def row_tokens(cell: CellSummary, row: int) -> Floats:
    """(len(GROUPS),) visible tokens, mean over layers; nan for a group that is not there."""
    return np.where(present(cell, row), cell.seen[:, row].mean(axis=0), np.nan)


def tested(values: npt.ArrayLike, tests: int = 1) -> Row:
    """A mean of clusters' differences: t interval, BCa interval, sign-flip p, spread, MDE, and a note where too few
    clusters make the test idle (`tests`: how many Holm corrects for)."""
    found = st.t_interval(values)
    boot_low, boot_high = st.bootstrap_interval(values) or (None, None)
    return {
        "clusters": found.n, "estimate": found.value, "low": found.low, "high": found.high,
        "boot_low": boot_low, "boot_high": boot_high, "p": st.sign_flip_p(values), "sd": found.sd,
        "mde": st.minimum_detectable(found.sd, found.n), "note": few_note(found.n, tests),
    }  # fmt: skip


def spread_of(prefix: str, found: st.Estimate, values: npt.ArrayLike) -> Row:
    """An estimate as five columns: `prefix`, `_low` and `_high` (t), `_boot_low` and `_boot_high` (BCa)."""
    boot_low, boot_high = st.bootstrap_interval(values) or (None, None)
    return {
        prefix: found.value, f"{prefix}_low": found.low, f"{prefix}_high": found.high,
        f"{prefix}_boot_low": boot_low, f"{prefix}_boot_high": boot_high,
    }  # fmt: skip


def correct(rows: list[Row], kind: str) -> None:
    """Fill `p_holm` of the rows of one comparison kind, one family per probe and row, and their notes."""
    families: dict[tuple[object, object], list[Row]] = {}
    for row in rows:
        row.setdefault("p_holm", None)
        if row["comparison"] == kind:
            families.setdefault((row["probe"], row["row"]), []).append(row)
    for family in families.values():
        adjusted = st.holm([p if isinstance(p := row["p"], float) else None for row in family])
        tests = sum(p is not None for p in adjusted)
        for row, p in zip(family, adjusted, strict=True):
            row["p_holm"] = p
            row["note"] = few_note(int(str(row["clusters"])), tests)


def sections(table: pd.DataFrame, keys: list[str]) -> list[tuple[str, pd.DataFrame]]:
    """The parts of a table by these columns, in order of appearance, each with a heading in bold."""
    return [
        ("**" + ", ".join(str(part) for part in values) + "**", rows)
        for values, rows in table.groupby(keys, sort=False)
    ]


def series_notes(data: AttentionData) -> tuple[str, ...]:
    """Says where values do not come from the matched pairs, so that nobody takes them for such."""
    odd = [f"{probe}: {data.series(probe)}" for probe in data.probes if data.series(probe) != "matched"]
    return (f"Not from matched pairs: {', '.join(odd)}.",) if odd else ()
