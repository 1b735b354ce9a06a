"""Tool calls in a piece of text: tagged, bare, malformed; and the text that remains without them.

Knows the shapes in which models write calls and nothing of what the calls are for. Linear in the length of
the text: every JSON object is decoded once from where it starts, a failed one is skipped, never searched
again, and after `MAX_OBJECTS` objects the rest is left as prose.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from harness.types import ToolCall

MAX_OBJECTS = 2000
"""JSON objects and tags looked at in one text; a reply of 8,000 tokens cannot hold as many calls."""
MAX_DEPTH = 32
"""Nesting of a call's arguments; deeper is malformed (and would trouble whoever stores it)."""
MAX_MALFORMED = 64
_WINDOW = 2000
"""Characters in which the closing brace of a broken object is looked for."""
_NAME = 200
"""Longest tool name in characters."""

OPEN_TAG = "<tool_call>"
CLOSE_TAG = "</tool_call>"
_ANCHOR = re.compile(r"<tool_call>|\{(?=\s{0,64}[\"'])|\{(?=\s{0,64}name\b)")
_BRACES = re.compile(r"[{}]|\"(?:[^\"\\\n]|\\.){0,2000}\"")
_READABLE = re.compile(
    r"[\"']?\b(?:name|tool|tool_name|function|action)[\"']?\s{0,20}[:=]\s{0,20}[\"']([^\"'\\\n]{1,200})[\"']"
)
_ARGUMENTS = re.compile(r"[\"'](?:arguments|parameters)[\"']\s{0,20}:")
_LEFT = re.compile(r"(?:[\s,\[]|```\w{0,20}|</?(?:tools|tool_calls?|function_call)>)+\Z")
_RIGHT = re.compile(r"(?:[\s,\]]|```(?!\w)|</(?:tools|tool_calls?|function_call)>)+")
_GAP = re.compile(r"(?:[\s,\[]|```\w{0,20})*")
"""What may stand before an object inside a tag."""
_XML = re.compile(r"<function=([\w.-]{1,200})>(?:.{0,2000}?</function>)?", re.S)


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something that was meant as a call. `names` are the tool names that can still be read in it."""

    text: str
    names: tuple[str, ...]


@dataclass(slots=True)
class Found:
    """What `find_calls` found; `rest` is the text without any of it."""

    calls: list[ToolCall] = field(default_factory=list)
    malformed: list[Malformed] = field(default_factory=list)
    tagged: bool = False
    rest: str = ""


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) < 400 else digits


def _float(digits: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else digits


_DECODER = json.JSONDecoder(strict=False, parse_int=_int, parse_float=_float, parse_constant=str)


def _decode(text: str, start: int) -> tuple[Any, int, bool]:
    """(value, end, True), or (None, position of the error, False). Never raises."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, max(error.pos, start + 1), False
    except (RecursionError, ValueError):
        return None, len(text), False
    return value, end, True


def _too_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for holder in level
            for item in (
                holder.values() if isinstance(holder, dict) else holder if isinstance(holder, list) else ()
            )
        ]
        if not level:
            return False
    return True


def _clean(value: Any) -> Any:
    """`value` with lone surrogates replaced: no file could hold them. At most MAX_DEPTH levels deep."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


def _unwrap(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects that state the calls: the value itself, or what its `function` or `tool_calls` wrapper
    holds."""
    for key in ("tool_calls", "tool_call", "function", "function_call"):
        inner = value.get(key)
        if isinstance(inner, dict) and "name" in inner:
            yield inner
            return
        if key == "tool_calls" and isinstance(inner, list) and inner:
            for item in inner:
                if isinstance(item, dict):
                    wrapped = item.get("function")
                    yield wrapped if isinstance(wrapped, dict) else item
            return
    yield value


def _arguments(value: Mapping[str, Any]) -> dict[str, Any] | None:
    raw = value["arguments"] if "arguments" in value else value["parameters"]
    if isinstance(raw, str):
        if not raw.strip():
            return {}
        text = raw.strip()
        raw, end, good = _decode(text, 0)
        if not good or end != len(text):
            return None
    return raw if isinstance(raw, dict) and not _too_deep(raw) else None


