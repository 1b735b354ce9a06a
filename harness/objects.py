"""Plain data with a `_target_` → objects, as Hydra makes them; what is wrong with it in one line of our own words.

Knows dataclasses; knows nothing of what the objects do.
"""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.utils import get_object, instantiate

from harness.errors import ConfigError


def built(node: Mapping[str, Any], where: str) -> Any:
    """The object that `node` describes. A class may lie in the working folder, which a console script, unlike
    `python -m`, does not import from. Raises ConfigError, one line that begins with `where`."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that no file there stands in for an installed package
    _check_options(node, where)
    try:
        return instantiate(node)
    except Exception as error:
        # Hydra's own text says that a target was not found, its cause says why.
        raise ConfigError(f"{where}: {one_line(error.__cause__ or error)}") from error


def _check_options(node: Mapping[str, Any], where: str) -> None:
    """Refuses a key that the class does not have, at any depth."""
    for key, value in node.items():
        if isinstance(value, Mapping) and "_target_" in value:
            _check_options(value, f"{where}.{key}")
    try:
        made = get_object(str(node["_target_"]))
    except Exception:
        return  # instantiating it says why
    if not (isinstance(made, type) and dataclasses.is_dataclass(made)):
        return
    known = [each.name for each in dataclasses.fields(made) if each.init and not each.name.startswith("_")]
    for key in node:
        if key not in known and not (key.startswith("_") and key.endswith("_")):
            listed = f"there are {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"{where}.{key}: {made.__name__} has no such option; {listed}")
    inner = node.get("of")
    if "of" in known and "of" in node and not (isinstance(inner, Mapping) and "_target_" in inner):
        raise ConfigError(
            f"{where}.of: expected a bar such as {{_target_: harness.statusbar.AgentStatus}}, not {str(inner)!a:.60}"
        )


def changed(made: Any) -> dict[str, Any]:
    """Options of a dataclass object that are not the class's defaults, as plain data; of what it wraps too."""
    if not dataclasses.is_dataclass(made):
        return {}
    found = {}
    for each in dataclasses.fields(made):
        value = getattr(made, each.name)
        default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        if not each.init or each.name.startswith("_") or value == default:
            continue
        inner = {"is": getattr(value, "name", type(value).__name__)} | changed(value)
        found[each.name] = inner if dataclasses.is_dataclass(value) else _plain(value)
    return found


def _plain(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text.split(" full_key:")[0].split(" Config search path:")[0]
