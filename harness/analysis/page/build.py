"""report.html and report.md of a run folder, each one file; equal data give equal bytes.

Puts content, cells and assets together. report.html needs no network: style and script lie in it and are allowed by
their hash, figures are embedded, and what a model wrote is inside a packed data block that the script shows as text.
"""

import base64
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from harness.analysis import html
from harness.analysis.frames import RunData
from harness.analysis.page import lines, looks
from harness.analysis.page.content import MAIN_TABLES, Content, Picture, gather
from harness.analysis.page.embed import embed_run
from harness.analysis.page.markdown import markdown
from harness.runlog.files import atomic_file

PAGE, TEXT = "report.html", "report.md"
DOTS = 2
"""Of a figure per CSS pixel: 1.6 times its printed size, whose 7 points are too small for a screen."""


def write_report(run: RunData, tables: lines.Tables, figures: Sequence[Path]) -> tuple[Path, Path]:
    """Writes RUN/report.html and RUN/report.md and returns their paths.

    Raises ReportError or RunLogError when a file of the run cannot be read or the disk refuses.
    """
    content = gather(run, tables, figures)
    made = {PAGE: page(content, run.path), TEXT: markdown(content)}
    for name, text in made.items():
        with atomic_file(run.path / name) as handle:
            handle.write(text.encode("utf-8", "backslashreplace"))
    return run.path / PAGE, run.path / TEXT


def page(content: Content, run_dir: Path) -> str:
    """The text of report.html."""
    script, styles = looks.script("embedded.js"), looks.style()
    cells = embed_run(run_dir)
    blocks = {block.name: block for block in content.blocks}
    parts: dict[str, Any] = {
        "policy": html.policy(script, styles, "img-src data:"),
        "style": Markup(styles),
        "script": Markup(script),
        "meta": looks.meta(content.conditions),
        "data": Markup(cells.data),
        "embedded": cells.told,
        "browser": looks.browser(),
        "title": content.title,
        "run_id": content.run_id,
        "basis": content.basis,
        "below": content.below,
        "sentences": content.sentences,
        "answers": lines.answers(content.lines),
        "confirmatory": [line for line in content.lines if line.confirmatory],
        "exploratory": [line for line in content.lines if not line.confirmatory],
        "figures": [_figure(picture) for picture in content.pictures],
        "main_tables": [blocks[name] for name in MAIN_TABLES if name in blocks and blocks[name].body],
        "tables": content.blocks,
        "threats": content.audit.threats,
        "grave": [threat for threat in content.audit.threats if threat.grave],
        "clear": content.audit.clear,
        "manifest": content.manifest,
        "manifest_json": content.manifest_json,
        "width": lines.WIDTH,
        "height": lines.HEIGHT,
    }
    return html.fill(looks.ASSETS / "template.html", parts)


def _figure(picture: Picture) -> dict[str, Any]:
    data = picture.path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])  # of a PNG's header
    return {
        "id": f"figure-{picture.path.stem}",
        "main": picture.main,
        "title": picture.title,
        "text": picture.text,
        "alt": f"{picture.title}: {picture.text}",
        "source": "data:image/png;base64," + base64.b64encode(data).decode(),
        "width": round(width / DOTS),
        "height": round(height / DOTS),
    }
