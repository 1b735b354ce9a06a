"""What a loop guard counts, and where it would step in over a whole transcript.

Knows the calls of one tool with how each stood when its result came in; knows no text of a bar. A guard is its limits:
it blocks a call made too often, warns once when a tool fails again and again, and halts when that goes on. A blocked
call is a failure too, otherwise a model that repeats a call which would succeed is blocked for ever and never halted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, get_args

from harness.state import ATTEMPTS, Attempt, Latest, StateBuilder
from harness.types import Message, ToolSpec

Aware = Literal["arguments", "results"]
Reset = Literal["user_turn", "never"]
Step = Literal["block", "warn", "halt"]


@dataclass(frozen=True, slots=True)
class Trip:
    """One step of a guard: at which message (the result, counted from 0), for which tool, at which count."""

    step: Step
    message: int
    tool: str
    count: int


@dataclass(frozen=True, slots=True)
class Limits:
    """When a guard steps in. None: never.

    `aware` arguments: a call counts as repeated when its canonical arguments are the same. results: only where it
    brought the same text as well, so that polling is spared; that is known once the result is in, so the last repeat
    is carried out and its result called out. `reset`: a user message starts the counts of repeats anew, or nothing does.
    Only a success of the same tool ends a row of failures.
    """

    repeats: int | None = 3
    warn: int | None = 3
    halt: int | None = 8
    aware: Aware = "arguments"
    reset: Reset = "user_turn"
    blocked_fails: bool = True
    """Does a blocked call count as a failure of its tool, whatever it would have brought?"""

    def __post_init__(self) -> None:
        for name, value, known in (("aware", self.aware, Aware), ("reset", self.reset, Reset)):
            if value not in get_args(known):
                raise ValueError(f"{name}={value!r}: expected {' or '.join(get_args(known))}")
        if self.repeats is not None and self.repeats < 2:
            raise ValueError(f"repeats={self.repeats}: expected 2 or more; the first call repeats nothing")
        for name, count in (("warn", self.warn), ("halt", self.halt)):
            if count is not None and not 1 <= count <= ATTEMPTS:
                raise ValueError(f"{name}={count}: expected a number of failures from 1 to {ATTEMPTS}")

    def repeated(self, attempt: Attempt) -> int:
        """How often the call has been made by this guard's count."""
        if self.aware == "results":
            return attempt.same_result if self.reset == "user_turn" else attempt.same_result_ever
        return attempt.identical if self.reset == "user_turn" else attempt.identical_ever

    def blocks(self, attempt: Attempt) -> bool:
        return self.repeats is not None and self.repeated(attempt) >= self.repeats

    def fails(self, attempt: Attempt) -> bool:
        return attempt.failed or (self.blocked_fails and self.blocks(attempt))

    def failures(self, attempts: Sequence[Attempt]) -> int:
        """Calls in a row, up to the newest, that failed or were blocked; of `attempts`, which may hold no more."""
        return sum(1 for _ in takewhile(self.fails, reversed(attempts)))

    def steps(self, attempt: Attempt, row: int) -> list[tuple[Step, int]]:
        """What the guard does at a call with `row` failures of its tool in a row, and the count that it does it at:
        a block, and beside it a warning (once in a row) or a halt (at each failure from then on)."""
        found: list[tuple[Step, int]] = []
        if self.blocks(attempt):
            found.append(("block", self.repeated(attempt)))
        if self.halt is not None and row >= self.halt:
            found.append(("halt", row))
        elif row == self.warn:
            found.append(("warn", row))
        return found


def attempts(latest: Latest) -> tuple[Attempt, ...]:
    """The newest calls of the tool, oldest first, the one that `latest` answers last. In a state that was made by hand
    and does not hold them, its row of failures stands for those before."""
    if latest.attempts:
        return latest.attempts
    before = min(latest.streak, ATTEMPTS) - 1 if latest.failed else 0
    now = Attempt(
        latest.failed, latest.identical, latest.same_result, latest.identical_ever, latest.same_result_ever
    )
    return (*[Attempt(True, 0, 0, 0, 0)] * before, now)


def trips(messages: Iterable[Message], limits: Limits, tools: tuple[ToolSpec, ...] = ()) -> list[Trip]:
    """Every step that a guard would take over a transcript, in order. The transcript is taken as it was recorded: what
    the agent would have done after a block, nobody knows."""
    builder = StateBuilder(tools)
    rows: dict[str, int] = {}
    found: list[Trip] = []
    for number, message in enumerate(messages):
        builder.advance(message)
        latest = builder.state().latest if message.role == "tool" else None
        if latest is None or latest.call is None:
            continue
        tool, now = latest.call.name, attempts(latest)[-1]
        row = rows[tool] = rows.get(tool, 0) + 1 if limits.fails(now) else 0
        found += [Trip(step, number, tool, count) for step, count in limits.steps(now, row)]
    return found
