"""`tailgauge report RUN`: rebuilds tables and figures from the records and captures; changes nothing else."""

import argparse
from pathlib import Path

from harness.attention.store import capture_folders
from harness.commands import attention, console
from harness.commands.run import publish_report


def main(parsed: argparse.Namespace) -> int:
    return rebuild(Path(parsed.run))


def rebuild(run_dir: Path) -> int:
    publish_report(run_dir)
    for folder in capture_folders(run_dir):
        attention.publish(folder)
    console.out.print(str(run_dir), markup=False)
    return 0
