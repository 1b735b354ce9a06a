"""samples.jsonl as parquet files and as `datasets.Dataset`.

samples.parquet holds no time, so that two runs of one configuration give the same bytes (with the same
pyarrow); times live in timings.parquet. pyarrow and datasets are imported when needed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from harness.errors import RunLogError
from harness.runlog.columns import batches, iterate_parquet, schema_of
from harness.runlog.files import atomic_file
from harness.runlog.rows import NAME, SAMPLES_NAME, index_rows, read_records, rows_at
from harness.types import EvalRecord, Sample, Timing

TIMINGS_NAME = "timings.parquet"


def finalize(
    run_dir: Path,
    cell_order: Sequence[str] | None = None,
    measure: str = "throughput",
    cache_state: str = "unknown",
) -> Path:
    """Writes samples.parquet and timings.parquet from samples.jsonl; returns the former's path.

    Rows are in plan order: by batch, then by `cell_order` (all cell ids of the plan; without it, by cell
    id). `measure` and `cache_state` fill the columns of those names in timings.parquet; a timing that
    knows its own cache state keeps that. When no row has a time (a log rebuilt from a published
    samples.parquet) an existing timings.parquet stays.

    Raises RunLogError for an invalid row, for a cell that `cell_order` lacks, or when the disk refuses.
    """
    run_dir = Path(run_dir)
    path = run_dir / NAME
    index = index_rows(path)
    places = {cell: place for place, cell in enumerate(cell_order or sorted(index))}
    stray = index.keys() - places.keys()
    if stray:
        raise RunLogError(
            f"{path}: cell {min(stray)} is not in the run's plan; was the log of another run put here?"
        )
    ordered = sorted(index, key=lambda cell: (index[cell].batch, places[cell]))
    timings: list[tuple[str, Timing]] = []

    def rows() -> Iterator[EvalRecord]:
        for record in rows_at(path, (index[cell] for cell in ordered)):
            timings.append((record.cell_id, record.output.timing))
            yield record

    _write_parquet(run_dir / SAMPLES_NAME, batches(rows(), EvalRecord), schema_of(EvalRecord))
    if any(timing.started_at for _, timing in timings) or not (run_dir / TIMINGS_NAME).exists():
        batch = _timing_batch(timings, measure, cache_state)
        _write_parquet(run_dir / TIMINGS_NAME, [batch], batch.schema)
    return run_dir / SAMPLES_NAME


def records_from_parquet(path: Path) -> list[EvalRecord]:
    """The records of a samples.parquet, as they were but for their times, which are empty.

    Raises RunLogError naming the file, and the row and column where one is wrong.
    """
    return list(iterate_parquet(path))


def published_order(run_dir: Path) -> list[str] | None:
    """The cell ids of samples.parquet in its order, which is the plan's; None where there is no such file."""
    import pyarrow.parquet as pq

    path = Path(run_dir) / SAMPLES_NAME
    return pq.read_table(path, columns=["cell_id"])["cell_id"].to_pylist() if path.is_file() else None


def load_dataset(run_dir: Path) -> Any:
    """The run's records as a `datasets.Dataset` with the columns of samples.parquet, in log order; of a
    published run, which has no log, in that file's order."""
    return _dataset(read_records(Path(run_dir)), EvalRecord)


def samples_dataset(samples: Iterable[Sample]) -> Any:
    """Samples as a `datasets.Dataset`: messages, tools and rules as lists of structs, mappings as JSON."""
    return _dataset(samples, Sample)


def _timing_batch(timings: Sequence[tuple[str, Timing]], measure: str, cache_state: str) -> Any:
    import pyarrow as pa

    names = [part.name for part in fields(Timing) if part.name != "cache"]
    arrays = [
        pa.array([cell for cell, _ in timings], pa.string()),
        pa.array([measure] * len(timings), pa.string()),
        pa.array([timing.cache or cache_state for _, timing in timings], pa.string()),
    ]
    for name in names:
        kind = pa.string() if name == "started_at" else pa.float64()
        arrays.append(pa.array([getattr(timing, name) for _, timing in timings], kind))
    return pa.record_batch(arrays, names=["cell_id", "measure", "cache_state", *names])


def _write_parquet(path: Path, parts: Iterable[Any], schema: Any) -> None:
    import pyarrow.parquet as pq

    with (
        atomic_file(path, f"{NAME} is whole") as handle,
        pq.ParquetWriter(handle, schema, compression="zstd") as writer,
    ):
        for batch in parts:
            writer.write_batch(batch)


def _dataset(items: Iterable[Any], kind: type) -> Any:
    import datasets
    import pyarrow as pa

    table = pa.Table.from_batches(batches(items, kind), schema=schema_of(kind))
    return datasets.Dataset(datasets.table.InMemoryTable(table))
