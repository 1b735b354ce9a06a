"""`tailgauge models`: what is embedded, what is cached, and with --probe what could be fetched."""

import argparse

from rich.table import Table

from harness.commands import console
from harness.weights import available


def main(parsed: argparse.Namespace) -> int:
    table = Table("model", "kind", "state", "size", "reachable", "source", "folder")
    for status in available(parsed.probe):
        reachable = {None: "not asked", True: "yes", False: "no"}[status.reachable]
        size = f"{status.size / 1e9:.2f} GB" if status.size else "–"
        where = str(status.path) if status.path else "–"
        table.add_row(status.name, status.kind, status.state, size, reachable, status.source, where)
    console.out.print(table)
    console.out.print(
        "Any other: model=local model.path=/a/folder, or model=local model.hub=owner/name", markup=False
    )
    return 0
