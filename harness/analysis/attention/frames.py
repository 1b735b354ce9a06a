"""Captured cells without their token-level arrays, and cluster-balanced values from them.

Knows the files of a capture (`harness.attention.store`) and that clusters are the unit: rows of a kind are
averaged within a cell, cells within a side, sides within a cluster. Knows no statistics and no table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.analysis.frames import SIDES, Arm, arms_of
from harness.attention import measures
from harness.attention.store import (
    GROUPS,
    CellAttention,
    CellInfo,
    Masked,
    Row,
    RowKind,
    read_cells,
    read_manifest,
)
from harness.errors import AttentionError

Floats = npt.NDArray[np.float64]
KINDS: tuple[str, ...] = get_args(RowKind)
MATCHED = "matched"
SINKS = GROUPS.index("sinks")


@dataclass(frozen=True, slots=True)
class CellSummary:
    """One captured cell. L layers, H heads, R rows, P path rows; the last axis is GROUPS where it is named so."""

    cell: CellInfo
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    kinds: tuple[str, ...]
    """(R,) kinds of the rows, such as ("decision", "value")."""
    rows: tuple[Row, ...]
    seen: Floats
    """(L, R, len(GROUPS)) visible tokens."""
    mass: Floats
    """(L, H, R, len(GROUPS)) raw attention mass."""
    share: Floats
    """(L, H, R, len(GROUPS)) share of what is not in the sinks; nan for the sinks."""
    lift: Floats
    """(L, H, R, len(GROUPS)) share ÷ uniform share; nan where no token of the group is visible."""
    entropy: Floats
    """(L, H, R) normalised: 0 one key, 1 uniform; without the sinks."""
    effective: Floats
    """(L, H, R) effective tokens; without the sinks."""
    top_mass: Floats
    """(L, H, R) raw mass of the heaviest keys that are no sinks."""
    norm_share: Floats | None
    """Like `share`, weighted by the norms of the values; None where it was not captured."""
    line_lift: Mapping[int, Floats]
    """Line of the bar (or placebo), from 1 → (L, H, R) lift."""
    line_text: Mapping[int, str]
    path: tuple[Row, ...]
    """Rows along the generated tokens."""
    path_share: npt.NDArray[np.float32]
    """(L, P, len(GROUPS)) share of the heads' mean mass, without the sinks."""
    path_entropy: npt.NDArray[np.float32]
    """(L, P) bits, mean over heads; without the sinks."""
    masking: tuple[Masked, ...]
    replay_error: float | None

    def rows_of(self, kind: str) -> tuple[int, ...]:
        """Numbers of the rows of a kind."""
        return tuple(i for i, found in enumerate(self.kinds) if found == kind)


@dataclass(frozen=True, slots=True)
class AttentionData:
    """A finished capture; `cells` in the manifest's order."""

    folder: Path
    manifest: Mapping[str, Any]
    cells: tuple[CellSummary, ...]

    @property
    def top_k(self) -> int | None:
        """How many keys `top_mass` sums over."""
        found = self.manifest.get("top_k")
        return found if isinstance(found, int) else None

    @property
    def model(self) -> str:
        """The model's name."""
        found = self.manifest.get("model")
        name = found.get("name") if isinstance(found, Mapping) else found
        return str(name or "unknown model")

    @property
    def probes(self) -> tuple[str, ...]:
        """The probes that were captured, in order of appearance."""
        return tuple(dict.fromkeys(cell.cell.probe for cell in self.cells))

    def conditions(self, probe: str) -> tuple[str, ...]:
        """The conditions that have cells of a probe, control first, in `arms` order."""
        there = {cell.cell.condition for cell in self.cells if cell.cell.probe == probe}
        return tuple(arm.name for arm in arms(self) if arm.name in there)

    def kinds(self, probe: str) -> tuple[str, ...]:
        """The kinds of rows that a probe's cells have, decision first."""
        there = {kind for cell in self.cells if cell.cell.probe == probe for kind in cell.kinds}
        return tuple(kind for kind in KINDS if kind in there)

    def series(self, probe: str) -> str:
        """The series that a probe's values are taken from: the matched pairs where there are any, else the first."""
        there = [cell.cell.series for cell in self.cells if cell.cell.probe == probe]
        return MATCHED if MATCHED in there or not there else there[0]

    def select(self, condition: str, probe: str) -> tuple[CellSummary, ...]:
        """The cells of a condition and probe in the probe's `series`."""
        series = self.series(probe)
        return tuple(
            cell
            for cell in self.cells
            if cell.cell.condition == condition and cell.cell.probe == probe and cell.cell.series == series
        )

    def pick(self, condition: str, probe: str, kind: str) -> tuple[tuple[CellSummary, int], ...]:
        """(cell, row number) of every row of a kind among the cells of `select`."""
        return tuple((cell, row) for cell in self.select(condition, probe) for row in cell.rows_of(kind))


Of = Callable[[CellSummary, int], npt.NDArray[np.floating[Any]]]
"""What is wanted of a row of a cell, by its number; the same shape for every row."""


def load(folder: Path) -> AttentionData:
    """Read every cell of an attention folder. Raises AttentionError where nothing was captured."""
    manifest = read_manifest(folder)
    cells = tuple(summarise(cell) for cell in read_cells(folder))
    if not cells:
        raise AttentionError(
            f"{folder}: the capture holds no cells; run `tailgauge attention RUN` with other settings"
        )
    return AttentionData(folder, manifest, cells)


