"""The same counted facts in four forms: key-value, prose, JSON, checkbox.

Knows counts and limits, not where they come from; every form says every fact that the others say, so that two of them
differ in form alone. Each line comes with the frame in which a placebo's line stands.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from harness.statusbar.base import LIST_ITEM, Frame
from harness.statusbar.escape import flatten

RenderingName = Literal["key_value", "prose", "json", "checkbox"]
Line = tuple[str, Frame | None]


@dataclass(frozen=True, slots=True)
class Tally:
    """Calls of one tool, and by key value where a rule counts them."""

    tool: str
    total: int
    by_key: Mapping[str, int] | None = None
    """None: no rule counts this tool's calls by a key."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One rule and how the calls so far stand against it."""

    tool: str
    key: str
    limit: int
    counts: Mapping[str, int] | None
    """None: the limit is stated, and not how the calls stand."""


def times(count: int) -> str:
    return "1 time" if count == 1 else f"{count} times"


def verdict(count: int, limit: int) -> str:
    """Where `count` calls stand against `limit`: wording for both sides."""
    if count >= limit:
        return f"maximum reached ({count}/{limit})"
    left = limit - count
    return f"{left} {'call' if left == 1 else 'calls'} left ({count}/{limit})"


def rendered(
    rendering: RenderingName, tallies: tuple[Tally, ...], standings: tuple[Standing, ...]
) -> tuple[Line, ...]:
    """The lines of the facts in one form. Content is escaped and on one line."""
    return _FORMS[rendering](tallies, standings)


# -- key-value -----------------------------------------------------------------------------------------


def _key_value(tallies: tuple[Tally, ...], standings: tuple[Standing, ...]) -> tuple[Line, ...]:
    """One line sums the calls, one states each rule for every key value that occurs."""
    summed = "; ".join(_summed(tally) for tally in tallies)
    lines = [f"- Tool calls: {summed}", *(_constraint(standing) for standing in standings)]
    return tuple((line, LIST_ITEM) for line in lines)


def _summed(tally: Tally) -> str:
    text = f"'{flatten(tally.tool)}' called {times(tally.total)}"
    if tally.by_key is None:
        return text
    return text + " (" + ", ".join(f"{flatten(v)}: {times(n)}" for v, n in tally.by_key.items()) + ")"


def _constraint(rule: Standing) -> str:
    head = f"- Constraint: '{flatten(rule.tool)}' at most {times(rule.limit)} per {flatten(rule.key)}"
    if rule.counts is None:
        return head
    if not rule.counts:
        return f"{head}; no call so far"
    return head + "; " + "; ".join(f"{flatten(v)}: {verdict(n, rule.limit)}" for v, n in rule.counts.items())


# -- prose ---------------------------------------------------------------------------------------------


def _prose(tallies: tuple[Tally, ...], standings: tuple[Standing, ...]) -> tuple[Line, ...]:
    """The same two lines as sentences."""
    calls = " ".join(_told(tally) for tally in tallies)
    lines = [calls, *(_ruled(standing) for standing in standings)]
    return tuple((line, ("", ".")) for line in lines)


def _told(tally: Tally) -> str:
    text = f"The tool '{flatten(tally.tool)}' was called {times(tally.total)}"
    if not tally.by_key:
        return text + "."
    return text + ": " + _listed([f"{times(n)} for {flatten(v)}" for v, n in tally.by_key.items()]) + "."


def _ruled(rule: Standing) -> str:
    text = f"'{flatten(rule.tool)}' may be called at most {times(rule.limit)} per {flatten(rule.key)}"
    if rule.counts is None:
        return text + "."
    if not rule.counts:
        return text + ", and there was no call so far."
    parts = []
    for value, count in rule.counts.items():
        name, left = flatten(value), rule.limit - count
        if left <= 0:
            parts.append(f"for {name} the maximum is reached ({count}/{rule.limit})")
        else:
            parts.append(
                f"for {name} {left} {'call is' if left == 1 else 'calls are'} left ({count}/{rule.limit})"
            )
    said = _listed(parts)
    return f"{text}. {said[0].upper()}{said[1:]}."


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


# -- JSON ----------------------------------------------------------------------------------------------


def _json(tallies: tuple[Tally, ...], standings: tuple[Standing, ...]) -> tuple[Line, ...]:
    """One object, one member per line."""
    calls: dict[str, object] = {}
    for tally in tallies:
        by_key = {} if tally.by_key is None else {"by_key": _flat(tally.by_key)}
        calls[flatten(tally.tool)] = {"calls": tally.total, **by_key}
    members = {"tool_calls": json.dumps(calls, ensure_ascii=False)}
    if standings:
        members["constraints"] = json.dumps([_rule(standing) for standing in standings], ensure_ascii=False)
    lines: list[Line] = [("{", None)]
    for number, (name, value) in enumerate(members.items(), start=1):
        comma = "," if number < len(members) else ""
        lines.append((f'  "{name}": {value}{comma}', (f'  "note_{"ab"[number - 1]}": "', f'"{comma}')))
    return (*lines, ("}", None))


def _rule(rule: Standing) -> dict[str, object]:
    plain: dict[str, object] = {"tool": flatten(rule.tool), "key": flatten(rule.key), "at_most": rule.limit}
    if rule.counts is None:
        return plain
    return plain | {"standing": {flatten(v): verdict(n, rule.limit) for v, n in rule.counts.items()}}


def _flat(counts: Mapping[str, int]) -> dict[str, int]:
    return {flatten(value): count for value, count in counts.items()}


# -- checkbox ------------------------------------------------------------------------------------------


def _checkbox(tallies: tuple[Tally, ...], standings: tuple[Standing, ...]) -> tuple[Line, ...]:
    """A ticked box for what is used up, an empty one for what is left."""
    lines: list[Line] = [(f"- {_summed(tally)}", LIST_ITEM) for tally in tallies]
    for rule in standings:
        head = f"'{flatten(rule.tool)}' at most {times(rule.limit)} per {flatten(rule.key)}"
        lines.append((f"- {head}" + (": no call so far" if rule.counts == {} else ""), LIST_ITEM))
        for value, count in (rule.counts or {}).items():
            box = "[x]" if count >= rule.limit else "[ ]"
            lines.append((f"  - {box} {flatten(value)}: {verdict(count, rule.limit)}", ("  - [ ] ", "")))
    return tuple(lines)


_FORMS: dict[RenderingName, Callable[[tuple[Tally, ...], tuple[Standing, ...]], tuple[Line, ...]]] = {
    "key_value": _key_value,
    "prose": _prose,
    "json": _json,
    "checkbox": _checkbox,
}
