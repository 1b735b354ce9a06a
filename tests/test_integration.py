"""The main job on the real 0.5B weights, through the console command and through `make ablate`."""

import csv
import datetime
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import core_cli as cli
import pytest

pytestmark = [pytest.mark.weights, pytest.mark.slow]
CELLS = 21


def test_a_run_leaves_records_tables_and_figures(real_run: Path) -> None:
    names = {path.name for path in real_run.iterdir()}
    assert names == {
        "manifest.json",
        "samples.jsonl",
        "samples.parquet",
        "timings.parquet",
        "tokens.parquet",
        "report.html",
        "report.md",
        "tables",
        "figures",
    }
    figures = {path.suffix: set() for path in (real_run / "figures").iterdir()}
    for path in (real_run / "figures").iterdir():
        figures[path.suffix].add(path.stem)
        assert path.stat().st_size > 1000
    assert figures.keys() == {".png", ".svg"} and figures[".png"] == figures[".svg"]
    assert {"both_sides", "prior_calls", "tokens"} <= figures[".png"]
    tables = {path.name for path in (real_run / "tables").iterdir()}
    for name in ("rates", "outcomes", "choose", "comparisons", "tokens", "throughput"):
        assert {f"{name}.csv", f"{name}.md"} <= tables
    assert "tables.md" in tables
    assert len(cli.rows(real_run / "samples.jsonl")) == CELLS


def test_the_records_are_a_real_models(real_run: Path) -> None:
    records = cli.rows(real_run / "samples.jsonl")
    chosen = [row for row in records if row["probe"] == "choose"]
    for row in chosen:
        assert 0.5 < row["score"]["choice_mass"] <= 1.0, "a forced call is mostly one of the choices"
        assert 0.0 < row["score"]["p_act"] < 1.0
    acted = [row for row in records if row["probe"] == "act"]
    assert acted and all(0 < len(row["output"]["token_ids"]) <= 8 for row in acted)
    with (real_run / "tables" / "choose.csv").open() as file:
        by_arm = {row["condition"]: row for row in csv.DictReader(file)}
    assert len(by_arm) == 6
    assert all(math.isfinite(float(row["sensitivity"])) for row in by_arm.values())


def test_the_manifest_says_what_the_run_was(real_run: Path) -> None:
    manifest = json.loads((real_run / "manifest.json").read_text())
    assert manifest["run_id"] == real_run.name
    assert real_run.name == f"qwen2.5-coder-0.5b-{manifest['config_digest']}"
    assert manifest["config"]["seed"] == 7 and manifest["config"]["probe"]["act"]["max_new_tokens"] == 8
    assert manifest["model"]["sha256"] == "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
    assert manifest["inputs"]["weights"] == manifest["model"]["sha256"]
    assert len(manifest["inputs"]["scenario"]) == 64 and len(manifest["inputs"]["template"]) >= 16
    assert {"torch", "transformers", "tokenizers", "numpy"} <= manifest["packages"].keys()
    assert manifest["cpu"]["count"] == os.cpu_count() and manifest["memory_bytes"] > 2**30
    assert manifest["engine"]["device"] in ("cpu", "cuda")
    if (cli.ROOT / ".git").exists():
        revision = f"{manifest['git']['revision']}^{{commit}}"
        known = ["git", "-C", str(cli.ROOT), "rev-parse", "--verify", "--quiet", revision]
        assert subprocess.run(known, capture_output=True, check=False).returncode == 0, revision
        assert isinstance(manifest["git"]["dirty"], bool)
    started, ended = (datetime.datetime.fromisoformat(manifest[key]) for key in ("started", "ended"))
    assert started < ended and started.tzinfo is not None
    assert manifest["cells"] == CELLS == manifest["throughput"]["cells"]
    assert all(isinstance(row["seed"], int) for row in cli.rows(real_run / "samples.jsonl"))


def test_no_byte_of_the_run_holds_a_secret_of_the_environment(real_run: Path) -> None:
    secrets = [value.encode() for value in cli.SECRETS.values()]
    left = cli.files(real_run.parents[2])
    assert len(left) > 20
    assert [name for name, data in left.items() if any(secret in data for secret in secrets)] == []


def test_make_ablate_in_small(weights_05b: Path, tmp_path: Path) -> None:
    """Through make, in its own environment, as the README says."""
    if Path(sys.prefix).resolve() != (cli.ROOT / ".venv").resolve():
        pytest.skip("the tests do not run in the .venv that make makes")
    arguments = " ".join([*cli.SMALL_REAL, f"results={tmp_path}"])
    ended = subprocess.run(
        ["make", "--no-print-directory", "ablate", f"ARGS={arguments}"],
        cwd=cli.ROOT, env={**os.environ, **cli.THREADS}, capture_output=True, text=True, timeout=cli.TIMEOUT, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    run_dir = Path(ended.stdout.rstrip().splitlines()[-1])
    assert run_dir.parent.parent == tmp_path
    assert len(cli.rows(run_dir / "samples.jsonl")) == CELLS
    assert (run_dir / "tables" / "tables.md").is_file() and (run_dir / "figures" / "both_sides.png").is_file()
    assert "profile: " in ended.stderr and "overridden by: " in ended.stderr
