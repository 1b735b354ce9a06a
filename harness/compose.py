"""Hydra's part: groups, overrides and sweeps → plain data → RunConfig, and objects from `_target_`.

Hydra is used through its compose API only, so it changes no working directory and writes no file.
`./conf` of the working folder comes before the packaged configuration, file by file.
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from harness.conditions import Condition
from harness.config import ConditionConfig, RunConfig
from harness.config_checks import resolve
from harness.dataset import scenario_names
from harness.delivery import InjectionRules
from harness.errors import ConfigError
from harness.objects import built, one_line
from harness.paths import search_dirs
from harness.statusbar.base import StatusBar
from harness.statusbar.placements import Placement
from harness.statusbar.policies import Replace, UpdatePolicy

GROUPS = ("experiment", "model", "scenario", "condition", "probe")


@contextmanager
def opened() -> Iterator[Hydra]:
    """Hydra over `./conf` and the packaged configuration."""
    Plugins.instance()  # registers Hydra's config sources on first use
    path = ConfigSearchPathImpl()
    path.append("hydra", "pkg://hydra.conf")
    for folder in search_dirs("conf"):
        path.append("tailgauge", f"file://{folder}")
    path.append("schema", "structured://")
    GlobalHydra.instance().clear()
    try:
        yield Hydra.create_main_hydra2(task_name="tailgauge", config_search_path=path)
    finally:
        GlobalHydra.instance().clear()


def options() -> dict[str, list[str]]:
    """What can be chosen in each group; a scenario's file alone makes it a choice."""
    with opened() as hydra:
        found = {group: set(hydra.config_loader.get_group_options(group)) for group in GROUPS}
    found["scenario"].update(scenario_names())
    return {group: sorted(names) for group, names in found.items()}


def compose(overrides: Sequence[str]) -> RunConfig:
    """The configuration of one run. Raises ConfigError with one line naming the override at fault."""
    with hydra_mistakes(), opened() as hydra:
        configured = frozenset(hydra.config_loader.get_group_options("scenario"))
        plain = composed(hydra, "config", [settable(override, configured) for override in overrides])
        known = frozenset(hydra.config_loader.get_group_options("condition"))
    return resolve(plain, known)


def compose_attention(overrides: Sequence[str]) -> dict[str, Any]:
    """What `conf/attention.yaml` and the overrides say, as plain data."""
    with hydra_mistakes(), opened() as hydra:
        return composed(hydra, "attention", [_any_key(override) for override in overrides])


def composed(hydra: Hydra, name: str, overrides: list[str]) -> dict[str, Any]:
    found = hydra.compose_config(
        config_name=name,
        overrides=overrides,
        run_mode=RunMode.RUN,
        from_shell=True,
        with_log_configuration=False,
    )
    with open_dict(found):
        del found["hydra"]
    plain = OmegaConf.to_container(found, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


@contextmanager
def hydra_mistakes() -> Iterator[None]:
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(one_line(error)) from error


def settable(override: str, configured: Container[str]) -> str:
    """`key=value` may set any key of the typed configuration, also one that no file mentions; whether
    the key exists is for `harness.config` to say. Group choices and Hydra's own prefixes stay, but for
    a scenario that is not `configured`: it has a file in `scenarios/` and needs none in `conf/`."""
    key, _, value = override.partition("=")
    if key == "scenario" and value not in configured:
        names = scenario_names()
        if value in names:
            return f"++scenario.file={value}"
        raise ConfigError(
            f"scenario={value}: there are {', '.join(names)}; for a file elsewhere set scenario.file=PATH"
        )
    return override if key in GROUPS else _any_key(override)


def _any_key(override: str) -> str:
    """`key=value` with the key put in where no file has it."""
    key = override.partition("=")[0]
    plain = "=" in override and not key.startswith(("+", "~", "hydra.")) and "@" not in key
    return f"++{override}" if plain else override


def sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The override lists of a sweep: the product of every comma-separated choice."""
    parser = OverridesParser.create(config_loader=None)
    try:
        parsed = parser.parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(one_line(error)) from error
    combinations: list[list[str]] = [[]]
    for override in parsed:
        if override.is_sweep_override():
            key = override.get_key_element()
            variants = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            variants = [override.input_line or ""]
        combinations = [[*done, variant] for done in combinations for variant in variants]
    return combinations


def build_conditions(configs: dict[str, ConditionConfig]) -> tuple[Condition, ...]:
    """The arms as objects, in the order of the configuration."""
    return tuple(_condition(name, config) for name, config in configs.items())


def build_arms(configs: dict[str, ConditionConfig]) -> tuple[Condition, ...]:
    """The arms of a run. Raises ConfigError for a bar in a compacted transcript that no arm has without a bar:
    compaction and bar would be one difference."""
    made = build_conditions(configs)
    for each in made:
        whole = any(other.bar is None and not other.boundary for other in made)
        if each.bar is not None and not each.boundary and not whole:
            raise ConfigError(
                f"condition.{each.name}: its transcript is whole, and every arm without a bar is compacted; add control"
            )
        if each.bar is not None and each.boundary and each.compacted_control(made) is None:
            raise ConfigError(
                f"condition.{each.name}.policy: boundary compacts the transcript, and no arm without a bar has the same; "
                "add a condition with bar: null, placement: null and this very policy"
            )
    return made


def _condition(name: str, config: ConditionConfig) -> Condition:
    bar, placement, policy = (
        built(node, f"condition.{name}.{part}", plug) if node is not None else None
        for part, node, plug in (
            ("bar", config.bar, StatusBar),
            ("placement", config.placement, Placement),
            ("policy", config.policy, UpdatePolicy),
        )
    )
    return Condition(
        name,
        bar,
        placement,
        policy or Replace(),
        InjectionRules(**config.rules.model_dump()) if config.rules else InjectionRules(),
    )


def build_tracker(node: dict[str, Any] | None) -> Any:
    """Where the finished run is logged to (harness/export/base.py); None without one. Raises ConfigError."""
    return built(node, "tracker") if node else None
