"""A bar drawn at every moment of a trajectory, and what a state says that could change a decision.

Knows bars and states; judges nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from harness.lint.cases import DECOYS, Case
from harness.state import AgentState, StateBuilder
from harness.statusbar.base import BarContext, StatusBar, StatusText, moment_of


class BarError(Exception):
    """The bar's own code failed; `where` is the moment."""

    def __init__(self, where: str, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.where = where


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a bar said at one moment."""

    case: str
    number: int
    """Messages of the transcript at that moment."""
    state: AgentState
    said: StatusText | None
    previous: str | None = None
    """What the bar said the time before."""

    @property
    def text(self) -> str | None:
        return self.said.text if self.said else None

    @property
    def where(self) -> str:
        return f"{self.case}, after message {self.number}"


def words(text: str) -> int:
    """Stands in for a tokenizer: the lint needs no model."""
    return len(text.split())


def context(case: Case, previous: str | None = None) -> BarContext:
    return BarContext(case.rules, 0, DECOYS, words, previous)


def draw(bar: StatusBar, state: AgentState, given: BarContext, where: str) -> StatusText | None:
    """Raises BarError when the bar does."""
    try:
        said = bar.draw(state, given)
        if said is not None:
            str(said.text)
        return said
    except Exception as error:
        raise BarError(where, error) from error


def drawings(bar: StatusBar, case: Case) -> Iterator[Drawn]:
    """The bar at each of its moments: before each request, or at each result, or at each input."""
    moment = moment_of(bar)
    builder = StateBuilder(case.tools)
    given = context(case)
    for number, message in enumerate(case.messages, start=1):
        builder.advance(message)
        inputs = message.role in ("user", "tool")
        following = case.messages[number].role if number < len(case.messages) else "assistant"
        due = {
            "request": inputs and following == "assistant",
            "result": message.role == "tool",
            "input": inputs,
        }[moment]
        if not due:
            continue
        state = builder.state()
        drawn = Drawn(case.name, number, state, None, given.previous)
        drawn = replace(drawn, said=draw(bar, state, given, drawn.where))
        if drawn.text is not None:
            given = replace(given, previous=drawn.text, earlier=(*given.earlier, drawn.text))
        yield drawn


def facts(state: AgentState) -> tuple[Any, ...]:
    """What a decision may hang on: everything but times of day, counts of turns, ages and sizes."""
    latest = state.latest
    at_hand = (
        ()
        if latest is None or latest.role != "tool"
        else (latest.call, latest.failed, latest.error, latest.identical, latest.same_result, latest.streak)
    )
    calls = {
        tool: (counted.total, {name: dict(values) for name, values in counted.by_argument.items()})
        for tool, counted in state.calls.items()
    }
    return (
        calls,
        dict(state.failing),
        state.todos,
        state.plan,
        tuple(state.working_set),
        tuple((read.path, read.text) for read in state.reads),
        tuple(state.edited),
        {file: tuple(found) for file, found in state.diagnostics.items()},
        tuple(state.recalled),
        tuple(state.completions),
        state.date,
        at_hand,
        {} if latest is None else dict(latest.known),
    )
