"""YAML from strangers, read so that a bad file costs one clear line and never memory, time or a traceback.

Knows the YAML event stream and node tree. Does not know what the file is for: the caller checks the
meaning of the data. Every error is a `ScenarioError` that names file and line.

The limits are checked on the event stream, before any tree is built: the parser is a state machine,
so depth costs it nothing, while the composer and the constructor recurse.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.errors import ScenarioError

MAX_BYTES = 256 << 10
MAX_DEPTH = 30
MAX_EXPANDED = 1 << 20
"""Nodes plus scalar characters after every alias is written out."""

_MAP_TAG = "tag:yaml.org,2002:map"
_SEQ_TAG = "tag:yaml.org,2002:seq"

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One parsed file: plain data (dict, list, scalars) and the line that each key path starts on."""

    source: str
    data: Any
    lines: Mapping[KeyPath, int]

    def where(self, path: KeyPath) -> str:
        """`file:line: dotted.key[index]` of a path, or of its nearest ancestor that the file has."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        key = dotted(path)
        head = f"{self.source}:{self.lines.get(known, 1)}"
        return f"{head}: {key}" if key else head


def dotted(path: KeyPath) -> str:
    """`('pools', 'merchants', 3)` as `pools.merchants[3]`."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else (f".{part}" if out else part)
    return out


def read_yaml(path: Path) -> YamlDocument:
    """Read one YAML file of at most 256 KiB. Raises `ScenarioError` naming file and line."""
    source = str(path)
    if not path.is_file():
        raise ScenarioError(f"{source}: there is no such file; give the path of a YAML file")
    try:
        with path.open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f"{source}: cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise ScenarioError(f"{source}: larger than {MAX_BYTES} bytes; a scenario is a small text file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ScenarioError(f"{source}:{line}: not UTF-8 text; save the file as UTF-8") from None
    return parse_yaml(text, source)


def parse_yaml(text: str, source: str) -> YamlDocument:
    """Parse YAML text; `source` is the name that errors give to it."""
    try:
        _check_limits(text, source)
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise ScenarioError(f"{source}:1: the file is empty; expected a mapping of keys")
            lines: dict[KeyPath, int] = {}
            data = _build(loader, node, (), lines, source)
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        code = ord(error.character) if isinstance(error.character, str) else error.character
        raise ScenarioError(f"{source}:{line}: character U+{int(code):04X} is not allowed in YAML") from None
    except yaml.MarkedYAMLError as error:
        raise ScenarioError(_syntax_line(error, text, source)) from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{source}:1: not valid YAML: {error}") from None
    return YamlDocument(source, data, lines)


def _syntax_line(error: yaml.MarkedYAMLError, text: str, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    number = mark.line + 1 if mark else 1
    rows = text.splitlines()
    row = rows[number - 1] if number <= len(rows) else ""
    if "\t" in row[: len(row) - len(row.lstrip())]:
        return f"{source}:{number}: a tab in the indentation; YAML allows spaces only"
    return f"{source}:{number}: not valid YAML: {error.problem or error.context or 'syntax error'}"


def _check_limits(text: str, source: str) -> None:
    """Walk the events once; refuse what is too deep or would grow too large through its aliases."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    documents = 0
    for event in _events(text):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise ScenarioError(f"{source}:{line}: a second document; expected one per file")
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ScenarioError(
                    f"{source}:{line}: alias *{event.anchor} has no finished anchor before it"
                )
            total += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            total += 1 + len(event.value)
            if event.anchor:
                sizes[event.anchor] = 1 + len(event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            total += 1
            open_nodes.append((event.anchor, total))
            if event.anchor:
                sizes.pop(event.anchor, None)
            if len(open_nodes) > MAX_DEPTH:
                raise ScenarioError(f"{source}:{line}: nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = total - before + 1
        if total > MAX_EXPANDED:
            raise ScenarioError(f"{source}:{line}: aliases expand to more than {MAX_EXPANDED} characters")


def _events(text: str) -> Iterator[Any]:
    yield from yaml.parse(text, Loader=yaml.SafeLoader)


def _build(
    loader: yaml.SafeLoader, node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], source: str
) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if isinstance(node, yaml.MappingNode) and node.tag == _MAP_TAG:
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _key(key_node, source)
            key_line = key_node.start_mark.line + 1
            where = f"{source}:{key_line}"
            if key in out:
                raise ScenarioError(f"{where}: key {dotted((*path, key))!r} occurs twice; keep one of them")
            lines[(*path, key)] = key_line
            out[key] = _build(loader, value_node, (*path, key), lines, source)
        return out
    if isinstance(node, yaml.SequenceNode) and node.tag == _SEQ_TAG:
        return [_build(loader, item, (*path, i), lines, source) for i, item in enumerate(node.value)]
    if not isinstance(node, yaml.ScalarNode):
        raise ScenarioError(f"{source}:{line}: tag {node.tag!r} is not allowed; use plain lists and mappings")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError, OverflowError):
        shown = node.value if len(node.value) <= 40 else node.value[:40] + "…"
        kind = node.tag.rsplit(":", 1)[-1]
        raise ScenarioError(
            f"{source}:{line}: {shown!r} is not a valid {kind}; quote it if it is text"
        ) from None


def _key(node: yaml.Node, source: str) -> str:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str":
        shown = node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"
        raise ScenarioError(f"{source}:{line}: {shown!r} cannot be a key; keys are plain text, quote it")
    return str(node.value)
