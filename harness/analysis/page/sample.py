"""Which cells the page embeds: whole decision points with all their arms, drawn so that every kind of cell is there.

Knows the index of cells alone. The draw is fixed: it hangs on the cells' ids and on nothing else.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.analysis.page.cells import POINT, STRATUM, CellIndex

MOST = 500
"""Cells that the page embeds at most."""
NEAR_GROUPS = 24
"""Row groups from which points are taken first, so that a long run need not be read whole."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """`cells`: rows of the index's frame, in its order, with the number of their point in `unit`."""

    cells: pd.DataFrame
    total: int
    points: int
    all_points: int
    strata: int
    all_strata: int
    """Kinds of cell: probe × series × condition × outcome."""

    @property
    def whole(self) -> bool:
        """Whether every cell of the run is there."""
        return len(self.cells) == self.total


def draw(index: CellIndex, most: int = MOST) -> Sampled:
    """At most `most` cells: all of them, or points in rounds, each round one more of every kind of cell."""
    frame = index.frame
    cells = frame.assign(
        unit=frame.groupby(list(POINT), observed=True, sort=False).ngroup(),
        stratum=frame.groupby(list(STRATUM), observed=True, sort=False).ngroup(),
    )
    if len(cells) > most:
        chosen = cells[_rounds(cells, _order(cells, index), most)]
    else:
        chosen = cells
    return Sampled(
        chosen.drop(columns="stratum"), len(cells), int(chosen["unit"].nunique()), int(cells["unit"].nunique()),
        int(chosen["stratum"].nunique()), int(cells["stratum"].nunique()),
    )  # fmt: skip


def _order(cells: pd.DataFrame, index: CellIndex) -> npt.NDArray[np.int64]:
    """Each cell's place in the draw: points in a shuffled order, those of a few row groups first."""
    keys = (
        cells["sample_id"].astype(str) + "|" + cells["probe"].astype(str) + "|" + cells["epoch"].astype(str)
    )
    shuffled = pd.util.hash_pandas_object(keys, index=False).to_numpy()
    groups = index.groups(cells["row"].tolist())
    hashed = pd.util.hash_pandas_object(pd.Series(np.unique(groups)), index=False).to_numpy()
    near = np.unique(groups)[np.argsort(hashed, kind="stable")[:NEAR_GROUPS]]
    far = ~np.isin(groups, near)
    place = np.empty(len(cells), dtype=np.int64)
    place[np.lexsort((np.arange(len(cells)), shuffled, far))] = np.arange(len(cells))
    return place


def _rounds(cells: pd.DataFrame, place: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.bool_]:
    """A mask of the chosen cells. In round r a point is taken for each kind that has r cells so far or fewer."""
    taken = np.zeros(len(cells), dtype=bool)
    units, strata = cells["unit"].to_numpy(), cells["stratum"].to_numpy()
    members = cells.groupby("unit", sort=False).indices
    rank = (
        cells.assign(place=place).groupby("stratum")["place"].rank(method="first").astype("int64").to_numpy()
        - 1
    )
    have = np.zeros(int(strata.max()) + 1, dtype=np.int64)
    for level in range(int(rank.max()) + 1):
        for cell in np.flatnonzero(rank == level)[np.argsort(place[rank == level])]:
            if taken[cell] or have[strata[cell]] > level:
                continue
            whole = np.asarray(members[units[cell]])
            # In the first round room is kept for a cell of each kind that is still missing.
            kept = int((have == 0).sum()) if level == 0 else 0
            fresh = [int(other) for other in whole.tolist() if not taken[other]]
            room = most - int(taken.sum())
            if len(fresh) > max(room - kept, 0):
                if level:
                    return taken
                fresh = [int(cell)] if room else []
            taken[fresh] = True
            np.add.at(have, strata[fresh], 1)
    return taken
