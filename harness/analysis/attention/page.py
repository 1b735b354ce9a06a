"""The interactive page of a capture: folder/attention.html, one file that needs no network and no server.

Reads the captured cells that keep single weights (`store.Browsable`) and packs them beside page/template.html,
page/page.css and page/*.js, by the means of `harness.analysis.html`. Weights and masses travel as they are stored
(half precision, relative error below 0.05 %), keys as whole numbers, both deflated. What a model wrote reaches the
page only as JSON inside a data block and is shown by textContent. Knows files and bytes; what the numbers mean is the
page's business (page/data.js).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from harness.analysis import html
from harness.attention.store import GROUPS, Browsable, CellAttention, CellInfo, Row, read_cells, read_manifest

NAME = "attention.html"
ASSETS = Path(__file__).with_name("page")
SCRIPTS = ("data.js", "text.js", "panels.js", "page.js")


@dataclass(slots=True)
class _Packed:
    """Arrays of one arm, one behind the other: each as planes of its bytes (all lowest bytes first, and so on),
    which deflate better than whole numbers do."""

    sections: list[dict[str, Any]] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)

    def add(self, name: str, values: npt.NDArray[Any]) -> None:
        """Half precision for floats; for whole numbers as many bytes as the largest needs."""
        if values.dtype.kind == "f":
            kind, flat = "half", values.astype("<f2").view("<u2").ravel()
        else:
            kind, flat = "uint", values.astype("<u4").ravel()
        width = 2 if kind == "half" else max(1, (int(flat.max(initial=0)).bit_length() + 7) // 8)
        planes = flat.view(np.uint8).reshape(len(flat), flat.itemsize)[:, :width].T
        self.sections.append({"name": name, "kind": kind, "count": len(flat), "width": width})
        self.parts.append(planes.tobytes())


def build_page(folder: Path) -> Path | None:
    """Writes folder/attention.html from the cells with browsable rows and returns its path.

    None, and no page (an old one is removed), where no cell has any. Equal captures give equal bytes.
    Raises AttentionError when the capture is missing or cannot be read.
    """
    manifest = read_manifest(folder)
    path = folder / NAME
    arms: list[tuple[CellInfo, dict[str, Any]]] = []
    blocks: list[str] = []
    for captured in read_cells(folder):
        kept = captured.browsable
        if kept is not None and len(kept.positions):
            packed = _Packed()
            arms.append((captured.cell, _arm(captured, kept, packed, f"arm-{len(arms)}")))
            data = html.deflated(b"".join(packed.parts))
            blocks.append(f'<script type="application/octet-stream" id="arm-{len(blocks)}">{data}</script>')
    if not arms:
        path.unlink(missing_ok=True)
        return None
    meta = {
        "model": _model(manifest),
        "run": str(manifest.get("run_id") or folder.resolve().parent.name),
        "groups": GROUPS,
        "samples": _samples(arms),
    }
    path.write_text(_html(meta, blocks), encoding="utf-8", newline="\n")
    return path


def _model(manifest: Mapping[str, Any]) -> str:
    model = manifest.get("model")
    name = model.get("name") if isinstance(model, Mapping) else model
    return str(name or "unknown model")


def _arm(captured: CellAttention, kept: Browsable, packed: _Packed, block: str) -> dict[str, Any]:
    """What the page knows of one cell; its arrays go into `packed`."""
    packed.add("key_region", captured.key_region)
    # A head's rows beside each other: neighbours read alike, which deflate makes use of.
    packed.add("keys", kept.keys.transpose(1, 2, 0, 3))
    packed.add("weights", kept.weights.transpose(1, 2, 0, 3))
    rows: list[dict[str, Any]] = []
    heads: list[npt.NDArray[Any]] = []
    means: list[npt.NDArray[Any]] = []
    for position in kept.positions.tolist():
        row, mass = _row(captured, position)
        exact: list[Any] | None = None
        if mass is not None and mass.ndim == 3:
            exact = ["heads", len(heads)]
            heads.append(mass)
        elif mass is not None:
            exact = ["mean", len(means)]
            means.append(mass)
        rows.append({"kind": row.kind, "position": position, "name": row.name, "exact": exact})
    for name, masses in (("mass_heads", heads), ("mass_mean", means)):
        packed.add(name, np.array(masses, dtype=np.float32))
    return {
        "cell": asdict(captured.cell),
        "tokens": captured.tokens,
        "regions": [{"name": region.name, "group": region.group} for region in captured.regions],
        "layers": captured.layers,
        "heads": captured.heads,
        "windows": captured.windows,
        "rows": rows,
        "top": kept.keys.shape[-1],
        "block": block,
        "sections": packed.sections,
    }


def _row(captured: CellAttention, position: int) -> tuple[Row, npt.NDArray[Any] | None]:
    """The row at a position and its masses over the regions where they were captured: (L, H, G), (L, G) where only
    the mean over heads was kept, or None."""
    for i, row in enumerate(captured.rows):
        if row.position == position:
            return row, captured.mass[:, :, i]
    for i, row in enumerate(captured.path):
        if row.position == position:
            return row, captured.path_mass[..., i, :]
    after = captured.tokens[position + 1] if position + 1 < len(captured.tokens) else ""
    return Row("prompt", position, after), None


def _samples(arms: Sequence[tuple[CellInfo, dict[str, Any]]]) -> list[dict[str, Any]]:
    """The arms of each sample, probe and epoch side by side, in the order of the capture."""
    found: dict[str, list[tuple[CellInfo, dict[str, Any]]]] = {}
    for cell, arm in arms:
        found.setdefault(f"{cell.sample_id} · {cell.probe} · epoch {cell.epoch}", []).append((cell, arm))
    return [{"name": name, "arms": _ordered(members)} for name, members in found.items()]


def _ordered(arms: Iterable[tuple[CellInfo, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Control first, then each bar with the placebo of its placement behind it."""
    left = list(arms)
    placements = list(dict.fromkeys(cell.placement for cell, _ in left if cell.bar != "placebo"))

    def rank(item: tuple[CellInfo, dict[str, Any]]) -> tuple[bool, int, bool]:
        cell = item[0]
        place = placements.index(cell.placement) if cell.placement in placements else len(placements)
        return cell.bar != "none", place, cell.bar == "placebo"

    return [arm for _, arm in sorted(left, key=rank)]


def _html(meta: Mapping[str, Any], blocks: Sequence[str]) -> str:
    style = html.assets(ASSETS, ["page.css"])
    script = html.assets(html.SHARED, ["shared.js"]) + html.assets(ASSETS, SCRIPTS)
    parts = {
        "POLICY": html.policy(script, style),
        "STYLE": Markup(style),
        "META": html.script_json(meta),
        "BLOCKS": Markup("\n".join(blocks)),  # made here: base64 and numbers
        "SCRIPT": Markup(script),
    }
    return html.fill(ASSETS / "template.html", parts)
