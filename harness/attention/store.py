"""The files of a captured run: one .npz per cell with everything in it, and the tables that follow from them.

`<run>/attention/{manifest.json, cells/<digest>.npz, summary.parquet, masking.parquet}`. A cell's file is written
whole or not at all, so that a stopped capture goes on with the cells that have none. Knows arrays and file
formats; knows no model and computes no measure. numpy only: reports and notebooks read it without torch.
"""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from harness.errors import AttentionError
from harness.runlog.files import atomic_file

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
RowKind = Literal["decision", "value", "call", "thinking", "answer", "prompt"]
"""`decision`: predicts the tool's name (probe `choose`), or a free reply's first answer token, where it turns to a call or
to prose. `value`: predicts the first token of the rule's argument that tells the asked-for value from the others
(`choose`). `call`: predicts the tool's name in a free reply that calls one."""
Scope = Literal["later", "decision"]
"""Rows that a mask holds for: `later`: every row behind the masked span. `decision`: only the rows that the
choices' probabilities are read from."""
FORMAT = 1
CELLS, SUFFIX = "cells", ".npz"

GROUPS: tuple[str, ...] = (
    "system", "tools", "user", "assistant", "target_calls", "target_results", "other_calls", "other_results",
    "unruled_calls", "unruled_results", "follow_up", "bar", "template", "forced", "thinking", "answer", "sinks",
)  # fmt: skip
"""Every kind of region. `target_*`: records of calls that the rule counts, made to the value that the follow-up
names; `other_*`: made to another value; `unruled_*`: calls of tools without a rule. `bar` is the bar or the
placebo, `template` what the chat template writes, `forced` the call's opening that probe `choose` prescribes,
`sinks` the positions that soak up attention whatever is asked (they belong to no other group)."""


MASKS = {"records": ("target_calls", "target_results", "other_calls", "other_results")}
"""Masks over several groups."""


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of keys with one name, such as the third call record. Several may share a group."""

    name: str
    group: str
    line: int | None = None
    """The bar's own lines, from 1."""
    text: str = ""
    """What a bar's line says."""


@dataclass(frozen=True, slots=True)
class Row:
    """A captured query: the token at `position`, whose output predicts the token at `position` + 1."""

    kind: RowKind
    position: int
    name: str
    """For labels: what the row predicts."""


@dataclass(frozen=True, slots=True)
class CellInfo:
    """Which cell of the run this is."""

    cell_id: str
    sample_id: str
    cluster: str
    side: str
    condition: str
    bar: str
    placement: str
    probe: str
    series: str
    epoch: int
    target: str
    prior_calls: int
    limit: int
    placebo_id: int | None
    bar_tokens: int


@dataclass(frozen=True, slots=True)
class Masked:
    """Choice probabilities of the cell with one span masked; `mask` "none" is the plain replay."""

    mask: str
    """`none`, a group of GROUPS such as `bar`, or a name of MASKS."""
    scope: Scope
    layers: str
    """`all`, or the numbers that were masked, such as `8-15`."""
    masked_tokens: int
    logprobs: Mapping[str, float]
    """Choice → natural log of its raw probability."""
    p_act: float
    p_act_norm: float
    logit_act: float


@dataclass(frozen=True, slots=True)
class Bins:
    """Mean attention of a bin of rows to a bin of keys, mean over heads; summed over the keys of a bin."""

    row_edges: Ints
    """(B + 1,) positions."""
    key_edges: Ints
    """(C + 1,) positions."""
    mass: Floats
    """(layers, B, C)."""


@dataclass(frozen=True, slots=True)
class Browsable:
    """The largest weights of some rows, for the interactive page."""

    positions: Ints
    """(N,) query positions, ascending."""
    keys: Ints
    """(N, layers, heads, T) key positions, largest weight first."""
    weights: Floats
    """(N, layers, heads, T) raw weights; 0 where fewer than T keys are visible."""


@dataclass(frozen=True, slots=True)
class CellAttention:
    """Everything that was captured of one cell. L layers, H heads, R rows, P path rows, G regions, K keys."""

    cell: CellInfo
    tokens: tuple[str, ...]
    """(K,) the text of each token of the replayed sequence; '' where it only ends a character begun before."""
    regions: tuple[Region, ...]
    key_region: Ints
    """(K,) number of the region that each key belongs to."""
    layers: tuple[int, ...]
    """The model's own numbers of the captured layers."""
    heads: tuple[int, ...]
    windows: tuple[int | None, ...]
    """(L,) sliding window of each layer in tokens; None sees everything before it."""
    rows: tuple[Row, ...]
    mass: Floats
    """(L, H, R, G) raw attention mass; sums to 1 over G."""
    entropy: Floats
    """(L, H, R) bits, over all visible keys."""
    entropy_rest: Floats
    """(L, H, R) bits, over the visible keys that are no sinks, renormalised."""
    top_mass: Floats
    """(L, H, R) raw mass of the `top_k` (manifest) heaviest keys that are no sinks."""
    path: tuple[Row, ...] = ()
    """Rows along the generated tokens."""
    path_mass: Floats = field(default_factory=lambda: np.zeros((0, 0, 0), np.float32))
    """(L, P, G) mean over heads; (L, H, P, G) where the capture kept each head."""
    path_entropy: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """(L, P) mean over heads of the rows' `entropy_rest`, bits."""
    norm_mass: Floats | None = None
    """(L, H, R, G) share of the summed norms of weighted, output-projected values (Kobayashi et al. 2020)."""
    token_rows: Floats | None = None
    """(L, R, K) raw weights, mean over heads."""
    bins: Bins | None = None
    browsable: Browsable | None = None
    masking: tuple[Masked, ...] = ()
    replay_error: float | None = None
    """Largest absolute difference between a recorded and the replayed log-probability of a choice."""


