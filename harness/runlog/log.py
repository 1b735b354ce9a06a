"""RunLog: opens or resumes a run folder and appends finished cells to it.

A row reaches the kernel the moment it is appended, so a killed process loses at most the line that it
was writing; a thread syncs to the disk in groups, so that a power cut loses at most 0.2 s of work.
Knows no plan and no model: it only says which cells are finished.
"""

import contextlib
import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.errors import RunLogError
from harness.runlog import manifest as manifests
from harness.runlog.codec import record_to_json
from harness.runlog.files import FolderLock, disk_error, remove_leftovers, sync_folder
from harness.runlog.identity import config_digest, differences, plain_config, tell_differences
from harness.runlog.rows import NAME, failed, open_rows, parse_row, torn
from harness.types import EvalRecord

SYNC_SECONDS = 0.2
_PAUSE = SYNC_SECONDS / 2
"""Wait from the first unsynced row to its sync; the other half is for the sync itself."""
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class RunLog:
    """The open log of one run. Use `RunLog.open`, as a context manager."""

    def __init__(self, run_dir: Path, lock: FolderLock) -> None:
        """For `open`, which holds `lock` and has the manifest in place."""
        self.run_dir = run_dir
        self.path = run_dir / NAME
        self.finished: set[str] = set()
        """Ids of the cells that need no further work (the provider's failures are not among them)."""
        self.repaired_bytes = 0
        """Length of the torn last line that was cut off at opening; 0 when there was none."""
        self._lock = lock
        self._append_lock = threading.Lock()
        self._failure: RunLogError | None = None
        self._failure_told = False
        self._closed = False
        self._unsynced = threading.Event()
        self._stop = threading.Event()
        sound = self._scan()
        self._handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            self._repair(sound)
        except BaseException:
            os.close(self._handle)
            raise
        self._syncer = threading.Thread(target=self._sync_loop, name="runlog-sync", daemon=True)
        self._syncer.start()

    @classmethod
    def open(
        cls, run_dir: Path, manifest: Mapping[str, Any], config: Mapping[str, Any], resume: bool = True
    ) -> Self:
        """Creates the run folder with its manifest, or takes up the run that it holds.

        `config` is the resolved configuration as plain data. `manifest` is what else is known at the start;
        its entry `inputs`, if any (hashes of what the configuration only names: scenarios, weights,
        template), must be unchanged at resume like the configuration. Other entries that changed
        (versions, hardware) are noted in the manifest's list `resumed`.

        Raises RunLogError when another live process holds the folder, when configuration or inputs changed
        (naming the dotted keys), when a row is invalid (naming file and line), when the disk
        refuses, and with `resume=False` when the folder already holds a run.
        """
        run_dir = Path(run_dir)
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            sync_folder(run_dir.parent)
        except OSError as error:
            raise disk_error(run_dir, error, "nothing was written") from error
        lock = FolderLock(run_dir)
        try:
            remove_leftovers(run_dir)
            _prepare(run_dir, manifest, config, resume)
            return cls(run_dir, lock)
        except OSError as error:
            lock.release()
            raise disk_error(run_dir, error, "rows written before are kept") from error
        except BaseException:
            lock.release()
            raise

    # -- opening -----------------------------------------------------------------------------------

    def _scan(self) -> int:
        """Reads every row into `finished`; returns the length of the part that is sound."""
        size = 0
        if not self.path.exists():
            return size
        with open_rows(self.path) as handle:
            for number, line in enumerate(handle, start=1):
                if torn(line):
                    self.repaired_bytes = len(line)
                    break
                self._note(parse_row(self.path, number, line))
                size += len(line)
        return size

    def _repair(self, sound: int) -> None:
        """Cuts a torn last line off, or gives a whole one the newline that it lacks."""
        if self.repaired_bytes:
            os.ftruncate(self._handle, sound)
            os.fsync(self._handle)
        elif sound:
            with open_rows(self.path) as handle:
                handle.seek(sound - 1)
                if handle.read(1) != b"\n":
                    os.write(self._handle, b"\n")
        sync_folder(self.run_dir)

    def _note(self, record: EvalRecord) -> None:
        if failed(record):
            self.finished.discard(record.cell_id)
        else:
            self.finished.add(record.cell_id)

    # -- writing -----------------------------------------------------------------------------------

    def append(self, record: EvalRecord) -> bool:
        """Writes one row at once; False, and nothing written, when its cell is already finished.

        A recomputed batch may thus be appended as a whole: finished rows are kept as they are. Raises
        RunLogError when the disk refuses; the log then ends with the last whole row and takes no more.
        """
        row = record_to_json(record).encode("ascii") + b"\n"
        with self._append_lock:
            self._check_open()
            if record.cell_id in self.finished:
                return False
            self._write(row)
            self._note(record)
        self._unsynced.set()
        return True

    def _check_open(self) -> None:
        if self._failure is not None:
            self._failure_told = True
            raise self._failure
        if self._closed:
            raise ValueError(f"the run log {self.path} is closed")

    def _write(self, row: bytes) -> None:
        # asked anew each time: a counter of our own would be wrong for good after an ill-timed Ctrl-C
        start = os.fstat(self._handle).st_size
        written = 0
        try:
            while written < len(row):
                written += os.write(self._handle, row[written:])
        except OSError as error:
            self._failure = disk_error(self.path, error, self._kept())
            self._failure_told = True
            raise self._failure from error
        finally:
            # a full disk takes half a row, and Ctrl-C can come between two halves
            if written < len(row):
                with contextlib.suppress(OSError):  # otherwise resume cuts it off
                    os.ftruncate(self._handle, start)

    def _kept(self) -> str:
        return f"the rows of {len(self.finished)} finished cells are kept"

    def _sync_loop(self) -> None:
        while True:
            self._unsynced.wait()
            if self._stop.wait(_PAUSE):
                return
            self._unsynced.clear()
            if self._stop.is_set():  # set since the wait: `clear` has swallowed the call to wake up
                return
            self.sync()

    def sync(self) -> None:
        """Brings every row appended so far to the disk. A failure is told by the next append or close."""
        try:
            _fdatasync(self._handle)
        except OSError as error:
            self._failure = disk_error(self.path, error, "the rows synced before are kept")

    def close(self) -> None:
        """Syncs, and lets go of the folder; a second call does nothing.

        Raises RunLogError when a sync failed and no append has said so.
        """
        with self._append_lock:
            if self._closed:
                return
            self._closed = True
        self._stop.set()
        self._unsynced.set()
        self._syncer.join()
        self.sync()
        os.close(self._handle)
        self._lock.release()
        if self._failure is not None and not self._failure_told:
            self._failure_told = True
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failure_told = True  # the error on its way out is the one to tell
        self.close()


