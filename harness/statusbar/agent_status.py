"""`<agent_status>`: how often each tool was called, and how each rule stands.

By default two lines under the heading: one sums the calls by tool and key, one states the constraint for every
key value that occurs, on both sides of the limit, so that the bar informs and does not only forbid.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.renderings import RenderingName, Standing, Tally, rendered

TAG = "agent_status"
Says = Literal["verdict", "limit", "counts"]


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The counter bar of the call-limit experiment.

    `rendering`: the form. `says`: counts, limits and how the calls stand against them (`verdict`), counts and limits
    (`limit`), or `counts` alone. `advice`: a last line on what to do with it; the placebo keeps it.
    """

    name: ClassVar[str] = "agent_status"
    tag: str = TAG
    rendering: RenderingName = "key_value"
    says: Says = "verdict"
    advice: str = ""

    def __post_init__(self) -> None:
        for field, kind in (("rendering", RenderingName), ("says", Says)):
            if getattr(self, field) not in get_args(kind):
                raise ValueError(
                    f"{field}={getattr(self, field)!r}: expected one of {', '.join(get_args(kind))}"
                )

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None when no tool was called yet."""
        if not state.calls:
            return None
        keys = {rule.tool: rule.key for rule in context.rules}
        tallies = tuple(
            Tally(tool, counted.total, counted.by_key(keys[tool]) if tool in keys else None)
            for tool, counted in state.calls.items()
        )
        standings = tuple(
            Standing(rule.tool, rule.key, rule.limit, self._counts(state, rule.tool, rule.key))
            for rule in context.rules
            if self.says != "counts"
        )
        lines = list(rendered(self.rendering, tallies, standings))
        if self.advice:
            lines.append((self.advice, None))
        return StatusText(
            self.tag, tuple(line for line, _ in lines), frames=tuple(frame for _, frame in lines)
        )

    def _counts(self, state: AgentState, tool: str, key: str) -> dict[str, int] | None:
        if self.says != "verdict":
            return None
        return dict(state.calls[tool].by_key(key)) if tool in state.calls else {}
