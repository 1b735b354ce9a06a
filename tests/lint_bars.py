"""A bar without a flaw, and one for each flaw; a module of few imports, since the lint draws them in other processes."""

import random
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.escape import flatten


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar without a flaw: which tools have failed, sorted. The flawed ones change one thing."""

    name: ClassVar[str] = "flawed"

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        lines = self.lines(state)
        return StatusText("flawed", tuple(f"- {line}" for line in lines)) if lines else None

    def lines(self, state: AgentState) -> list[str]:
        return sorted(f"{flatten(tool)} failed" for tool in state.failing)[:20]


class Clock(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [f"Time: {state.time}"] if state.calls else []


class Minutes(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [f"Time: {(state.time or '')[:16]}"] if state.calls else []


class Turns(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [f"Turn {state.user_turns}"] if state.calls else []


class Now(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [f"Today is {datetime.now():%Y-%m-%d}"] if state.calls else []


class Epoch(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [f"Day {int(time.time()) // 86_400}"] if state.calls else []


class Folder(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [f"In {Path.cwd()}"] if state.calls else []


class Sets(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [flatten(tool) for tool in {*state.calls}][:20]


class Dice(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [f"Luck {random.random()}"] if state.calls else []


class Arrival(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [flatten(tool) for tool in state.calls][:20]


class Padded(Bar):
    """As wide as its widest row."""

    def lines(self, state: AgentState) -> list[str]:
        tools = sorted(state.calls)[:20]
        wide = max(map(len, tools), default=0)
        return [f"{flatten(tool):{wide}} | called" for tool in tools]


class Heading(Bar):
    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        said = Bar.draw(self, state, context)
        return replace(said, heading=f"{state.failing} failures:") if said else None


class Attribute(Bar):
    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        said = Bar.draw(self, state, context)
        return replace(said, attributes=f' streak="{next(iter(state.failing.values()))}"') if said else None


class Frames(Bar):
    """The checkbox is in the frame, which the placebo keeps."""

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        marks = {"pending": "- [ ] ", "in_progress": "- [~] ", "completed": "- [x] "}
        items = state.todos.items[:20]
        lines = tuple(marks[item.status] + flatten(item.content) for item in items)
        frames = tuple((marks[item.status], "") for item in items)
        return StatusText("flawed", lines, frames=frames) if lines else None


class Unframed(Bar):
    """Two frames for one line."""

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        return StatusText("flawed", ("- an item",), frames=(("- ", ""),) * 2) if state.calls else None


class Raw(Bar):
    """Writes todo texts as they are."""

    def lines(self, state: AgentState) -> list[str]:
        return [item.content for item in state.todos.items[:20]]


class RawTool(Bar):
    """Flattens lines, but leaves angle brackets."""

    def lines(self, state: AgentState) -> list[str]:
        return sorted(" ".join(tool.split()) for tool in state.calls)[:20]


class Bidi(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [flatten(item.content) + "\u202e" for item in state.todos.items[:20]]


class Leak(Bar):
    """Escapes, but redacts nothing."""

    def lines(self, state: AgentState) -> list[str]:
        text = state.latest.text if state.latest else ""
        return [" ".join(text.replace("<", "&lt;").split())[:200]] if state.calls and text else []


class Log(Bar):
    """One line for each call ever made."""

    def lines(self, state: AgentState) -> list[str]:
        return [
            f"{flatten(tool)} call" for tool, count in sorted(state.calls.items()) for _ in range(count.total)
        ]


class Everything(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [flatten(item.content) for item in state.todos.items]


class CutList(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [flatten(item.content) for item in state.todos.items[:5]]


class Shell(Bar):
    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        return StatusText("flawed", tuple(f"- {line}" for line in self.lines(state)))


class Talker(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return Bar.lines(self, state) or ["no tool has failed"]


class Fails(Bar):
    def lines(self, state: AgentState) -> list[str]:
        return [state.todos.items[0].content]
