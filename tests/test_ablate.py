"""What `make ablate` runs on which machine, and what the user's own overrides change of it."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.commands import ablate
from harness.compose import compose


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU and vLLM."""
    real = importlib.util.find_spec
    monkeypatch.setattr(ablate, "gpu_names", lambda: ["some GPU"])
    monkeypatch.setattr(
        ablate.importlib.util, "find_spec", lambda name: object() if name == "vllm" else real(name)
    )


def jobs(*given: str) -> list[tuple[str, str, tuple[str, ...]]]:
    configs = [compose(overrides) for overrides in ablate.job(ablate.profile(), given)]
    return [(config.experiment, config.model.name, tuple(sorted(config.probe))) for config in configs]


def test_without_a_gpu_the_main_job_is_the_embedded_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate, "gpu_names", list)
    assert jobs() == [("xfinity", "qwen2.5-coder-1.5b", ("act", "choose"))]
    assert jobs("model=qwen2.5-coder-0.5b", "experiment=xfinity_small")[0][:2] == (
        "xfinity_small",
        "qwen2.5-coder-0.5b",
    )


@pytest.mark.usefixtures("gpu")
def test_with_a_gpu_both_experiments_run_on_qwen3_thinking() -> None:
    assert jobs() == [
        ("xfinity", "qwen3-0.6b-vllm", ("act", "choose")),
        ("xfinity_length", "qwen3-0.6b-vllm", ("act", "choose")),
    ]
    for overrides in ablate.job(ablate.profile(), ()):
        config = compose(overrides)
        assert config.model.thinking == "native" and config.probe["choose"].thoughts == 4
        assert {probe.max_new_tokens for probe in config.probe.values()} == {1024}, "τ is one and the same"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("experiment", ["xfinity", "xfinity_length"])
def test_an_experiment_of_the_users_picks_its_run(experiment: str) -> None:
    assert [name for name, _, _ in jobs(f"experiment={experiment}")] == [experiment]


@pytest.mark.usefixtures("gpu")
def test_a_model_or_a_seed_of_the_users_wins() -> None:
    assert jobs("model=qwen2.5-coder-0.5b") == [("xfinity", "qwen2.5-coder-0.5b", ("act", "choose"))]
    for overrides in ablate.job(ablate.profile(), ["seed=11"]):
        assert compose(overrides).seed == 11


def test_with_a_gpu_and_no_vllm_the_job_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate, "gpu_names", lambda: ["some GPU"])
    monkeypatch.setattr(ablate.importlib.util, "find_spec", lambda name: None)
    assert "vLLM is not" in ablate.profile().reason
    assert jobs() == [("xfinity", "qwen3-0.6b", ("act", "choose"))]


@pytest.mark.usefixtures("gpu")
def test_doctor_works_on_a_machine_with_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import argparse

    from harness.commands import doctor

    monkeypatch.setattr(doctor, "gpu_names", lambda: ["some GPU"])
    assert doctor.main(argparse.Namespace(overrides=[], template=None)) == 0
    assert "qwen3-0.6b-vllm" in capsys.readouterr().out


@pytest.mark.parametrize(("code", "wanted", "started"), [(0, 0, 2), (2, 2, 1), (-9, 137, 1)])
def test_runs_through_vllm_each_have_a_process_of_their_own(
    monkeypatch: pytest.MonkeyPatch, code: int, wanted: int, started: int
) -> None:
    """An engine gives its memory back when its process ends."""
    from harness.commands import run

    seen: list[list[str]] = []

    def child(command: list[str]) -> int:
        seen.append(command)
        return code

    monkeypatch.setattr(run, "_child", child)
    sweep = [["model=qwen2.5-coder-0.5b-vllm", f"seed={seed}"] for seed in (1, 2)]
    assert run.execute_all(sweep) == wanted
    assert [command[-2:] for command in seen] == sweep[:started]


def test_a_sweep_with_a_mistake_in_its_last_run_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.commands import run
    from harness.errors import ConfigError

    monkeypatch.setattr(run, "_child", lambda command: pytest.fail("a run was started"))
    with pytest.raises(ConfigError):
        run.execute_all([["model=qwen2.5-coder-0.5b-vllm"], ["model=qwen2.5-coder-0.5b-vllm", "sead=2"]])


HEARS = "import signal, sys, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A job in the background is born deaf to Ctrl-C."""
CHILD = f"""{HEARS}
try:
    print("up", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    print("noted", flush=True)
    raise SystemExit(7)
"""
PARENT = f"""{HEARS}
from harness.commands.run import _child
sys.exit(_child([sys.executable, sys.argv[1]]))
"""


def test_ctrl_c_waits_for_the_run_to_note_what_it_did(tmp_path: Path) -> None:
    """A terminal sends it to both; the parent must not kill the child that is putting its things away."""
    program = tmp_path / "child.py"
    program.write_text(CHILD)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(program)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        assert job.stdout is not None and job.stdout.readline() == "up\n"
        os.killpg(job.pid, signal.SIGINT)
        assert job.stdout.readline() == "noted\n"
        assert job.wait(20) == 7
