"""A bar, placement or policy by its name: a file of `conf/`, or a class path, with options of one's own.

Knows Hydra's groups and overrides; knows nothing of what the objects do.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf

from harness import compose
from harness.errors import ConfigError
from harness.objects import built
from harness.statusbar.base import StatusBar
from harness.statusbar.placements import Placement
from harness.statusbar.policies import UpdatePolicy

PLUGS: Mapping[str, type] = {"bar": StatusBar, "placement": Placement, "policy": UpdatePolicy}
"""Group of `conf/` → what its objects are."""


def node(group: str, name: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """`conf/<group>/<name>.yaml`, or `{_target_: name}` for a dotted class path, with `key=value` options put in.

    Raises ConfigError for an unknown name or an option that is none.
    """
    with compose.hydra_mistakes(), compose.opened() as hydra:
        known = hydra.config_loader.get_group_options(group)
        if name in known:
            plain = compose.composed(hydra, f"{group}/{name}", []).get(group)
        elif "." in name:
            plain = {"_target_": name}
        else:
            raise ConfigError(
                f"{group} {name}: there are {', '.join(known)}; a class of your own goes by its path, as in "
                "my_module.MyClass"
            )
        made = OmegaConf.create(plain)
        for option in options:
            override = _parsed(option, f"{group} {name}")
            OmegaConf.update(made, override.key_or_group, override.value(), force_add=True)
        filled = OmegaConf.to_container(made, resolve=True)
    assert isinstance(filled, dict)
    return {str(key): value for key, value in filled.items()}


def _parsed(option: str, where: str) -> Override:
    """One `key=value` in Hydra's grammar, whose own messages speak of lexers and alternatives."""
    try:
        override = OverridesParser.create().parse_override(option)
    except HydraException:
        override = None
    if override is None or override.is_delete() or override.is_sweep_override() or not override.key_or_group:
        raise ConfigError(
            f"{where}, option {option}: expected key=value, a list as key=[a,b], a text with other signs as key='…'"
        )
    return override


def part(group: str, name: str, options: Sequence[str] = ()) -> Any:
    """The object that `node` describes. Raises ConfigError."""
    return built(node(group, name, options), f"{group} {name}", PLUGS[group])


def names(group: str) -> list[str]:
    """What `conf/<group>` offers, sorted."""
    with compose.opened() as hydra:
        return sorted(hydra.config_loader.get_group_options(group))
