"""One scenario file on top of another: the key `extends`.

Knows which file each key of the merged scenario comes from, and so in which file a mistake stands. Does not
know what the keys mean, nor where files lie (`load` finds both).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import ScenarioError
from harness.safeyaml import KeyPath, YamlDocument

APPEND = "+"
"""Ends a key of `pools` whose texts are added to the base's instead of replacing them."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The plain data of a scenario, from one file or from two."""

    data: Mapping[str, Any]
    top: YamlDocument
    """The file that was asked for."""
    base: YamlDocument | None = None
    stated: frozenset[KeyPath] = frozenset()
    """Keys, and keys of `pools`, that `top` states."""
    appended: Mapping[KeyPath, int] = field(default_factory=dict)
    """Pools that `top` adds to, and how many of their entries are the base's."""

    def where(self, path: KeyPath) -> str:
        """`file:line: key` of a path of `data`, in the file that it comes from."""
        if self.base is None:
            return self.top.where(path)
        pool, rest = path[:2], path[2:]
        if pool in self.appended:
            own = self.appended[pool]
            key = (pool[0], f"{pool[1]}{APPEND}")
            if not rest or not isinstance(rest[0], int):
                return self.top.where((*key, *rest))
            if rest[0] >= own:
                return self.top.where((*key, rest[0] - own, *rest[1:]))
        elif path[:1] in self.stated or pool in self.stated:
            return self.top.where(path)
        return self.base.where(path)


def alone(document: YamlDocument) -> Layers:
    """A scenario that stands in one file."""
    return Layers(document.data, document)


def merge(top: YamlDocument, base: YamlDocument) -> Layers:
    """`base` with the keys that `top` states in place of its own; `pools` goes key by key, and a key that
    ends in `+` adds to the base's pool. Raises ScenarioError for a pool that cannot be merged."""
    data = dict(base.data)
    stated: set[KeyPath] = set()
    for key, value in top.data.items():
        if key != "extends" and not (key == "pools" and isinstance(value, dict)):
            data[key] = value
            stated.add((key,))
    appended: dict[KeyPath, int] = {}
    if isinstance(top.data.get("pools"), dict):
        pools = base.data.get("pools", {})
        if not isinstance(pools, dict):
            raise ScenarioError(f"{base.where(('pools',))}: expected a mapping of keys")
        data["pools"] = pools = dict(pools)
        for key, value in top.data["pools"].items():
            name = key.removesuffix(APPEND)
            if name == key:
                pools[name] = value
                stated.add(("pools", name))
            else:
                _check_append(top, key, pools.get(name, []))
                appended["pools", name] = len(pools.get(name, []))
                pools[name] = [*pools.get(name, []), *value]
    return Layers(data, top, base, frozenset(stated), appended)


def _check_append(top: YamlDocument, key: str, before: object) -> None:
    where, name = top.where(("pools", key)), key.removesuffix(APPEND)
    if name in top.data["pools"]:
        raise ScenarioError(
            f"{where}: {name!r} is stated as well; replace the pool with {name!r} or add to it with {key!r}"
        )
    if not isinstance(before, list):
        raise ScenarioError(f"{where}: only a list can be added to; state {name!r} as a whole")
    if not isinstance(top.data["pools"][key], list):
        raise ScenarioError(f"{where}: expected a list")
