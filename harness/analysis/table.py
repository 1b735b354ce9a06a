"""The Table type: a data frame with its columns' decimals, and its CSV and Markdown writers.

Knows formatting and nothing of what is measured. The same data give the same bytes: fixed decimals, rows in
the order given, "\\n" line ends. An empty table says why it is empty.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

UNKNOWN = "–"
_BEGINS = re.compile(r"<(?=[A-Za-z/!?])|(?<=\])[(\[:]")
_CODE = re.compile(r"`[^`\n]+`")
_ENTITIES = {"<": "&lt;", "(": "&#40;", "[": "&#91;", ":": "&#58;"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
P_KEYS = ("p", "p_holm", "p_mcnemar")


@dataclass(frozen=True, slots=True)
class Shown:
    """One Markdown column: a single key, or (estimate, low, high) shown as `0.53 [0.40, 0.66]`."""

    header: str
    keys: tuple[str, ...]
    rare: bool = False
    """True for a column that most runs have nothing for: then it is left out without a word."""


@dataclass(frozen=True, slots=True)
class Table:
    """`columns`: key → decimals (None: text). `absent`: the reason that stands for a table without rows."""

    name: str
    title: str
    how_to_read: str
    columns: Mapping[str, int | None]
    shown: tuple[Shown, ...]
    data: pd.DataFrame
    absent: str = ""
    notes: tuple[str, ...] = ()
    grid: str = ""
    """A ready Markdown grid that replaces the one made from `shown`, for tables better read crosswise."""

    def to_csv(self) -> str:
        """All columns, fixed decimals; unknown is an empty field."""
        rows = [list(self.columns)]
        rows += [[self._field(row, key) for key in self.columns] for row in self.rows()]
        return "".join(",".join(_csv_field(field) for field in row) + "\n" for row in rows)

    def to_markdown(self) -> str:
        """Heading, how to read it, the grid (or why there is none), notes."""
        parts = [f"## {self.title}", self.how_to_read]
        if self.data.empty:
            parts.append(f"Not measured (n = 0): {self.absent}")
        else:
            parts.append(self.grid or self._grid())
        parts += [literal(note) for note in self.notes]
        return "\n\n".join(parts) + "\n"

    def rows(self) -> list[dict[str, object]]:
        """The data as a list of plain dicts, in order."""
        return [{str(k): v for k, v in row.items()} for row in self.data.to_dict("records")]

    def texts(self) -> tuple[list[str], list[list[str]], list[str]]:
        """Headers and body as they are shown, and the headers left out because no row knows them (in the CSV they stay)."""
        if self.grid:
            return *grid_texts(self.grid), []
        rows = self.rows()
        texts = {column: [self._shown(row, column) for row in rows] for column in self.shown}
        known = [column for column in self.shown if set(texts[column]) - {UNKNOWN, ""}]
        body = [[texts[column][i] for column in known] for i in range(len(rows))]
        lost = [column.header for column in self.shown if not column.rare and set(texts[column]) == {UNKNOWN}]
        return [column.header for column in known], body, lost

    def _grid(self) -> str:
        headers, body, lost = self.texts()
        return markdown_grid(headers, body) + (
            f"\n\nUnknown in every row: {', '.join(lost)}." if lost else ""
        )

    def _shown(self, row: Mapping[str, object], column: Shown) -> str:
        if column.keys[0] in P_KEYS:
            return p_value(row.get(column.keys[0])).removeprefix("= ")
        texts = [self._text(row, key, UNKNOWN) for key in column.keys]
        return with_interval(texts)

    def _field(self, row: Mapping[str, object], key: str) -> str:
        """A field of the CSV. A text that a spreadsheet would take for a formula gets an apostrophe before it."""
        text = self._text(row, key, "")
        return "'" + text if self.columns[key] is None and text.startswith(_FORMULA) else text

    def _text(self, row: Mapping[str, object], key: str, unknown: str) -> str:
        return fixed(row.get(key), self.columns[key], unknown)


def frame(columns: Mapping[str, int | None], rows: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """A data frame with exactly these columns, in order; missing values stay None or nan."""
    return pd.DataFrame([dict(row) for row in rows], columns=pd.Index(list(columns)))


def known(row: Mapping[str, object], key: str) -> float | None:
    """The number under `key`, or None where it is missing, no number or nan."""
    value = row.get(key)
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None  # type: ignore[arg-type]


def fixed(value: object, decimals: int | None, unknown: str = UNKNOWN) -> str:
    """A value in fixed decimals; None and nan become `unknown`; there is no minus zero."""
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return unknown
    if decimals is None:
        return str(value)
    text = f"{float(value):.{decimals}f}"  # type: ignore[arg-type]
    return text.lstrip("-") if text.startswith("-") and float(text) == 0 else text


def p_value(value: object) -> str:
    """A p value with its sign of comparison: `= 0.0312`, or `< 0.0001`."""
    text = fixed(value, 4)
    return "< 0.0001" if text == "0.0000" else text if text == UNKNOWN else f"= {text}"


def with_interval(texts: list[str]) -> str:
    """`a`, or `a [b, c]`; without the brackets when either bound is unknown."""
    if len(texts) == 3 and UNKNOWN not in texts[1:]:
        return f"{texts[0]} [{texts[1]}, {texts[2]}]"
    return texts[0]


def markdown_grid(headers: list[str], body: list[list[str]]) -> str:
    """A Markdown table; pipes inside cells are escaped, as is what would begin an element or a link (in a cell that is
    all code nothing does)."""
    lines = [headers, ["---"] * len(headers), *body]
    return "\n".join(
        "| " + " | ".join(_cell(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _cell(text: str) -> str:
    return text if _CODE.fullmatch(text) else literal(text)


def literal(text: str) -> str:
    """Markdown that begins no element, no link and no line of its own: names come from a configuration or from a run that
    somebody else made."""
    return _BEGINS.sub(lambda found: _ENTITIES[found.group()], " ".join(text.split("\n")))


def _plain(cell: str) -> str:
    for sign, entity in _ENTITIES.items():
        cell = cell.replace(entity, sign)
    return cell.replace("\\|", "|")


def grid_texts(grid: str) -> tuple[list[str], list[list[str]]]:
    """Headers and body of a grid that `markdown_grid` made."""
    lines = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in grid.split("\n")]
    headers, _, *body = [[_plain(cell) for cell in line] for line in lines]
    return headers, body


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text
