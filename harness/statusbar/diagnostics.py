"""`<diagnostics file="…">`: what a compiler or language server says about the files that were just edited.

Knows the state's diagnostics and which files were written to since the last request. Without a source it draws
nothing and never fails. One block per file; since a StatusText has one tag, and a tag says the same whatever the
state, the blocks' own tags are lines here: a file name stands in the frame of its line, and the placebo replaces it
like any other content.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from harness.state import AgentState, Diagnostic
from harness.state.results import known_complaints
from harness.statusbar.base import BarContext, Frame, StatusText
from harness.statusbar.escape import flatten

Scope = Literal["edited", "all"]

OPENING: Frame = ('<diagnostics file="', '">')
ITEM: Frame = (" ", "")
CLOSING = "</diagnostics>"


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """One block per file, files by name, complaints by line and column.

    `scope` edited: once, at the first request after the edit; all: as long as a file has complaints. `per_file` and
    `files` bound the bar, `width` the characters of a message, whose first line alone is shown.
    """

    name: ClassVar[str] = "diagnostics"
    scope: Scope = "edited"
    files: int = 5
    per_file: int = 20
    width: int = 160

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise ValueError(f"scope={self.scope!r}: expected {' or '.join(get_args(Scope))}")
        if min(self.files, self.per_file, self.width) < 1:
            raise ValueError(
                f"files={self.files}, per_file={self.per_file}, width={self.width}: expected 1 or more of each"
            )

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """The blocks, or None when no file in scope has complaints."""
        wanted = sorted(file for file, found in state.diagnostics.items() if found)
        if self.scope == "edited":
            touched = _touched(state)
            wanted = [file for file in wanted if any(_same(file, path) for path in touched)]
        lines: list[str] = []
        frames: list[Frame | None] = []
        for file in wanted[: self.files]:
            block = self._block(state.diagnostics[file])
            lines += [f"{OPENING[0]}{_attribute(file)}{OPENING[1]}", *block, CLOSING]
            frames += [OPENING, *[ITEM] * len(block), None]
        if len(wanted) > self.files:
            lines.append(f"and {_of(len(wanted) - self.files, 'file')} more")
            frames.append(("", ""))
        return StatusText(tag="", heading="", lines=tuple(lines), frames=tuple(frames)) if lines else None

    def _block(self, found: Sequence[Diagnostic]) -> list[str]:
        # The same complaint of two servers is one; their order of arrival says nothing.
        ordered = sorted(set(found), key=lambda each: (each.line, each.column, each.severity, each.message))
        lines = [f" {self._line(each)}" for each in ordered[: self.per_file]]
        if len(ordered) > self.per_file:
            lines.append(f" and {_of(len(ordered) - self.per_file, 'diagnostic')} more")
        return lines

    def _line(self, each: Diagnostic) -> str:
        first = next(iter(each.message.strip().splitlines()), "")
        return f"{flatten(each.severity.upper())} [{each.line}:{each.column}] {flatten(first, self.width)}".rstrip()


def _touched(state: AgentState) -> tuple[str, ...]:
    """Files of this request's edits: those written to, and those that an edit's result came with diagnostics for."""
    reported = (known_complaints(latest.known) or {} for latest in state.arrived)
    return (*state.edited, *(file for found in reported for file in found))


def _same(one: str, other: str) -> bool:
    """Is it one file, although a server may name it by its full path and the agent by a shorter one?"""
    one, other = one.removeprefix("./"), other.removeprefix("./")
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


def _attribute(value: str) -> str:
    return flatten(value, 200).replace('"', "&quot;")


def _of(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