def _prepare(run_dir: Path, manifest: Mapping[str, Any], config: Mapping[str, Any], resume: bool) -> None:
    """Writes the manifest of a new run, or holds an old one's against what was given."""
    has_rows = (run_dir / NAME).exists() and (run_dir / NAME).stat().st_size > 0
    has_manifest = (run_dir / manifests.NAME).exists()
    if not has_manifest and not has_rows:
        manifests.write_manifest(
            run_dir,
            {
                "run_id": run_dir.name,
                "config_digest": config_digest(config),
                **manifest,
                "config": plain_config(config),
            },
        )
        return
    if not has_manifest:
        raise RunLogError(
            f"{run_dir}: holds {NAME} but no {manifests.NAME}, so its configuration is unknown; restore the "
            "manifest or use another folder"
        )
    if not resume:
        raise RunLogError(f"{run_dir}: already holds a run; resume it, or start afresh elsewhere (results=…)")
    old = manifests.read_manifest(run_dir)
    given = plain_config(manifest)
    changes = differences(old.get("config"), plain_config(config)) | differences(
        old.get("inputs", {}), given.get("inputs", {}), "inputs"
    )
    if changes:
        raise RunLogError(
            f"{run_dir}: cannot resume, the configuration is not the one that this run was started with: "
            f"{tell_differences(changes)}; go back to the old values, or start afresh elsewhere (results=… or model.name=…)"
        )
    noted = differences({key: old.get(key) for key in given}, given)
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "changed": {key: list(sides) for key, sides in noted.items()},
    }
    manifests.update_manifest(run_dir, resumed=[*old.get("resumed", []), entry])
