"""`tailgauge report RUN`: rebuilds tables, figures, report.html and report.md from the records, and what belongs to
captures; changes nothing else."""

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
    console.note(f"the whole report in one file: {run_dir / 'report.html'}")
    console.out.print(str(run_dir), markup=False)
    return 0