def summarise(captured: CellAttention) -> CellSummary:
    """A cell's measures per group, without what is kept per token."""
    seen = measures.grouped(captured, measures.visible(captured, captured.rows))
    shares = measures.group_share(captured)
    norm = captured.norm_mass
    along = captured.path_mass if captured.path_mass.ndim == 3 else captured.path_mass.mean(axis=1)
    line_lift, line_text = _lines(captured)
    return CellSummary(
        cell=captured.cell, layers=captured.layers, heads=captured.heads,
        kinds=tuple(row.kind for row in captured.rows), rows=captured.rows, seen=seen,
        mass=measures.grouped(captured, captured.mass), share=shares,
        lift=measures.lift(shares, seen[:, None], measures.SINK_GROUP),
        entropy=measures.normalised_entropy(captured), effective=measures.effective_tokens(captured),
        top_mass=np.asarray(captured.top_mass, dtype=np.float64),
        norm_share=None if norm is None else measures.share(measures.grouped(captured, norm), measures.SINK_GROUP),
        line_lift=line_lift, line_text=line_text, path=captured.path,
        path_share=_path_share(captured, along),
        path_entropy=np.asarray(captured.path_entropy, dtype=np.float32),
        masking=captured.masking, replay_error=captured.replay_error,
    )  # fmt: skip


def _path_share(captured: CellAttention, along: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if not captured.path or not along.size:
        return np.zeros((len(captured.layers), 0, len(GROUPS)), np.float32)
    return measures.share(measures.grouped(captured, along), measures.SINK_GROUP).astype(np.float32)


def _lines(captured: CellAttention) -> tuple[dict[int, Floats], dict[int, str]]:
    """Lift and text of each line; a line that a region boundary cuts in two is one line."""
    shares = measures.share(captured.mass, measures.sink_columns(captured))
    seen = measures.visible(captured, captured.rows)[:, None]
    rest = seen[..., ~measures.sink_columns(captured)].sum(-1)
    lifts: dict[int, Floats] = {}
    texts: dict[int, str] = {}
    for line in sorted({region.line for region in captured.regions if region.line is not None}):
        columns = [
            i for i, region in enumerate(captured.regions) if region.line == line and region.group == "bar"
        ]
        if not columns:
            continue
        tokens = seen[..., columns].sum(-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            lifts[line] = np.where(tokens > 0, shares[..., columns].sum(-1) / (tokens / rest), np.nan)
        texts[line] = "".join(captured.regions[i].text for i in columns)
    return lifts, texts


def arms(data: AttentionData) -> tuple[Arm, ...]:
    """The captured conditions with their roles: control first, then in the manifest's order (`conditions`, where
    it has them), else in the order of the cells."""
    cells = pd.DataFrame(
        [(cell.cell.condition, cell.cell.bar, cell.cell.placement) for cell in data.cells],
        columns=pd.Index(["condition", "bar", "placement"]),
    )
    there = list(dict.fromkeys(str(name) for name in cells["condition"]))
    listed = data.manifest.get("conditions")
    known = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, Sequence) else []
    named = {entry.get("name") for entry in known}
    entries = [*known, *({"name": name} for name in there if name not in named)]
    found = [arm for arm in arms_of({"conditions": entries}, cells) if arm.name in there]
    return tuple(sorted(found, key=lambda arm: arm.role != "control"))


def cluster_values(
    data: AttentionData, condition: str, probe: str, kind: str, of: Of
) -> tuple[tuple[str, ...], Floats]:
    """(clusters, (C, ...)) a value per cluster: the mean over its sides, each the mean over its cells.

    In the matched series a cluster needs both sides. Clusters in alphabetical order; an empty array (0,) when
    no cell has such a row. nan in any row of a cluster makes the cluster's entry nan.
    """
    return _by_cluster(data.select(condition, probe), kind, of, data.series(probe) == MATCHED)


def paired_values(
    data: AttentionData, first: str, second: str, probe: str, kind: str, of: Of
) -> tuple[tuple[str, ...], Floats, Floats]:
    """(clusters, (C, ...) of `first`, (C, ...) of `second`) from the decision points that both conditions have."""
    there = [
        {(cell.cell.sample_id, cell.cell.epoch) for cell in data.select(name, probe) if kind in cell.kinds}
        for name in (first, second)
    ]
    common = there[0] & there[1]
    both = data.series(probe) == MATCHED
    found = []
    for name in (first, second):
        cells = [
            cell for cell in data.select(name, probe) if (cell.cell.sample_id, cell.cell.epoch) in common
        ]
        found.append(_by_cluster(cells, kind, of, both))
    return found[0][0], found[0][1], found[1][1]


def _by_cluster(
    cells: Sequence[CellSummary], kind: str, of: Of, both_sides: bool
) -> tuple[tuple[str, ...], Floats]:
    sides: dict[str, dict[str, list[Floats]]] = {}
    for cell in cells:
        rows = [np.asarray(of(cell, row), dtype=np.float64) for row in cell.rows_of(kind)]
        if rows:
            side = sides.setdefault(cell.cell.cluster, {}).setdefault(cell.cell.side, [])
            side.append(np.mean(rows, axis=0))
    whole = sorted(name for name, found in sides.items() if not both_sides or set(SIDES) <= set(found))
    values = [np.mean([np.mean(part, axis=0) for part in sides[name].values()], axis=0) for name in whole]
    return tuple(whole), np.array(values, dtype=np.float64)


def over_heads(values: npt.NDArray[np.floating[Any]]) -> Floats:
    """(L, H, ...) → (...): mean over layers and heads, leaving out nan (a head that has all in the sinks, a layer
    whose window does not reach the group); nan where nothing is left."""
    wide = np.asarray(values, dtype=np.float64)
    known = np.isfinite(wide)
    count = known.sum(axis=(0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(known, wide, 0.0).sum(axis=(0, 1)) / np.where(count > 0, count, np.nan))
