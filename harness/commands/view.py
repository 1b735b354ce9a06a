"""`tailgauge view RUN`: all cells of a run on a local page, until Ctrl-C."""

import argparse
import contextlib
import os
import sys
import webbrowser
from pathlib import Path

from harness.analysis.page.server import Cells, Server
from harness.commands import console


def main(parsed: argparse.Namespace) -> int:
    with Server(Cells(Path(parsed.run)), parsed.port) as server:
        console.out.print(server.address, markup=False)
        console.note(f"{len(server.cells.index):,} cells of {parsed.run}; Ctrl-C ends it")
        if not parsed.no_browser and _has_screen():
            webbrowser.open(server.address)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _has_screen() -> bool:
    """Without a screen the browser would be one of the terminal, which takes it over."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
