"""The table of heads: those that read the bar's content, and those that read the records the rule counts.

Knows what is asked of a head, per cluster; how heads are found and tested is in `heads`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from harness.analysis import statistics as st
from harness.analysis.attention import heads, paired
from harness.analysis.attention.frames import (
    AttentionData,
    CellSummary,
    Floats,
    arms,
    cluster_values,
    paired_values,
)
from harness.analysis.decisions import Row
from harness.analysis.frames import control_of, placebo_for
from harness.analysis.table import Shown, Table, frame
from harness.attention.store import GROUPS

ROW = "decision"
BAR, RECORDS = "bar content", "call records"
FLOORS = {"share": 0.01, "lift": 0.25}
"""Differences below these are steady in some heads and matter in none."""
COLUMNS: dict[str, int | None] = {
    "target": None, "probe": None, "row": None, "condition": None, "against": None, "unit": None, "rank": 0, "layer": 0,
    "head": 0, "heads": 0, "discovery_n": 0, "discovery": 5, "discovery_t": 2, "test_n": 0, "estimate": 5, "low": 5,
    "high": 5, "boot_low": 5, "boot_high": 5, "p_fwer": 5, "passed": None, "label": None, "note": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """What a head is asked for: `values` (clusters, layers × heads) above 0 where it reads the target."""

    name: str
    probe: str
    condition: str
    against: str
    unit: str
    floor: float
    """The least mean in the discovery half that is worth a test."""
    values: Floats


def head_table(data: AttentionData) -> Table:
    """The top heads of the discovery half per target, with estimate and adjusted p in the test half."""
    rows: list[Row] = []
    idle: list[str] = []
    for target in targets(data):
        found = _rows(data, target)
        rows += found
        if not found:
            idle.append(f"{target.name} ({target.probe}, {target.condition})")
    return Table(
        name="heads",
        title="Heads that read the bar, and heads that read the call records (exploratory)",
        how_to_read=(
            "Clusters are split in two by a seeded shuffle. The first half ranks all heads by the studentised "
            f"mean and keeps at most {heads.TOP} of those whose mean is above {FLOORS['share']} of share or "
            f"{FLOORS['lift']} of lift; the second half tests these alone, so that no head is chosen by the data "
            "that judge it; all other heads are not tested, whatever they do. p: one-sided sign-flip permutation "
            "of clusters, max-T step-down over the heads tested for one target (Westfall & Young 1993): the chance "
            "that any one of them passes at .05 by luck is at most 5 % for each target, where a head treats the two spans "
            "alike, but not for all targets together. With n clusters in the test half no p can be below 1/2^n "
            f"(n ≤ {heads.EXACT_CLUSTERS}). Estimate and interval (95 % t, not adjusted) are the test half's. "
            f"{BAR}: a head's share on the bar minus its share on the placebo of the same placement. {RECORDS}: "
            "its lift on the calls to the asked-for value minus its lift on the calls to other values, without "
            "a bar. Rows `decision`, sides averaged within a cluster. A head that reads a span need not be what "
            "makes the model use it."
        ),
        columns=COLUMNS,
        shown=(
            Shown("target", ("target",)), Shown("probe", ("probe",)), Shown("condition", ("condition",)),
            Shown("rank", ("rank",)), Shown("layer", ("layer",)), Shown("head", ("head",)),
            Shown("n, discovery", ("discovery_n",)), Shown("mean, discovery", ("discovery",)),
            Shown("n, test", ("test_n",)), Shown("estimate, test", ("estimate", "low", "high")), Shown("unit", ("unit",)),
            Shown("p (family-wise)", ("p_fwer",)), Shown("passed", ("passed",)), Shown("note", ("note",), rare=True),
        ),
        data=frame(COLUMNS, rows),
        absent="no head reaches the least mean, or neither a bar with its placebo nor a control with call records to two "
        "values was captured.",
        notes=(*_idle(idle), *paired.series_notes(data)),
    )  # fmt: skip


def _idle(names: list[str]) -> tuple[str, ...]:
    return (f"No head reaches the least mean, or no value is known: {', '.join(names)}.",) if names else ()


def targets(data: AttentionData) -> Iterator[Target]:
    """Every target that the captured conditions allow."""
    for probe in data.probes:
        there = [arm for arm in arms(data) if arm.name in data.conditions(probe)]
        for arm in there:
            placebo = placebo_for(arm, there) if arm.role == "bar" else None
            if placebo:
                _, mine, other = paired_values(data, arm.name, placebo.name, probe, ROW, bar_share)
                if len(mine):
                    yield Target(BAR, probe, arm.name, placebo.name, "share", FLOORS["share"], mine - other)
        control = control_of(there)
        if control:
            _, values = cluster_values(data, control.name, probe, ROW, record_contrast)
            # An episode without calls to both values says nothing; it must not make every head unknown.
            values = values[np.isfinite(values).any(axis=1)] if len(values) else values
            if len(values):
                yield Target(RECORDS, probe, control.name, "", "lift", FLOORS["lift"], values)


def bar_share(cell: CellSummary, row: int) -> Floats:
    """(L × H,) each head's share on the bar or placebo."""
    return np.asarray(cell.share[:, :, row, GROUPS.index("bar")].ravel())


def record_contrast(cell: CellSummary, row: int) -> Floats:
    """(L × H,) each head's lift on `target_calls` minus its lift on `other_calls`."""
    lift = cell.lift[:, :, row]
    return np.asarray(
        (lift[..., GROUPS.index("target_calls")] - lift[..., GROUPS.index("other_calls")]).ravel()
    )


def seed_of(manifest: Mapping[str, object]) -> int:
    """The configuration's seed, or the fixed one of the statistics."""
    config = manifest.get("config")
    seed = config.get("seed") if isinstance(config, Mapping) else None
    return seed if isinstance(seed, int) and seed >= 0 else st.SEED


def _rows(data: AttentionData, target: Target) -> list[Row]:
    sample = next(cell for cell in data.cells if cell.cell.probe == target.probe)
    clusters = len(target.values)
    split = heads.halves(clusters, seed_of(data.manifest))
    rows: list[Row] = []
    for rank, found in enumerate(heads.find(target.values, split, floor=target.floor), start=1):
        layer, head = divmod(found.head, len(sample.heads))
        boot_low, boot_high = st.bootstrap_interval(target.values[list(split.test), found.head]) or (
            None,
            None,
        )
        rows.append({
            "target": target.name, "probe": target.probe, "row": ROW, "condition": target.condition,
            "against": target.against or None, "unit": target.unit, "rank": rank, "layer": sample.layers[layer],
            "head": sample.heads[head], "heads": int(np.isfinite(target.values).all(axis=0).sum()),
            "discovery_n": found.discovery.n, "discovery": found.discovery.value, "discovery_t": found.discovery_t,
            "test_n": found.test.n, "estimate": found.test.value, "low": found.test.low, "high": found.test.high,
            "boot_low": boot_low, "boot_high": boot_high, "p_fwer": found.p,
            "passed": None if found.p is None else "yes" if found.p <= st.ALPHA else "no",
            "label": paired.EXPLORATORY, "note": _note(clusters, split),
        })  # fmt: skip
    return rows


def _note(clusters: int, split: heads.Halves) -> str:
    if not split.test:
        return f"not tested: {clusters} clusters, {2 * heads.MIN_HALF} needed"
    smallest = heads.smallest_p(len(split.test))
    if smallest <= st.ALPHA:
        return ""
    return f"no head can pass: smallest possible p is {smallest:.3g}, {heads.needed()} clusters needed"
