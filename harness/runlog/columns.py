"""Records and samples as flat arrow columns, and back.

The columns follow from the annotations in `harness.types`: nested dataclasses are flattened with '.',
mappings and optional dataclasses become canonical JSON, so every column has a type even when all its
values are None. `Timing` is left out: what the columns hold is the same in two runs of one configuration.
pyarrow is imported when needed. Knows no run folder.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from harness.errors import RunLogError
from harness.runlog.codec import canonical_json, from_plain, optional
from harness.types import EvalRecord, Timing

CHUNK = 512
"""Rows per row group: bounds memory, and is part of what makes the bytes reproducible."""


@dataclass(frozen=True, slots=True)
class Column:
    """One flat column: `name` is the dotted path, `kind` the annotation at its end."""

    name: str
    kind: Any


@cache
def columns(kind: type) -> tuple[Column, ...]:
    """The flat columns of a dataclass in field order; `Timing` is left out."""
    hints = _hints(kind)
    flat: list[Column] = []
    for part in fields(kind):
        hint = hints[part.name]
        if hint is Timing:
            continue
        if _is_data(hint):
            flat += [Column(f"{part.name}.{inner.name}", inner.kind) for inner in columns(hint)]
        else:
            flat.append(Column(part.name, hint))
    return tuple(flat)


def iterate_parquet(path: Path) -> Iterator[EvalRecord]:
    """The records of a samples.parquet, streamed; their times are empty.

    Raises RunLogError naming the file, and the row and column where one is wrong.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=CHUNK):
                for row in batch.to_pylist():
                    number += 1
                    yield _record_from_row(row)
    except RunLogError as error:
        raise RunLogError(f"{path}: row {number}: {error}") from None
    except (OSError, pa.ArrowException) as error:
        raise RunLogError(f"{path}: cannot be read as parquet ({error})") from error


# -- types ---------------------------------------------------------------------------------------


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _json_columns(kind: type) -> frozenset[str]:
    return frozenset(column.name for column in columns(kind) if _is_json(column.kind))


def _is_data(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


@cache
def _is_json(kind: Any) -> bool:
    """Mappings, and dataclasses that may be absent, are kept as canonical JSON."""
    inner = optional(kind)
    if inner is not None:
        return _is_data(inner) or _is_json(inner)
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _arrow_type(kind: Any) -> Any:
    import pyarrow as pa

    if _is_json(kind):
        return pa.string()
    inner = optional(kind)
    if inner is not None:
        return _arrow_type(inner)
    if get_origin(kind) is Literal:
        return pa.string()
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        # every tuple of integers in `harness.types` is a tuple of token ids
        return pa.list_(pa.int32() if item is int else _arrow_type(item))
    if _is_data(kind):
        hints = _hints(kind)
        return pa.struct([(part.name, _arrow_type(hints[part.name])) for part in fields(kind)])
    return {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}[kind]


@cache
def schema_of(kind: type) -> Any:
    """The `pyarrow.Schema` of the flat columns of `kind`."""
    import pyarrow as pa

    return pa.schema([(column.name, _arrow_type(column.kind)) for column in columns(kind)])


# -- rows to columns and back --------------------------------------------------------------------


@cache
def _converter(kind: Any) -> Callable[[Any], Any] | None:
    """What makes a value of `kind` into what pyarrow takes for it; None where nothing is to be done."""
    inner = optional(kind)
    if _is_json(kind):
        return lambda value: None if value is None else canonical_json(value)
    if inner is not None:
        convert = _converter(inner)
        return convert and (lambda value: None if value is None else convert(value))
    if kind is str:
        return _sound_text
    if get_origin(kind) is tuple:
        item = _converter(get_args(kind)[0])
        return item and (lambda value: [item(part) for part in value])
    if _is_data(kind):
        parts = [(part.name, _converter(_hints(kind)[part.name]) or _as_it_is) for part in fields(kind)]
        return lambda value: {name: convert(getattr(value, name)) for name, convert in parts}
    return None


def _as_it_is(value: Any) -> Any:
    return value


def _sound_text(text: str) -> str:
    """Parquet text is UTF-8: half a surrogate pair, which a provider can send, becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def batches(items: Iterable[Any], kind: type) -> Iterator[Any]:
    """`pyarrow.RecordBatch`es of at most `CHUNK` rows; RunLogError names a column whose type does not fit."""
    import pyarrow as pa

    schema = schema_of(kind)
    source = iter(items)
    while chunk := list(islice(source, CHUNK)):
        arrays = []
        for column, field in zip(columns(kind), schema, strict=True):
            values = map(attrgetter(column.name), chunk)
            convert = _converter(column.kind)
            try:
                cells = list(map(convert, values) if convert else values)
                arrays.append(pa.array(cells, type=field.type))
            except (pa.ArrowException, OverflowError, TypeError) as error:
                raise RunLogError(
                    f"column {column.name} cannot be written as {field.type}: {error}"
                ) from error
        yield pa.record_batch(arrays, schema=schema)


def _record_from_row(row: Mapping[str, Any]) -> EvalRecord:
    """Flat columns, nested again; columns of a newer version are refused by the decoder."""
    json_columns = _json_columns(EvalRecord)
    plain: dict[str, Any] = {"output": {"timing": {"started_at": ""}}}
    for name, value in row.items():
        *outer, last = name.split(".")
        place = plain
        for part in outer:
            place = place.setdefault(part, {})
        try:
            place[last] = json.loads(value) if name in json_columns and value is not None else value
        except (ValueError, TypeError) as error:
            raise RunLogError(f"{name}: expected JSON ({error})") from None
    record: EvalRecord = from_plain(EvalRecord, plain)
    return record
