"""A dated table of prices: what a model behind an API costs per token, who says so, and since when.

Knows the file and days; knows no run. A model that is not in the table has no price, which is never taken for 0; a line
that is too old is not used unless somebody has confirmed it.
"""

import math
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from harness.budget import Price
from harness.errors import ConfigError, ScenarioError
from harness.paths import search_dirs
from harness.safeyaml import KeyPath, YamlDocument, read_yaml

NAME = "prices.yaml"
_AMOUNTS = ("input_per_million", "cached_per_million", "cache_written_per_million", "output_per_million")
_NEEDED = ("provider", "model", "input_per_million", "output_per_million", "as_of", "source")
_KEYS = {*_AMOUNTS, *_NEEDED, "aliases", "note"}
_TOP = ("currency", "prices")
_DATED = re.compile(r"-(?:20\d\d-[01]\d-[0-3]\d|20\d\d[01]\d[0-3]\d|latest)\Z")
"""What vendors append to a model's name: `-2025-08-07`, `-20250514`, `-latest`."""
_ISO = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Found:
    """What the table says: a price, or why there is none that may be used."""

    price: Price | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One model's price. `names`: its own and its aliases."""

    provider: str
    names: tuple[str, ...]
    price: Price
    as_of: date
    where: str
    """File and line, for what is said about it."""


def look_up(
    file: str | None, provider: str, model: str, *, today: date, max_age_days: int, confirmed: bool
) -> Found:
    """The price of `provider`'s `model`. `file`: None for `prices.yaml` of `./conf` or the packaged one.

    A name is looked up as it stands, among models and aliases, then without a date at its end: a snapshot whose price is
    another than its model's has a line of its own. A model is never taken for another whose name it begins with.
    Raises ConfigError for a table that is not valid, naming file, line and key.
    """
    path = Path(file) if file else next(found for d in search_dirs("conf") if (found := d / NAME).is_file())
    lines = read_table(path)
    line = _line(lines, provider, model) or _line(lines, provider, _DATED.sub("", model))
    if line is None:
        return Found(None, f"{path}: no price of {provider}'s {model}; add a line, or state model.price.*")
    age = (today - line.as_of).days
    if age < 0:
        raise ConfigError(
            f"{line.where}.as_of: {line.as_of} is in the future; expected the day it was looked up"
        )
    if age > max_age_days and not confirmed:
        return Found(
            None,
            f"{line.where}: the price of {model} is of {line.as_of}, {age} days ago, and prices.max_age_days is "
            f"{max_age_days}; look at {line.price.source}, then say prices.confirmed=true, or give newer prices "
            "(prices.file=PATH or model.price.*)",
        )
    return Found(line.price)


def _line(lines: list[Line], provider: str, model: str) -> Line | None:
    return next((line for line in lines if line.provider == provider and model in line.names), None)


def read_table(path: Path) -> list[Line]:
    """Every line of a price table. Raises ConfigError for the first mistake, naming file, line and key."""
    try:
        document = read_yaml(path)
    except ScenarioError as error:
        raise ConfigError(str(error)) from None
    data = document.data
    if not isinstance(data, dict) or not set(data) >= set(_TOP):
        raise ConfigError(f"{path}: expected the keys currency and prices, as in conf/{NAME}")
    for key in data:
        if key not in _TOP:
            raise ConfigError(f"{document.where((key,))}: unknown key; expected currency and prices alone")
    currency, entries = data["currency"], data["prices"]
    if not isinstance(currency, str) or not currency:
        raise ConfigError(f"{document.where(('currency',))}: expected a currency such as USD")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{document.where(('prices',))}: expected a list of lines")
    lines = [_read(document, ("prices", number), entry, currency) for number, entry in enumerate(entries)]
    _check_once(lines)
    return lines


def _read(document: YamlDocument, at: KeyPath, entry: Any, currency: str) -> Line:
    if not isinstance(entry, dict):
        raise ConfigError(f"{document.where(at)}: expected {', '.join(_NEEDED)}")
    for key in entry:
        if key not in _KEYS:
            raise ConfigError(
                f"{document.where((*at, key))}: unknown key; known are {', '.join(sorted(_KEYS))}"
            )
    for key in _NEEDED:
        if key not in entry:
            raise ConfigError(f"{document.where(at)}: {key} is missing")
    for key in ("provider", "model", "source", *(["note"] if "note" in entry else [])):
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise ConfigError(f"{document.where((*at, key))}: expected a text")
    for key in _AMOUNTS:
        if (key in _NEEDED or entry.get(key) is not None) and not _is_amount(entry[key]):
            raise ConfigError(
                f"{document.where((*at, key))}: expected an amount of 0 or more (got {str(entry[key])[:40]})"
            )
    aliases = entry.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) and each for each in aliases):
        raise ConfigError(f"{document.where((*at, 'aliases'))}: expected a list of names")
    as_of = _day(document, (*at, "as_of"), entry["as_of"])
    price = Price(
        currency=currency,
        as_of=as_of.isoformat(),
        source=entry["source"],
        **{key: float(entry[key]) for key in _AMOUNTS if entry.get(key) is not None},
    )
    return Line(entry["provider"], (entry["model"], *aliases), price, as_of, document.where(at))


def _is_amount(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value) and value >= 0
    except OverflowError:  # an integer that no float holds
        return False


def _day(document: YamlDocument, at: KeyPath, value: Any) -> date:
    try:
        if not _ISO.fullmatch(str(value)):
            raise ValueError
        return date.fromisoformat(str(value))
    except ValueError:
        raise ConfigError(
            f"{document.where(at)}: expected a day such as 2026-11-30 (got {value!r})"
        ) from None


def _check_once(lines: list[Line]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for line in lines:
        for name in line.names:
            if (line.provider, name) in seen:
                raise ConfigError(f"{line.where}: {name} has a price already, at {seen[line.provider, name]}")
            seen[line.provider, name] = line.where
