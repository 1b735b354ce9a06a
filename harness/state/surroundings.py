"""What lies around the conversation: paths that it touches, files read and edited, and what is wrong in them.

Knows calls and results by their form (harness/state/{paths,results}.py) and no file system. Everything is bounded by a
constant per message; what a snapshot holds is a tuple that is made anew only when it changes.
"""

from collections.abc import Iterable

from harness.state.facts import ActivePath, Diagnostic, FileRead
from harness.state.paths import Deed, deed_of, kind_of, paths_of
from harness.state.results import complaints, known_complaints
from harness.state.todos import writes
from harness.state.views import History, Window
from harness.types import Message, ToolCall

MAX_PATHS = 16
MAX_READS = 12
READ_CHARACTERS = 1200
"""Characters of a file that a bar may show."""
READ_KEPT = 12_000
"""Characters of a file that are kept: a secret across the end of what is shown must be whole to be known for one, and
what goes before it grows shorter where it holds secrets itself."""


class Surroundings:
    """The fold over paths. `version` is the number of messages, the current one included."""

    def __init__(self) -> None:
        self.working_set: tuple[ActivePath, ...] = ()
        self.reads: tuple[FileRead, ...] = ()
        self.diagnostics: History[tuple[Diagnostic, ...]] = History()
        self._edited: dict[str, None] = {}
        self._edits: list[str] = []
        self._touches: dict[str, int] = {}
        self._top: dict[str, ActivePath] = {}

    @property
    def edited(self) -> Window[str]:
        return Window(self._edits)

    def request(self) -> None:
        """An assistant message: what is new since the last request begins again."""
        if self._edits:
            self._edited, self._edits = {}, []

    def touch(self, paths: Iterable[str]) -> None:
        """One touch more of each path. The most touched are kept: since touches only grow, no path comes in among
        them but by its own touch, so the rest need not be looked at."""
        changed = False
        for path in paths:
            touches = self._touches[path] = self._touches.get(path, 0) + 1
            active = ActivePath(path, kind_of(path), touches)
            if path in self._top or len(self._top) < MAX_PATHS:
                self._top[path] = active
            else:
                last = max(self._top.values(), key=_rank)
                if _rank(active) > _rank(last):
                    continue
                del self._top[last.path]
                self._top[path] = active
            changed = True
        if changed:
            self.working_set = tuple(sorted(self._top.values(), key=_rank))

    def result(self, call: ToolCall, message: Message, failed: bool, version: int) -> None:
        """A result and the call that it answers. A call that failed has read and changed nothing, but may complain."""
        deed = "" if writes(call) else deed_of(call)
        paths = paths_of(call) if deed in ("read", "edit") else ()
        if deed == "read" and paths and not failed:
            read = FileRead(paths[0], message.content[:READ_KEPT], version - 1)
            others = [each for each in self.reads if each.path != read.path]
            self.reads = (read, *others[: MAX_READS - 1])
        if deed == "edit" and not failed:
            for path in paths:
                self.diagnostics.put(path, None, version)
                if path not in self._edited:
                    self._edited[path] = None
                    self._edits.append(path)
        for file, found in self._complaints(deed, message).items():
            self.diagnostics.put(file, found, version)

    @staticmethod
    def _complaints(deed: Deed, message: Message) -> dict[str, tuple[Diagnostic, ...]]:
        known = known_complaints(message.known)
        if known is not None:
            return known
        return complaints(message.content) if deed in ("edit", "run") else {}


def _rank(active: ActivePath) -> tuple[int, str]:
    return (-active.touches, active.path)
