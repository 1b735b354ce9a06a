"""Masses → shares, lifts, normalised entropies. Pure numpy; knows no file and no model.

Attention sums to 1, so a bar takes from everything else whatever it says: shares leave the sinks out, and a
lift holds a share against the number of tokens that could have got it. Compare a bar with its placebo.
"""

import numpy as np
import numpy.typing as npt

from harness.attention.store import GROUPS, CellAttention, Floats, Row

Floats64 = npt.NDArray[np.float64]


def visible(captured: CellAttention, rows: tuple[Row, ...]) -> Floats64:
    """(L, rows, G) keys of each region that each row can see: causal, and within the layer's window."""
    count = np.zeros((len(captured.layers), len(rows), len(captured.regions)))
    for i, window in enumerate(captured.windows):
        for j, row in enumerate(rows):
            first = 0 if window is None else max(0, row.position + 1 - window)
            seen = captured.key_region[first : row.position + 1]
            count[i, j] = np.bincount(seen, minlength=len(captured.regions))
    return count


def grouped(captured: CellAttention, values: Floats | Floats64) -> Floats64:
    """(…, G) values of regions summed over each group of GROUPS, shape (…, len(GROUPS))."""
    member = np.zeros((len(captured.regions), len(GROUPS)))
    for i, region in enumerate(captured.regions):
        member[i, GROUPS.index(region.group)] = 1
    return np.asarray(values, dtype=np.float64) @ member


def share(mass: Floats | Floats64, sinks: npt.NDArray[np.bool_]) -> Floats64:
    """(…, G) raw mass → share of what is not in the sinks; nan for the sinks themselves and for a row that has
    everything in them. `sinks` (G,): which columns are sinks."""
    mass = np.asarray(mass, dtype=np.float64)
    rest = mass[..., ~sinks].sum(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(rest > 0, mass / rest, np.nan)
    return np.where(sinks, np.nan, found)


def lift(shares: Floats64, seen: Floats64, sinks: npt.NDArray[np.bool_]) -> Floats64:
    """Share ÷ (region's visible tokens ÷ visible tokens that are no sinks); 1 is uniform, nan where no token of
    the region is visible. `seen` must broadcast against `shares` (…, G)."""
    rest = seen[..., ~sinks].sum(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(seen > 0, shares / (seen / rest), np.nan)


def sink_columns(captured: CellAttention) -> npt.NDArray[np.bool_]:
    """(G,) which regions are sinks."""
    return np.array([region.group == "sinks" for region in captured.regions])


SINK_GROUP = np.array([group == "sinks" for group in GROUPS])


def group_share(captured: CellAttention) -> Floats64:
    """(L, H, R, len(GROUPS)) sink-excluded shares of the rows, per group."""
    return share(grouped(captured, captured.mass), SINK_GROUP)


def normalised_entropy(captured: CellAttention) -> Floats64:
    """(L, H, R) `entropy_rest` ÷ log2(visible keys that are no sinks): 0 one key, 1 uniform."""
    seen = visible(captured, captured.rows)[..., ~sink_columns(captured)].sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.asarray(captured.entropy_rest, dtype=np.float64) / np.log2(seen)[:, None]
    return np.where(seen[:, None] > 1, found, np.nan)


def effective_tokens(captured: CellAttention) -> Floats64:
    """(L, H, R) 2 to the power of `entropy_rest`: as many keys, evenly weighted, would be as spread out."""
    return np.exp2(np.asarray(captured.entropy_rest, dtype=np.float64))
