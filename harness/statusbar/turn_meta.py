"""`<turn_meta>`: the day, and the files that the work is about (the working set).

Knows the state and its options. The date stops at the day by default, so that the block is the same byte for byte within
a day as long as the work stays at the same paths. What a repository looks like from outside (key files, top folders) and
how a request was routed (model, effort, permissions) is in no message: it comes as options.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.surroundings import (
    PLAIN,
    Granularity,
    Line,
    check_choice,
    check_positive,
    drawn,
    item,
    known,
    moment,
    texts,
)

MOST_SKILLS = 6
MOST_OVERVIEW = 12
"""Key files, or top folders, that are named."""
PATH_LIMIT = 160
_WORD = re.compile(r"[^\W_]{3,}")


@dataclass(frozen=True, slots=True)
class TurnMeta:
    """Made for the first block of a user message (placement `before`, policy `event`), or the last one.

    `model`, `effort`: stated only where a router chose them, that is where the option is set. `workspace`: '' for what
    the framework stated. `skills`: what the framework offers; with `tools_as_skills` the names of the offered tools
    after them; with `matching` only those of which a word occurs in a user message that is new. `git`: a line in the
    request with which the framework stated one (`known["git"]`), which it does when it has changed.
    """

    name: ClassVar[str] = "turn_meta"
    date: Granularity = "day"
    model: str = ""
    effort: str = ""
    permissions: str = ""
    workspace: str = ""
    key_files: tuple[str, ...] = ()
    top_folders: tuple[str, ...] = ()
    shown: int = 8
    skills: tuple[str, ...] = ()
    tools_as_skills: bool = False
    matching: bool = True
    git: bool = False
    advice: str = "Look with a tool where you are unsure, and keep changes to these paths."

    def __post_init__(self) -> None:
        check_choice("date", self.date, Granularity)
        check_positive("shown", self.shown)
        for option in ("key_files", "top_folders", "skills"):
            object.__setattr__(self, option, texts(option, getattr(self, option)))

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """Routing, working set, skills; None when none of them has anything to say."""
        return drawn("turn_meta", (*self._routing(state), *self._working_set(state), *self._skills(state)))

    def _routing(self, state: AgentState) -> Iterator[Line]:
        now = moment(state.time or state.date, self.date)
        git = known(state, "git") if self.git else None
        values = {
            "Current date" if self.date == "day" else "Current time": now,
            "Model": flatten(self.model),
            "Effort": flatten(self.effort),
            "Permissions": flatten(self.permissions),
            "Git": flatten(git) if isinstance(git, str) else "",
        }
        for label, value in values.items():
            if value:
                yield f"{label}: {value}", PLAIN

    def _working_set(self, state: AgentState) -> Iterator[Line]:
        root = self.workspace or state.workspace
        workspace = flatten(root, PATH_LIMIT)
        active = sorted(state.working_set, key=lambda path: (-path.touches, path.path))[: self.shown]
        if not (workspace or self.key_files or self.top_folders or active):
            return
        yield "## Repo Working Set", None
        overview = {
            "Workspace": workspace,
            "Key files": _listed(self.key_files),
            "Top folders": _listed(self.top_folders),
        }
        for label, value in overview.items():
            if value:
                yield f"{label}: {value}", PLAIN
        if not active:
            return
        yield "Active paths:", None
        for path in active:
            yield item(f"{flatten(_within(root, path.path), PATH_LIMIT)} ({path.kind})")
        if self.advice:
            yield self.advice, None

    def _skills(self, state: AgentState) -> Iterator[Line]:
        offered = (*self.skills, *((tool.name for tool in state.tools) if self.tools_as_skills else ()))
        if self.matching:
            asked = {word for said in state.arrived if said.role == "user" for word in _words(said.text)}
            offered = tuple(skill for skill in offered if asked & _words(skill))
        if offered:
            yield f"Skills: {_listed(offered, MOST_SKILLS)}", PLAIN


def _listed(names: tuple[str, ...], most: int = MOST_OVERVIEW) -> str:
    return ", ".join(flatten(name) for name in names[:most])


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _within(root: str, path: str) -> str:
    """`path` from the workspace on where it lies in it."""
    folder = root.rstrip("/") + "/"
    return path[len(folder) :] if root and path.startswith(folder) and path != folder else path
