"""The kit's folder on disk: written beside its place and moved there whole, and never anybody else's files.

Knows paths, hashes and the kit's manifest.json, which lists what a kit wrote; knows nothing of what is in the files.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import ReportError
from harness.runlog.files import FolderLock, disk_error, sync_folder

MANIFEST = "manifest.json"
MADE_BY = "tailgauge publish"
_SHOWN = 3
"""Foreign files that a refusal names."""


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """An empty folder that takes the place of `target` once its content is whole, or not at all.

    Raises ReportError where `target` holds anything that no kit wrote, and RunLogError where another process
    publishes to the same place or the disk refuses. A kit that a killed process had put aside is put back.
    """
    target = target.absolute()
    staging, aside = (target.with_name(f".{target.name}.{end}") for end in ("publishing", "before"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir(exist_ok=True)
    except OSError as error:
        raise disk_error(target, error, "nothing was changed") from error
    lock = FolderLock(staging)
    try:
        _settle(target, aside)
        check_own(target)
        _empty(staging)
        yield staging
        check_own(target)
        lock.release()
        _swap(staging, target, aside)
    except OSError as error:
        raise disk_error(target, error, "what was published before is kept") from error
    finally:
        lock.release()
        shutil.rmtree(staging, ignore_errors=True)


def _settle(target: Path, aside: Path) -> None:
    """What a process that was killed between two renames left: the old kit goes back, or away if the new one is there."""
    if aside.exists():
        if target.exists():
            shutil.rmtree(aside)
        else:
            os.rename(aside, target)


def _empty(staging: Path) -> None:
    """Leftovers of a process that was killed while it wrote here; the lock is ours."""
    for path in staging.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()


def _swap(staging: Path, target: Path, aside: Path) -> None:
    """Two renames; between them the old kit stands aside under a name that `_settle` knows."""
    if target.exists():
        os.rename(target, aside)
    try:
        os.rename(staging, target)
    except OSError:
        if aside.exists():
            os.rename(aside, target)
        raise
    sync_folder(target.parent)
    with contextlib.suppress(OSError):  # the new kit is in place; leftovers go next time
        shutil.rmtree(aside, ignore_errors=True)


def check_own(target: Path) -> None:
    """Raises ReportError unless `target` is absent, empty, or holds a kit's files alone, each as it was written."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ReportError(f"{target}: not a folder; name another one with --out")
    present = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}
    if not present:
        return
    written = _written(target / MANIFEST)
    own = {MANIFEST, *written} if written else set()
    foreign = sorted(present - own)
    if foreign:
        raise ReportError(
            f"{target}: holds files that `tailgauge publish` did not write ({_named(foreign)}); nothing was changed: "
            "move them away, or name another folder with --out"
        )
    changed = sorted(path for path in present & written.keys() if digest(target / path) != written[path])
    if changed:
        raise ReportError(
            f"{target}: files were changed since they were published ({_named(changed)}); nothing was changed: move "
            "them away, or name another folder with --out"
        )


def _written(manifest: Path) -> dict[str, str]:
    """Path → SHA-256 of what the kit there wrote; empty where the manifest is not a kit's."""
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        if found["made_by"] != MADE_BY:
            return {}
        return {str(path): str(entry["sha256"]) for path, entry in found["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def json_text(value: Any) -> str:
    """JSON as the kit writes it."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"
