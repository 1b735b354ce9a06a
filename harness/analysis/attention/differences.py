"""Paired differences between conditions: each group's share, and how spread out a row is.

Knows the pairs of `harness.analysis.comparisons` and that only what both conditions have at the same decision
points is compared. Every row is exploratory.
"""

from itertools import groupby

import numpy as np

from harness.analysis.attention import paired
from harness.analysis.attention.frames import AttentionData, arms, paired_values
from harness.analysis.attention.groups import group_name
from harness.analysis.attention.regions import SPREAD_MEASURES
from harness.analysis.decisions import Row
from harness.analysis.pairs import Pair, pairs
from harness.analysis.table import UNKNOWN, Table, fixed, frame, markdown_grid, p_value, with_interval
from harness.attention.store import GROUPS

MAIN = "bar - placebo"
COLUMNS: dict[str, int | None] = {
    "probe": None, "row": None, "comparison": None, "condition": None, "against": None, "placement": None,
    "group": None, **paired.TESTED, "p_holm": 6, "label": None, "note": None,
}  # fmt: skip
SPREAD_COLUMNS: dict[str, int | None] = {
    "measure" if key == "group" else key: d for key, d in COLUMNS.items()
}
_NO_PAIR = "no two conditions were captured at the same decision points."


def _grid(rows: list[Row], what: str, header: str) -> str:
    """One grid per probe, kind of row and pair; a note that all its rows share stands below it."""
    headers = [header, "clusters", "difference [t]", "[BCa bootstrap]", "p", "p (Holm)", "MDE"]
    parts: list[str] = []
    for keys, group in groupby(
        rows, lambda row: tuple(row[key] for key in ("probe", "row", "condition", "against"))
    ):
        part = list(group)
        body = [
            [
                group_name(str(row[what])), fixed(row["clusters"], 0),
                with_interval([fixed(row[key], 4) for key in ("estimate", "low", "high")]),
                _bracket(row), *(p_value(row[key]).removeprefix("= ") for key in ("p", "p_holm")), fixed(row["mde"], 4),
            ]
            for row in part
        ]  # fmt: skip
        notes = dict.fromkeys(f"({row['note']})" for row in part if row["note"])
        heading = f"**{keys[0]}, {keys[1]} row: {keys[2]} − {keys[3]}** ({part[0]['comparison']})"
        parts.append("\n\n".join([heading, markdown_grid(headers, body), *notes]))
    return "\n\n".join(parts)


def _bracket(row: Row) -> str:
    low, high = (fixed(row[key], 4) for key in ("boot_low", "boot_high"))
    return UNKNOWN if UNKNOWN in (low, high) else f"[{low}, {high}]"


def differences(data: AttentionData) -> Table:
    """Share of each group, one condition minus another at the same decision points."""
    rows = [
        row
        for probe in data.probes
        for kind in data.kinds(probe)
        for pair in pairs(arms(data))
        for row in _share_rows(data, probe, kind, pair)
    ]
    paired.correct(rows, MAIN)
    return Table(
        name="differences",
        title="Paired differences of shares (exploratory)",
        how_to_read=(
            "Each row is a region's share in one condition minus its share in another, at the same decision "
            "points, clusters as the unit. `bar - placebo` compares texts of equal length at the same place: "
            "what the bar's content draws. Against control every share falls by what the added text takes, "
            "since shares sum to 1: for the same reason the rows of one comparison are not independent, and a "
            "gain in one region is a loss in others. p: sign-flip permutation over clusters, two-sided; p "
            "(Holm) corrects over the regions of `bar - placebo` of one probe and row. MDE: the smallest true "
            "difference that this design finds in 80 % of cases at α = .05 before Holm. Everything here is "
            "exploratory; undecided is not `no difference`."
        ),
        columns=COLUMNS,
        shown=(),
        data=frame(COLUMNS, rows),
        grid=_grid(rows, "group", "region"),
        absent=_NO_PAIR,
        notes=(
            "A region that one of the two conditions lacks (the bar, against control) has no row: "
            "its whole share is the "
            "difference.", *paired.series_notes(data),
        ),
    )  # fmt: skip


def _share_rows(data: AttentionData, probe: str, kind: str, pair: Pair) -> list[Row]:
    clusters, mine, other = paired_values(
        data, pair.arm.name, pair.against.name, probe, kind, paired.row_share
    )
    if not clusters:
        return []
    d = mine - other
    return [
        _row(probe, kind, pair) | {"group": group} | paired.tested(d[:, i])
        for i, group in enumerate(GROUPS)
        if np.isfinite(d[:, i]).any()
    ]


def _row(probe: str, kind: str, pair: Pair) -> Row:
    return {
        "probe": probe, "row": kind, "comparison": pair.kind, "condition": pair.arm.name,
        "against": pair.against.name, "placement": pair.arm.placement, "label": paired.EXPLORATORY,
    }  # fmt: skip


def spread_differences(data: AttentionData) -> Table:
    """Sink mass, entropy, effective tokens and top mass, one condition minus another."""
    rows: list[Row] = []
    for probe in data.probes:
        for kind in data.kinds(probe):
            for pair in pairs(arms(data)):
                for name, of in SPREAD_MEASURES.values():
                    clusters, mine, other = paired_values(
                        data, pair.arm.name, pair.against.name, probe, kind, of
                    )
                    if clusters:
                        rows.append(_row(probe, kind, pair) | {"measure": name} | paired.tested(mine - other))
    paired.correct(rows, MAIN)
    return Table(
        name="spread_differences",
        title="Paired differences of spread (exploratory)",
        how_to_read=(
            "As the table before it, for the mass in the sinks, the entropy (0: one key, 1: uniform), the "
            "effective tokens and the mass of the heaviest keys. A longer prompt has more effective tokens by "
            "itself: compare a bar with its placebo."
        ),
        columns=SPREAD_COLUMNS,
        shown=(),
        data=frame(SPREAD_COLUMNS, rows),
        grid=_grid(rows, "measure", "measure"),
        absent=_NO_PAIR,
        notes=paired.series_notes(data),
    )
