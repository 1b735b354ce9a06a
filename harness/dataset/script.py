"""A scripted episode: the entries of `episode.script` and the drawn variables become messages.

Knows how an entry is written out and which variables its texts may use. Does not know how anything is drawn
(`episode`), nor what an episode must fulfil (`script_checks`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from harness.dataset.schema import FollowUpBlock, ScriptBlock
from harness.errors import ScenarioError
from harness.safeyaml import KeyPath, dotted
from harness.sandbox import render
from harness.types import Message, ToolCall

SCRIPT: KeyPath = ("episode", "script")
FOLLOW_UP: KeyPath = ("episode", "follow_up")
NUMBERS = frozenset({"original_chars", "omitted_chars", "line", "column"})
"""Facts beside a result that are whole numbers; a template, which gives text, may stand for one."""
_DIGITS = re.compile(r"[0-9]{1,9}")


def variables(
    names: tuple[str, str], first: str, others: Sequence[str], drawn: Mapping[str, Sequence[Any]]
) -> dict[str, str]:
    """Every variable of one episode. `names`: (a, b); `first`: the one of them that comes first in lists.

    `other_1`, `other_2`, … are further names. Of a pool `file` of `pools.variables` in drawn order, `file_1` is the
    first text; where its entries are mappings, `file_1_path` is the first entry's text `path`.
    """
    a, b = names
    values = {"a": a, "b": b, "first": first, "second": b if first == a else a}
    values |= {f"other_{number}": name for number, name in enumerate(others, start=1)}
    for pool, entries in drawn.items():
        for number, entry in enumerate(entries, start=1):
            if isinstance(entry, Mapping):
                values |= {f"{pool}_{number}_{field}": text for field, text in entry.items()}
            else:
                values[f"{pool}_{number}"] = entry
    return values


def further(rest: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The names beside a and b, in drawn order, as those that a script may use and those that occur nowhere."""
    half = len(rest) // 2
    return rest[:half], rest[half:]


def strings(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Every string inside JSON, at whatever depth, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from strings(each, (*path, name))
    elif isinstance(value, Sequence):
        for number, each in enumerate(value):
            yield from strings(each, (*path, number))


def templates(entry: ScriptBlock | FollowUpBlock, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Every template of an entry with its path."""
    for key in ("user", "assistant", "say", "arguments", "result", "error", "time", "known"):
        yield from strings(getattr(entry, key, None), (*path, key))


def written(
    entry: ScriptBlock, number: int, values: Mapping[str, str], source: str, call_id: str
) -> tuple[Message, ...]:
    """The messages of entry `number`: one, or a call and its result. Raises TemplateError, ScenarioError."""
    path = (*SCRIPT, number)

    def text(key: str) -> str:
        value: str | None = getattr(entry, key)
        return "" if value is None else render(value, values, where=f"{source}: {dotted((*path, key))}")

    time = timed(entry, values, source, path)
    known = knowledge(entry, values, source, path)
    if entry.user is not None:
        return (Message("user", text("user"), time=time, known=known),)
    if entry.assistant is not None:
        return (Message("assistant", text("assistant"), time=time),)
    assert entry.call is not None
    arguments = filled(entry.arguments, values, source, (*path, "arguments"))
    call = ToolCall(entry.call, arguments, call_id)
    return (
        Message("assistant", text("say"), tool_calls=(call,), time=time),
        Message(
            "tool",
            text("result"),
            tool_call_id=call_id,
            name=entry.call,
            time=time,
            error=text("error") or None,
            known=known,
        ),
    )


def knowledge(
    entry: ScriptBlock | FollowUpBlock, values: Mapping[str, str], source: str, path: KeyPath
) -> dict[str, Any]:
    """`known` of an entry with every template filled, and numbers where a template gave the digits of one."""
    known: dict[str, Any] = _numbered(filled(entry.known, values, source, (*path, "known")))
    return known


def _numbered(value: Any, name: object = None) -> Any:
    if isinstance(value, Mapping):
        return {key: _numbered(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_numbered(each) for each in value]
    return int(value) if name in NUMBERS and isinstance(value, str) and _DIGITS.fullmatch(value) else value


def filled(value: Any, values: Mapping[str, str], source: str, path: KeyPath) -> Any:
    """JSON with every string in it rendered; a copy, so that no two messages share a list."""
    if isinstance(value, str):
        return render(value, values, where=f"{source}: {dotted(path)}") if "{" in value else value
    if isinstance(value, Mapping):
        return {name: filled(each, values, source, (*path, name)) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [filled(each, values, source, (*path, number)) for number, each in enumerate(value)]
    return value


def timed(
    entry: ScriptBlock | FollowUpBlock, values: Mapping[str, str], source: str, path: KeyPath
) -> str | None:
    """The time of an entry, ISO 8601. Raises ScenarioError for any other text."""
    if entry.time is None:
        return None
    where = f"{source}: {dotted((*path, 'time'))}"
    time = render(entry.time, values, where=where)
    if not is_time(time):
        raise ScenarioError(f"{where}: {time!a:.60} is no ISO 8601 time such as 2026-03-02T09:30:00")
    return time


def is_time(text: str) -> bool:
    """Is it a date and a time, ISO 8601?"""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text


def standing(counts: Mapping[str, int], a: str, b: str, limit: int, tool: str) -> str | None:
    """What is wrong with the calls that a script makes; None when `a` is at its limit and `b` one call below."""
    for letter, name, wanted in (("a", a, limit), ("b", b, limit - 1)):
        made = counts.get(name, 0)
        if made != wanted:
            return f"calls {tool!r} {made} times for {{{{ {letter} }}}}; it must end at {wanted} for a limit of {limit}"
    return None
