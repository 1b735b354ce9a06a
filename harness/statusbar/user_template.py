"""`template`: the user's own bar, a Jinja file over the state.

Knows how a state becomes plain data for a template, and how a rendered text becomes a bar's lines. What Jinja may do is
in template_sandbox.py. A template sees facts, not the texts of messages: a bar that could quote the follow-up would leak
what is asked for. Lists are cut to the newest or first 200 items and texts to 2,000 characters.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from harness.errors import TemplateError
from harness.paths import packaged_dir
from harness.state import AgentState
from harness.state.facts import CallCount
from harness.statusbar.base import BarContext, Frame, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.surroundings import PLAIN, check_positive
from harness.statusbar.template_sandbox import MAX_TEMPLATE, Compiled, Later, compile_template
from harness.types import CallLimit

MOST_ITEMS = 200
MOST_CHARACTERS = 2_000
_TAG = re.compile(r"[A-Za-z][\w.:-]*")
_MARKER = re.compile(r"\s*(?:(?:[-*+•|>]|\d+[.)]|\[[ x~✓]\]|#{1,6})\s+)*")
"""What a line of a list, a table or a quotation begins with; the placebo keeps it."""


@dataclass(frozen=True, slots=True)
class UserTemplate:
    """`file`: looked up from the working folder on, then among the packaged templates (`conf/templates`); it is read
    when the bar is made, so that no later change of the file parts two arms. `tag`, `heading`: '' for none.
    `characters`, `lines`: bounds of the text; one beyond them is cut after a whole line and ends with a line `…`.
    `item`: characters of one inserted value.
    """

    name: ClassVar[str] = "template"
    file: str = "counter.jinja"
    tag: str = "agent_status"
    heading: str = "Current State:"
    characters: int = 4_000
    lines: int = 60
    item: int = 200
    source: str = field(init=False, repr=False)
    """The template's text: two bars of one file name and other contents are not the same bar."""
    _compiled: Compiled = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for option in ("characters", "lines", "item"):
            check_positive(option, getattr(self, option))
        if self.tag and not _TAG.fullmatch(self.tag):
            raise ValueError(f"tag must be a tag's name such as agent_status, not {self.tag!r}")
        source = _read(self.file)
        limit = self.item
        compiled = compile_template(source, self.file, NAMES, lambda text: flatten(text, limit))
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "_compiled", compiled)

    @property
    def digest(self) -> str:
        """SHA-256 of the template's text, for the record of a run."""
        return sha256(self.source.encode()).hexdigest()

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """The rendered lines without blank ones at either end; None when nothing is left. Raises TemplateError."""
        data = {name: FACTS[name](state, context) for name in sorted(self._compiled.used)}
        text, whole = self._compiled.render(data, self.characters)
        lines = [line.rstrip() for line in text.lstrip("\n").split("\n")]
        if not whole:
            lines.pop()  # it may be half a line
        while lines and not lines[-1]:
            lines.pop()
        if not whole or len(lines) > self.lines:
            lines = [*lines[: self.lines - 1], "…"]
        if not lines:
            return None
        return StatusText(self.tag, tuple(lines), heading=self.heading, frames=tuple(map(_frame, lines)))


@lru_cache(maxsize=4096)
def _frame(line: str) -> Frame | None:
    """The line's marker; a line without a word stays as it is under the placebo."""
    if not any(character.isalnum() for character in line):
        return None
    marker = _MARKER.match(line)
    return (marker[0], "") if marker and marker[0] != line else PLAIN


def _read(file: str) -> str:
    """The text of a template. Raises TemplateError with one line."""
    packaged = packaged_dir("conf") / "templates"
    places = (Path(file), packaged / file)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        offered = ", ".join(sorted(path.name for path in packaged.glob("*.jinja"))) or "none"
        raise TemplateError(f"{file}: no such template; name a Jinja file or a packaged one ({offered})")
    try:
        with found.open(encoding="utf-8") as opened:
            return opened.read(MAX_TEMPLATE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"{file}: cannot be read as UTF-8 text: {error}") from None


# -- the state as plain data ---------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Texts cut, sequences as lists of at most MOST_ITEMS."""
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Iterable):
        return [_plain(item) for item in islice(value, MOST_ITEMS)]
    return value


