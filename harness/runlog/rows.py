"""Reading and rewriting samples.jsonl: which rows count, in which order, and where a line is broken.

A row counts when it is whole; of several rows of one cell the last counts. Rows are streamed, since
a long run's token ids would not fit in memory as Python integers. Never repairs: that is `log`'s.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.errors import RunLogError
from harness.runlog.codec import record_from_json, record_to_json
from harness.runlog.columns import iterate_parquet
from harness.runlog.files import FolderLock, atomic_file
from harness.types import EvalRecord

NAME = "samples.jsonl"
SAMPLES_NAME = "samples.parquet"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the row that counts for a cell lies."""

    line: int
    offset: int
    batch: int


def failed(record: EvalRecord) -> bool:
    """True for a row that resume tries again: the provider failed, not the model."""
    return record.score.outcome == "provider_error" or record.output.finish_reason == "error"


def parse_row(path: Path, number: int, line: bytes) -> EvalRecord:
    """One line as a record; RunLogError names file and line."""
    try:
        return record_from_json(line.decode("utf-8"))
    except (RunLogError, UnicodeDecodeError) as error:
        raise RunLogError(
            f"{path}:{number}: {error}; restore the line, or delete it to have its cell run again"
        ) from None


def torn(line: bytes) -> bool:
    """True for a last line that was cut: no newline, and not a whole record either."""
    if line.endswith(b"\n"):
        return False
    try:
        record_from_json(line.decode("utf-8"))
    except (RunLogError, UnicodeDecodeError):
        return True
    return False


def index_rows(path: Path) -> dict[str, Place]:
    """Cell id → place of its last row, in the order of those rows; a torn last line is left out."""
    index: dict[str, Place] = {}
    offset = 0
    with open_rows(path) as handle:
        for number, line in enumerate(handle, start=1):
            if torn(line):
                break
            try:
                row = json.loads(line)
                cell, batch = row["cell_id"], row["batch"]
                known = isinstance(cell, str) and isinstance(batch, int)
            except (ValueError, KeyError, TypeError, RecursionError):
                known = False
            if not known:
                cell = (record := parse_row(path, number, line)).cell_id
                batch = record.batch
            index.pop(cell, None)  # so that the dict is ordered by the row that counts
            index[cell] = Place(number, offset, batch)
            offset += len(line)
    return index


def rows_at(path: Path, places: Iterable[Place]) -> Iterator[EvalRecord]:
    """The records at `places`, in that order."""
    with open_rows(path) as handle:
        for place in places:
            handle.seek(place.offset)
            yield parse_row(path, place.line, handle.readline())


def every_row(path: Path) -> Iterator[EvalRecord]:
    """Also the rows of failed requests whose cells were tried again later: they may have been billed."""
    with open_rows(path) as handle:
        for number, line in enumerate(handle, start=1):
            yield parse_row(path, number, line)


def open_rows(path: Path) -> BinaryIO:
    """`path` opened for reading; RunLogError when it cannot be."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise RunLogError(f"{path}: no such file; expected the folder of a run (…/<run_id>)") from None
    except OSError as error:
        raise RunLogError(f"{path}: cannot be read ({error.strerror})") from error


def read_records(run_dir: Path) -> Iterator[EvalRecord]:
    """The run's records, streamed: the last row of every cell, in the order of the log.

    A run that was published without its log is read from samples.parquet (timing is then empty). A torn
    last line is passed over. Raises RunLogError naming file and line for an invalid row.
    """
    path = Path(run_dir) / NAME
    parquet = Path(run_dir) / SAMPLES_NAME
    if not path.exists() and parquet.exists():
        yield from iterate_parquet(parquet)
        return
    yield from rows_at(path, index_rows(path).values())


def write_records(run_dir: Path, records: Iterable[EvalRecord]) -> int:
    """Replaces samples.jsonl atomically by `records`, in their order (re-scoring); returns their number.

    `records` may be a generator over `read_records` of the same run. Raises RunLogError, leaving the old
    file, when the run is being written to, or when the cells are not exactly those of the log: a
    re-score must not lose or invent a row.
    """
    path = Path(run_dir) / NAME
    lock = FolderLock(Path(run_dir))
    try:
        cells: set[str] = set()
        with atomic_file(path, "the old file is kept") as handle:
            for record in records:
                if record.cell_id in cells:
                    raise RunLogError(f"{path}: cell {record.cell_id} was given twice; the old file is kept")
                cells.add(record.cell_id)
                handle.write(record_to_json(record).encode("ascii") + b"\n")
            logged = index_rows(path).keys() if path.exists() else cells
            if cells != logged:
                example = min(cells ^ logged)
                raise RunLogError(
                    f"{path}: the new rows are not the cells of the log (e.g. {example}); the old file is "
                    "kept; read all records of this run and try again"
                )
        return len(cells)
    finally:
        lock.release()
