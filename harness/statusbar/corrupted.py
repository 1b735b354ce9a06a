"""A wrong bar, for trust tests: every count of calls is off by a share, everything else is true.

Drawn by the very code of another bar over a changed state, so that form, wording and order are those of the true bar.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from harness.state import AgentState, CallCount, Latest
from harness.state.views import Lookup
from harness.statusbar.base import BarContext, StatusBar, StatusText
from harness.types import CallLimit

LARGEST = 50
"""Percent, either way."""
TOLERATED = 0.5
"""By how much of the stated percent whole calls may miss it: 20 % of 3 calls is one call or 33 %, which is refused."""


def changed(count: int, percent: int) -> int:
    """`count` moved by `percent` of itself: the change is rounded half away from zero and at least one unit, unless
    `percent` is 0; no count falls below 0, and a count of 0 has nothing to be moved by."""
    if percent == 0 or count == 0:
        return count
    by = max(1, math.floor(count * abs(percent) / 100 + 0.5))
    return max(0, count + (by if percent > 0 else -by))


@dataclass(frozen=True, slots=True)
class Corrupted:
    """`of`, drawn over a state in which all calls are counted wrong by `percent` (-50 … 50; 0 is the true bar).

    Counts per key value and per tool are moved. The total of a tool that has a rule moves by as much as its keys
    together, so that the bar does not contradict itself: it is wrong about the transcript, not about its own sum.
    Repeats, failures, todos and the rest stay true.
    """

    name: ClassVar[str] = "corrupted"
    of: StatusBar
    percent: int

    def __post_init__(self) -> None:
        if not -LARGEST <= self.percent <= LARGEST:
            raise ValueError(f"percent={self.percent}: expected a whole number from -{LARGEST} to {LARGEST}")

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """What the bar would say of the changed counts; None where the true bar says nothing."""
        return self.of.draw(self._wrong(state, context.rules), context)

    def misfit(self, state: AgentState, rules: tuple[CallLimit, ...]) -> str | None:
        """Why this state's counts cannot be off by the stated percent: whole calls miss it by far at the largest count
        of a rule's key. None where they can, or where no rule's calls were made."""
        for rule in rules:
            calls = state.calls.get(rule.tool)
            counts = calls.by_key(rule.key).values() if calls is not None else ()
            count = max(counts, default=0)
            if count == 0 or self.percent == 0:
                continue
            real = round(100 * self._change(count) / count)
            if abs(real - self.percent) > TOLERATED * abs(self.percent):
                made = f"{count} call{'' if count == 1 else 's'}"
                return (
                    f"{made} of {rule.tool} with one {rule.key} cannot be wrong by {self.percent} %, in whole calls it "
                    f"is {real} %; take samples with more calls (as experiment=corruption does) or a larger percent"
                )
        return None

    def _wrong(self, state: AgentState, rules: tuple[CallLimit, ...]) -> AgentState:
        keys = {rule.tool: rule.key for rule in reversed(rules)}  # of several rules the first counts
        calls: dict[str, CallCount] = {}
        moved = 0
        for tool, counted in state.calls.items():
            calls[tool] = self._counted(counted, keys.get(tool))
            moved += calls[tool].total - counted.total
        return replace(
            state,
            calls=calls,
            tool_calls=max(0, state.tool_calls + moved),
            latest=self._seen(state.latest) if state.latest is not None else None,
            arrived=tuple(map(self._seen, state.arrived)),
        )

    def _seen(self, latest: Latest) -> Latest:
        return replace(latest, calls=changed(latest.calls, self.percent))

    def _counted(self, counted: CallCount, key: str | None) -> CallCount:
        by_key = counted.by_key(key) if key is not None else {}
        if by_key:
            total = max(0, counted.total + sum(self._change(count) for count in by_key.values()))
        else:
            total = counted.total + self._change(counted.total)
        # Looked up and not copied: a long transcript has many values of which a bar shows none.
        return CallCount(
            total, Lookup(counted.by_argument, lambda name: self._values(counted.by_argument[name]))
        )

    def _values(self, values: Mapping[str, int]) -> Mapping[str, int]:
        return Lookup(values, lambda value: changed(values[value], self.percent))

    def _change(self, count: int) -> int:
        return changed(count, self.percent) - count
