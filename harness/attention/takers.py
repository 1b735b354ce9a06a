"""What becomes of captured rows: region masses, entropies, token rows, the largest weights, bins.

Knows a cell's rows and regions as arrays; knows no transformer and no file. Everything is reduced as it comes, layer by
layer, so that no array of keys × keys is ever held.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from harness.attention.capture import Rows
from harness.attention.store import Bins, Browsable, Floats, Ints


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows of a sequence are kept, and how."""

    regions: Ints
    """(K,) region of every key."""
    count: int
    """Regions in all."""
    sinks: tuple[int, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    rows: tuple[int, ...]
    path: tuple[int, ...] = ()
    path_heads: bool = False
    """Keep the path's masses of each head; else their mean over the heads."""
    browsable: tuple[int, ...] = ()
    top: int = 10
    """Keys whose mass is summed up as `top_mass`."""
    browsable_top: int = 32
    token_rows: bool = False
    norm_weighted: bool = False

    @property
    def positions(self) -> list[int]:
        """Every wanted row, ascending."""
        return sorted({*self.rows, *self.path, *self.browsable})


class RowTaker:
    """Fills the arrays of one cell; L layers, H heads, R rows, P path rows, G regions, K keys."""

    def __init__(self, wanted: Wanted, device: torch.device) -> None:
        self._wanted = wanted
        self._layer = {layer: i for i, layer in enumerate(wanted.layers)}
        self._heads = torch.tensor(wanted.heads, device=device)
        regions = torch.from_numpy(wanted.regions).to(device)
        self._member = torch.nn.functional.one_hot(regions, wanted.count).float()
        self._free = torch.ones(len(wanted.regions), device=device)
        self._free[list(wanted.sinks)] = 0
        lay, head, row = len(wanted.layers), len(wanted.heads), len(wanted.rows)
        path, browse = len(wanted.path), len(wanted.browsable)
        self.mass: Floats = np.zeros((lay, head, row, wanted.count), np.float32)
        self.entropy: Floats = np.zeros((lay, head, row), np.float32)
        self.entropy_rest: Floats = np.zeros((lay, head, row), np.float32)
        self.top_mass: Floats = np.zeros((lay, head, row), np.float32)
        self.norm_mass: Floats | None = np.zeros_like(self.mass) if wanted.norm_weighted else None
        shape = (lay, head, path, wanted.count) if wanted.path_heads else (lay, path, wanted.count)
        self.path_mass: Floats = np.zeros(shape, np.float32)
        self.path_entropy: Floats = np.zeros((lay, path), np.float32)
        keys = len(wanted.regions)
        self.token_rows: Floats | None = np.zeros((lay, row, keys), np.float32) if wanted.token_rows else None
        self._keys: Ints = np.zeros((browse, lay, head, wanted.browsable_top), np.int64)
        self._weights: Floats = np.zeros(self._keys.shape, np.float32)

    @property
    def browsable(self) -> Browsable | None:
        positions = np.array(self._wanted.browsable, np.int64)
        return Browsable(positions, self._keys, self._weights) if len(positions) else None

    def take(self, rows: Rows) -> None:
        weights = rows.weights.index_select(0, self._heads)
        layer, positions = self._layer[rows.layer], rows.positions.tolist()
        at, slots = _common(positions, self._wanted.rows)
        if at:
            self._take_rows(layer, slots, weights[:, at], rows)
        at, slots = _common(positions, self._wanted.path)
        if at:
            self._take_path(layer, slots, weights[:, at])
        at, slots = _common(positions, self._wanted.browsable)
        if at:
            self._take_browsable(layer, slots, weights[:, at])

    def _take_rows(self, layer: int, slots: list[int], weights: torch.Tensor, rows: Rows) -> None:
        seen = weights.shape[-1]
        member, free = self._member[:seen], self._free[:seen]
        self.mass[layer][:, slots] = (weights @ member).cpu().numpy()
        self.entropy[layer][:, slots] = _bits(weights).cpu().numpy()
        rest = weights * free
        self.entropy_rest[layer][:, slots] = _rest_bits(rest).cpu().numpy()
        top = rest.topk(min(self._wanted.top, seen), dim=-1).values.sum(-1)
        self.top_mass[layer][:, slots] = top.cpu().numpy()
        if self.token_rows is not None:
            self.token_rows[layer, slots, :seen] = weights.mean(0).cpu().numpy()
        if self.norm_mass is not None:
            weighted = weights * _projected_norms(rows, self._heads)[:, None, :]
            weighted = weighted / weighted.sum(-1, keepdim=True)
            self.norm_mass[layer][:, slots] = (weighted @ member).cpu().numpy()

    def _take_path(self, layer: int, slots: list[int], weights: torch.Tensor) -> None:
        seen = weights.shape[-1]
        mass = (weights @ self._member[:seen]).cpu().numpy()
        if self._wanted.path_heads:
            self.path_mass[layer][:, slots] = mass
        else:
            self.path_mass[layer, slots] = mass.mean(0)
        self.path_entropy[layer, slots] = _rest_bits(weights * self._free[:seen]).mean(0).cpu().numpy()

    def _take_browsable(self, layer: int, slots: list[int], weights: torch.Tensor) -> None:
        found = weights.topk(min(self._wanted.browsable_top, weights.shape[-1]), dim=-1)
        keep = found.values.shape[-1]
        self._keys[slots, layer, :, :keep] = found.indices.transpose(0, 1).cpu().numpy()
        self._weights[slots, layer, :, :keep] = found.values.transpose(0, 1).cpu().numpy()


def _common(positions: Sequence[int], wanted: Sequence[int]) -> tuple[list[int], list[int]]:
    """Where `positions` holds something wanted, and which number that has among the wanted."""
    number = {position: i for i, position in enumerate(wanted)}
    at = [i for i, position in enumerate(positions) if position in number]
    return at, [number[positions[i]] for i in at]


def _bits(weights: torch.Tensor) -> torch.Tensor:
    """Entropy of each row in bits; rows need not sum to 1 when what is left out is nothing."""
    nats: torch.Tensor = torch.special.xlogy(weights, weights).sum(-1)
    return nats / -math.log(2)


def _rest_bits(rest: torch.Tensor) -> torch.Tensor:
    """Entropy in bits of what is left of a row, renormalised; 0 where nothing is left."""
    mass = rest.sum(-1)
    safe = mass.clamp_min(1e-30)
    return torch.where(mass > 0, _bits(rest) / safe + torch.log2(safe), torch.zeros_like(mass))


def _projected_norms(rows: Rows, heads: torch.Tensor) -> torch.Tensor:
    """(heads, K) length of each key's value after the head's part of the output projection (Kobayashi et al. 2020:
    how much a key can add, not only how much it is looked at)."""
    projection = rows.module.o_proj.weight.float()  # (hidden, H × d)
    values = rows.values.float()
    size = values.shape[-1]
    group = rows.weights.shape[0] // values.shape[0]
    norms = []
    for head in heads.tolist():
        part = projection[:, head * size : (head + 1) * size]
        own = values[head // group]
        norms.append(((own @ (part.T @ part)) * own).sum(-1).clamp_min(0).sqrt())
    return torch.stack(norms)


class BinTaker:
    """Whole prompts in bins: mean over the rows of a bin and over heads, summed over the keys of a bin."""

    def __init__(
        self, length: int, bins: int, layers: tuple[int, ...], heads: tuple[int, ...], device: torch.device
    ) -> None:
        """`length`: tokens of the sequence; at most `bins` bins a side."""
        self._heads = torch.tensor(heads, device=device)
        edges = np.unique(np.linspace(0, length, min(bins, length) + 1).round().astype(np.int64))
        self._edges = edges
        self._layer = {layer: i for i, layer in enumerate(layers)}
        owner = np.searchsorted(edges, np.arange(length), side="right") - 1
        self._owner = torch.from_numpy(owner)
        self._member = torch.nn.functional.one_hot(self._owner, len(edges) - 1).float().to(device)
        self._mass = np.zeros((len(layers), len(edges) - 1, len(edges) - 1), np.float32)

    def take(self, rows: Rows) -> None:
        seen = rows.weights.shape[-1]
        mass = (rows.weights.index_select(0, self._heads).mean(0) @ self._member[:seen]).cpu().numpy()
        np.add.at(self._mass[self._layer[rows.layer]], self._owner[rows.positions].numpy(), mass)

    @property
    def bins(self) -> Bins:
        """Edges and masses; every row of a bin counts alike."""
        size: Floats = np.diff(self._edges).astype(np.float32)
        return Bins(self._edges, self._edges, self._mass / size[None, :, None])


class Both:
    """Hands the same rows to several takers."""

    def __init__(self, *takers: "RowTaker | BinTaker") -> None:
        self._takers = takers

    def take(self, rows: Rows) -> None:
        for taker in self._takers:
            taker.take(rows)
