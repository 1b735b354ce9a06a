"""A run that is stopped and started again gives what an undisturbed run gives, or says why it cannot."""

import json
import random
import signal
from collections import Counter
from pathlib import Path

import core_cli as cli
import pytest

pytestmark = [pytest.mark.weights, pytest.mark.slow]


def test_killed_at_five_random_points_inside_batches_and_resumed_it_gives_the_undisturbed_run(
    tiny_model: Path, tiny_run: Path, tmp_path: Path
) -> None:
    overrides = (*cli.TINY, f"model.path={tiny_model}")
    sizes = _batch_sizes(tiny_run)
    assert len(sizes) == 5
    draw = random.Random(20261130)
    cut_inside = 0
    for number, size in enumerate(sizes):
        # While some rows of a batch are logged its others are still being computed; the last batch has choices
        # alone, which come at once, so that this kill may also fall between the rows and the tables.
        at = sum(sizes[:number]) + draw.randint(1, min(12, size - 1))
        code, _, there = cli.interrupt(overrides, tmp_path, at, signal.SIGKILL)
        assert code == -signal.SIGKILL and at <= there <= sum(sizes)
        cut_inside += there not in _ends(sizes)
    assert cut_inside >= 2, "the kills are meant to fall inside batches"
    (log,) = tmp_path.glob("results/*/*/samples.jsonl")
    log.write_bytes(log.read_bytes()[:-700])  # and the power went while a row was being written
    run_dir = cli.run(*overrides, cwd=tmp_path)
    _check_same(run_dir, tiny_run)
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert len(manifest["resumed"]) == 5, "every start but the first took the run up again"


def test_ctrl_c_stops_with_130_and_one_line_and_the_same_command_goes_on(
    tiny_model: Path, tiny_run: Path, tmp_path: Path
) -> None:
    overrides = (*cli.TINY, f"model.path={tiny_model}")
    code, stderr, there = cli.interrupt(overrides, tmp_path, 20, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in stderr
    told = [line for line in stderr.splitlines() if line.startswith("tailgauge:")]
    assert len(told) == 1 and stderr.rstrip().splitlines()[-1] == told[0]
    assert "same command" in told[0]
    assert 20 <= there < len(cli.rows(tiny_run / "samples.jsonl"))
    _check_same(cli.run(*overrides, cwd=tmp_path), tiny_run)


def test_resume_refuses_a_changed_scenario_and_names_it(tiny_model: Path, tmp_path: Path) -> None:
    overrides = ("model=local", f"model.path={tiny_model}", *cli.LEAST)
    scenario = cli.scenario_copy(tmp_path)
    run_dir = cli.run(*overrides, cwd=tmp_path)
    before = cli.files(run_dir)
    scenario.write_text(scenario.read_text().replace("customer-service agent.", "customer-support agent.", 1))
    line = cli.refusal(cli.call("run", *overrides, cwd=tmp_path))
    assert "inputs.scenario" in line and str(run_dir.relative_to(tmp_path)) in line
    assert cli.files(run_dir) == before


def test_the_real_model_killed_inside_a_batch_and_resumed(real_run: Path, tmp_path: Path) -> None:
    code, _, there = cli.interrupt(cli.SMALL_REAL, tmp_path, 5, signal.SIGKILL, env=cli.THREADS)
    assert code == -signal.SIGKILL and there < len(cli.rows(real_run / "samples.jsonl"))
    _check_same(cli.run(*cli.SMALL_REAL, cwd=tmp_path, env=cli.THREADS), real_run)


def _check_same(run_dir: Path, undisturbed: Path) -> None:
    got, wanted = cli.lasting(run_dir), cli.lasting(undisturbed)
    assert got.keys() == wanted.keys()
    assert [name for name in wanted if got[name] != wanted[name]] == []
    cells = Counter(row["cell_id"] for row in cli.rows(run_dir / "samples.jsonl"))
    assert set(cells.values()) == {1}, "every cell has one row"
    assert cells.keys() == {row["cell_id"] for row in cli.rows(undisturbed / "samples.jsonl")}


def _batch_sizes(run_dir: Path) -> list[int]:
    counted = Counter(row["batch"] for row in cli.rows(run_dir / "samples.jsonl"))
    return [counted[number] for number in sorted(counted)]


def _ends(sizes: list[int]) -> set[int]:
    return {sum(sizes[:number]) for number in range(len(sizes) + 1)}
