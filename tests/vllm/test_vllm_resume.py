"""`kill -9` in the middle of a run through vLLM, then the same command: the tables of an undisturbed run."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ENGINE

TABLES = ("choose", "rates", "comparisons", "outcomes")


def command(folder: Path, results: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "harness.cli", "run", "experiment=xfinity_small", "model=qwen3-0.6b-vllm"),
        *(
            f"model.path={folder}",
            "model.dtype=float32",
            "model.thinking=off",
            "model.decoding.temperature=0",
        ),
        *(f"model.engine.{key}={str(value).lower()}" for key, value in ENGINE.items()),
        *("model.batch_clusters=2", f"results={results}"),
    ]


def the_run(results: Path) -> Path:
    (found,) = results.glob("*/*/")
    return found


def lines(results: Path) -> int:
    logs = list(results.glob("*/*/samples.jsonl"))
    return logs[0].read_bytes().count(b"\n") if logs else 0


def numbers(results: Path, table: str) -> list[dict[str, str]]:
    with (the_run(results) / "tables" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_killed_run_goes_on_and_ends_with_the_same_tables(qwen3_folder: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(command(qwen3_folder, whole), check=True, capture_output=True)
    total = lines(whole)
    victim = subprocess.Popen(
        command(qwen3_folder, broken),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + 300
    while lines(broken) < total // 3 and victim.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    left = lines(broken)
    assert left > 0
    if left >= total:
        pytest.skip("the run was over before it could be killed")
    again = subprocess.run(command(qwen3_folder, broken), check=True, capture_output=True, text=True)
    assert "finished earlier" in again.stderr
    assert lines(broken) == total, "finished rows are kept, none is written twice"
    for table in TABLES:
        assert numbers(broken, table) == numbers(whole, table), table
