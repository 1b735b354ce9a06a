"""All figures of a capture as PNG (300 dpi), SVG and PDF, with deterministic bytes.

Knows which figures there are and what they are called; each is drawn in the module of its subject. A figure that
the capture has no data for is left out.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from harness.analysis.attention import along, forests, heatmaps, masking_figure, prompt_map, token_map
from harness.analysis.attention.arrangement import Trio, slug, trios
from harness.analysis.attention.frames import AttentionData
from harness.analysis.attention.labels import rc
from harness.analysis.drawing import save
from harness.analysis.table import Table

FOLDER = "figures"
FORMATS = ("png", "svg", "pdf")
FIRST_PROBE = "choose"

Tables = Mapping[str, Table]
Draw = Callable[[AttentionData, Tables, Trio, str], Figure | None]

FIGURES: Mapping[str, Draw] = {
    "decision_heatmap": lambda data, _, trio, probe: heatmaps.region_heatmap(data, trio, probe, "decision"),
    "value_heatmap": lambda data, _, trio, probe: heatmaps.region_heatmap(data, trio, probe, "value"),
    "token_heatmap": lambda data, _, trio, probe: token_map.token_heatmap(data, trio, probe),
    "bar_tokens": lambda data, _, trio, probe: token_map.bar_layers(data, trio, probe),
    "along_thinking": lambda data, _, trio, probe: along.along(data, trio, probe),
    "head_map": heatmaps.head_map,
    "differences": lambda _, tables, trio, probe: forests.differences(tables, trio, probe),
    "masking": lambda _, tables, trio, probe: masking_figure.masking(tables, trio, probe),
    "lines": lambda _, tables, trio, probe: forests.lines(tables, trio, probe),
    "prompt_map": lambda data, _, trio, probe: prompt_map.prompt_map(data, trio, probe),
    "prompt_map_thirds": lambda data, _, trio, probe: prompt_map.prompt_map(
        data, trio, probe, by_thirds=True
    ),
}
"""Name → how it is drawn. Files are called after it; a second probe's or bar's have its name at the end."""


def build_figures(data: AttentionData, tables: Tables, folder: Path) -> list[Path]:
    """Draw every figure that the data allow into `folder`/figures; returns the files written, in order."""
    out = folder / FOLDER
    out.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    probes = sorted(data.probes, key=lambda probe: probe != FIRST_PROBE)
    with mpl.rc_context(rc()):
        for number, probe in enumerate(probes):
            for trio in trios(data, probe):
                for name, draw in FIGURES.items():
                    figure = draw(data, tables, trio, probe)
                    if figure is not None:
                        ending = trio.suffix + (f"_{slug(probe)}" if number else "")
                        paths += save(figure, out / f"{name}{ending}", FORMATS)
    return paths
