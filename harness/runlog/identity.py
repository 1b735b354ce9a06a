"""What a run is called: safe folder names, the digest of a configuration, and where two differ.

Pure functions over plain data; touches no file.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import RunLogError
from harness.runlog.codec import canonical_json
from harness.runlog.redact import redact

DIGEST_DIGITS = 10
NAME_BYTES = 120
"""Leaves room for the digest and for temporary suffixes under the usual limit of 255 bytes."""
_ABSENT = object()
_SHOWN = 12


def safe_name(name: str) -> str:
    """`name` itself when it can be one folder inside results/; RunLogError otherwise.

    Refused: nothing, path separators, '..', a leading dot or dash, control and invisible characters,
    spaces at either end, what is longer than 120 bytes.
    """
    problem = _name_problem(name)
    if problem:
        raise RunLogError(
            f"the name {name[:60]!r} cannot be a folder: {problem}; use letters, digits, '-', '_' and '.'"
        )
    return name


def _name_problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if "/" in name or "\\" in name:
        return "it holds a path separator"
    if ".." in name:
        return "it holds '..'"
    if name[0] in ".-~":
        return f"it begins with {name[0]!r}"
    if name != name.strip():
        return "it begins or ends with a space"
    if not name.isprintable():  # control, format (bidi), surrogate, private signs, and spaces but " "
        return "it holds a control or invisible character"
    if len(name.encode("utf-8")) > NAME_BYTES:
        return f"it is longer than {NAME_BYTES} bytes"
    return None


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it is compared and kept: secrets masked, tuples as lists.

    Raises RunLogError, naming the dotted key, for a value that is no plain data.
    """
    plain: dict[str, Any] = json.loads(canonical_json(redact(config)))
    return plain


def config_digest(config: Mapping[str, Any]) -> str:
    """Ten hexadecimal digits of SHA-256 over the canonical JSON of the resolved configuration.

    Secrets are masked first: a new API key is no new experiment, and no digest gives one away.
    """
    return hashlib.sha256(canonical_json(redact(config)).encode("ascii")).hexdigest()[:DIGEST_DIGITS]


def run_id(name: str, config: Mapping[str, Any]) -> str:
    """`<name>-<digest>`: the same name and configuration always give the same folder."""
    return f"{safe_name(name)}-{config_digest(config)}"


def run_folder(results: Path, experiment: str, name: str, config: Mapping[str, Any]) -> Path:
    """`<results>/<experiment>/<run_id>`, which can never lie outside `results`."""
    return results / safe_name(experiment) / run_id(name, config)


def differences(old: Any, new: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted key → (old, new) for every leaf of plain data that differs; an absent leaf is '(absent)'."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found: dict[str, tuple[Any, Any]] = {}
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if path else str(key)
            found |= differences(old.get(key, _ABSENT), new.get(key, _ABSENT), inner)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        found = {}
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            found |= differences(before, after, f"{path}[{index}]")
        return found
    # True == 1 and 1 == 1.0 in Python, but not as configuration
    if type(old) is type(new) and old == new:
        return {}
    return {path: tuple("(absent)" if side is _ABSENT else side for side in (old, new))}  # type: ignore[dict-item]


def tell_differences(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """`model.name: 'a' → 'b'; seed: 1 → 2` for an error line; the first dozen, the rest counted."""
    told = [f"{key}: {_shown(old)} → {_shown(new)}" for key, (old, new) in list(changes.items())[:_SHOWN]]
    if len(changes) > _SHOWN:
        told.append(f"and {len(changes) - _SHOWN} more")
    return "; ".join(told)


def _shown(value: Any) -> str:
    text = value if value == "(absent)" else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
