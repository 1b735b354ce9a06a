"""What a report of 100,000 records costs: tables, figures and page, from a made-up run of real shape.

The run (tests/big_run.py) goes through the run log's own columns: prompts of 1,000 and more token ids, replies, thoughts,
every probe, series and outcome, 2,500 clusters in the matched series. Each measurement is a process of its own, so that
its memory is its own too. The peer reads the same file as one would without a harness: pandas with all its columns,
then the mean of every number per probe, series, condition and side. The report is built twice, which must change
no byte; the faster of the two counts, since this asks what the work costs and not what else the machine does.

Needs the `dev` extra's pandas and no model. Prints one JSON object as its last line.
"""

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CELLS = 100_000
LIMIT_SECONDS = 20.0
LIMIT_MEMORY_MB = 2_000.0
LIMIT_PAGE_MB = 15.0

MAKE = "import big_run, pathlib, sys; big_run.big_run(pathlib.Path(sys.argv[1]))"
REPORT = "import pathlib, sys; from harness.analysis import report; report.build(pathlib.Path(sys.argv[1]))"
PEER = """
import sys
import pandas
cells = pandas.read_parquet(sys.argv[1] + "/samples.parquet")
cells.groupby(["probe", "series", "condition", "side"]).mean(numeric_only=True)
"""


def measure(code: str, folder: Path) -> dict[str, float]:
    """Runs `code` on `folder` in a new process: seconds (wall and processor) and its peak memory, MB (10^6 bytes)."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    begun = perf_counter()
    child = subprocess.Popen([sys.executable, "-c", code, str(folder)], env=environment, cwd=folder)
    _, status, used = os.wait4(child.pid, 0)
    seconds = perf_counter() - begun
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"measuring ended with {child.returncode}: {code}")
    return {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "memory_mb": memory_mb(used)}


def memory_mb(used: resource.struct_rusage) -> float:
    """Peak resident memory of a finished process."""
    return used.ru_maxrss * 1024 / 1e6


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below `folder`, by its path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def bench(folder: Path) -> dict[str, Any]:
    """Makes the run in `folder` where it is missing, reports it twice, and reads it once with the peer."""
    if not (folder / "samples.parquet").is_file():
        measure(MAKE, folder)
    peer = measure(PEER, folder)
    first = measure(REPORT, folder)
    made = digests(folder)
    again = measure(REPORT, folder)
    seconds = min(first["seconds"], again["seconds"])
    page = (folder / "report.html").stat().st_size / 1e6
    memory = max(first["memory_mb"], again["memory_mb"])
    same = made == digests(folder)
    return {
        "name": "report",
        "cells": len_of(folder),
        "run_file_mb": round((folder / "samples.parquet").stat().st_size / 1e6, 1),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(min(first["cpu_seconds"], again["cpu_seconds"]), 2),
        "memory_mb": round(memory),
        "page_mb": round(page, 2),
        "files": len(made),
        "same_bytes_again": same,
        "peer": "pandas.read_parquet of every column, then means per probe, series, condition and side",
        "peer_seconds": round(peer["seconds"], 2),
        "peer_memory_mb": round(peer["memory_mb"]),
        "ratio": round(seconds / peer["seconds"], 2),
        "memory_ratio": round(memory / peer["memory_mb"], 2),
        "limit": {"seconds": LIMIT_SECONDS, "memory_mb": LIMIT_MEMORY_MB, "page_mb": LIMIT_PAGE_MB},
        "ok": same and seconds < LIMIT_SECONDS and memory < LIMIT_MEMORY_MB and page < LIMIT_PAGE_MB,
    }


def len_of(folder: Path) -> int:
    """Rows of the run's samples.parquet."""
    from pyarrow import parquet

    return int(parquet.read_metadata(folder / "samples.parquet").num_rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, help="keep the run here and use it again; else a temporary folder"
    )
    asked = parser.parse_args()
    if asked.folder is not None:
        asked.folder.mkdir(parents=True, exist_ok=True)
        found = bench(asked.folder.resolve())
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = bench(Path(folder))
    print(json.dumps(found))
    return 0 if found["ok"] and found["cells"] >= CELLS else 1


if __name__ == "__main__":
    sys.exit(main())
