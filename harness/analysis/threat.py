"""What a threat to validity is, and the words that the checks share. Knows tables and no check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.analysis.decisions import Row
from harness.analysis.table import Table

Tables = Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class Threat:
    """One finding. `grave`: it can change what the headline says; else it limits what may be concluded."""

    title: str
    text: str
    grave: bool = False


def rows_of(tables: Tables, name: str) -> list[dict[str, Any]]:
    """The rows of a table; none where the run has no such table."""
    return tables[name].rows() if name in tables else []


def confirmatory(tables: Tables) -> list[dict[str, Any]]:
    """The rows of the confirmatory family."""
    return [row for row in rows_of(tables, "comparisons") if row["label"] == "confirmatory"]


def is_known(value: object) -> bool:
    """Whether a value is a number and not nan."""
    return isinstance(value, int | float) and not pd.isna(value)


def number(value: Any) -> float:
    """A value that `is_known`, as a float."""
    return float(value)


def pair_name(row: Row) -> str:
    """The two conditions of a comparison."""
    return f"{row['condition']} against {row['against']}"


def names(names: Sequence[str]) -> str:
    """Names in a row."""
    return ", ".join(names) or "unnamed"


def be(names: Sequence[str]) -> str:
    """`is` or `are`."""
    return "is" if len(names) == 1 else "are"


def count(names: Sequence[str], noun: str) -> str:
    """A count with its noun."""
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'}"


def span(counts: Sequence[int]) -> str:
    """A range of ascending counts."""
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def at(data: object, *keys: str) -> object:
    """A value deep in nested mappings; None where a key is missing."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data
