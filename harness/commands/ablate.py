"""`tailgauge ablate`: the main job. Chooses a profile for this machine, says which and why, runs it."""

import argparse
import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from harness.commands import console
from harness.commands.run import execute_all

THINKING_RUNS = (
    ("experiment=xfinity", "probe=[choose_thinking,act_thinking]"),
    ("experiment=xfinity_length", "probe=[choose_length_thinking,act_length_thinking]"),
)


@dataclass(frozen=True, slots=True)
class Profile:
    """What one kind of machine runs, and the reason for it: a list of overrides per run."""

    overrides: tuple[str, ...]
    runs: tuple[tuple[str, ...], ...]
    reason: str


def profile() -> Profile:
    """The profile of this machine: its GPU decides, and whether vLLM is installed beside it."""
    gpus = gpu_names()
    if not gpus:
        return Profile(
            ("model=qwen2.5-coder-1.5b",), ((),), "no GPU is here: the embedded Qwen2.5-Coder-1.5B on the CPU"
        )
    if importlib.util.find_spec("vllm") is None:
        return Profile(
            ("model=qwen3-0.6b", "model.batch_clusters=8"),
            ((),),
            f"{gpus[0]} is here and vLLM is not: Qwen3-0.6B on transformers, not thinking (`make ablate` has vLLM)",
        )
    return Profile(
        ("model=qwen3-0.6b-vllm",), THINKING_RUNS, f"{gpus[0]} is here: Qwen3-0.6B thinking, through vLLM"
    )


def gpu_names() -> list[str]:
    """Names of the GPUs that `nvidia-smi` lists; empty without a working driver. (Asking torch would
    cost seconds and the answer would depend on which build of torch is installed.)"""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        found = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return (
        [line.strip() for line in found.stdout.splitlines() if line.strip()] if found.returncode == 0 else []
    )


def job(chosen: Profile, given: Sequence[str]) -> list[list[str]]:
    """The override lists of the main job. The user's come last and win. A model or probe of the user's own makes
    one run of it, since the profile's runs are cut to its model; an experiment picks its run."""
    own = dict(override.split("=", 1) for override in given if "=" in override)
    runs = chosen.runs
    if "model" in own or "probe" in own:
        runs = ((),)
    elif "experiment" in own:
        runs = tuple(run for run in runs if f"experiment={own['experiment']}" in run) or ((),)
    return [[*chosen.overrides, *run, *given] for run in runs]


def main(parsed: argparse.Namespace) -> int:
    chosen = profile()
    console.note(f"profile: {chosen.reason} ({' '.join(chosen.overrides)})")
    if parsed.overrides:
        console.note(f"overridden by: {' '.join(parsed.overrides)}")
    return execute_all(job(chosen, parsed.overrides))
