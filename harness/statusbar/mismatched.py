"""A true-looking bar about something that was not asked.

Drawn by the very code of another bar over the same state, with every key value under a rule replaced by
one that occurs nowhere in the transcript: same form, same numbers, same limit words, no information about
the merchant in question. What it does beyond the placebo is the work of looking like a status bar.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from harness.errors import ConfoundError
from harness.state import AgentState, CallCount
from harness.statusbar.base import BarContext, StatusBar, StatusText


@dataclass(frozen=True, slots=True)
class Mismatched:
    """`of`, drawn over the state with decoy key values."""

    name: ClassVar[str] = "mismatched"
    of: StatusBar

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """Raises ConfoundError when the sample has fewer decoys than the transcript has key values."""
        calls = dict(state.calls)
        for rule in context.rules:
            if rule.tool not in calls:
                continue
            counted = calls[rule.tool]
            by_key = counted.by_key(rule.key)
            swapped = dict(zip(context.decoys, by_key.values(), strict=False))
            if len(swapped) < len(by_key):
                raise ConfoundError(
                    f"mismatched: the transcript has {len(by_key)} values of {rule.key}, the sample only "
                    f"{len(context.decoys)} decoys; add values to the scenario's pool"
                )
            calls[rule.tool] = CallCount(counted.total, {**counted.by_argument, rule.key: swapped})
        return self.of.draw(replace(state, calls=calls), context)
