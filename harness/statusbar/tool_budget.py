"""`<tool_budget>`: what is left of the calls that the agent may make, after every tool result.

Knows the state, its own limits and the rules of the scenario. Made to stand in the result (`moment = "result"`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, Moment, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.surroundings import Line, check_positive, drawn, item


@dataclass(frozen=True, slots=True)
class ToolBudget:
    """`total`: calls of all tools together; `limits`: calls per tool; `rules`: the scenario's limits per tool and key
    value as well. `shown`: values of one rule at most, those called most."""

    name: ClassVar[str] = "tool_budget"
    moment: ClassVar[Moment] = "result"
    total: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    rules: bool = True
    shown: int = 12

    def __post_init__(self) -> None:
        if self.total is not None:
            check_positive("total", self.total)
        for tool, limit in self.limits.items():
            check_positive(f"limits.{tool}", limit)
        check_positive("shown", self.shown)
        object.__setattr__(self, "limits", dict(self.limits))

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None where nothing is limited, and before the first result."""
        if state.latest is None or state.latest.role != "tool":
            return None
        return drawn("tool_budget", self._budgets(state, context), "Tool budget:")

    def _budgets(self, state: AgentState, context: BarContext) -> Iterator[Line]:
        if self.total is not None:
            yield _line("all tools", state.tool_calls, self.total)
        for tool, limit in self.limits.items():
            yield _line(f"'{flatten(tool)}'", state.calls[tool].total if tool in state.calls else 0, limit)
        for rule in context.rules if self.rules else ():
            counts = state.calls[rule.tool].by_key(rule.key) if rule.tool in state.calls else {}
            tool, key = flatten(rule.tool), flatten(rule.key)
            if not counts:
                yield item(f"'{tool}' for each {key}: 0 used, {rule.limit} remaining")
            most = nsmallest(self.shown, counts.items(), key=lambda counted: (-counted[1], counted[0]))
            for value, used in most:
                yield _line(f"'{tool}' with {key} {flatten(value)}", used, rule.limit)
            if len(counts) > self.shown:
                yield item(f"{len(counts) - self.shown} more values of {key} not listed")


def _line(what: str, used: int, limit: int) -> Line:
    return item(f"{what}: {used} used, {max(0, limit - used)} remaining")
