"""Tables of where a row looks: tokens, mass, share and lift of each group, and how spread out the row is.

Knows one condition at a time; comparisons live in `differences`.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.attention import paired
from harness.analysis.attention.frames import (
    SINKS,
    AttentionData,
    CellSummary,
    Floats,
    arms,
    cluster_values,
    over_heads,
)
from harness.analysis.attention.groups import EXPLAINED, group_name
from harness.analysis.decisions import Row
from harness.analysis.table import UNKNOWN, Shown, Table, fixed, frame, markdown_grid, with_interval
from harness.attention.store import GROUPS

REGION_COLUMNS: dict[str, int | None] = {
    "probe": None, "row": None, "condition": None, "placement": None, "group": None, "clusters": 0, "tokens": 1,
    "mass": 6, "uniform": 6, "share": 6, "share_low": 6, "share_high": 6, "share_boot_low": 6, "share_boot_high": 6,
    "lift": 4, "lift_low": 4, "lift_high": 4, "norm_share": 6,
}  # fmt: skip
SPREAD_MEASURES: dict[str, tuple[str, Callable[[CellSummary, int], Floats]]] = {
    "sink_mass": ("mass in the sinks", lambda cell, row: over_heads(cell.mass[:, :, row, SINKS])),
    "entropy": ("normalised entropy", lambda cell, row: over_heads(cell.entropy[:, :, row])),
    "effective": ("effective tokens", lambda cell, row: over_heads(cell.effective[:, :, row])),
    "top_mass": ("mass of the top keys", lambda cell, row: over_heads(cell.top_mass[:, :, row])),
}
"""Measure → its name and its value for a row of a cell, mean over layers and heads."""
SPREAD_COLUMNS: dict[str, int | None] = {
    "probe": None, "row": None, "condition": None, "placement": None, "clusters": 0,
    **{
        f"{measure}{end}": 1 if measure == "effective" else 4
        for measure in SPREAD_MEASURES
        for end in ("", "_low", "_high", "_boot_low", "_boot_high")
    },
}  # fmt: skip


def regions(data: AttentionData) -> Table:
    """Tokens, raw mass, share and lift per probe, kind of row, condition and group."""
    rows = [
        row
        for probe in data.probes
        for kind in data.kinds(probe)
        for condition in data.conditions(probe)
        for row in _region_rows(data, probe, kind, condition)
    ]
    table = frame(REGION_COLUMNS, rows)
    return Table(
        name="regions",
        title="Where a row looks: tokens, share and lift of each region",
        how_to_read=(
            "A row is one query token: `decision` predicts the tool's name (in a free reply without a call, the "
            "first token of the answer), `value` the first token that tells the asked-for value from the "
            "others. Share: attention to the region ÷ attention to all but the sinks, mean over all captured "
            "layers and heads, then over the sides of a cluster, then over clusters. Brackets: 95 % t intervals "
            "over clusters; the CSV has BCa cluster-bootstrap intervals and the raw mass beside them. Lift: "
            "mean share ÷ mean uniform share (the region's visible tokens ÷ all visible tokens but the sinks); "
            "1 is uniform. Shares sum to 1, so text that is added takes from all the rest: compare a bar with "
            "its placebo. Attention says where a row looks, not what makes the model decide. Regions: "
            + EXPLAINED
        ),
        columns=REGION_COLUMNS,
        shown=(),
        data=table,
        absent="no captured cell has a decision row on both sides of a pair.",
        notes=(*paired.series_notes(data), *_norm_note(table)),
        grid=_region_grid(table),
    )


def _norm_note(table: pd.DataFrame) -> tuple[str, ...]:
    if not table["norm_share"].notna().any():
        return ()
    return ("The CSV's `norm_share` weighs attention by the norm of what is read (Kobayashi et al. 2020).",)


def _region_rows(data: AttentionData, probe: str, kind: str, condition: str) -> list[Row]:
    placement = {arm.name: arm.placement for arm in arms(data)}[condition]
    of = (paired.row_tokens, paired.row_mass, paired.row_share, paired.row_uniform, paired.row_norm_share)
    values = [cluster_values(data, condition, probe, kind, measure)[1] for measure in of]
    if not len(values[0]):
        return []
    rows: list[Row] = []
    for i, group in enumerate(GROUPS):
        tokens, mass, share, uniform, norm = (st.finite(value[:, i]) for value in values)
        if not tokens.size:
            continue
        lift = st.ratio_of_means(values[2][:, i], values[3][:, i])
        rows.append({
            "probe": probe, "row": kind, "condition": condition, "placement": placement, "group": group,
            "clusters": tokens.size, "tokens": _mean(tokens), "mass": _mean(mass), "uniform": _mean(uniform),
            **paired.spread_of("share", st.share_interval(share), share),
            "lift": lift.value, "lift_low": lift.low, "lift_high": lift.high, "norm_share": _mean(norm),
        })  # fmt: skip
    return rows


def _mean(values: Floats) -> float | None:
    return float(np.mean(values)) if values.size else None


def _region_grid(table: pd.DataFrame) -> str:
    """One grid per probe and kind of row: groups down, conditions across."""
    parts: list[str] = []
    for heading, part in paired.sections(table, ["probe", "row"]):
        conditions = list(dict.fromkeys(part["condition"]))
        found = {(str(r["condition"]), str(r["group"])): r for r in part.to_dict("records")}
        groups = [group for group in GROUPS if group in set(part["group"])]
        body = [_region_line(group, conditions, found) for group in groups]  # type: ignore[arg-type]
        headers = [
            "region",
            "tokens",
            *(f"{name}: {what}" for name in conditions for what in ("share", "lift")),
        ]
        clusters = part["clusters"]
        low, high = int(clusters.min()), int(clusters.max())
        n = f"{low}" if low == high else f"{low}–{high}"
        parts.append(f"{heading} row (n = {n} clusters)\n\n{markdown_grid(headers, body)}")
    return "\n\n".join(parts)


def _region_line(group: str, conditions: list[str], found: dict[tuple[str, str], Row]) -> list[str]:
    there = [found[name, group] for name in conditions if (name, group) in found]
    tokens = [float(str(row["tokens"])) for row in there]
    low, high = fixed(min(tokens), 0), fixed(max(tokens), 0)
    line = [group_name(group), low if low == high else f"{low}–{high}"]
    for name in conditions:
        row = found.get((name, group), {})
        if group == "sinks":
            line += [f"({fixed(row.get('mass'), 3)} of the raw mass)", UNKNOWN]
            continue
        line.append(with_interval([fixed(row.get(key), 3) for key in ("share", "share_low", "share_high")]))
        line.append(with_interval([fixed(row.get(key), 2) for key in ("lift", "lift_low", "lift_high")]))
    return line


def spread(data: AttentionData) -> Table:
    """Sink mass, normalised entropy, effective tokens and top-k mass per probe, kind of row and condition."""
    rows: list[Row] = []
    for probe in data.probes:
        for kind in data.kinds(probe):
            for arm in arms(data):
                row = _spread_row(data, probe, kind, arm.name)
                rows += [
                    {"probe": probe, "row": kind, "condition": arm.name, "placement": arm.placement} | row
                ] * bool(row)
    top = "top keys" if data.top_k is None else f"{data.top_k} heaviest keys"
    return Table(
        name="spread",
        title="How spread out a row is",
        how_to_read=(
            "Mean over layers and heads, then over the sides of a cluster, then over clusters, with 95 % t "
            "intervals over clusters (the CSV has BCa intervals beside them). Mass in the sinks: raw share of "
            "the few positions that soak up attention whatever is asked. Entropy (0: one key, 1: uniform) and "
            "effective tokens (2 to the power of the entropy in bits, mean of each row's own) leave the sinks "
            f"out. Top mass: raw mass of the {top} that are no sinks."
        ),
        columns=SPREAD_COLUMNS,
        shown=(
            Shown("probe", ("probe",)), Shown("row", ("row",)), Shown("condition", ("condition",)),
            Shown("clusters", ("clusters",)),
            *(Shown(name, (key, f"{key}_low", f"{key}_high")) for key, (name, _) in SPREAD_MEASURES.items()),
        ),
        data=frame(SPREAD_COLUMNS, rows),
        absent="no captured cell has a decision row on both sides of a pair.",
        notes=paired.series_notes(data),
    )  # fmt: skip


def _spread_row(data: AttentionData, probe: str, kind: str, condition: str) -> Row:
    row: Row = {}
    for key, (_, of) in SPREAD_MEASURES.items():
        clusters, values = cluster_values(data, condition, probe, kind, of)
        if clusters:
            row |= {"clusters": len(clusters)} | paired.spread_of(key, st.t_interval(values), values)
    return row
