"""A true-looking bar about something that was not asked.

Drawn by the very code of another bar over the same state, with every key value under a rule replaced by one that occurs
nowhere in the transcript, and every todo and line of the plan by work of another kind: same form, same numbers, same
limit words and statuses, no information about the merchant or the work in question. What it does beyond the placebo is
the work of looking like a status bar.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import ClassVar

from harness.errors import ConfoundError
from harness.state import AgentState, CallCount, Plan, TodoList
from harness.statusbar.base import BarContext, StatusBar, StatusText

# Work that no agent at a keyboard is asked for.
_WORK = (
    "Water the plants", "Sweep the floor", "Dust the lamps", "Wash the windows", "Oil the hinges", "Air the rooms",
    "Fold the blankets", "Polish the handles", "Paint the fence", "Hang the curtains", "Beat the carpets",
    "Stack the firewood", "Rake the leaves",
)  # fmt: skip
_WHERE = (
    "in the hall", "on the terrace", "in the attic", "by the gate", "in the cellar", "on the landing", "in the barn",
    "behind the house", "in the library", "on the balcony", "in the guest room", "beside the pond", "in the shed",
    "in the chapel", "on the porch", "in the greenhouse",
)  # fmt: skip
# The lengths have no common divisor: walking both at once meets every pair before any comes again.
_DECOY_PLAN = Plan(
    objective="Make the house ready for the summer guests",
    context="The house stood empty over the winter",
    constraint="Nothing that smells of paint on the last day",
    approach="One room after the other, from the top down",
    verification="A walk through all rooms with the housekeeper",
)


@dataclass(frozen=True, slots=True)
class Mismatched:
    """`of`, drawn over the state with decoy key values and decoy work."""

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
        work = _decoy_work(context.cluster_index)
        todos = TodoList(tuple(replace(item, content=next(work)) for item in state.todos.items))
        plan = _decoy_plan(state.plan, work)
        return self.of.draw(replace(state, calls=calls, todos=todos, plan=plan), context)


def _decoy_work(cluster: int) -> Iterator[str]:
    """Without an end, from another beginning for each cluster."""
    pairs = zip(cycle(_WORK), cycle(_WHERE), strict=False)
    for work, where in islice(pairs, cluster % (len(_WORK) * len(_WHERE)), None):
        yield f"{work} {where}"


def _decoy_plan(plan: Plan, work: Iterator[str]) -> Plan:
    """What the plan states is stated, of other work."""
    fields = ("objective", "context", "constraint", "approach", "verification")
    stated = {name: getattr(_DECOY_PLAN, name) for name in fields if getattr(plan, name).strip()}
    return Plan(**stated, phases=tuple(replace(phase, text=next(work)) for phase in plan.phases))
