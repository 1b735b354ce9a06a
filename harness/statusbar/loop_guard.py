"""The loop guard, as an alert in the tool result: a call made too often, a tool that fails again and again.

Knows the newest result and the counts of its call (harness/statusbar/guard_counts.py); says nothing as long as all is
well. The recorded result stays in the transcript: the guard is measured by what it says, the same in every arm that
does not say it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from harness.state import ATTEMPTS, AgentState
from harness.statusbar.base import BarContext, Frame, Moment, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.guard_counts import Aware, Limits, Reset, Step, Trip, attempts, trips
from harness.types import Message, ToolSpec

Action = Literal["block", "warn"]

SENTENCE: Frame = ("", ".")
ADVICE: dict[Step, str] = {
    "block": "Change the arguments or take another way.",
    "warn": "Find out why before the next call.",
    "halt": "Make no further call of it and say what stands in the way.",
}


@dataclass(frozen=True, slots=True)
class LoopGuard:
    """Alerts in the result of the call that caused them, one sentence each.

    `repeats`, `warn`, `halt`, `aware`, `reset` and `blocked_fails` are those of `Limits`. `action` warn: a repeated
    call is called out and not blocked, and so is no failure. `advice`: each alert with one sentence on what to do.
    """

    name: ClassVar[str] = "loop_guard"
    moment: ClassVar[Moment] = "result"
    repeats: int | None = 3
    warn: int | None = 3
    halt: int | None = 8
    aware: Aware = "arguments"
    reset: Reset = "user_turn"
    blocked_fails: bool = True
    action: Action = "block"
    advice: bool = True
    limits: Limits = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise ValueError(f"action={self.action!r}: expected {' or '.join(get_args(Action))}")
        limits = Limits(
            repeats=self.repeats,
            warn=self.warn,
            halt=self.halt,
            aware=self.aware,
            reset=self.reset,
            blocked_fails=self.blocked_fails and self.action == "block",
        )
        object.__setattr__(self, "limits", limits)

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """One sentence for each step of the guard at the newest result; None where it takes none."""
        latest = state.latest
        if latest is None or latest.call is None:
            return None
        lines: list[str] = []
        newest = attempts(latest)
        for step, count in self.limits.steps(newest[-1], self.limits.failures(newest)):
            lines.append(self._alert(step, count, flatten(latest.call.name)))
            if self.advice:
                lines.append(ADVICE[step])
        return StatusText("", tuple(lines), heading="", frames=(SENTENCE,) * len(lines)) if lines else None

    def _alert(self, step: Step, count: int, tool: str) -> str:
        if step == "block":
            head = "Blocked" if self.action == "block" else "Warning"
            turn = " this turn" if self.reset == "user_turn" else ""
            same = (
                "the same arguments and the same result" if self.aware == "results" else "the same arguments"
            )
            return f"{head}: this call of '{tool}' has already been made {count} times{turn} with {same}."
        head = "Warning" if step == "warn" else "Halted"
        often = (
            f"at least {count} times" if count >= ATTEMPTS else "1 time" if count == 1 else f"{count} times"
        )
        return f"{head}: '{tool}' has failed {often} in a row."


def blocked(messages: Iterable[Message], guard: LoopGuard, tools: tuple[ToolSpec, ...] = ()) -> list[Trip]:
    """Which calls of a recorded transcript `guard` would block, warn about or halt at, in order."""
    return trips(messages, guard.limits, tools)
