"""`tailgauge export RUN --to inspect|mlflow|trackio`: hands a finished run to another program."""

import argparse
from pathlib import Path

from harness.commands import console
from harness.export.base import ExportError, Tracker, require

OPTIONS = {"inspect": ("out",), "mlflow": ("uri", "experiment"), "trackio": ("project",)}
"""Target → its own options; any other is a mistake."""


def main(parsed: argparse.Namespace) -> int:
    """Prints where the run is now."""
    given = {name for names in OPTIONS.values() for name in names if getattr(parsed, name, None) is not None}
    for name in sorted(given - set(OPTIONS[parsed.to])):
        target = next(target for target, names in OPTIONS.items() if name in names)
        raise ExportError(f"--{name} belongs to --to {target}; leave it out with --to {parsed.to}")
    run_dir = Path(parsed.run)
    if parsed.to == "inspect":
        require("inspect_ai", "inspect")
        from harness.export import inspect_log

        path = inspect_log.export(run_dir, Path(parsed.out) if parsed.out else None)
        console.out.print(str(path), markup=False)
        console.note(f"open it with: inspect view --log-dir {path.parent}")
        return 0
    console.out.print(tracker(parsed).log(run_dir), markup=False)
    return 0


def tracker(parsed: argparse.Namespace) -> Tracker:
    """The tracker that the command line names."""
    if parsed.to == "mlflow":
        from harness.export import mlflow

        return mlflow.Tracker(parsed.uri, parsed.experiment)
    from harness.export import trackio

    return trackio.Tracker(parsed.project)
