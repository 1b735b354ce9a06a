"""`tailgauge doctor`: what this machine has and lacks, what `make ablate` would do, and what a chat template
does to bars."""

import argparse
import importlib.util
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.table import Table

from harness.commands import console
from harness.commands.ablate import gpu_names, job, profile
from harness.commands.build import local_folder
from harness.compose import compose, options
from harness.config import RunConfig
from harness.errors import TemplateError
from harness.models.api.keys import known_variables
from harness.paths import cache_dir, search_dirs
from harness.template import ChatTemplate
from harness.template_check import check_template
from harness.weights import available, load_tokenizer

_PACKAGES = ("torch", "transformers", "hydra-core", "datasets", "pandas", "pyarrow", "scipy", "statsmodels")


def main(parsed: argparse.Namespace) -> int:
    chosen = profile()
    config = compose(job(chosen, parsed.overrides)[0])
    _machine()
    _choices()
    folder = local_folder(config.model)
    reason = f"overridden, {config.model.name}" if parsed.overrides else chosen.reason
    _main_job(config, reason, folder)
    template = Path(parsed.template) if parsed.template else folder
    if parsed.template and not Path(parsed.template).is_dir():
        raise TemplateError(
            f"--template {parsed.template}: no such folder; expected one with a tokenizer in it"
        )
    if template is None:
        console.out.print("\nchat template: not checked, no tokenizer is on this machine yet")
        return 0
    return _template(template, config)


def _machine() -> None:
    table = Table(title="this machine", show_header=False, title_justify="left")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cache = cache_dir()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    table.add_row("python", platform.python_version())
    table.add_row("processor", f"{os.cpu_count()} cores, {memory:.0f} GiB memory")
    table.add_row("GPU", ", ".join(gpu_names()) or "none")
    table.add_row("packages", ", ".join(_package(name) for name in _PACKAGES))
    table.add_row("API keys", ", ".join(_keys()))
    table.add_row("vllm", "installed" if importlib.util.find_spec("vllm") else "not installed")
    table.add_row("cache", f"{cache} ({shutil.disk_usage(existing).free / 2**30:.0f} GiB free)")
    for name in ("conf", "scenarios"):
        table.add_row(name, ", then ".join(str(folder) for folder in search_dirs(name)))
    console.out.print(table)


def _keys() -> list[str]:
    """Whose key is in the environment; never the key."""
    return [f"{name} {'set' if found else 'not set'}" for name, found in known_variables()]


def _package(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} MISSING"


def _choices() -> None:
    table = Table(title="choices of each group", show_header=False, title_justify="left")
    for group, names in options().items():
        table.add_row(group, ", ".join(names))
    console.out.print(table)


def _main_job(config: RunConfig, reason: str, folder: Path | None) -> None:
    console.out.print(f"\n`make ablate` here: {reason}.", markup=False)
    known = {status.name: status for status in available()}
    name = config.model.embedded or config.model.hub or ""
    status = known.get(name)
    if folder:
        console.out.print(f"weights: ready in {folder}", markup=False)
    elif status:
        console.out.print(
            f"weights: {status.state}; fetched and converted on first use ({status.source})", markup=False
        )
    else:
        console.out.print(f"weights: {name or config.model.path} is fetched on first use", markup=False)


def _template(folder: Path, config: RunConfig) -> int:
    template = ChatTemplate(load_tokenizer(folder), config.model.thinking, config.model.keep_reasoning)
    table = Table(
        "question", "answer", "what it means here", title=f"chat template of {folder}", title_justify="left"
    )
    for finding in check_template(template):
        table.add_row(finding.question, finding.answer, finding.meaning)
    console.out.print(table)
    return 0
