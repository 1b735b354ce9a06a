"""`recorded`: a bar whose texts were written beforehand, such as a summary that a model made of each transcript.

Knows the file and which transcript an entry is for. A text belongs to a cluster, whose samples share the transcript: one
that knew which of them is asked would leak what the follow-up asks for.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from harness.errors import ConfigError, ConfoundError
from harness.state import AgentState
from harness.statusbar.base import HEADING, BarContext, StatusText
from harness.statusbar.escape import flatten

MOST_BYTES = 64 << 20
MOST_LINES = 200
_TAG = re.compile(r"[A-Za-z][\w.:-]*")
Key = tuple[str, int | None]
"""Cluster or sample, and the request that the text is for; None: all of them."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """`file`: JSON Lines, `{"cluster": "matched/c000", "lines": ["…", "…"]}` each; `"request": 3` limits an entry to that
    request, from 0. `per_sample`: entries may name a `sample` instead, whose text then may know what is asked. `tag`,
    `heading`: '' for none. `item`: characters of a line at most. The file is read when the bar is made."""

    name: ClassVar[str] = "recorded"
    file: str
    tag: str = "agent_status"
    heading: str = HEADING
    item: int = 400
    per_sample: bool = False
    digest: str = field(init=False, repr=False)
    """SHA-256 of the file: two bars of one file name and other contents are not the same bar."""
    _texts: Mapping[Key, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.tag and not _TAG.fullmatch(self.tag):
            raise ValueError(f"tag must be a tag's name such as agent_status, not {self.tag!r}")
        if self.item < 1:
            raise ValueError(f"item={self.item}: expected 1 or more characters")
        raw = _read(self.file)
        object.__setattr__(self, "digest", sha256(raw).hexdigest())
        object.__setattr__(self, "_texts", _entries(raw, self.file, self.per_sample))

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """The entry's lines, escaped; None for an entry without lines. Raises ConfoundError where there is no entry:
        a text that is missing for some episodes would be a selection of episodes."""
        wanted = [
            (who, when) for who in (context.sample_id, context.cluster) for when in (context.request, None)
        ]
        lines = next((self._texts[key] for key in wanted if key in self._texts), None)
        if lines is None:
            raise ConfoundError(
                f"{self.file}: no entry for cluster {context.cluster!r} at request {context.request}; every transcript "
                'needs one ("lines": [] says nothing)'
            )
        shown = tuple(f"- {flatten(line, self.item)}" for line in lines)
        return StatusText(self.tag, shown, heading=self.heading) if shown else None


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as handle:
            raw = handle.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read ({error.strerror}); expected JSON Lines of recorded texts"
        ) from None
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{file}: more than {MOST_BYTES >> 20} MiB; expected one short text per transcript")
    return raw


def _entries(raw: bytes, file: str, per_sample: bool) -> dict[Key, tuple[str, ...]]:
    """Every entry by what it is for. Raises ConfigError that names the line."""
    found: dict[Key, tuple[str, ...]] = {}
    for number, text in enumerate(raw.split(b"\n"), start=1):
        if not text.strip():
            continue
        where = f"{file}:{number}"
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError(f"{where}: no JSON; expected one object per line") from None
        key = _key(entry, where, per_sample)
        if key in found:
            raise ConfigError(
                f"{where}: a second entry for {key[0]!r}; expected one per transcript and request"
            )
        found[key] = _lines(entry["lines"], where)
    if not found:
        raise ConfigError(
            f'{file}: empty; expected lines such as {{"cluster": "matched/c000", "lines": ["…"]}}'
        )
    return found


def _key(entry: Any, where: str, per_sample: bool) -> Key:
    if not isinstance(entry, dict) or not {"lines"} <= entry.keys() <= {
        "cluster",
        "sample",
        "request",
        "lines",
    }:
        raise ConfigError(
            f"{where}: expected the keys cluster and lines, and request where it is for one request"
        )
    named = [entry[key] for key in ("cluster", "sample") if key in entry]
    if len(named) != 1 or not isinstance(named[0], str):
        raise ConfigError(f"{where}: expected one of cluster and sample, as text")
    if "sample" in entry and not per_sample:
        raise ConfigError(
            f"{where}: sample: a text of its own for one side of a pair may say which side it is; name the cluster, or "
            "set per_sample=true"
        )
    request = entry.get("request")
    if request is not None and (isinstance(request, bool) or not isinstance(request, int) or request < 0):
        raise ConfigError(f"{where}: request: expected a number from 0 on")
    return named[0], request


def _lines(value: Any, where: str) -> tuple[str, ...]:
    if (
        not isinstance(value, list)
        or any(not isinstance(line, str) for line in value)
        or len(value) > MOST_LINES
    ):
        raise ConfigError(f"{where}: lines: expected a list of at most {MOST_LINES} texts")
    return tuple(value)
