"""`[YYYY-MM-DD HH:MM:SS]` at each user message and tool result.

Knows the time that a message states, as it states it: its own offset, never the clock of this machine. Where the whole
transcript states none, a made-up clock runs from `start` by one `step` per message, so that the bar can be measured on
transcripts without times.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Literal, get_args

from harness.state import AgentState
from harness.statusbar.base import BarContext, Moment, StatusText

Granularity = Literal["day", "minute", "second"]

DAY = 86_400
LAST_YEAR = 2999
"""Latest year of `start`: a day per message then lasts for two million messages."""


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The stamp of the newest message. `granularity`: how much of the time is shown; what is finer is cut off, never
    rounded, so that a stamp is never ahead of its message."""

    name: ClassVar[str] = "timestamps"
    moment: ClassVar[Moment] = "input"
    granularity: Granularity = "second"
    start: str | None = "2026-03-02T09:00:00"
    """Made-up time of message 0, ISO 8601; None: a message without a time gets no stamp."""
    step: int = 60
    """Seconds of the made-up clock per message."""

    def __post_init__(self) -> None:
        if self.granularity not in get_args(Granularity):
            raise ValueError(
                f"granularity={self.granularity!r}: expected {' or '.join(get_args(Granularity))}"
            )
        if not 0 <= self.step <= DAY:
            raise ValueError(f"step={self.step}: expected seconds from 0 to {DAY}")
        if self.start is not None:
            parsed = _parse(self.start)
            if parsed is None or parsed.year > LAST_YEAR:
                raise ValueError(
                    f"start={self.start!r}: expected an ISO 8601 time up to the year {LAST_YEAR}"
                )

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """One line, or None where no time is known."""
        stamp = self._stamp(state)
        if stamp is None:
            return None
        return StatusText(tag="", heading="", lines=(f"[{stamp}]",), frames=(("[", "]"),))

    def _stamp(self, state: AgentState) -> str | None:
        latest = state.latest
        if latest is None:
            return None
        stated = _parse(latest.time) if latest.time is not None else None
        if stated is not None:
            # A bare date has no time of day; midnight would be made up.
            return self._show(stated, "day" if len(latest.time or "") <= 10 else self.granularity)
        if state.time is not None or self.start is None:
            # This transcript has a clock of its own: a made-up time among true ones would be a false one.
            return None
        start = _parse(self.start)
        assert start is not None
        return self._show(start + timedelta(seconds=self.step * latest.number), self.granularity)

    @staticmethod
    def _show(time: datetime, granularity: Granularity) -> str:
        return time.isoformat(sep=" ")[: {"day": 10, "minute": 16, "second": 19}[granularity]]


def _parse(text: str) -> datetime | None:
    """ISO 8601 → datetime; None for anything else."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