def _records(items: Iterable[Any]) -> list[dict[str, Any]]:
    return [_record(item) for item in islice(items, MOST_ITEMS)]


def _record(item: Any) -> dict[str, Any]:
    """The fields of one fact (a dataclass with slots and plain fields)."""
    return {name: _plain(getattr(item, name)) for name in item.__slots__}


def _calls(state: AgentState, context: BarContext) -> list[dict[str, Any]]:
    return [
        {"tool": tool, "total": counted.total, "values": Later(partial(_values, counted))}
        for tool, counted in islice(state.calls.items(), MOST_ITEMS)
    ]


def _values(counted: CallCount) -> Any:
    return _plain(
        {"argument": argument, "value": value, "count": count}
        for argument, values in counted.by_argument.items()
        for value, count in values.items()
    )


def _rules(state: AgentState, context: BarContext) -> list[dict[str, Any]]:
    return [
        {"tool": rule.tool, "key": rule.key, "limit": rule.limit, "values": _standing(state, rule)}
        for rule in context.rules[:MOST_ITEMS]
    ]


def _standing(state: AgentState, rule: CallLimit) -> Any:
    counts = state.calls[rule.tool].by_key(rule.key) if rule.tool in state.calls else {}
    return _plain(
        {"value": value, "count": count, "left": max(0, rule.limit - count), "reached": count >= rule.limit}
        for value, count in counts.items()
    )


def _todos(state: AgentState, context: BarContext) -> dict[str, Any]:
    todos = state.todos
    return {
        "items": _records(todos.items),
        "total": len(todos.items),
        "done": sum(item.status == "completed" for item in todos.items),
        "percent": todos.percent,
        "in_progress_id": todos.in_progress_id,
    }


def _latest(state: AgentState, context: BarContext) -> dict[str, Any] | None:
    """What kind of message came last and how its call stands; not its text."""
    latest = state.latest
    if latest is None:
        return None
    kept = ("role", "number", "time", "failed", "error", "calls", "identical", "same_result", "streak")
    tool = latest.call.name if latest.call else None
    return _plain_mapping({"tool": tool, **{key: getattr(latest, key) for key in kept}})


def _plain_mapping(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in facts.items()}


def _pairs(counts: Mapping[str, int], name: str, count: str) -> list[dict[str, Any]]:
    return [{name: _plain(key), count: value} for key, value in islice(counts.items(), MOST_ITEMS)]


def _newest(items: Sequence[Any]) -> list[Any]:
    return list(islice(reversed(items), MOST_ITEMS))[::-1]


FACTS: dict[str, Callable[[AgentState, BarContext], Any]] = {
    "calls": _calls,
    "rules": _rules,
    "tool_calls": lambda state, _: state.tool_calls,
    "failing": lambda state, _: _pairs(state.failing, "tool", "count"),
    "latest": _latest,
    "user_turns": lambda state, _: state.user_turns,
    "requests": lambda state, _: state.requests,
    "todos": _todos,
    "todos_age": lambda state, _: state.todos_age,
    "plan": lambda state, _: (
        _record(replace(state.plan, phases=())) | {"phases": _records(state.plan.phases)}
    ),
    "date": lambda state, _: state.date,
    "time": lambda state, _: state.time,
    "workspace": lambda state, _: _plain(state.workspace or None),
    "cwd": lambda state, _: _plain(state.cwd or None),
    "working_set": lambda state, _: _records(state.working_set),
    "reads": lambda state, _: _records(state.reads),
    "edited": lambda state, _: _plain(state.edited),
    "diagnostics": lambda state, _: _records(
        found for complaints in state.diagnostics.values() for found in complaints
    ),
    "recalled": lambda state, _: _records(state.recalled),
    "completions": lambda state, _: _records(state.completions),
    "blocks": lambda state, _: _records(_newest(state.blocks)),
    "tools": lambda state, _: _plain(
        {"name": tool.name, "description": tool.description} for tool in state.tools
    ),
    "tokens": lambda state, context: state.tokens(context.count_tokens),
}
"""Name in a template → the fact as plain data; made only when the template reads it."""
NAMES = frozenset(FACTS)
