"""`max_time` and `max_spend` of a run: what earlier sessions used, and what is missing where a run stopped.

Reads the run folder and the configuration for `harness.budget`, which does the counting.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from time import perf_counter
from typing import Any

from harness.budget import Limits, Meter, Stop, held_seconds
from harness.config import RunConfig
from harness.preflight import Preflight
from harness.runlog import RunLog, read_manifest
from harness.runlog.manifest import write_manifest
from harness.runlog.rows import every_row


def start_meter(config: RunConfig, log: RunLog) -> Meter | None:
    """A meter that knows what the run's earlier sessions used; None for a run without limits."""
    if config.max_time is None and config.max_spend is None:
        return None
    sessions: Sequence[Mapping[str, Any]] = read_manifest(log.run_dir).get("sessions", [])
    seconds, cells = (sum(float(each[key]) for each in sessions) for key in ("seconds", "cells"))
    pace = seconds / cells if cells else None
    limits = Limits(config.max_time, config.max_spend, config.model.price)
    if config.max_spend is None:
        return Meter(limits, perf_counter, earlier_pace=pace)
    records = list(every_row(log.path))
    spans = [(_at(str(each["started"])), _at(str(each["ended"]))) for each in sessions]
    rows = [_at(record.output.timing.started_at) for record in records]
    meter = Meter(limits, perf_counter, held_seconds(spans, rows, pace), pace)
    for record in records:
        meter.add_earlier(record)
    return meter


def _at(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def note_stop(log: RunLog, preflight: Preflight, stop: Stop | None) -> str | None:
    """Writes into the manifest that the run stopped, or takes it out again; returns what to tell the user: why, what
    is missing and how to go on. None where the run was not stopped."""
    manifest = read_manifest(log.run_dir)
    if stop is None:
        if manifest.pop("stopped", None) is not None:
            write_manifest(log.run_dir, manifest)
        return None
    done, cells = len(log.finished), len(preflight.cell_order)
    left = missing(preflight, log.finished)
    stopped = {"reason": stop.reason, "said": stop.said, "done": done, "cells": cells, "missing": left}
    write_manifest(log.run_dir, manifest | {"stopped": stopped})
    parts = ", ".join(
        f"{part['probe']}/{part['series']} {_count(part['cells'], 'cell')} of {_count(part['clusters'], 'cluster')}"
        for part in left
    )
    return f"stopped: {stop.said}. {done} of {cells} cells are done; missing: {parts}. {_go_on(stop)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _go_on(stop: Stop) -> str:
    if stop.reason == "sequential":
        return "No more is needed; to compute the rest all the same, run without `sequential` (another run folder)"
    if stop.reason == "spend_unknown":
        return "The same command without max_spend goes on from here"
    return f"The same command with a larger {stop.reason} goes on from here"


def missing(preflight: Preflight, finished: set[str]) -> list[dict[str, Any]]:
    """Unfinished cells and the clusters that they lie in, per probe and series, in plan order."""
    found: dict[tuple[str, str], tuple[list[str], set[str]]] = {}
    for ready in (ready for batch in preflight.batches for ready in batch.cells):
        if ready.request.cell_id not in finished:
            cells, clusters = found.setdefault((ready.cell.probe, ready.cell.sample.series), ([], set()))
            cells.append(ready.request.cell_id)
            clusters.add(ready.cell.sample.cluster)
    return [
        {"probe": probe, "series": series, "cells": len(cells), "clusters": len(clusters)}
        for (probe, series), (cells, clusters) in found.items()
    ]
