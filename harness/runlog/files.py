"""The disk side of the run log: atomic replacement, the folder's lock, and errors said in one line.

Knows paths and bytes, nothing of records or configurations.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from harness.errors import RunLogError

LOCK_NAME = ".lock"
_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file has reached the size limit (ulimit -f, or the file system's own)",
}


def disk_error(path: Path, error: OSError, kept: str) -> RunLogError:
    """One line for a failed write: the path, what happened, what is kept, how to go on."""
    cause = _FULL.get(error.errno or 0)
    if cause is None:
        return RunLogError(
            f"{path}: cannot be written ({error.strerror or error}); {kept}; mend it, then give the same "
            "command again to go on"
        )
    return RunLogError(
        f"{path}: {cause}, {_free(path)} free; {kept}; make room, then give the same command again to go on"
    )


def _free(path: Path) -> str:
    folder = next((place for place in path.absolute().parents if place.is_dir()), Path("/"))
    free = shutil.disk_usage(folder).free
    return f"{free / 2**20:.1f} MiB" if free < 2**30 else f"{free / 2**30:.1f} GiB"


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` (a new or replaced file) survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_file(path: Path, kept: str = "the old file is kept") -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` once it is whole and synced, or not at all.

    Raises RunLogError when the disk refuses; `kept` says in that line what is safe.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise disk_error(path, error, kept) from error
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Deletes temporary files of writers that were killed; call it with the lock held."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


class FolderLock:
    """An advisory lock on a run folder, held by at most one process that is alive.

    The kernel lets go of `flock` when its holder dies, however it dies: a file left behind blocks nobody.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self._handle = self._take()
        # the number only serves the other process's message: on a full disk the lock holds without it
        with contextlib.suppress(OSError):
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def _take(self) -> int:
        while True:
            try:
                handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise disk_error(self._path, error, "nothing was changed") from error
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(handle):
                    return handle
                os.close(handle)  # its holder removed the file while we waited at the door
            except BlockingIOError:
                holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
                os.close(handle)
                raise RunLogError(
                    f"{self._path.parent}: another process{f' (pid {holder})' if holder else ''} is writing "
                    "to this run; wait for it or stop it, then give the same command again"
                ) from None
            except OSError as error:
                os.close(handle)
                raise RunLogError(
                    f"{self._path}: the file system cannot lock files ({error.strerror}); put "
                    "results on a local disk"
                ) from error

    def _is_current(self, handle: int) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(handle))

    def release(self) -> None:
        """Lets go; a second call does nothing."""
        if self._handle < 0:
            return
        with contextlib.suppress(OSError):  # e.g. the folder was deleted under us: closing is what counts
            self._path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = -1
