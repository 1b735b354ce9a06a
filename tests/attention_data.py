"""Made-up captures with a known truth: which heads read the bar, and by how much."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from harness.attention.store import (
    GROUPS,
    Bins,
    Browsable,
    CellAttention,
    CellInfo,
    Masked,
    Region,
    Row,
    write_cell,
)

LINES = (
    "<agent_status>",
    "Current State:",
    "- Tool calls: 'phone_call' called 5 times (Xfinity: 3 times)",
    "- Constraint: Xfinity: maximum reached (3/3)",
    "</agent_status>",
)
CONDITIONS: Mapping[str, tuple[str, str]] = {
    "control": ("none", "none"),
    "placebo": ("placebo", "tail"),
    "agent_status": ("agent_status", "tail"),
}
LAYOUT: tuple[tuple[str, str, int], ...] = (
    ("template", "template", 3), ("system", "system", 40), ("template", "template", 5), ("tools", "tools", 60),
    ("template", "template", 5), ("user", "user 1", 12), ("template", "template", 4),
    ("target_calls", "call:phone_call:Xfinity 1", 14), ("template", "template", 4),
    ("target_results", "result:phone_call:Xfinity 1", 10), ("template", "template", 4),
    ("other_calls", "call:phone_call:Norte Café 北 1", 14), ("template", "template", 4),
    ("other_results", "result:phone_call:Norte Café 北 1", 10), ("template", "template", 4),
    ("unruled_calls", "call:web_search 1", 12), ("template", "template", 4),
    ("unruled_results", "result:web_search 1", 9), ("template", "template", 4),
    ("target_calls", "call:phone_call:Xfinity 2", 14), ("template", "template", 4),
    ("target_results", "result:phone_call:Xfinity 2", 10), ("template", "template", 4),
    ("assistant", "assistant 1", 10), ("template", "template", 4), ("follow_up", "follow_up", 15),
    ("template", "template", 4),
)  # fmt: skip
READERS = ((2, 1), (3, 0))
"""(layer, head) of the heads that read the bar's content in `agent_status`, not in the placebo."""
SINK_POSITIONS = (0, 1)


def make_cell(
    cluster: int,
    side: str,
    condition: str,
    *,
    effect: float = 1.0,
    layers: int = 4,
    heads: int = 3,
    thinking: int = 12,
    padding: int = 0,
    browsable: bool = False,
    seed: int = 0,
) -> CellAttention:
    """`effect`: how much more logit-like weight READERS give the bar; `padding`: extra tool tokens, for length."""
    rng = np.random.default_rng([seed, cluster, side == "due", list(CONDITIONS).index(condition)])
    bar, placement = CONDITIONS[condition]
    regions: list[Region] = []
    names: dict[str, int] = {}
    keys: list[int] = []
    tokens: list[str] = []

    def add(group: str, name: str, size: int, line: int | None = None, text: str = "") -> None:
        if name not in names:
            names[name] = len(regions)
            regions.append(Region(name, group, line, text))
        keys.extend([names[name]] * size)
        words = (text or f"{name} said $x_1$ <b>&amp;</b> and\n 北京 went on").split(" ")
        tokens.extend((" " if i else "") + words[i % len(words)] for i in range(size))

    for group, name, size in LAYOUT:
        add(group, name, size + (padding if group == "tools" else 0))
    if bar != "none":
        for i, text in enumerate(LINES, start=1):
            add("bar", f"bar {i}", 8, i, text)
        add("template", "template", 3)
    add("forced", "forced", 4)
    add("thinking", "thinking", thinking)
    add("answer", "answer", 6)
    regions.append(Region("sinks", "sinks"))
    for position in SINK_POSITIONS:
        keys[position] = len(regions) - 1
    key_region = np.array(keys)
    end = len(keys)
    decision, value = end - 7, end - 3
    rows = (Row("decision", decision, "phone_call"), Row("value", value, "Xfinity"))
    path = tuple(
        Row("thinking", end - 7 - thinking + i, tokens[end - 6 - thinking + i]) for i in range(thinking)
    )

    def weights(row: Row, layer: int, head: int) -> np.ndarray:
        logits = rng.normal(0, 0.5, end)
        logits[list(SINK_POSITIONS)] += 5
        if condition == "agent_status" and (layer, head) in READERS:
            for index, region in enumerate(regions):
                if region.group == "bar":
                    logits[key_region == index] += effect * (2.0 if region.line == 4 else 1.0)
        logits[row.position + 1 :] = -np.inf
        found = np.exp(logits - logits.max())
        return np.asarray(found / found.sum())

    shape = (layers, heads, len(rows))
    every = np.array([[[weights(row, i, j) for row in rows] for j in range(heads)] for i in range(layers)])
    onehot = np.eye(len(regions))[key_region]
    sink = np.isin(key_region, [len(regions) - 1])
    rest = every * ~sink
    rest_mass = rest.sum(-1, keepdims=True)
    along = np.array([[weights(row, i, 0) for row in path] for i in range(layers)]).reshape(
        layers, len(path), end
    )
    kept = _browsable(rng, end, layers, heads) if browsable else None
    return CellAttention(
        cell=CellInfo(
            cell_id=f"xfinity/matched/c{cluster:03d}/{side}|{condition}|choose|0",
            sample_id=f"xfinity/matched/c{cluster:03d}/{side}",
            cluster=f"xfinity/matched/c{cluster:03d}", side=side, condition=condition, bar=bar, placement=placement,
            probe="choose", series="matched", epoch=0, target="Xfinity", prior_calls=2, limit=3,
            placebo_id=1 if bar == "placebo" else None, bar_tokens=43 if bar != "none" else 0,
        ),
        tokens=tuple(tokens), regions=tuple(regions), key_region=key_region, layers=tuple(range(layers)),
        heads=tuple(range(heads)), windows=(None,) * layers, rows=rows,
        mass=(every @ onehot).astype(np.float32), entropy=_bits(every).astype(np.float32),
        entropy_rest=_bits(rest / rest_mass).astype(np.float32),
        top_mass=np.sort(rest, axis=-1)[..., -10:].sum(-1).reshape(shape).astype(np.float32),
        path=path, path_mass=(along @ onehot).astype(np.float32), path_entropy=_bits(along).astype(np.float32),
        token_rows=every.mean(1).astype(np.float32), bins=_bins(rng, end, layers), browsable=kept,
        masking=_masking(rng, side, condition), replay_error=2e-6,
    )  # fmt: skip


