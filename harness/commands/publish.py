"""`tailgauge publish RUN…`: figures, tables, captions and a methods paragraph for a paper, in one folder."""

import argparse
from pathlib import Path

from harness.commands import console


def main(parsed: argparse.Namespace) -> int:
    from harness.analysis.publication.build import publish  # pandas and matplotlib; only now

    runs = [Path(run) for run in parsed.runs]
    console.note(
        f"drawing figures and tables of {len(runs)} run{'s' if len(runs) > 1 else ''}; a capture takes about a minute"
    )
    folder = publish(runs, Path(parsed.out) if parsed.out else None, parsed.incomplete)
    console.out.print(str(folder), markup=False)
    return 0
