"""What the bars about the surroundings share: lines with their frames, a time as coarse as wanted, and what the framework
stated beside the messages.

Knows the state. Never looks at the clock, the host, the working folder or the environment of the machine it runs on.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, get_args

from harness.state import AgentState
from harness.statusbar.base import LIST_ITEM, Frame, StatusText

Line = tuple[str, Frame | None]
"""A line and its frame; None: the placebo keeps the line as it is."""
PLAIN: Frame = ("", "")
"""A line of its own form: the placebo replaces the whole of it."""
Granularity = Literal["second", "minute", "day", "none"]
_LENGTHS = {"second": 19, "minute": 16, "day": 10}
"""Characters of `YYYY-MM-DD HH:MM:SS` that are said."""


def item(text: str) -> Line:
    """`- text`; what of it came from messages is escaped already."""
    return (f"{LIST_ITEM[0]}{text}", LIST_ITEM)


def drawn(tag: str, lines: Iterable[Line], heading: str = "", closing: str = "") -> StatusText | None:
    """The block of these lines, `closing` (a fixed line of advice) as the last one; None when there is no line."""
    kept = list(lines)
    if not kept:
        return None
    if closing:
        kept.append((closing, None))
    return StatusText(
        tag, tuple(text for text, _ in kept), heading=heading, frames=tuple(frame for _, frame in kept)
    )


def moment(time: str | None, granularity: Granularity) -> str | None:
    """`time` (ISO 8601) as `YYYY-MM-DD`, with ` HH:MM` or ` HH:MM:SS`, in the zone that it was written in; None for
    `none`, for an unknown time and for a text that is no time."""
    if time is None or granularity == "none":
        return None
    try:
        written = datetime.fromisoformat(time).replace(tzinfo=None)
    except ValueError:
        return None
    return written.isoformat(sep=" ", timespec="seconds")[: _LENGTHS[granularity]]


def known(state: AgentState, key: str) -> Any:
    """What the framework stated under `key` with the messages of this request, the newest word; None: nothing."""
    newest = (*reversed(state.arrived), *((state.latest,) if state.latest else ()))
    return next((latest.known[key] for latest in newest if latest.known.get(key) is not None), None)


def check_choice(option: str, value: str, choices: Any) -> None:
    """Raise ValueError unless `value` is one of the Literal `choices`."""
    allowed = get_args(choices)
    if value not in allowed:
        raise ValueError(f"{option} must be one of {', '.join(allowed)}, not {value!r}")


def check_positive(option: str, value: object) -> None:
    """Raise ValueError unless `value` is a whole number from 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{option} must be a whole number from 1, not {value!r}")


def texts(option: str, values: Sequence[str]) -> tuple[str, ...]:
    """`values` as a tuple; ValueError where it is one text or holds something else than texts."""
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{option} must be a list of texts, not {values!r}")
    return tuple(values)