def _bits(weights: np.ndarray) -> np.ndarray:
    return np.asarray(-(weights * np.log2(np.where(weights > 0, weights, 1))).sum(-1))


def _bins(rng: np.random.Generator, end: int, layers: int) -> Bins:
    edges = np.unique(np.linspace(0, end, 33).astype(np.int64))
    n = len(edges) - 1
    mass = np.tril(rng.gamma(0.5, 1, (layers, n, n))) + np.eye(n) * 0.1
    return Bins(edges, edges, (mass / mass.sum(-1, keepdims=True)).astype(np.float32))


def _browsable(rng: np.random.Generator, end: int, layers: int, heads: int) -> Browsable:
    positions = np.arange(max(1, end - 60), end)
    keys = np.stack(
        [
            np.stack(
                [
                    np.stack([rng.choice(p + 1, 12, replace=False) for _ in range(heads)])
                    for _ in range(layers)
                ]
            )
            for p in positions
        ]
    )
    weights = np.sort(rng.dirichlet(np.full(12, 0.3), keys.shape[:-1]) * 0.9, axis=-1)[..., ::-1]
    return Browsable(positions, keys, weights.astype(np.float32))


def _masking(rng: np.random.Generator, side: str, condition: str) -> tuple[Masked, ...]:
    base = (1.0 if side == "due" else 0.0) if condition == "agent_status" else 0.2
    found = []
    for mask in ("none", "bar", "target_calls"):
        if mask == "bar" and condition == "control":
            continue
        for scope in ("later", "decision") if mask != "none" else ("later",):
            lost = 0.0 if mask == "none" else 0.8 if mask == "bar" and condition == "agent_status" else 0.1
            logit = base - (lost if side == "due" else 0) + rng.normal(0, 0.1)
            p = 1 / (1 + np.exp(-logit))
            logprobs = {"phone_call:Xfinity": float(np.log(p * 0.9)), "reply": float(np.log((1 - p) * 0.9))}
            found.append(
                Masked(mask, scope, "all", 0 if mask == "none" else 40, logprobs, p * 0.9, p, float(logit))
            )
    return tuple(found)


def make_folder(
    folder: Path, clusters: int = 8, conditions: Sequence[str] = tuple(CONDITIONS), **options: object
) -> Path:
    """An attention folder as `tailgauge attention` leaves it, without its parquet tables."""
    import json

    names, size = [], 0
    for cluster in range(clusters):
        for side in ("forbidden", "due"):
            for condition in conditions:
                cell = make_cell(cluster, side, condition, browsable=cluster == 0, **options)  # type: ignore[arg-type]
                size += write_cell(folder, cell)
                names.append(cell.cell.cell_id)
    manifest = {
        "format": 1, "cells": names, "top_k": 10, "model": "made-up-0.1b", "config": {"seed": 7},
        "groups": list(GROUPS), "budget": {"bytes": size, "bytes_per_cell": size // max(1, len(names))},
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder
