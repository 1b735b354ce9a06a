"""`tailgauge report RUN`: rebuilds tables and figures from the records; changes nothing else."""

import argparse
from pathlib import Path

from harness.commands import console
from harness.commands.run import publish_report


def main(parsed: argparse.Namespace) -> int:
    return rebuild(Path(parsed.run))


def rebuild(run_dir: Path) -> int:
    publish_report(run_dir)
    console.out.print(str(run_dir), markup=False)
    return 0