def _is_definition(value: Mapping[str, Any]) -> bool:
    schema = value.get("parameters")
    return isinstance(schema, dict) and schema.get("type") == "object" and "properties" in schema


def _read(value: dict[str, Any], names: frozenset[str]) -> ToolCall | tuple[str, ...] | None:
    """A call; or the names in a malformed call (perhaps none); or None when `value` is just data."""
    name = value.get("name")
    named = isinstance(name, str) and bool(name.strip()) and len(name) <= _NAME
    if ("arguments" in value or "parameters" in value) and "name" in value:
        if _is_definition(value):
            return None
        if not named:
            return ()
        clean = str(_clean(str(name).strip()))
        arguments = _arguments(value)
        return (clean,) if arguments is None else ToolCall(clean, _clean(arguments))
    hinted = [value.get(key) for key in ("name", "tool", "tool_name", "function", "action")]
    hits = tuple(hint for hint in hinted if isinstance(hint, str) and hint in names)
    if hits:
        return hits
    keys = tuple(key for key in value if key in names and isinstance(value[key], dict))
    return keys or None


class _Scanner:
    """One pass over one text. Collects calls, malformed calls and the extents to cut out of the prose."""

    def __init__(self, text: str, names: frozenset[str], in_reasoning: bool) -> None:
        self.text = text
        self.names = names
        self.in_reasoning = in_reasoning
        self.found = Found()
        self.cuts: list[tuple[int, int]] = []
        self._names: tuple[str, ...] = ()
        self._seen: dict[str, int] = {}

    def scan(self) -> Found:
        position = 0
        for _ in range(MAX_OBJECTS):
            anchor = _ANCHOR.search(self.text, position)
            if anchor is None or len(self.found.malformed) >= MAX_MALFORMED:
                break
            if anchor.group() == OPEN_TAG:
                position = self._tagged(anchor.start())
            else:
                position = self._bare(anchor.start())
        self.found.rest = self._rest()
        if not self.in_reasoning:
            self._other_syntax()
        return self.found

    def _accept(self, value: dict[str, Any]) -> bool | None:
        """Take the calls that `value` states. True: taken; False: malformed; None: data."""
        taken: bool | None = None
        calls: list[ToolCall] = []
        self._names = ()
        for item in _unwrap(value):
            read = _read(item, self.names)
            if isinstance(read, ToolCall):
                calls.append(ToolCall(read.name, read.arguments, in_reasoning=self.in_reasoning))
                taken = True if taken is None else taken
            elif read is not None:
                taken = False
                self._names = read
        self.found.calls.extend(calls)
        return taken

    def _broken(self, start: int, end: int, names: tuple[str, ...] | None = None) -> None:
        text = self.text[start:end]
        if names is None:
            names = tuple(dict.fromkeys(_READABLE.findall(text[:_WINDOW])))
            loose = [name for name in sorted(self.names) if name in text[:_WINDOW]]
            names = names or tuple(loose)
        self.found.malformed.append(Malformed(str(_clean(text)), tuple(str(_clean(name)) for name in names)))
        self.cuts.append((start, end))

    def _bare(self, start: int) -> int:
        value, end, good = _decode(self.text, start)
        if good:
            verdict = self._accept(value) if isinstance(value, dict) else None
            if verdict is None:
                return end
            if self.text[end : end + 1] == "}":
                if verdict:
                    self._names = (self.found.calls.pop().name,)
                verdict, end = False, end + 1
            if verdict:
                self.cuts.append((start, end))
            else:
                self._broken(start, end, self._names or None)
            return end
        head = self.text[start : min(end + 200, start + _WINDOW)]
        readable = _READABLE.search(head)
        if readable is None or not (readable.group(1) in self.names or _ARGUMENTS.search(head)):
            return end
        end = self._extent(start, end)
        self._broken(start, end)
        return end

    def _extent(self, start: int, error: int) -> int:
        """End of a broken object: its own closing brace, or the end of the line, or where the next object
        begins."""
        depth = 0
        stop = min(len(self.text), start + _WINDOW)
        for token in _BRACES.finditer(self.text, start, stop):
            depth += {"{": 1, "}": -1}.get(token.group(), 0)
            if depth == 0:
                return max(token.end(), error)
        line = self.text.find("\n", error)
        line = len(self.text) if line < 0 else line
        following = _ANCHOR.search(self.text, error, line)
        return following.start() if following is not None else line

    def _tagged(self, start: int) -> int:
        """One `<tool_call>` region: calls, and nothing but calls, up to the end tag (which may be
        missing)."""
        position = start + len(OPEN_TAG)
        count = 0
        bad = False
        names: list[str] = []
        taken = len(self.found.calls)
        while True:
            gap = _GAP.match(self.text, position)
            position = gap.end() if gap is not None else position
            if self.text[position : position + 1] != "{":
                bad = bad or (count > 0 and gap is not None and "," in gap.group())
                break
            value, end, good = _decode(self.text, position)
            verdict = self._accept(value) if good and isinstance(value, dict) else False
            if not good:
                bad = True
                position = self._extent(position, end)
                break
            bad = bad or not verdict
            names.extend(self._names if not verdict else ())
            count += 1
            position = end
        close = self._next(CLOSE_TAG, position)
        following = self._next(OPEN_TAG, position)
        if close >= 0 and (following < 0 or close < following):
            bad = bad or bool(self.text[position:close].strip(" \t\r\n`]"))
            end = close + len(CLOSE_TAG)
        else:
            bad = bad or self.text[position : position + 1] in ("}", "]", ",")
            end = position
        if bad or count == 0:
            names += [call.name for call in self.found.calls[taken:]]
            del self.found.calls[taken:]
            end = max(end, self._line_end(position)) if close < 0 else end
            self._broken(start, end, tuple(dict.fromkeys(names)) or None)
        else:
            self.found.tagged = True
            self.cuts.append((start, end))
        return end

    def _next(self, tag: str, position: int) -> int:
        """`text.find(tag, position)` for rising positions, without searching twice what holds no tag."""
        known = self._seen.get(tag, 0)
        if 0 <= known < position or tag not in self._seen:
            self._seen[tag] = self.text.find(tag, position)
        return self._seen[tag]

    def _line_end(self, position: int) -> int:
        blank = self.text.find("\n", position)
        return len(self.text) if blank < 0 else blank

    def _rest(self) -> str:
        """The text without the cuts, and without the fences, brackets and commas that held them."""
        pieces: list[str] = []
        position = 0
        for start, end in sorted(self.cuts):
            if start < position:
                position = max(position, end)
                continue
            pieces.append(_trim_left(self.text[position:start]))
            tail = _RIGHT.match(self.text, end)
            position = tail.end() if tail is not None else end
        pieces.append(self.text[position:])
        return "\n".join(piece for piece in pieces if piece.strip()).replace(CLOSE_TAG, "").strip()

    def _other_syntax(self) -> None:
        """Python and XML spellings of a call to an offered tool, found in what is left of the prose."""
        rest = self.found.rest
        offered = "|".join(re.escape(name) for name in sorted(self.names, key=len, reverse=True) if name)
        patterns = [_XML]
        if offered:
            python = (
                rf"(?<![\w.\"'])(?:functions\.)?({offered})\((?=\s{{0,20}}(?:\w{{1,80}}\s{{0,20}}=|[\"'{{]))"
            )
            patterns.append(re.compile(python + r"[^()\n]{0,1000}\)?"))
            patterns.append(re.compile(rf"<({offered})\b[^<>\n]{{0,1000}}/?>(?:</\1>)?"))
        for pattern in patterns:
            for hit in islice(pattern.finditer(rest), MAX_MALFORMED):
                self.found.malformed.append(Malformed(str(_clean(hit.group())), (hit.group(1),)))
            rest = pattern.sub("", rest, count=MAX_MALFORMED)
        self.found.rest = rest.strip()


def _trim_left(piece: str) -> str:
    """`piece` without the opening fence, bracket or tag at its end. Only its last 200 characters are looked
    at."""
    tail = _LEFT.search(piece, max(0, len(piece) - 200))
    return piece[: tail.start()] if tail is not None else piece


def find_calls(text: str, tool_names: Sequence[str], *, in_reasoning: bool = False) -> Found:
    """All calls that `text` states, in order. Inside thinking malformed ones are not looked for. Never
    raises."""
    found = _Scanner(text, frozenset(tool_names), in_reasoning).scan()
    if in_reasoning:
        found.malformed.clear()
    return found
