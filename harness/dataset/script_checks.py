"""What a scripted episode must fulfil, and what it must not be mixed with.

Knows tools, rules and variables. Does not know files or lines: it yields key paths and reasons. A script is written
out here with names and texts of its own pools, in both orders of `first` and `second`, so that a mistake shows when
the file is read.
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.dataset.schema import FollowUpBlock, ScenarioSpec, ScriptBlock, ToolBlock
from harness.dataset.script import (
    FOLLOW_UP,
    SCRIPT,
    filled,
    further,
    is_time,
    knowledge,
    standing,
    strings,
    templates,
    variables,
)
from harness.dataset.script_shapes import keeps_list, known_problems, list_problems
from harness.errors import TemplateError
from harness.safeyaml import KeyPath
from harness.sandbox import render, used_names

Problem = tuple[KeyPath, str]
TURNS = 24
"""Draws that a script is tried with: each pool begins with another of its entries in each."""
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "array": (list,),
    "object": (dict,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def script_problems(spec: ScenarioSpec) -> Iterator[Problem]:
    """Every mistake around `episode.script` as (key path, reason). Lazy: a later check may rest on an earlier one."""
    yield from _mixtures(spec)
    if not spec.episode.script:
        return
    for pool, entries in spec.pools.variables.items():
        yield from _pool_problems(pool, entries)
    for path, entry in _entries(spec):
        if isinstance(entry, ScriptBlock) and entry.call is not None:
            yield from _call_problems(spec, entry, path)
    tries = list(_tries(spec))
    for path, entry in _entries(spec):
        for where, text in templates(entry, path):
            yield from _text_problems(where, text, tries)
        yield from _shape_problems(entry, path, tries)
    for values in tries:
        yield from _count_problems(spec, values)


def script_texts(spec: ScenarioSpec) -> Iterator[tuple[KeyPath, str]]:
    """Every text of the script and of its variables, with its key path."""
    for path, entry in _entries(spec):
        yield from templates(entry, path)
    for pool, entries in spec.pools.variables.items():
        yield from strings(entries, ("pools", "variables", pool))


def _entries(spec: ScenarioSpec) -> Iterator[tuple[KeyPath, ScriptBlock | FollowUpBlock]]:
    for number, entry in enumerate(spec.episode.script):
        yield (*SCRIPT, number), entry
    if spec.episode.follow_up is not None:
        yield FOLLOW_UP, spec.episode.follow_up


def _mixtures(spec: ScenarioSpec) -> Iterator[Problem]:
    """A script makes all messages; without one they are made of pools that must be there."""
    pools, episode = spec.pools, spec.episode
    drawn = ("cases", "results", "closings")
    if not episode.script:
        for pool in drawn:
            if not getattr(pools, pool):
                yield (
                    ("pools", pool),
                    "is missing or empty; an episode without `episode.script` draws from it",
                )
        if pools.variables:
            yield ("pools", "variables"), "belongs to `episode.script`, which this scenario does not have"
        if episode.follow_up is not None:
            yield FOLLOW_UP, "belongs to `episode.script`, which this scenario does not have"
        return
    for key in ("call", "aside"):
        if getattr(episode, key):
            yield (
                ("episode", key),
                "cannot stand beside `episode.script`, which makes all calls; remove one of them",
            )
    for pool in (*drawn, "purposes", "searches"):
        if getattr(pools, pool):
            yield ("pools", pool), "a scripted episode draws nothing from it; remove it (or state it as [])"


def _pool_problems(pool: str, entries: Sequence[Any]) -> Iterator[Problem]:
    path = ("pools", "variables", pool)
    if pool in ("a", "b", "first", "second", "other"):
        yield path, f"{pool!r} is a variable of every script; take another name"
    keys = [tuple(sorted(entry)) if isinstance(entry, Mapping) else None for entry in entries]
    for number, key in enumerate(keys):
        if key != keys[0]:
            have = ", ".join(keys[0]) if keys[0] else "text alone"
            yield (*path, number), f"must be made like the entries before it: {have}"
        elif entries[number] in entries[:number]:
            yield (*path, number), "repeats an earlier entry of the same pool; draws are meant to differ"


def _call_problems(spec: ScenarioSpec, entry: ScriptBlock, path: KeyPath) -> Iterator[Problem]:
    tools = {tool.name: tool for tool in spec.tools}
    assert entry.call is not None
    tool = tools.get(entry.call)
    if tool is None:
        yield (*path, "call"), f"unknown tool {entry.call!r}; `tools` has: {', '.join(tools)}"
        return
    properties = tool.parameters["properties"]
    for name, value in entry.arguments.items():
        if name not in properties:
            yield (
                (*path, "arguments", name),
                f"{tool.name!r} has no parameter {name!r}; it has: {', '.join(properties)}",
            )
        else:
            yield from _type_problems(tool, name, value, (*path, "arguments", name))
    for name in tool.parameters.get("required", []):
        if name not in entry.arguments:
            yield (*path, "arguments"), f"argument {name!r} of {tool.name!r} is missing"
    for rule in spec.rules:
        if rule.tool == tool.name and rule.key not in entry.arguments:
            yield (
                (*path, "arguments"),
                f"argument {rule.key!r} of {tool.name!r} is missing; its rule counts by it",
            )


def _type_problems(tool: ToolBlock, name: str, value: Any, path: KeyPath) -> Iterator[Problem]:
    wanted = tool.parameters["properties"][name]["type"]
    allowed = _TYPES.get(wanted)
    if allowed is None:
        return
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        yield path, f"parameter {name!r} of {tool.name!r} has type {wanted}, not {value!a:.60}"


def _tries(spec: ScenarioSpec) -> Iterator[dict[str, str]]:
    """Variables as they may be drawn: both orders of a and b for each turn of the pools."""
    pools = spec.pools
    longest = max([len(pools.merchants), *map(len, pools.variables.values())])
    for turn in range(min(longest, TURNS)):
        a, b, *rest = _turned(pools.merchants, turn)
        others = further(rest)[0]
        drawn = {name: _turned(entries, turn) for name, entries in pools.variables.items()}
        for first in (a, b):
            yield variables((a, b), first, others, drawn)


def _turned(pool: Sequence[Any], by: int) -> list[Any]:
    by %= len(pool)
    return [*pool[by:], *pool[:by]]


def _text_problems(path: KeyPath, text: str, tries: Sequence[Mapping[str, str]]) -> Iterator[Problem]:
    try:
        unknown = sorted(used_names(text, where="") - tries[0].keys())
        if unknown:
            yield path, _unknown(unknown[0], tries[0])
            return
        outcomes = [render(text, values, where="") for values in (tries if "{" in text else tries[:1])]
    except TemplateError as error:
        yield path, str(error).removeprefix(":").strip()
        return
    plain = "arguments" not in path and "known" not in path
    if plain and not all(out.strip() for out in outcomes):
        yield path, "renders to nothing"
    elif plain and path[-1] == "time" and (wrong := next((o for o in outcomes if not is_time(o)), None)):
        yield path, f"{wrong!a:.60} is no ISO 8601 time such as 2026-03-02T09:30:00"


def _shape_problems(
    entry: ScriptBlock | FollowUpBlock, path: KeyPath, tries: Sequence[Mapping[str, str]]
) -> Iterator[Problem]:
    """What harness/state would pass over in `known`, and in the arguments of a call that keeps a list or a plan."""
    call = entry.call if isinstance(entry, ScriptBlock) else None
    keeps = call is not None and keeps_list(call)
    if not keeps and not entry.known:
        return
    drawn = any("{" in text for _, text in templates(entry, path))
    for values in tries if drawn else tries[:1]:
        if entry.known:
            result = render(getattr(entry, "result", None) or "", values, where="")
            known = knowledge(entry, values, "", path)
            yield from known_problems(known, (*path, "known"), "user" if call is None else "result", result)
        if keeps and call is not None and isinstance(entry, ScriptBlock):
            given = filled(entry.arguments, values, "", (*path, "arguments"))
            yield from list_problems(call, given, (*path, "arguments"))


def _unknown(name: str, values: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, values, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    pools = sorted({key.rpartition("_")[0] if key[-1].isdigit() else key for key in values if "_" in key})
    have = ", ".join(
        ["a", "b", "first", "second", *(f"{pool}_1 …" if "_" not in pool else pool for pool in pools)]
    )
    return f"unknown variable {name!r}; {hint}this text may use: {have[:400]}"


def _count_problems(spec: ScenarioSpec, values: Mapping[str, str]) -> Iterator[Problem]:
    """Do the calls of the ruled tool leave `a` at its limit and `b` one below?"""
    rule = spec.rules[0]
    names = {name for key, name in values.items() if key in ("a", "b") or key.startswith("other_")}
    counts: Counter[str] = Counter()
    for number, entry in enumerate(spec.episode.script):
        if entry.call != rule.tool:
            continue
        path = (*SCRIPT, number, "arguments", rule.key)
        name = filled(entry.arguments[rule.key], values, "", path)
        if name not in names:
            yield (
                path,
                f"{name!a:.60} is none of the names; write {{{{ a }}}}, {{{{ b }}}} or {{{{ other_1 }}}}",
            )
        counts[name] += 1
        if counts[name] > rule.at_most:
            yield (
                path,
                f"calls {rule.tool!r} {counts[name]} times for one name, and its limit is {rule.at_most}",
            )
    reason = standing(counts, values["a"], values["b"], rule.at_most, rule.tool)
    if reason is not None:
        yield SCRIPT, reason
