"""Positions that soak up attention whatever is asked.

Softmax must put its weight somewhere; models learn to leave what is left over on a few early tokens whose values are
nearly zero. Those tokens, not only the first, would dwarf every region, so they are found once on the prefix that all
arms share and stand apart in all of them. Knows captured rows; knows no record.
"""

from collections.abc import Sequence

import torch

from harness.attention.capture import Rows

MASS_OVER_UNIFORM = 3.0
"""A sink gets at least this many times what even attention would give it."""
NORM_OVER_MEDIAN = 0.4
"""A sink's value vector is shorter than this share of the median key's."""


class SinkFinder:
    """Takes every row of the shared prefix. Both marks are needed: much attention alone is also what a heavily read
    rule would get, and a short value alone is harmless."""

    def __init__(self, length: int, windows: Sequence[int | None]) -> None:
        """`length`: tokens of the prefix; `windows`: sliding window of each layer, None where it sees everything."""
        self._length = length
        self._windows = windows
        self._received: list[torch.Tensor] = []
        self._layers: dict[int, int] = {}
        self._norms: dict[int, torch.Tensor] = {}

    def take(self, rows: Rows) -> None:
        slot = self._layers.setdefault(rows.layer, len(self._layers))
        heads, _, seen = rows.weights.shape
        if slot == len(self._received):
            self._received.append(torch.zeros(heads, self._length, dtype=torch.float64))
        self._received[slot][:, :seen] += rows.weights.sum(1).double().cpu()
        # The last block of a layer sees the whole prefix.
        self._norms[rows.layer] = rows.values.float().norm(dim=-1).cpu()

    def found(self) -> tuple[int, ...]:
        """Positions, ascending; none where nothing was taken."""
        if not self._received or self._length < 2:
            return ()
        even = torch.stack([self._even(self._windows[layer]) for layer in self._layers])
        mass = (torch.stack(self._received) / even[:, None]).mean(dim=(0, 1))
        norms = torch.stack([self._norms[layer] for layer in self._layers])[..., : self._length]
        relative = norms / norms.median(dim=-1, keepdim=True).values
        short = relative.flatten(0, 1).median(dim=0).values < NORM_OVER_MEDIAN
        return tuple(int(i) for i in torch.nonzero((mass >= MASS_OVER_UNIFORM) & short).flatten())

    def _even(self, window: int | None) -> torch.Tensor:
        """(K,) what each key would get of rows that spread themselves evenly over what they see."""
        row = torch.arange(self._length)
        seen = row[None, :] <= row[:, None]
        if window is not None:
            seen &= row[:, None] - row[None, :] < window
        return (seen.double() / seen.sum(1, keepdim=True)).sum(0)