_HALVES = (
    "mass",
    "entropy",
    "entropy_rest",
    "top_mass",
    "path_mass",
    "path_entropy",
    "norm_mass",
    "token_rows",
)
"""Arrays kept in half precision: the error is below a thousandth of the value, or below 6e-8 where that is more."""


def cell_path(folder: Path, cell_id: str) -> Path:
    """Where a cell's file lies in an attention folder."""
    return folder / CELLS / (hashlib.sha256(cell_id.encode()).hexdigest()[:16] + SUFFIX)


def write_cell(folder: Path, captured: CellAttention) -> int:
    """Writes one cell whole; returns the bytes on the disk. RunLogError when the disk refuses."""
    arrays: dict[str, npt.NDArray[Any]] = {"key_region": captured.key_region.astype(np.int16)}
    for name in _HALVES:
        value = getattr(captured, name)
        if value is not None:
            arrays[name] = value.astype(np.float16)
    if captured.bins is not None:
        arrays |= {
            f"bins.{name}": _small(getattr(captured.bins, name))
            for name in ("row_edges", "key_edges", "mass")
        }
    if captured.browsable is not None:
        kept = captured.browsable
        arrays |= {
            f"browsable.{name}": _small(getattr(kept, name)) for name in ("positions", "keys", "weights")
        }
    meta = {
        "format": FORMAT,
        "cell": asdict(captured.cell),
        "tokens": captured.tokens,
        "regions": [asdict(region) for region in captured.regions],
        "layers": captured.layers,
        "heads": captured.heads,
        "windows": captured.windows,
        "rows": [asdict(row) for row in captured.rows],
        "path": [asdict(row) for row in captured.path],
        "masking": [asdict(masked) for masked in captured.masking],
        "replay_error": captured.replay_error,
    }
    packed = np.frombuffer(json.dumps(meta, ensure_ascii=True).encode(), dtype=np.uint8)
    path = cell_path(folder, captured.cell.cell_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, "cells captured before are kept") as handle:
        np.savez_compressed(handle, allow_pickle=False, meta=packed, **arrays)
    return path.stat().st_size


def _small(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if values.dtype.kind == "f":
        return values.astype(np.float16)
    return values.astype(np.uint16 if values.size == 0 or values.max() < 2**16 else np.uint32)


def read_cell(path: Path) -> CellAttention:
    """Raises AttentionError naming the file when it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as packed:
            arrays = {name: packed[name] for name in packed.files}
        meta = json.loads(arrays.pop("meta").tobytes())
        if meta["format"] != FORMAT:
            raise AttentionError(
                f"{path}: format {meta['format']}, this version reads {FORMAT}; capture it again"
            )
        return _cell(meta, arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise AttentionError(
            f"{path}: not a readable capture ({error}); delete the file and give the same command again"
        ) from error


def _cell(meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> CellAttention:
    wide: dict[str, Any] = {
        name: values.astype(np.float32 if values.dtype.kind == "f" else np.int64)
        for name, values in arrays.items()
    }
    bins = {name.removeprefix("bins."): v for name, v in wide.items() if name.startswith("bins.")}
    kept = {name.removeprefix("browsable."): v for name, v in wide.items() if name.startswith("browsable.")}
    plain = {name: values for name, values in wide.items() if "." not in name}
    return CellAttention(
        cell=CellInfo(**meta["cell"]),
        tokens=tuple(meta["tokens"]),
        regions=tuple(Region(**region) for region in meta["regions"]),
        layers=tuple(meta["layers"]),
        heads=tuple(meta["heads"]),
        windows=tuple(meta["windows"]),
        rows=tuple(Row(**row) for row in meta["rows"]),
        path=tuple(Row(**row) for row in meta["path"]),
        masking=tuple(Masked(**masked) for masked in meta["masking"]),
        replay_error=meta["replay_error"],
        bins=Bins(**bins) if bins else None,
        browsable=Browsable(**kept) if kept else None,
        **plain,
    )


def read_cells(folder: Path) -> Iterator[CellAttention]:
    """Every captured cell, in the order of the manifest's list; one at a time, since they are large."""
    return read_cells_of(folder, read_manifest(folder)["cells"])


def read_cells_of(folder: Path, cells: Sequence[str]) -> Iterator[CellAttention]:
    """The captured cells of these ids."""
    for cell_id in cells:
        yield read_cell(cell_path(folder, cell_id))


def capture_folders(run_dir: Path) -> list[Path]:
    """A run's folders with a finished capture, by name."""
    return sorted(path.parent for path in run_dir.glob("*/manifest.json") if (path.parent / CELLS).is_dir())


def read_manifest(folder: Path) -> dict[str, Any]:
    """The attention folder's own manifest. Keys: `cells` (ids, in order), `top_k`, `config`, `budget`, `model`.

    Raises AttentionError when there is none: nothing was captured, or the capture was stopped.
    """
    path = folder / "manifest.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found["cells"], list):
            raise ValueError("`cells` is no list")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AttentionError(
            f"{path}: no finished capture there ({error}); run `tailgauge attention RUN` first"
        ) from error
    return dict(found)
