"""`tailgauge ablate`: the main job. Chooses a profile for this machine, says which and why, runs it."""

import argparse
import shutil
import subprocess
from dataclasses import dataclass

from harness.commands import console
from harness.commands.run import execute
from harness.compose import compose


@dataclass(frozen=True, slots=True)
class Profile:
    """Overrides for one kind of machine and the reason for them."""

    overrides: tuple[str, ...]
    reason: str


def profile() -> Profile:
    """The profile of this machine: its GPU decides."""
    gpus = gpu_names()
    if gpus:
        return Profile(
            ("model=qwen3-0.6b", "model.batch_clusters=8"), f"{gpus[0]} is here: Qwen3-0.6B on the GPU"
        )
    return Profile(
        ("model=qwen2.5-coder-1.5b",), "no GPU is here: the embedded Qwen2.5-Coder-1.5B on the CPU"
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


def main(parsed: argparse.Namespace) -> int:
    """The user's overrides come last and win."""
    chosen = profile()
    console.note(f"profile: {chosen.reason} ({' '.join(chosen.overrides)})")
    if parsed.overrides:
        console.note(f"overridden by: {' '.join(parsed.overrides)}")
    folder = execute(compose([*chosen.overrides, *parsed.overrides]))
    console.out.print(str(folder), markup=False)
    return 0
