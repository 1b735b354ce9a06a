"""`tailgauge score RUN`: parses and scores recorded replies anew, then rebuilds tables and figures."""

import argparse
from collections import Counter
from pathlib import Path

from harness.commands import console
from harness.commands.report import rebuild
from harness.errors import RunLogError
from harness.runlog import (
    finalize,
    provenance,
    published_order,
    read_manifest,
    read_records,
    records_from_parquet,
    update_manifest,
    write_records,
)
from harness.runner import rescore
from harness.scorers import score_record
from harness.types import EvalRecord


def main(parsed: argparse.Namespace) -> int:
    run_dir = Path(parsed.run)
    old = _records(run_dir)
    new = rescore(old, score_record)
    changed = Counter(
        f"{a.score.outcome} → {b.score.outcome}" for a, b in zip(old, new, strict=True) if a.score != b.score
    )
    measure = str(read_manifest(run_dir).get("measure", "throughput"))
    # The log is in the order in which cells ended; the published file keeps the plan's.
    order = published_order(run_dir) or [record.cell_id for record in new]
    write_records(run_dir, new)
    now = provenance()
    update_manifest(run_dir, scored={"harness": now["harness"], "git": now["git"]})
    finalize(run_dir, order, measure, "cold" if measure == "latency" else "shared")
    console.note(f"{len(new)} cells scored, {sum(changed.values())} changed")
    for what, count in sorted(changed.items()):
        console.note(f"  {what}: {count}")
    return rebuild(run_dir)


def _records(run_dir: Path) -> list[EvalRecord]:
    """From the log; a published run has only its parquet form."""
    if (run_dir / "samples.jsonl").is_file():
        return list(read_records(run_dir))
    if (run_dir / "samples.parquet").is_file():
        return records_from_parquet(run_dir / "samples.parquet")
    raise RunLogError(f"{run_dir}: neither samples.jsonl nor samples.parquet is there; name a run folder")
