"""A finished run → an Inspect eval log, `.eval` or `.json`, that `inspect view` opens.

The content of the file is made of Inspect's own classes. The `.eval` archive (one JSON member per sample, then
summaries and header) is written here and not by Inspect's recorder, which keeps a summary of every sample in memory
and compares each new sample with all that it holds: 100,000 cells would take hours. A `.json` log is one document, so
it is held in memory and written by `inspect_ai.log.write_eval_log`. The same run gives the same bytes.
"""

import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from inspect_ai.log import (
    EvalLog,
    EvalPlan,
    EvalPlanStep,
    EvalSample,
    EvalSampleSummary,
    EvalStatus,
    write_eval_log,
)
from inspect_ai.model import ModelUsage
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from harness.analysis.frames import RunData, load
from harness.analysis.tables import build_tables
from harness.export import inspect_header as header
from harness.export.base import ExportError
from harness.export.inspect_sample import SampleMaker
from harness.runlog import read_pieces, read_records, text_of
from harness.runlog.files import atomic_file, disk_error
from harness.runlog.pieces import PIECES_NAME
from harness.types import EvalRecord

SUFFIXES = (".eval", ".json")
JSON_CELLS = 20_000
"""Most cells that are written as one JSON document; a viewer has to read it whole."""


def export(run_dir: Path, out: Path | None = None) -> Path:
    """Writes the run in `run_dir` as `out` (default: run_dir/inspect.eval) and returns its path.

    Raises ReportError or RunLogError for a run that is not finished or not readable, ExportError for a name of
    another format, a run without tokens.parquet, or one too large for JSON.
    """
    out = out or run_dir / "inspect.eval"
    run = load(run_dir)
    if out.suffix not in SUFFIXES:
        raise ExportError(f"{out}: Inspect's logs end in .eval or .json; name such a file with --out")
    if out.suffix == ".json" and len(run.cells) > JSON_CELLS:
        raise ExportError(
            f"{out}: {len(run.cells)} cells are too many for one JSON document (at most {JSON_CELLS}); name a file "
            "that ends in .eval"
        )
    first = next(read_records(run_dir), None)
    pieces = read_pieces(run_dir)
    if first and first.prompt_ids and not pieces:
        raise ExportError(
            f"{run_dir / PIECES_NAME}: no such file; prompts are recorded as token ids and are read through it; give "
            "the command that made the run again, which writes it anew"
        )
    maker = SampleMaker(pieces, header.engine_and_name(run.manifest), _passed(run), _seconds(run))
    usage: dict[str, ModelUsage] = {}
    samples = _counted((maker.sample(record) for record in read_records(run_dir)), usage)
    log = _log(run, first, text_of(_tools(first), pieces) if first else "")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(out, error, "nothing was written") from error
    if out.suffix == ".eval":
        _write_archive(out, log, samples, usage)
    else:
        log.samples = list(samples)
        log.stats.model_usage = usage
        _write_document(out, log)
    return out


def _log(run: RunData, first: EvalRecord | None, tools: str) -> EvalLog:
    """The log without its samples and usage."""
    whole = len(run.cells) == run.manifest.get("cells", len(run.cells))
    status: EvalStatus = "success" if whole else "cancelled"
    return EvalLog(
        version=2,
        status=status,
        eval=header.spec(run, first.decoding if first else None, len(run.cells), tools),
        plan=EvalPlan(steps=[EvalPlanStep(solver="generate")]),
        results=header.results(run, build_tables(run)),
        stats=header.stats(run.manifest),
    )


def _tools(record: EvalRecord) -> tuple[int, ...]:
    """The token ids that offer the tools, whose schemas are in no other place of a record."""
    return next((record.prompt_ids[s.start : s.end] for s in record.spans if s.region == "tools"), ())


