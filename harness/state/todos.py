"""Todo list and plan out of calls: which tools write them, in which fields, in which spellings.

Knows the list tools of today's agent frameworks by name and nothing of what their results say. What cannot be read as a
list is left out; nothing here raises.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.state.facts import Phase, Plan, TodoList, TodoStatus
from harness.types import ToolCall

WRITE = frozenset({"todowrite", "writetodos", "checklistwrite", "rewritetodolist"})
"""Replace the whole list. Names without case, hyphens and underscores."""
ADD = frozenset({"todoadd", "checklistadd", "addtodo"})
UPDATE = frozenset({"todoupdate", "checklistupdate", "updatetodostatus"})
PLAN = frozenset({"updateplan", "setplan"})
"""`plan` or another list replaces the todo list, the fields of STRATEGY the fields of the Plan that they name."""
LIST_TOOLS = WRITE | ADD | UPDATE | PLAN

LISTS = ("todos", "items", "plan", "steps", "checklist")
TEXTS = ("content", "text", "title", "task", "step", "description", "item")
IDS = ("id", "todo_id", "item_id")
STRATEGY = {
    "objective": ("objective", "title", "goal"),
    "context": ("context",),
    "constraint": ("constraint", "constraints"),
    "approach": ("approach", "recommended_approach"),
    "verification": ("verification", "verification_plan"),
}
SPELLINGS: Mapping[str, TodoStatus | None] = {
    **dict.fromkeys(("pending", "todo", "open", "notstarted", "[ ]"), "pending"),
    **dict.fromkeys(("inprogress", "doing", "active", "started", "[~]"), "in_progress"),
    **dict.fromkeys(("completed", "complete", "done", "finished", "[x]", "[✓]"), "completed"),
    **dict.fromkeys(("cancelled", "canceled", "deleted", "removed"), None),
}
"""None: the item is no longer on the list. A spelling that is not here means pending."""

_SEPARATORS = re.compile(r"[\s_-]+")


def bare(name: str) -> str:
    """A name without case, blanks, hyphens and underscores: TodoWrite, todo_write and todo-write are one."""
    return _SEPARATORS.sub("", name).lower()


def writes(call: ToolCall) -> bool:
    """Does the tool keep the todo list or the plan?"""
    return bare(call.name) in LIST_TOOLS


def writes_list(call: ToolCall) -> bool:
    """Does the call change the todo list? A plan without a list leaves it as it was."""
    if not writes(call) or bare(call.name) in UPDATE | ADD:
        return writes(call)
    return _items(next((call.arguments[key] for key in LISTS if key in call.arguments), None)) is not None


def applied(call: ToolCall, todos: TodoList, plan: Plan) -> tuple[TodoList | None, Plan]:
    """What the call makes of list and plan; None: it says nothing that could be read about the list."""
    name, given = bare(call.name), call.arguments
    if name in UPDATE:
        return _updated(given, todos), plan
    items = _items(next((given[key] for key in LISTS if key in given), None))
    if name in ADD:
        added = items if items is not None else _items([given])
        if not added:
            return None, plan
        for content, status in added:
            todos = todos.add(content, status)
        return todos, plan
    if name in PLAN:
        plan = _strategy(given, plan)
    return (None if items is None else TodoList.written(items)), plan


def _status(value: object) -> TodoStatus | None:
    if not isinstance(value, str):
        return "pending"
    text = value.strip().lower()
    return SPELLINGS.get(text if text.startswith("[") else bare(text), "pending")


def _text(entry: object, names: Sequence[str] = TEXTS) -> str:
    """The words of an item; '' when it has none."""
    if isinstance(entry, str):
        return entry.strip()
    if not isinstance(entry, Mapping):
        return ""
    return next((v.strip() for n in names if isinstance(v := entry.get(n), str) and v.strip()), "")


def _items(value: object) -> list[tuple[str, TodoStatus]] | None:
    """Texts and statuses of a list of items; None when it is no list."""
    if isinstance(value, str):
        value = _decoded(value)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return None
    found: list[tuple[str, TodoStatus]] = []
    for entry in value:
        text = _text(entry)
        status = _status(entry.get("status")) if isinstance(entry, Mapping) else "pending"
        if text and status is not None:
            found.append((text, status))
    return found


def _decoded(text: str) -> Any:
    """A list that a model has written as a string of JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _updated(given: Mapping[str, Any], todos: TodoList) -> TodoList | None:
    value = next((given[key] for key in IDS if key in given), None)
    match = re.fullmatch(r"#?(\d{1,9})", value.strip(), re.ASCII) if isinstance(value, str) else None
    if match:
        value = int(match[1])
    if not isinstance(value, int) or isinstance(value, bool) or "status" not in given:
        return None
    if all(item.id != value for item in todos.items):
        return None
    status = _status(given["status"])
    if status is None:
        return TodoList(tuple(item for item in todos.items if item.id != value))
    return todos.update(value, status)


def _strategy(given: Mapping[str, Any], plan: Plan) -> Plan:
    named: dict[str, Any] = {}
    for field, names in STRATEGY.items():
        value = next((given[name] for name in names if name in given), None)
        if isinstance(value, str):
            named[field] = value.strip()
        elif isinstance(value, Sequence):
            named[field] = "; ".join(text for text in map(_text, value) if text)
    phases = given.get("phases")
    if isinstance(phases, Sequence) and not isinstance(phases, str | bytes):
        read = [(_text(each, (*TEXTS, "name", "phase")), each) for each in phases]
        kept = [
            (text, _status(e.get("status")) if isinstance(e, Mapping) else "pending")
            for text, e in read
            if text
        ]
        named["phases"] = tuple(Phase(text, status) for text, status in kept if status is not None)
    return replace(plan, **named)
