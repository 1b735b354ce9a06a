"""`<file_previews>`: how the files begin that the agent has read, newest first.

Knows the state. Each line of a file stands behind a bar (`| …`), so that no line of a file can pass for a path, a heading
or the advice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from harness.state import AgentState
from harness.state.surroundings import READ_CHARACTERS
from harness.statusbar.base import BarContext, Frame, StatusText
from harness.statusbar.escape import block, flatten
from harness.statusbar.surroundings import Line, check_positive, drawn, item

QUOTE: Frame = ("| ", "")


def quoted(line: str) -> Line:
    """A line of a file or memory, escaped already; one without a word (blank, a brace) the placebo keeps."""
    return (line, QUOTE) if any(character.isalnum() for character in line) else (line.rstrip(), None)


@dataclass(frozen=True, slots=True)
class FilePreviews:
    """`most`: files; `characters`, `lines`: of each; `advice`: the last line, '' for none."""

    name: ClassVar[str] = "file_previews"
    most: int = 12
    characters: int = READ_CHARACTERS
    lines: int = 60
    advice: str = "These are reminders: read a file again before you state what is in it."

    def __post_init__(self) -> None:
        for option in ("most", "characters", "lines"):
            check_positive(option, getattr(self, option))
        if self.characters > READ_CHARACTERS:
            raise ValueError(f"characters={self.characters}: expected at most {READ_CHARACTERS}")

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None before the first file was read."""
        return drawn("file_previews", self._previews(state), "Files read so far:", self.advice)

    def _previews(self, state: AgentState) -> Iterator[Line]:
        for read in sorted(state.reads, key=lambda read: -read.message)[: self.most]:
            yield item(flatten(read.path, 160))
            yield from _preview(read.text, self.characters, self.lines)


@lru_cache(maxsize=64)
def _preview(text: str, characters: int, lines: int) -> tuple[Line, ...]:
    """The quoted lines of one file; remembered, since a file stays in the list over many requests."""
    return tuple(quoted(line) for line in block(text, characters, QUOTE[0], lines))
