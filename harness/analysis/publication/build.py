"""`publish`: from run folders to a kit in its place.

Knows the order of things and where a kit goes by default.
"""

from collections.abc import Sequence
from pathlib import Path

from harness.analysis.attention.arrangement import slug
from harness.analysis.publication.facts import Facts
from harness.analysis.publication.folder import check_own, replaced
from harness.analysis.publication.kit import read, write
from harness.errors import ReportError


def publish(run_dirs: Sequence[Path], out: Path | None = None, incomplete: bool = False) -> Path:
    """Write the kit of these runs and return its folder; `out` None: `publication/<experiment>-<run_id>` here.

    Raises ReportError for a run that cannot be read, is unfinished (unless `incomplete`) or is named twice, and for a
    folder that holds anything but an unchanged kit; RunLogError when the disk refuses. In all these cases the old
    folder stays as it was.
    """
    if not run_dirs:
        raise ReportError("no run was named; name at least one run folder")
    if out is not None:
        check_own(out)  # before minutes are spent on figures
    runs = read(run_dirs, incomplete)
    target = out or Path("publication") / _named(runs)
    with replaced(target) as staging:
        write(runs, staging)
    return target


def _named(runs: Sequence[Facts]) -> str:
    first = slug(f"{runs[0].manifest.get('experiment') or 'run'}-{runs[0].run_id}")
    return first if len(runs) == 1 else f"{first}-and-{len(runs) - 1}-more"
