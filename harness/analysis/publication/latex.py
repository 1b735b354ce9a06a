r"""A Table as LaTeX: booktabs tabulars with the columns of its Markdown, every cell escaped.

Knows Markdown grids, which is what every Table can write, also those that are better read crosswise. A grid of more
rows or columns than fit a page becomes several tabulars; each has the columns that say what a row is.
"""

import math
import re
import textwrap
from dataclasses import dataclass

from harness.analysis.publication.prose import escape_latex, to_latex
from harness.analysis.table import UNKNOWN, Table, grid_texts

MOST_ROWS = 42
"""Lines of a tabular: what fits a page at \\footnotesize."""
MOST_CHARS = 150
"""Characters of a row, gaps included: what is legible across both columns of a page."""
KEY_COLUMNS, KEY_CHARS = 4, 75
"""The columns that stand in every part of a wide grid: the first ones that hold no values, at most so many."""
HEADER, TEXT = 10, 24
"""Characters at which a heading and a column of prose are broken into lines."""
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")
_VALUE = re.compile(r"[<=−\-]?\s?[\d.]")
_NUMBER = re.compile(r"[<=−\-]?\s?[\d.,]+( %)?( \[.*\])?$")


@dataclass(frozen=True, slots=True)
class Grid:
    """One grid of a table. `heading` names it where the table has several."""

    heading: str
    headers: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]


def grids(table: Table) -> tuple[list[Grid], list[str]]:
    """The table's grids, and the sentences that stand below them; no grid for a table without rows."""
    if table.data.empty:
        return [], [f"Not measured (n = 0): {table.absent}", *table.notes]
    if not table.grid:
        headers, body, lost = table.texts()
        unknown = [f"Unknown in every row: {', '.join(lost)}."] if lost else []
        return [_grid("", headers, body)], [*unknown, *table.notes]
    found: list[Grid] = []
    notes: list[str] = []
    heading = ""
    for block in table.grid.split("\n\n"):  # several grids under headings, and notes between them
        if block.startswith("| "):
            found.append(_grid(heading, *grid_texts(block)))
            heading = ""
        elif block.startswith("**"):
            heading = block.replace("**", "")
        else:
            notes.append(block)
    return found, [*notes, *table.notes]


def _grid(heading: str, headers: list[str], body: list[list[str]]) -> Grid:
    return Grid(heading, tuple(headers), tuple(tuple(line) for line in body))


def tabulars(table: Table) -> list[str]:
    """The table's tabulars, each a text of its own; a table without rows has one that says why."""
    found, _ = grids(table)
    if not found:
        return [_framed("l", [rf"\textit{{not measured: {to_latex(table.absent)}}} \\"])]
    return [text for grid in found for text in _tabular(grid)]


@dataclass(frozen=True, slots=True)
class _Column:
    header: str
    cells: tuple[str, ...]

    def every(self, pattern: re.Pattern[str]) -> bool:
        """Whether all known cells look like this, and there are any."""
        known = [cell for cell in self.cells if cell not in ("", UNKNOWN)]
        return bool(known) and all(pattern.match(cell) for cell in known)

    @property
    def prose(self) -> bool:
        return max(map(len, self.cells), default=0) > TEXT and not self.every(_VALUE)

    @property
    def chars(self) -> int:
        words = max(map(len, self._lines()), default=0)
        cells = max(map(len, self.cells), default=0)
        return max(words, min(cells, TEXT) if self.prose else cells) + 1

    @property
    def alignment(self) -> str:
        width = r">{\raggedright\arraybackslash}p{11em}"
        return width if self.prose else "r" if self.every(_NUMBER) else "l"

    @property
    def heading(self) -> str:
        lines = [_cell(line) for line in self._lines()]
        if len(lines) == 1:
            return lines[0]
        stacked = r"\\".join(lines)
        return rf"\shortstack[{'r' if self.alignment == 'r' else 'l'}]{{{stacked}}}"

    def _lines(self) -> list[str]:
        return textwrap.wrap(self.header, HEADER, break_long_words=False, break_on_hyphens=False) or [""]


def _tabular(grid: Grid) -> list[str]:
    cells = list(zip(*grid.body, strict=True)) if grid.body else [()] * len(grid.headers)
    columns = [_Column(header, part) for header, part in zip(grid.headers, cells, strict=True)]
    made: list[str] = []
    for block in _blocks(columns):
        for part in _parts(block, len(grid.body)):
            said = grid.heading + (" (continued)" if made and grid.heading else "")
            title = (
                [rf"\multicolumn{{{len(block)}}}{{l}}{{{escape_latex(said)}}} \\", r"\midrule"]
                if said
                else []
            )
            head = " & ".join(column.heading for column in block) + r" \\"
            rows = [" & ".join(_cell(column.cells[i]) for column in block) + r" \\" for i in part]
            alignment = "".join(column.alignment for column in block)
            made.append(_framed(alignment, [*title, head, r"\midrule", *rows]))
    return made


def _parts(block: list[_Column], rows: int) -> list[list[int]]:
    """Numbers of the rows, in parts that fit a page with the lines that prose is broken into."""
    parts: list[list[int]] = [[]]
    left = MOST_ROWS
    for i in range(rows):
        lines = max([1, *(math.ceil(len(column.cells[i]) / TEXT) for column in block if column.prose)])
        if lines > left and parts[-1]:
            parts.append([])
            left = MOST_ROWS
        parts[-1].append(i)
        left -= lines
    return parts


def _blocks(columns: list[_Column]) -> list[list[_Column]]:
    """The columns in parts that are narrow enough, the key columns first in each."""
    keys: list[_Column] = []
    for column in columns[:KEY_COLUMNS]:
        if column.every(_VALUE) or sum(key.chars for key in [*keys, column]) > KEY_CHARS:
            break
        keys.append(column)
    blocks = [list(keys)]
    for column in columns[len(keys) :]:
        full = sum(other.chars for other in [*blocks[-1], column]) > MOST_CHARS
        if full and len(blocks[-1]) > len(keys):
            blocks.append(list(keys))
        blocks[-1].append(column)
    return blocks


def _framed(alignment: str, lines: list[str]) -> str:
    start = rf"\begin{{tabular}}{{{alignment}}}"
    return "\n".join([start, r"\toprule", *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _cell(text: str) -> str:
    """An asterisk or a bracket at the start would belong to the line break of the row before."""
    plain = escape_latex(_MINUS.sub("−", text.replace("`", "")))
    return f"{{}}{plain}" if plain.startswith(("[", "*")) else plain
