"""Frozen dataclasses of `harness.types` to JSON and back, exactly.

Encoding leans on the C encoder of `json`: tuples go out as arrays as they are, and only the
dataclasses among them cost a Python call, so a row of 900 token ids takes tens of microseconds.
Decoding is compiled once per type from its annotations and checks what it reads, so that a row
edited by hand fails with the key that is wrong. Knows nothing of files or folders.
"""

import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from harness.errors import RunLogError
from harness.types import EvalRecord

Decode = Callable[[Any], Any]


def record_to_json(record: EvalRecord) -> str:
    """One row of the run log, without its newline; ASCII, keys in field order.

    Raises RunLogError, naming the key, when a value has no exact JSON form (NaN, infinity, an object).
    """
    return _encode(record, _ROW)


def record_from_json(line: str) -> EvalRecord:
    """The record that `record_to_json` wrote: tuples, None and floats exactly as they were.

    Raises RunLogError, naming the key, when the line is no JSON or not a whole, valid record. Keys
    whose field has a default may be absent, so that rows older than a new field stay readable.
    """
    try:
        plain = _READER.decode(line)
    except (ValueError, RecursionError) as error:
        raise RunLogError(f"the row is not valid JSON: {error}") from None
    record: EvalRecord = from_plain(EvalRecord, plain)
    return record


def canonical_json(value: Any) -> str:
    """Plain data or dataclasses as JSON with sorted keys and no spaces: equal data, equal text."""
    return _encode(value, _CANONICAL)


def from_plain(kind: Any, plain: Any) -> Any:
    """Plain JSON data as the dataclass `kind`; RunLogError names the first key that does not fit."""
    try:
        return decoder(kind)(plain)
    except _MismatchError as error:
        raise RunLogError(f"the row is not a valid record: {error}") from None


def optional(kind: Any) -> Any | None:
    """`T` when `kind` is `T | None`, else None."""
    if get_origin(kind) in (Union, types.UnionType):
        inner = [part for part in get_args(kind) if part is not type(None)]
        if len(inner) == 1:
            return inner[0]
    return None


# -- writing -------------------------------------------------------------------------------------


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind))


def _default(value: Any) -> Any:
    """Called by the JSON encoder for what it does not know."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _names(type(value))}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no plain data")


_ROW = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_default)
_CANONICAL = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_default, sort_keys=True)


def _encode(value: Any, encoder: json.JSONEncoder) -> str:
    try:
        return encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        where = _culprit(value, "", 0)
        raise RunLogError(
            f"{where or 'a value'} cannot be written as JSON: {error}; expected finite numbers, text, "
            "lists and mappings"
        ) from None


def _culprit(value: Any, path: str, depth: int) -> str | None:
    """Dotted path of the first value that JSON cannot hold (only walked after a failure)."""
    if depth > 100:
        return f"{path} (nested too deeply)"
    if value is None or isinstance(value, (str, bool, int)):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if isinstance(value, (list, tuple)):
        parts = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        try:
            parts = [(f"{path}.{key}".lstrip("."), item) for key, item in _as_dict(value).items()]
        except TypeError:
            return path
    return next((found for name, item in parts if (found := _culprit(item, name, depth + 1))), None)


def _as_dict(value: Any) -> dict[Any, Any]:
    plain: dict[Any, Any] = value if isinstance(value, dict) else _default(value)
    return plain


# -- reading -------------------------------------------------------------------------------------


class _MismatchError(ValueError):
    """A value does not fit its field; `path` grows as the error climbs out."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path

    def inside(self, key: str) -> "_MismatchError":
        return _MismatchError(self.problem, f"{key}.{self.path}".rstrip("."))

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is out of range")
    return number


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


_READER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)


def _wrong(expected: str, found: Any) -> _MismatchError:
    shown = repr(found)
    return _MismatchError(f"expected {expected}, found {shown if len(shown) <= 60 else shown[:57] + '...'}")


@cache
def decoder(kind: Any) -> Decode:
    """Compiles the annotation `kind` into a function from plain JSON data to its value."""
    if kind is Any:
        return lambda value: value
    if kind in (int, str, bool):
        return _scalar(kind)
    if kind is float:
        return _number
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind)
    inner = optional(kind)
    if inner is not None:
        decode_inner = decoder(inner)
        return lambda value: None if value is None else decode_inner(value)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _tuple(arguments[0])
    if isinstance(origin, type) and issubclass(origin, Mapping) and arguments[0] is str:
        return _mapping(arguments[1])
    raise TypeError(f"the run log has no JSON form for {kind}")


def _scalar(kind: type) -> Decode:
    def decode(value: Any) -> Any:
        if type(value) is not kind:  # `isinstance` would let true pass for 1
            raise _wrong(kind.__name__, value)
        return value

    return decode


def _number(value: Any) -> Any:
    if type(value) is float or type(value) is int:
        return value
    raise _wrong("a number", value)


def _literal(allowed: tuple[Any, ...]) -> Decode:
    choices = frozenset(allowed)

    def decode(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise _wrong("one of " + ", ".join(map(str, allowed)), value)
        return value

    return decode


def _tuple(item: Any) -> Decode:
    if item in (int, str):
        only = {item}

        def decode_flat(value: Any) -> Any:
            # token ids: one pass in C instead of one call for each id
            if type(value) is not list or not set(map(type, value)) <= only:
                raise _wrong(f"a list of {item.__name__}", value)
            return tuple(value)

        return decode_flat
    decode_item = decoder(item)

    def decode(value: Any) -> Any:
        if type(value) is not list:
            raise _wrong("a list", value)
        return tuple(map(decode_item, value))

    return decode


def _mapping(item: Any) -> Decode:
    decode_item = decoder(item)

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong("a mapping", value)
        return {key: decode_item(entry) for key, entry in value.items()}

    return decode


def _dataclass(kind: type) -> Decode:
    hints = get_type_hints(kind)
    parts = tuple((part.name, decoder(hints[part.name])) for part in fields(kind))
    known = frozenset(name for name, _ in parts)
    required = frozenset(
        part.name for part in fields(kind) if part.default is MISSING and part.default_factory is MISSING
    )

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong("a mapping", value)
        keys = value.keys()
        if not required <= keys:
            raise _MismatchError("the key is missing", min(required - keys))
        if not known >= keys:
            raise _MismatchError("unknown key", min(keys - known))
        arguments = {}
        for name, decode_part in parts:
            if name in keys:
                try:
                    arguments[name] = decode_part(value[name])
                except _MismatchError as error:
                    raise error.inside(name) from None
        return kind(**arguments)

    return decode
