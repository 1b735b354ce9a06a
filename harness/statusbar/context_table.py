"""`<context_table>`: the blocks of the context with their size, age and use, as a table.

Knows the state. `characters` are those of a message's content and of the calls that it makes, name and arguments in
JSON; its thinking is not counted. The table is bounded: of a long context it lists some blocks and says how many it
left out. Ages count requests, so its text changes with every request by design.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import ClassVar, Literal

from harness.state import AgentState
from harness.state.facts import Block
from harness.statusbar.base import BarContext, Frame, StatusText
from harness.statusbar.escape import flatten
from harness.statusbar.surroundings import Line, check_choice, check_positive, drawn, item

ROW: Frame = ("| ", " |")
COLUMNS = ("block", "kind", "characters", "age", "uses")
Which = Literal["newest", "largest"]


def row(*cells: str) -> str:
    """One row of a table; a bar inside a cell would be a column more."""
    return ROW[0] + " | ".join(cell.replace("|", "¦") for cell in cells) + ROW[1]


@dataclass(frozen=True, slots=True)
class ContextTable:
    """`most`: rows; `which`: the newest blocks, or the largest (it looks at every block then); oldest first in either
    case. `advice`: the last line, '' for none."""

    name: ClassVar[str] = "context_table"
    most: int = 20
    which: Which = "newest"
    advice: str = ""

    def __post_init__(self) -> None:
        check_positive("most", self.most)
        check_choice("which", self.which, Which)

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """None for an empty context."""
        return drawn("context_table", self._lines(state.blocks), "Context blocks:", self.advice)

    def _lines(self, blocks: Sequence[Block]) -> Iterator[Line]:
        if not blocks:
            return
        yield row(*COLUMNS), None
        yield row(*("---" for _ in COLUMNS)), None
        for block in self._chosen(blocks):
            numbers = (str(number) for number in (block.characters, block.age, block.uses))
            yield row(str(block.id), flatten(block.kind, 40), *numbers), ROW
        left = len(blocks) - self.most
        if left > 0:
            kind = "older" if self.which == "newest" else "smaller"
            yield item(f"{left} {kind} {'block' if left == 1 else 'blocks'} not listed")

    def _chosen(self, blocks: Sequence[Block]) -> list[Block]:
        if self.which == "newest":
            return list(islice(reversed(blocks), self.most))[::-1]
        return sorted(
            nlargest(self.most, blocks, key=lambda block: (block.characters, block.id)), key=lambda b: b.id
        )
