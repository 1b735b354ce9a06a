"""The shape of what a script states beside its texts: `known`, and the arguments of calls that keep a todo list or a plan.

Knows the fields that harness/state reads, and refuses what it would pass over without a word: a misspelt key, a number
that is none, a status that nobody knows. Takes JSON with every template in it filled; knows no file, no line, no draws.
"""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from harness.safeyaml import KeyPath
from harness.state import todos

Problem = tuple[KeyPath, str]
Holder = Literal["user", "result"]
SEVERITIES = ("error", "warning", "information", "hint", "fatal error", "failure", "warn", "note", "info")
"""What diagnostics may be, in the spellings of compilers and language servers."""
STATUSES = ("pending", "in_progress", "completed")
PHASES = (*todos.TEXTS, "name", "phase")


def _text(value: object) -> str | None:
    return None if isinstance(value, str) and value.strip() else "text"


def _from(least: int) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return None if whole else f"a whole number from {least}"

    return check


def _seconds(value: object) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return None if number else "a number of seconds"


def _severity(value: object) -> str | None:
    known = isinstance(value, str) and value.lower() in SEVERITIES
    return None if known else f"one of: {', '.join(SEVERITIES)}"


Check = Callable[[object], str | None]
"""None, or what was expected instead of the value."""
_PLAIN: Mapping[str, Check] = {
    "original_chars": _from(1),
    "omitted_chars": _from(1),
    "recalled_seconds": _seconds,
    **dict.fromkeys(("stack", "advice", "workspace", "cwd", "git"), _text),
}
_ENTRIES: Mapping[str, Mapping[str, Check]] = {
    "diagnostics": {
        "file": _text, "message": _text, "line": _from(1), "column": _from(1), "severity": _severity,
    },
    "recalled": {"text": _text, "source": _text},
    "completions": {"agent": _text, "status": _text, "summary": _text},
}  # fmt: skip
_OPTIONAL = frozenset({"column", "severity", "summary"})
_OF: Mapping[str, Holder] = {
    **dict.fromkeys(("diagnostics", "original_chars", "omitted_chars", "stack", "advice"), "result"),
    **dict.fromkeys(("recalled", "recalled_seconds"), "user"),
}  # fmt: skip
"""Facts that are read beside one kind of message alone; the others stand beside either."""
_HOLDERS: Mapping[Holder, str] = {"user": "a user message", "result": "the result of a call"}


def known_problems(
    known: Mapping[str, Any], path: KeyPath, holder: Holder, result: str = ""
) -> Iterator[Problem]:
    """What is wrong with `known` of a message. `result`: its text, which a count of what was cut is held against."""
    for name, value in known.items():
        here = (*path, name)
        of = _OF.get(name, holder)
        if of != holder:
            yield here, f"is read beside {_HOLDERS[of]} alone, not beside {_HOLDERS[holder]}"
        elif name in _ENTRIES:
            yield from _entries_problems(value, here, _ENTRIES[name])
        elif (expected := _PLAIN[name](value)) is not None:
            yield here, f"expected {expected}, not {value!a:.60}"
    yield from _cut_problems(known, path, result)


def _entries_problems(value: object, path: KeyPath, fields: Mapping[str, Check]) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield path, f"expected a list of mappings with {', '.join(fields)}, not {value!a:.60}"
        return
    for number, entry in enumerate(value):
        here = (*path, number)
        if not isinstance(entry, Mapping):
            yield here, f"expected a mapping with {', '.join(fields)}, not {entry!a:.60}"
            continue
        for name, each in entry.items():
            if name not in fields:
                yield (*here, name), f"unknown key; {_near(name, fields)}it may hold: {', '.join(fields)}"
            elif (expected := fields[name](each)) is not None:
                yield (*here, name), f"expected {expected}, not {each!a:.60}"
        for name in fields:
            if name not in entry and name not in _OPTIONAL:
                yield here, f"{name!r} is missing"


def _cut_problems(known: Mapping[str, Any], path: KeyPath, result: str) -> Iterator[Problem]:
    """Both counts or none, and no more characters left than the text has."""
    original, omitted = known.get("original_chars"), known.get("omitted_chars")
    if (original is None) != (omitted is None):
        yield path, "'original_chars' and 'omitted_chars' are read together alone; state both or none"
        return
    if not isinstance(original, int) or not isinstance(omitted, int):
        return
    here = (*path, "omitted_chars")
    if omitted > original:
        yield here, f"{omitted} characters cannot be left out of {original}"
    elif original - omitted > len(result):
        yield (
            here,
            f"{original} - {omitted} leaves {original - omitted} characters, and the result has {len(result)}",
        )


