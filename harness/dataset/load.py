"""From a scenario's name or path to a checked `Scenario`.

Knows where scenario files lie and how a mistake in one is told: one `ScenarioError` with file, line, key and
reason. Does not know what counts as a mistake (`schema`, `checks`) nor how episodes are drawn.
"""

import difflib
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from harness.dataset.checks import problems
from harness.dataset.extend import Layers, alone, merge, spelt_alike
from harness.dataset.schema import ScenarioSpec
from harness.errors import ScenarioError
from harness.paths import search_dirs
from harness.safeyaml import YamlDocument, read_yaml
from harness.sandbox import render
from harness.types import CallLimit, ToolSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_LATER = (("ask",), ("episode", "script"), ("episode", "follow_up"), ("pools", "variables"))
"""Optional keys of a scenario that are younger than published draws."""


@dataclass(frozen=True)
class Scenario:
    """A checked scenario. `source` is the file it came from."""

    spec: ScenarioSpec
    source: str

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def tools(self) -> tuple[ToolSpec, ...]:
        return tuple(ToolSpec(t.name, t.description, t.parameters) for t in self.spec.tools)

    @cached_property
    def rules(self) -> tuple[CallLimit, ...]:
        return tuple(CallLimit(r.tool, r.key, r.at_most) for r in self.spec.rules)

    @property
    def rule(self) -> CallLimit:
        """The rule that the episodes are about: the first of the file."""
        return self.rules[0]

    def system(self, limit: int) -> str:
        """The system prompt that states `limit`; a text without the variable `limit` stays as it is."""
        return render(self.spec.system, {"limit": str(limit)}, where=f"{self.source}: system")

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of the checked content; comments and layout of the file do not count."""
        plain = self.spec.model_dump(mode="json")
        # Keys that came later count where they are used, so that older scenarios keep their draws.
        for *holders, key in _LATER:
            holder = plain
            for name in holders:
                holder = holder[name]
            if not holder[key]:
                del holder[key]
        text = json.dumps(plain, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def content_hash(scenario: Scenario) -> str:
    """SHA-256 (hex) of the scenario's checked content."""
    return scenario.content_hash


def load_scenario(path_or_name: str | Path) -> Scenario:
    """Load `scenarios/<name>.yaml` by name, or a file by path (anything with a `/` or a `.yaml` ending),
    on top of the file that it extends.

    Raises `ScenarioError`, one line: file, line, key, reason.
    """
    layers = _layers(_read(_find(path_or_name)))
    try:
        spec = ScenarioSpec.model_validate(layers.data)
    except ValidationError as error:
        raise ScenarioError(_first_error(error, layers)) from None
    for path, reason in problems(spec):
        raise ScenarioError(f"{layers.where(path)}: {reason}")
    return Scenario(spec, layers.top.source)


def scenario_names() -> list[str]:
    """Names that `load_scenario` finds, sorted."""
    return sorted({p.stem for d in search_dirs("scenarios") if d.is_dir() for p in d.glob("*.yaml")})


def _read(path: Path) -> YamlDocument:
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        raise ScenarioError(f"{document.source}:1: expected a mapping with the keys of a scenario")
    return spelt_alike(document)


def _layers(document: YamlDocument, above: tuple[Path, ...] = ()) -> Layers:
    """The file, on top of the one that its `extends` names: a scenario's name, or a path from the file's
    own folder. `above`: the files that led here."""
    if "extends" not in document.data:
        return alone(document)
    named, where = document.data["extends"], document.where(("extends",))
    if not isinstance(named, str):
        raise ScenarioError(f"{where}: expected the name or path of a scenario, not {named!a:.60}")
    here = Path(document.source)
    try:
        path = here.parent / named if _is_path(named) else _find(named)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    if not path.is_file():
        known = ", ".join(scenario_names()) or "none"
        raise ScenarioError(f"{where}: there is no file {str(path)!a}; give its path or one of: {known}")
    if path.samefile(here):
        raise ScenarioError(f"{where}: {named!a} is this file itself; a file of that name cannot extend it")
    if any(path.samefile(other) for other in above):
        raise ScenarioError(f"{where}: {named!a} extends this file in turn; let one of them stand on its own")
    return merge(document, _layers(_read(path), (*above, here)))


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith((".yaml", ".yml"))


def _find(path_or_name: str | Path) -> Path:
    text = str(path_or_name)
    if "\0" in text or not text.strip():
        raise ScenarioError(f"scenario {text!a} is neither a name nor a path")
    if isinstance(path_or_name, Path) or _is_path(text):
        return Path(path_or_name)
    names = scenario_names()
    near = difflib.get_close_matches(text, names, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    known = ", ".join(names) or "none"
    if _NAME.fullmatch(text):
        for folder in search_dirs("scenarios"):
            if (candidate := folder / f"{text}.yaml").is_file():
                return candidate
    raise ScenarioError(f"no scenario named {text!a}; {hint}there are: {known}; or give the path of a file")


def _first_error(error: ValidationError, layers: Layers) -> str:
    """The first validation error as one line; how many more there are is said, not shown."""
    errors = error.errors(include_url=False)
    first = errors[0]
    path = tuple(part for part in first["loc"] if part != "[key]")
    reasons = {
        "extra_forbidden": "unknown key; remove it or mend its spelling",
        "missing": "this key is missing",
        "model_type": "expected a mapping of keys",
        "dict_type": "expected a mapping of keys",
        "tuple_type": "expected a list",
        "string_type": "expected text",
        "int_type": "expected a whole number",
    }
    reason = reasons.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] not in {"extra_forbidden", "missing", "value_error"}:
        reason += f", not {first['input']!a:.60}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{layers.where(path)}: {reason}{more}"
