"""The table of the bar's lines: how much each is read, against the placebo's line of the same number.

Knows line numbers and the first cell's text; all means are over layers, heads, sides and clusters.
"""

import numpy as np

from harness.analysis import statistics as st
from harness.analysis.attention import paired
from harness.analysis.attention.frames import (
    AttentionData,
    CellSummary,
    Floats,
    Of,
    arms,
    cluster_values,
    over_heads,
    paired_values,
)
from harness.analysis.decisions import Row
from harness.analysis.frames import Arm, placebo_for
from harness.analysis.table import Table, fixed, frame, markdown_grid, p_value, with_interval

WIDEST = 60
COLUMNS: dict[str, int | None] = {
    "probe": None, "row": None, "condition": None, "against": None, "placement": None, "line": 0, "text": None,
    "cells_clusters": 0, "lift": 4, "lift_low": 4, "lift_high": 4, "placebo_lift": 4, "placebo_low": 4,
    "placebo_high": 4, **{key: 4 for key in paired.TESTED if key != "clusters"}, "clusters": 0, "p": 6,
    "label": None, "note": None,
}  # fmt: skip


def lines(data: AttentionData) -> Table:
    """Lift of each line of each bar, of the placebo's same line, and the paired difference."""
    rows = [
        row
        for probe in data.probes
        for kind in data.kinds(probe)
        for arm in arms(data)
        if arm.role in ("bar", "mismatched") and arm.name in data.conditions(probe)
        for row in _line_rows(data, probe, kind, arm)
    ]
    return Table(
        name="lines",
        title="The bar line by line (exploratory)",
        how_to_read=(
            "Lift of each line of the bar (1: as much as its number of tokens would get if attention were "
            "uniform over all but the sinks), of the line of the same number in the placebo of the same "
            "placement, and the paired difference; mean over layers and heads, 95 % t intervals over clusters "
            "(the CSV has BCa intervals). The first and the last line are the tag, which a placebo has too. "
            "Texts are the first captured cell's, shortened. p: sign-flip permutation, not corrected."
        ),
        columns=COLUMNS,
        shown=(),
        data=frame(COLUMNS, rows),
        absent="no condition with a bar was captured.",
        notes=paired.series_notes(data),
        grid=_grid(rows),
    )


def line_of(line: int) -> Of:
    """The lift of one line of the bar for a row of a cell; nan where the cell's bar has no such line."""

    def of(cell: CellSummary, row: int) -> Floats:
        found = cell.line_lift.get(line)
        return np.asarray(np.nan) if found is None else over_heads(found[:, :, row])

    return of


def _line_rows(data: AttentionData, probe: str, kind: str, arm: Arm) -> list[Row]:
    placebo = placebo_for(arm, [other for other in arms(data) if other.name in data.conditions(probe)])
    cells = [cell for cell, _ in data.pick(arm.name, probe, kind)]
    texts: dict[int, str] = {}
    for cell in cells:
        texts = {**cell.line_text, **texts}
    rows: list[Row] = []
    for line in sorted(texts):
        of = line_of(line)
        found = st.t_interval(cluster_values(data, arm.name, probe, kind, of)[1])
        if found.value is None:
            continue
        row: Row = {
            "probe": probe, "row": kind, "condition": arm.name, "against": placebo.name if placebo else None,
            "placement": arm.placement, "line": line, "text": shortened(texts[line]), "cells_clusters": found.n,
            "lift": found.value, "lift_low": found.low, "lift_high": found.high, "label": paired.EXPLORATORY,
        }  # fmt: skip
        rows.append(
            row | (_against(data, probe, kind, (arm, placebo), of) if placebo else {"note": "no placebo"})
        )
    return rows


def _against(data: AttentionData, probe: str, kind: str, pair: tuple[Arm, Arm], of: Of) -> Row:
    _, mine, other = paired_values(data, pair[0].name, pair[1].name, probe, kind, of)
    lift = st.t_interval(cluster_values(data, pair[1].name, probe, kind, of)[1])
    if lift.value is None or not len(mine):
        return {"note": "the placebo has no such line"}
    return {"placebo_lift": lift.value, "placebo_low": lift.low, "placebo_high": lift.high} | paired.tested(
        mine - other
    )


def shortened(text: str) -> str:
    """One line of at most WIDEST characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= WIDEST else flat[: WIDEST - 1].rstrip() + "…"


def _grid(rows: list[Row]) -> str:
    """The rows with the lines' texts as code, since a tag would vanish from rendered Markdown."""
    if not rows:
        return ""
    headers = [
        "probe",
        "row",
        "condition",
        "line",
        "text",
        "lift",
        "placebo's line",
        "difference",
        "p",
        "clusters",
        "note",
    ]
    body = [
        [
            str(row["probe"]), str(row["row"]), str(row["condition"]), str(row["line"]),
            "`" + str(row["text"]).replace("`", "'") + "`",
            *(
                with_interval([fixed(row.get(key), 2) for key in keys])
                for keys in (
                    ("lift", "lift_low", "lift_high"), ("placebo_lift", "placebo_low", "placebo_high"),
                    ("estimate", "low", "high"),
                )
            ),
            p_value(row.get("p")).removeprefix("= "), str(row.get("clusters", row["cells_clusters"])),
            str(row.get("note") or ""),
        ]
        for row in rows
    ]  # fmt: skip
    return markdown_grid(headers, body)
