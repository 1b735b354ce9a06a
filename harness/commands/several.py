"""An experiment with several models: a run for each that can be had here, then the comparison of all.

Knows which models are to be had (keys, clients, weights) and which run folders belong together; the comparison itself
is harness/analysis/across.
"""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.commands import console
from harness.commands.build import weights_spec
from harness.compose import compose
from harness.config import ModelsConfig, RunConfig
from harness.errors import ConfigError, TailgaugeError
from harness.runlog import run_folder
from harness.weights import resolve

_VLLM = "harness.models.vllm_engine."
ExecuteEach = Callable[[Sequence[Sequence[str]], Sequence[RunConfig]], int]
"""Runs configurations that were checked, given the overrides that each comes from; an exit code."""


@dataclass(frozen=True, slots=True)
class Part:
    """One model of the experiment with the runs of all passes."""

    choice: str
    runs: tuple[tuple[list[str], RunConfig], ...]

    @property
    def name(self) -> str:
        return self.runs[0][1].model.name

    @property
    def folders(self) -> list[Path]:
        return [run_folder(Path(c.results), c.experiment, c.model.name, c.digested()) for _, c in self.runs]


def execute_several(overrides: Sequence[str], config: RunConfig, execute_each: ExecuteEach) -> int:
    """Runs every model that is to be had, by `execute_each`, and compares them; those that are not are skipped by name.
    All are checked before the first one costs anything. Returns an exit code."""
    assert config.models is not None
    parts = [
        _part(choice, overrides, config.models) for choice in (*config.models.small, *config.models.large)
    ]
    _check_names(parts)
    there: list[Part] = []
    for part in parts:
        reason = absent(part.runs[0][1])
        if reason is None:
            there.append(part)
        else:
            console.note(f"{part.choice} is skipped: {reason}")
    small = [part for part in there if part.choice in config.models.small]
    large = [part for part in there if part.choice in config.models.large]
    if not small or not large:
        missing = "models.small" if not small else "models.large"
        raise ConfigError(f"{missing}: none of its models is to be had here (see above); name one that is")
    runs = [run for part in there for run in part.runs]
    code = execute_each([given for given, _ in runs], [each for _, each in runs])
    if code:
        return code
    return _compare(small, large, Path(config.results) / config.experiment / "comparison")


def _part(choice: str, overrides: Sequence[str], models: ModelsConfig) -> Part:
    if any(override.partition("=")[0] == "model" for override in overrides):
        raise ConfigError(
            "model: this experiment has several; choose them with models.small=[…] and models.large=[…]"
        )
    runs = []
    for extra in models.passes:
        given = [*overrides, f"model={choice}", *extra, "models=null"]
        runs.append((given, compose(given)))
    return Part(choice, tuple(runs))


def _check_names(parts: Sequence[Part]) -> None:
    seen: dict[str, str] = {}
    for part in parts:
        if part.name in seen:
            raise ConfigError(
                f"models: {seen[part.name]} and {part.choice} are both called {part.name}; leave one of them out"
            )
        seen[part.name] = part.choice


def absent(config: RunConfig) -> str | None:
    """Why the model cannot be run here; None when it can. Fetches weights where they are to be had."""
    api = config.model.api
    try:
        if api is not None:
            from harness.commands.api_session import check_reachable

            check_reachable(config)
        if config.model.target.startswith(_VLLM) and importlib.util.find_spec("vllm") is None:
            return "vLLM is not installed here"
        with console.weights() as report:
            resolve(weights_spec(config.model), report)
    except TailgaugeError as error:
        return str(error)
    return None


def _compare(small: Sequence[Part], large: Sequence[Part], folder: Path) -> int:
    from harness.analysis import across
    from harness.commands.compare import terminal_table

    folders = [path for part in (*small, *large) for path in part.folders]
    entries = across.load_all(folders, False)
    comparison = across.compare(entries, [part.name for part in small], [part.name for part in large])
    across.write(comparison, folder)
    console.out.print(terminal_table(comparison))
    for sentence in comparison.headline:
        console.out.print(sentence, markup=False)
    console.out.print(str(folder), markup=False)
    return 0