# -- todo list and plan ---------------------------------------------------------------------------------


def keeps_list(tool: str) -> bool:
    """Does harness/state read a todo list or a plan out of this tool's calls?"""
    return todos.bare(tool) in todos.LIST_TOOLS


def list_problems(tool: str, given: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    """What is wrong with the arguments of a call that keeps a todo list or a plan."""
    name = todos.bare(tool)
    if name in todos.UPDATE:
        yield from _update_problems(tool, given, path)
        return
    key = next((each for each in todos.LISTS if each in given), None)
    if key is not None:
        yield from _items_problems(given[key], (*path, key), todos.TEXTS)
    elif name in todos.WRITE:
        yield (
            path,
            f"{tool!r} writes the todo list, and none is given; expected one of: {', '.join(todos.LISTS)}",
        )
    elif name in todos.ADD:
        yield from _item_problems(given, path, todos.TEXTS, bare_status=True)
    if name in todos.PLAN:
        yield from _plan_problems(tool, given, path, listed=key is not None)


def _items_problems(value: object, path: KeyPath, texts: Iterable[str]) -> Iterator[Problem]:
    inside = True
    if isinstance(value, str):
        inside = False
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list):
        yield path, "expected a list of items with text and status"
        return
    for number, entry in enumerate(value):
        for where, reason in _item_problems(entry, (*path, number), texts):
            # Inside a text that is JSON a file has no keys of its own.
            yield (where, reason) if inside else (path, f"item {number + 1}: {reason}")


def _item_problems(
    entry: object, path: KeyPath, texts: Iterable[str], bare_status: bool = False
) -> Iterator[Problem]:
    """One item: text alone, or a mapping. `bare_status`: it may go without a status."""
    if isinstance(entry, str) and entry.strip():
        return
    if not isinstance(entry, Mapping):
        yield path, f"expected an item with text and status, not {entry!a:.60}"
        return
    names = [name for name in texts if name in entry]
    if not any(_text(entry[name]) is None for name in names):
        where = (*path, names[0]) if names else path
        yield where, f"the item has no text; expected it under one of: {', '.join(texts)}"
    if "status" in entry:
        yield from _status_problems(entry["status"], (*path, "status"))
    elif not bare_status:
        yield path, f"the item has no 'status'; expected one of: {', '.join(STATUSES)}"


def _status_problems(value: object, path: KeyPath) -> Iterator[Problem]:
    if isinstance(value, str):
        text = value.strip().lower()
        if (text if text.startswith("[") else todos.bare(text)) in todos.SPELLINGS:
            return
    near = _near(value, STATUSES) if isinstance(value, str) else ""
    yield path, f"{value!a:.60} is no status; {near}expected one of: {', '.join(STATUSES)}"


def _update_problems(tool: str, given: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    key = next((each for each in todos.IDS if each in given), None)
    if key is None:
        yield path, f"{tool!r} names no item; expected its number under one of: {', '.join(todos.IDS)}"
    else:
        value = given[key]
        number = value.strip().removeprefix("#") if isinstance(value, str) else value
        if isinstance(number, str) and number.isascii() and number.isdecimal():
            number = int(number)
        if (expected := _from(1)(number)) is not None:
            yield (*path, key), f"expected {expected}, not {value!a:.60}"
    if "status" in given:
        yield from _status_problems(given["status"], (*path, "status"))
    else:
        yield path, f"{tool!r} gives no 'status'; expected one of: {', '.join(STATUSES)}"


def _plan_problems(tool: str, given: Mapping[str, Any], path: KeyPath, listed: bool) -> Iterator[Problem]:
    fields = [name for names in todos.STRATEGY.values() for name in names]
    stated = [name for name in (*fields, "phases") if name in given]
    if not stated and not listed:
        yield (
            path,
            f"{tool!r} states no plan; expected one of: {', '.join((*fields, 'phases', *todos.LISTS))}",
        )
    for name in stated:
        value = given[name]
        if name == "phases":
            if isinstance(value, list):
                yield from _items_problems(value, (*path, name), PHASES)
            else:
                yield (*path, name), f"expected a list of phases with text and status, not {value!a:.60}"
        elif not isinstance(value, str | list):
            yield (*path, name), f"expected text or a list of texts, not {value!a:.60}"


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}? " if near else ""