def _passed(run: RunData) -> dict[str, bool]:
    """Whether each cell did right: a forbidden call kept back, a due one made, a right number told."""
    cells = run.cells[~run.cells["excluded"]]
    acts, asks = cells[cells["probe"] == "act"], cells[cells["probe"] == "ask"]
    kept = acts[acts["side"] == "forbidden"]
    due = acts[acts["side"] == "due"]
    told = asks[asks["right"].notna()]
    return {
        **dict(zip(kept["cell_id"], kept["complied"].astype(bool), strict=True)),
        **dict(zip(due["cell_id"], ~due["refused"].astype(bool), strict=True)),
        **dict(zip(told["cell_id"], told["right"] > 0, strict=True)),
    }


def _seconds(run: RunData) -> dict[str, float]:
    """Durations of requests that ran alone; those of a batch are no latency."""
    alone = run.timings[(run.timings["measure"] == "latency") & run.timings["total"].notna()]
    return dict(zip(alone["cell_id"], alone["total"].astype(float), strict=True))


def _counted(samples: Iterable[EvalSample], usage: dict[str, ModelUsage]) -> Iterator[EvalSample]:
    """Hands samples on and sums their usage into `usage`."""
    for sample in samples:
        for model, used in sample.model_usage.items():
            usage[model] = usage[model] + used if model in usage else used
        yield sample


# -- files -------------------------------------------------------------------------------------------------


def _write_archive(
    out: Path, log: EvalLog, samples: Iterable[EvalSample], usage: dict[str, ModelUsage]
) -> None:
    """Streams samples into a zip; their summaries wait in a temporary file, since they come after all of them."""
    start = {"version": log.version, "eval": log.eval, "plan": log.plan}
    with (
        atomic_file(out, "nothing was written") as handle,
        tempfile.TemporaryFile() as summaries,
        zipfile.ZipFile(handle, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive,
    ):
        _add(archive, "_journal/start.json", _json(start))
        before = b"["
        for sample in samples:
            _add(archive, f"samples/{sample.id}_epoch_{sample.epoch}.json", _json(sample))
            summaries.write(before + _json(_summary(sample)))
            before = b","
        summaries.write(b"]" if before == b"," else b"[]")
        _copy(archive, "summaries.json", summaries)
        log.stats.model_usage = usage
        _add(archive, "header.json", _json(log))


def _summary(sample: EvalSample) -> EvalSampleSummary:
    """What a viewer lists a sample by. As input it has the question alone: the whole conversation, which begins alike in
    every cell, would fill the list of a large run."""
    summary = sample.summary()
    if isinstance(sample.input, list):
        asked = [m.text for m in sample.input if "follow_up" in (m.metadata or {}).get("regions", ())]
        summary.input = asked[-1] if asked else ""
    return summary


def _write_document(out: Path, log: EvalLog) -> None:
    temporary = out.with_name(f".{out.stem}.tmp.json")
    try:
        write_eval_log(log, str(temporary))
        with atomic_file(out, "nothing was written") as handle:
            handle.write(temporary.read_bytes())
    except OSError as error:
        raise disk_error(out, error, "nothing was written") from error
    finally:
        temporary.unlink(missing_ok=True)


def _member(name: str) -> zipfile.ZipInfo:
    """A member without a date of its own (the earliest that zip knows)."""
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(_member(name), content)


def _copy(archive: zipfile.ZipFile, name: str, source: IO[bytes]) -> None:
    source.seek(0)
    with archive.open(_member(name), "w", force_zip64=True) as target:
        while chunk := source.read(1 << 20):
            target.write(chunk)


def _json(value: BaseModel | dict[str, object]) -> bytes:
    """Without nulls, as Inspect writes its members; half a surrogate pair becomes its escape."""
    try:
        return to_json(value, exclude_none=True)
    except PydanticSerializationError:
        return to_json(_sound(value), exclude_none=True)


def _sound(value: object) -> object:
    if isinstance(value, BaseModel):
        return _sound(value.model_dump(exclude_none=True))
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _sound(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sound(inner) for inner in value]
    return value
