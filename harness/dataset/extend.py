"""One scenario file on top of another: the key `extends`.

Knows which file each key of the merged scenario comes from, and so in which file a mistake stands. Does not
know what the keys mean, nor where files lie (`load` finds both).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import ScenarioError
from harness.safeyaml import KeyPath, YamlDocument

APPEND = "+"
"""Ends a key whose entries are added to the base's instead of replacing them."""
VARIABLES = "variables"
"""The one key of `pools` that holds pools itself, which replace the base's one by one."""
NAMES, MERCHANTS = "names", "merchants"
"""The pool of names may be spelt either way: not every scenario has merchants."""
_RENAMED = {NAMES: MERCHANTS, NAMES + APPEND: MERCHANTS + APPEND}


@dataclass(frozen=True, slots=True)
class Layers:
    """The plain data of a scenario, from one file or from several, each on top of the next."""

    data: Mapping[str, Any]
    top: YamlDocument
    """The file that was asked for."""
    base: "Layers | None" = None
    """What it extends."""
    stated: frozenset[KeyPath] = frozenset()
    """Keys, and keys of blocks that go key by key, that `top` states."""
    appended: Mapping[KeyPath, int] = field(default_factory=dict)
    """Lists that `top` adds to, and how many of their entries are the base's."""

    def where(self, path: KeyPath) -> str:
        """`file:line: key` of a path of `data`, in the file that it comes from."""
        if self.base is None:
            return _where(self.top, path)
        pool, rest = path[:2], path[2:]
        if pool in self.appended:
            own = self.appended[pool]
            key = (pool[0], f"{pool[1]}{APPEND}")
            if not rest or not isinstance(rest[0], int):
                return _where(self.top, (*key, *rest))
            if rest[0] >= own:
                return _where(self.top, (*key, rest[0] - own, *rest[1:]))
        elif any(path[:size] in self.stated for size in (1, 2, 3)):
            return _where(self.top, path)
        return self.base.where(path)


def spelt_alike(document: YamlDocument) -> YamlDocument:
    """`pools` with `merchants` for `names`, however the file spells it. Raises ScenarioError where it has both."""
    pools = document.data.get("pools")
    if not isinstance(pools, dict):
        return document
    for end in ("", APPEND):
        if (names := f"{NAMES}{end}") in pools:
            for other in (MERCHANTS, MERCHANTS + APPEND):
                if other in pools:
                    raise ScenarioError(
                        f"{document.where(('pools', names))}: {other!r} is stated as well; the two are one pool"
                    )
    renamed = {_RENAMED.get(key, key): value for key, value in pools.items()}
    return replace(document, data={**document.data, "pools": renamed})


def _where(document: YamlDocument, path: KeyPath) -> str:
    """`document.where` with the pool of names as the file spells it."""
    for spelt, name in _RENAMED.items():
        if path[:2] == ("pools", name) and ("pools", spelt) in document.lines:
            path = ("pools", spelt, *path[2:])
    return document.where(path)


def alone(document: YamlDocument) -> Layers:
    """A scenario that stands in one file."""
    return Layers(document.data, document)


def merge(top: YamlDocument, base: Layers) -> Layers:
    """`base` with the keys that `top` states in place of its own; `pools` goes key by key, and a key that ends in `+`
    adds to the base's pool. An episode that adds entries (`script+`) goes key by key as well. Raises ScenarioError for
    what cannot be merged."""
    data = dict(base.data)
    stated: set[KeyPath] = set()
    appended: dict[KeyPath, int] = {}
    for key, value in top.data.items():
        if _by_key(key, value):
            data[key] = _merged(top, base, key, stated, appended)
        elif key != "extends":
            data[key] = value
            stated.add((key,))
    return Layers(data, top, base, frozenset(stated), appended)


def _by_key(key: str, value: object) -> bool:
    """Is this block merged key by key? An episode only where it adds to the base's."""
    if not isinstance(value, dict):
        return False
    return key == "pools" or (key == "episode" and any(name.endswith(APPEND) for name in value))


def _merged(
    top: YamlDocument, base: Layers, block: str, stated: set[KeyPath], appended: dict[KeyPath, int]
) -> dict[str, Any]:
    """The base's block with the keys of `top`; notes in `stated` and `appended` where they come from."""
    before = base.data.get(block, {})
    if not isinstance(before, dict):
        raise ScenarioError(f"{base.where((block,))}: expected a mapping of keys")
    merged = dict(before)
    for key, value in top.data[block].items():
        name = key.removesuffix(APPEND)
        inner = merged.get(name)
        if name == VARIABLES and isinstance(inner, dict) and isinstance(value, dict):
            merged[name] = {**inner, **value}
            stated.update((block, name, each) for each in value)
        elif name == key:
            merged[name] = value
            stated.add((block, name))
        else:
            _check_append(top, block, key, merged.get(name, []))
            appended[block, name] = len(merged.get(name, []))
            merged[name] = [*merged.get(name, []), *value]
    return merged


def _check_append(top: YamlDocument, block: str, key: str, before: object) -> None:
    where, name = _where(top, (block, key)), key.removesuffix(APPEND)
    if name in top.data[block]:
        raise ScenarioError(
            f"{where}: {name!r} is stated as well; replace it with {name!r} or add to it with {key!r}"
        )
    if not isinstance(before, list):
        raise ScenarioError(f"{where}: only a list can be added to; state {name!r} as a whole")
    if not isinstance(top.data[block][key], list):
        raise ScenarioError(f"{where}: expected a list")
