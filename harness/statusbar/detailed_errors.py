"""A failed result explained in four layers: what went wrong, the call's arguments in full, the stack, what to do next.

Knows the newest result, the call that it answers, and what the framework knew beside it (`known`: stack, advice). Each
layer can be left out; secrets in arguments and stack are redacted before anything is cut.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.state import AgentState, Latest
from harness.statusbar.base import LIST_ITEM, BarContext, Frame, Moment, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.redact import REDACTED, redact
from harness.types import ToolCall

TAG = "error_details"
STACK_LINE: Frame = ("  ", "")
DEPTH = 8
"""Levels of nested arguments that are shown."""
AHEAD = 8192
"""Characters beyond the bound in which a secret is looked for."""
PROBE = "aZ3xQ9vL2kW7"
"""Looks like a secret: under a key whose value would be redacted, every value is one."""


@dataclass(frozen=True, slots=True)
class DetailedErrors:
    """Four layers on a failed result, each on or off. `width` bounds the characters of error text, arguments and
    advice, `stack_lines` the lines of the stack, of which the last ones say most."""

    name: ClassVar[str] = "detailed_errors"
    moment: ClassVar[Moment] = "result"
    text: bool = True
    arguments: bool = True
    stack: bool = True
    advice: bool = True
    otherwise: str = (
        "Compare the arguments with what the tool expects, change what is wrong, then call it again."
    )
    """Advice where the framework has none; '' for none."""
    width: int = 600
    stack_lines: int = 8

    def __post_init__(self) -> None:
        if min(self.width, self.stack_lines) < 1:
            raise ValueError(
                f"width={self.width}, stack_lines={self.stack_lines}: expected 1 or more of each"
            )
        if not (self.text or self.arguments or self.stack or self.advice):
            raise ValueError("text, arguments, stack and advice are all off: leave at least one layer on")

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """The layers, or None where the newest message is no failed result or no layer has anything to say."""
        latest = state.latest
        if latest is None or latest.role != "tool" or not latest.failed:
            return None
        items: list[str] = []
        if self.text:
            items.append(f"- Error: {flatten(_stated(latest), self.width)}")
        if self.arguments and latest.call is not None:
            items.append(self._arguments(latest.call))
        stack = self._stack(latest.known.get("stack")) if self.stack else ()
        if stack:
            items.append("- Stack, innermost last:")
        advice = self._advice(latest.known.get("advice")) if self.advice else None
        lines = (*items, *stack, *((advice,) if advice else ()))
        frames = (*[LIST_ITEM] * len(items), *[STACK_LINE] * len(stack), *((LIST_ITEM,) if advice else ()))
        return StatusText(tag=TAG, heading="", lines=lines, frames=frames) if lines else None

    def _arguments(self, call: ToolCall) -> str:
        # Values are cleaned before they are written as JSON, whose escapes would hide a secret of several lines.
        clean = {
            str(key): _clean(value, str(key), self.width, DEPTH) for key, value in call.arguments.items()
        }
        written = json.dumps(clean, ensure_ascii=False)
        return f"- Arguments of '{flatten(call.name)}': {flatten(written, self.width)}"

    def _stack(self, stack: object) -> tuple[str, ...]:
        if not isinstance(stack, str):
            return ()
        lines = [line for line in redact(stack[-self._stack_chars :]).splitlines() if line.strip()]
        if len(stack) > self._stack_chars:
            lines = lines[1:]  # its beginning is cut off, and with it perhaps half of a secret
        return tuple(STACK_LINE[0] + flatten(line, 160) for line in lines[-self.stack_lines :])

    @property
    def _stack_chars(self) -> int:
        return 400 * self.stack_lines + AHEAD

    def _advice(self, known: object) -> str | None:
        text = known if isinstance(known, str) and known.strip() else self.otherwise
        return f"- Advice: {flatten(text, self.width)}" if text.strip() else None


def _stated(latest: Latest) -> str:
    """The kind of error and its text; of a traceback the last line, which names what was raised."""
    text = latest.text.strip()
    if text.startswith("Traceback (most recent call last)"):
        text = text.splitlines()[-1].strip()
    if text[:6].lower() == "error:":
        text = text[6:].strip()  # the line says so already
    kind = "" if latest.error.lower() == "error" or text.startswith(latest.error) else latest.error
    return ": ".join(part for part in (kind, text) if part) or "no text"


def _clean(value: Any, key: str, width: int, depth: int) -> Any:
    """`value` without secrets and without what would never be shown: strings longer than `width`, deep nesting."""
    if isinstance(value, Mapping):
        if depth <= 0:
            return "…"
        return {str(k): _clean(v, str(k), width, depth - 1) for k, v in list(value.items())[:width]}
    if isinstance(value, list | tuple):
        return [_clean(each, key, width, depth - 1) for each in value[:width]] if depth > 0 else "…"
    if value is None or isinstance(value, bool):
        return value
    if REDACTED in redact(f"{key}={PROBE}"):
        return REDACTED
    if isinstance(value, int | float):
        return value
    return redact(str(value)[: width + AHEAD])[: width + 1]
