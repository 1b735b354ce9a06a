"""`<agent_status>`: how often each tool was called, and how each rule stands, in key-value form.

Two lines under the heading: one sums the calls by tool and key, one states the constraint for every
key value that occurs — on both sides of the limit, so that the bar informs and does not only forbid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.escape import flatten
from harness.types import CallLimit

TAG = "agent_status"


def times(count: int) -> str:
    return "1 time" if count == 1 else f"{count} times"


def verdict(count: int, limit: int) -> str:
    """Where `count` calls stand against `limit`: wording for both sides."""
    if count >= limit:
        return f"maximum reached ({count}/{limit})"
    left = limit - count
    return f"{left} {'call' if left == 1 else 'calls'} left ({count}/{limit})"


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The counter bar of the call-limit experiment."""

    name: ClassVar[str] = "agent_status"
    tag: str = TAG

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """Two lines, or None when no tool was called yet."""
        if not state.calls:
            return None
        lines = [f"- Tool calls: {self._summary(state, context.rules)}"]
        for rule in context.rules:
            counts = state.calls[rule.tool].by_key(rule.key) if rule.tool in state.calls else {}
            lines.append(self._constraint(rule, counts))
        return StatusText(tag=self.tag, lines=tuple(lines))

    @staticmethod
    def _summary(state: AgentState, rules: tuple[CallLimit, ...]) -> str:
        keys = {rule.tool: rule.key for rule in rules}
        parts = []
        for tool, counted in state.calls.items():
            part = f"'{flatten(tool)}' called {times(counted.total)}"
            if tool in keys:
                by_key = counted.by_key(keys[tool])
                part += " (" + ", ".join(f"{flatten(v)}: {times(n)}" for v, n in by_key.items()) + ")"
            parts.append(part)
        return "; ".join(parts)

    @staticmethod
    def _constraint(rule: CallLimit, counts: Mapping[str, int]) -> str:
        head = f"- Constraint: '{flatten(rule.tool)}' at most {times(rule.limit)} per {flatten(rule.key)}"
        if not counts:
            return f"{head}; no call so far"
        return head + "; " + "; ".join(f"{flatten(v)}: {verdict(n, rule.limit)}" for v, n in counts.items())
