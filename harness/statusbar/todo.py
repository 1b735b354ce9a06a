"""The todo list in its three lives: result of the list tool, reminder after a compaction, body of a cycle's seed.

One list, three spellings of its statuses. Between these moments the model sees nothing of it. Knows the list alone;
which tools keep it is said by `harness.state`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from harness.errors import ConfigError
from harness.state import AgentState, Plan, TodoList
from harness.state.todos import writes_list
from harness.statusbar.base import BarContext, Moment, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.work import BLANK, Line, WorkStyle, foremost, framed, work_lines

Life = Literal["tool_result", "compaction", "cycle"]
LIVES = ("tool_result", "compaction", "cycle")
RESUMED = WorkStyle(spelling="camel", ids=True, title="", strategy=False)
SEED = WorkStyle(spelling="tick", strategy=False)
WORK_HEADING = "### Work"


@dataclass(frozen=True, slots=True)
class Todo:
    """The list in one of its lives. In the tool's result it stands in full, as JSON."""

    name: ClassVar[str] = "todo"
    life: Life = "tool_result"
    lead: str = "These todos are carried over; the messages before were summarised:"
    """Of the reminder after a compaction."""
    max_items: int | None = None
    """Of the snapshot in the tool's result; None: all. The item in progress always stays."""
    max_item: int = 160
    """Characters of one item."""

    def __post_init__(self) -> None:
        if self.life not in LIVES:
            raise ConfigError(f"life={self.life!r}: expected one of {', '.join(LIVES)}")

    @property
    def moment(self) -> Moment:
        return "result" if self.life == "tool_result" else "request"

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """In the result: after a call that wrote the list, even an empty one. Else: when the list is not empty."""
        if self.life == "tool_result":
            latest = state.latest
            written = (
                latest is not None
                and latest.call is not None
                and writes_list(latest.call)
                and not latest.failed
            )
            return framed(self._snapshot(state.todos)) if written else None
        if not state.todos.items:
            return None
        if self.life == "compaction":
            items = work_lines(state.todos, Plan(), replace(RESUMED, max_item=self.max_item))
            return framed((BLANK, *items), tag="system-reminder", heading=self.lead)
        seed = work_lines(state.todos, Plan(), replace(SEED, max_item=self.max_item))
        return framed((BLANK, *seed), heading=WORK_HEADING)

    def _snapshot(self, todos: TodoList) -> Iterator[Line]:
        count = len(todos.items)
        head = "Todo list written ("
        said = f"{count} {'item' if count == 1 else 'items'}, {todos.percent}% complete"
        yield f"{head}{said})", (head, ")")
        yield "{", None
        shown = todos.items if self.max_items is None else foremost(todos.items, self.max_items)
        if not shown:
            yield '  "items": [],', None
        else:
            yield '  "items": [', None
            for number, item in enumerate(shown, start=1):
                content = json.dumps(flatten(item.content, self.max_item) or "–", ensure_ascii=False)
                yield "    {", None
                yield f'      "id": {item.id},', None
                yield f'      "content": {content},', ('      "content": "', '",')
                yield f'      "status": "{item.status}"', ('      "status": "', '"')
                yield "    }" + ("," if number < len(shown) else ""), None
            yield "  ],", None
        if len(shown) < count:
            yield f'  "items_not_shown": {count - len(shown)},', ('  "items_not_shown": ', ",")
        yield f'  "completion_pct": {todos.percent},', ('  "completion_pct": ', ",")
        yield f'  "in_progress_id": {json.dumps(todos.in_progress_id)}', ('  "in_progress_id": ', "")
        yield "}", None
