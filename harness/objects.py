"""Plain data with a `_target_` → objects, as Hydra makes them; what is wrong with it in one line of our own words.

Knows dataclasses; knows nothing of what the objects do.
"""

import dataclasses
import difflib
import inspect
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hydra.utils import get_object, instantiate

from harness.errors import ConfigError

_NOUNS = {"StatusBar": "bar", "Placement": "placement", "UpdatePolicy": "policy"}
"""What users call a Protocol."""
_EXAMPLES = {
    "StatusBar": "harness.statusbar.AgentStatus",
    "Placement": "harness.statusbar.Tail",
    "UpdatePolicy": "harness.statusbar.policies.Replace",
}


def built(node: Mapping[str, Any], where: str, plug: type | None = None) -> Any:
    """The object that `node` describes. A class may lie in the working folder, which a console script, unlike
    `python -m`, does not import from. `plug`: the Protocol that it must have the methods of. Raises ConfigError, one
    line that begins with `where`."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that no file there stands in for an installed package
    _check_made(node, where, plug)
    try:
        return instantiate(node)
    except Exception as error:
        # Hydra's own text says that a target was not found, its cause says why.
        raise ConfigError(f"{where}: {one_line(error.__cause__ or error)}") from error


def _check_made(node: Mapping[str, Any], where: str, wanted: Any) -> None:
    """Refuses a class that is not what is wanted, a key that it does not have and a value of the wrong kind, at any
    depth."""
    try:
        made = get_object(str(node["_target_"]))
    except Exception:
        return  # instantiating it says why
    if isinstance(made, type) and isinstance(wanted, type) and not _is_one(made, wanted):
        raise ConfigError(
            f"{where}: {made.__name__} is no {_NOUNS.get(wanted.__name__, wanted.__name__)}; expected {_such_as(wanted)}"
        )
    if not (isinstance(made, type) and dataclasses.is_dataclass(made)):
        return
    known = [each.name for each in dataclasses.fields(made) if each.init and not each.name.startswith("_")]
    hints = _hints(made)
    for key, value in node.items():
        if key.startswith("_") and key.endswith("_"):
            continue
        if key not in known:
            listed = f"there are {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"{where}.{key}: {made.__name__} has no such option; {listed}")
        _check_value(value, hints.get(key, Any), f"{where}.{key}")


def _check_value(value: Any, hint: Any, where: str) -> None:
    if isinstance(value, Mapping) and "_target_" in value:
        _check_made(value, where, _class_in(hint))
    elif isinstance(value, (list, tuple)) and get_origin(hint) is tuple:
        for number, each in enumerate(value):
            _check_value(each, get_args(hint)[0], f"{where}[{number}]")
    elif not _fits(value, hint):
        near = difflib.get_close_matches(str(value), [str(each) for each in _literals(hint)], 1)
        hint_text = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{where}: expected {_expected(hint)}, not {value!a:.60}{hint_text}")


def _hints(made: type) -> Mapping[str, Any]:
    try:
        return get_type_hints(made)
    except Exception:
        return {}  # an annotation that cannot be read says nothing


def _fits(value: Any, hint: Any) -> bool:
    """Is `value` of that kind? True for an annotation that cannot be judged."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return any(value == each and type(value) is type(each) for each in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, (list, tuple))
    if hint in (None, types.NoneType):
        return value is None
    if hint is bool or hint is str:
        return isinstance(value, hint)
    if hint in (int, float):
        return isinstance(value, (int, float) if hint is float else int) and not isinstance(value, bool)
    if isinstance(hint, type) and (_is_plug(hint) or dataclasses.is_dataclass(hint)):
        return _is_one(type(value), hint)
    return True


def _is_one(made: type, wanted: type) -> bool:
    """Has the class what the Protocol asks for, or is it the dataclass?"""
    if _is_plug(wanted):
        return all(hasattr(made, name) for name in _members(wanted))
    return not dataclasses.is_dataclass(wanted) or issubclass(made, wanted)


def _members(plug: type) -> list[str]:
    own = {**inspect.get_annotations(plug), **vars(plug)}
    return [name for name in own if not name.startswith("_")]


def _class_in(hint: Any) -> Any:
    """The class that an annotation such as `StatusBar | None` is about."""
    found = [
        each for each in (get_args(hint) or (hint,)) if isinstance(each, type) and each is not types.NoneType
    ]
    return found[0] if len(found) == 1 else None


def _literals(hint: Any) -> Sequence[Any]:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return [each for part in parts if get_origin(part) is Literal for each in get_args(part)]


def _expected(hint: Any) -> str:
    """An annotation in words."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [each for each in get_args(hint) if each is not types.NoneType]
        words = " or ".join(map(_expected, parts))
        return f"{words} or null" if len(parts) < len(get_args(hint)) else words
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple:
        return f"a list, each of it {_expected(get_args(hint)[0])}"
    words_of = {bool: "true or false", str: "a text", int: "a whole number", float: "a number"}
    if hint in words_of:
        return words_of[hint]
    return _such_as(hint)


def _is_plug(hint: type) -> bool:
    """Is it a Protocol? (`typing.is_protocol` came with Python 3.13.)"""
    return bool(getattr(hint, "_is_protocol", False))


def _such_as(wanted: type) -> str:
    example = _EXAMPLES.get(wanted.__name__, f"{wanted.__module__}.{wanted.__qualname__}")
    return f"a {_NOUNS.get(wanted.__name__, wanted.__name__)} such as {{_target_: {example}}}"


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
