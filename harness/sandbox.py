"""Text templates of scenario files: a small part of Jinja, rendered in Jinja's immutable sandbox.

Knows one template and its string variables. Does not know scenarios, chat templates or files.

The sandbox alone does not stop a template from eating time or memory (nested loops, `'a' * 10**9`,
`center(10**9)`, a variable doubled forty times). Scenario texts need none of that, so the syntax tree
is held against a list of what is allowed (text, variables, `if`, comparisons, five filters) before
anything runs; what is left is linear in the template's length.
"""

from collections.abc import Mapping
from functools import lru_cache

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from harness.errors import TemplateError

MAX_TEMPLATE = 8_000
MAX_OUTPUT = 32_000
MAX_DEPTH = 24
FILTERS = frozenset({"upper", "lower", "capitalize", "title", "trim"})

_ALLOWED: tuple[type[nodes.Node], ...] = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.Name,
    nodes.Const,
    nodes.Filter,
    nodes.If,
    nodes.CondExpr,
    nodes.Compare,
    nodes.Operand,
    nodes.And,
    nodes.Or,
    nodes.Not,
)
_WORDS: dict[type[nodes.Node], str] = {
    nodes.For: "a loop",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "import",
    nodes.Extends: "extends",
    nodes.Macro: "a macro",
    nodes.Call: "a call",
    nodes.Getattr: "attribute access",
    nodes.Getitem: "item access",
    nodes.Assign: "set",
    nodes.BinExpr: "arithmetic",
    nodes.Concat: "joining with ~",
}


def render(template: str, variables: Mapping[str, str], *, where: str) -> str:
    """Render `template` with string `variables`. `where` (file and key) opens every error.

    Raises `TemplateError` for bad syntax, anything outside the allowed part of Jinja, an unknown
    variable, or output of more than 32,000 characters.
    """
    try:
        compiled, used = _compile(template)
    except _NotAllowedError as error:
        raise TemplateError(f"{where}: {error}") from None
    missing = sorted(used - variables.keys())
    if missing:
        have = ", ".join(sorted(variables)) or "none"
        raise TemplateError(f"{where}: unknown variable {missing[0]!r}; this text may use: {have}")
    size = 0
    parts: list[str] = []
    try:
        for part in compiled.generate(variables):
            size += len(part)
            if size > MAX_OUTPUT:
                raise TemplateError(f"{where}: the text grows beyond {MAX_OUTPUT} characters")
            parts.append(part)
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        raise TemplateError(f"{where}: the template fails: {error}") from None
    return "".join(parts)


def used_names(template: str, *, where: str) -> frozenset[str]:
    """Every variable that `template` reads, in whatever branch. Raises `TemplateError`."""
    try:
        return _compile(template)[1]
    except _NotAllowedError as error:
        raise TemplateError(f"{where}: {error}") from None


class _NotAllowedError(Exception):
    """Reason without a place; `render` and `used_names` add where it happened."""


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    env = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True, cache_size=0
    )
    env.globals.clear()
    return env


@lru_cache(maxsize=4096)
def _compile(template: str) -> tuple[jinja2.Template, frozenset[str]]:
    if len(template) > MAX_TEMPLATE:
        raise _NotAllowedError(f"the template is longer than {MAX_TEMPLATE} characters")
    env = _environment()
    try:
        tree = env.parse(template)
    except jinja2.TemplateSyntaxError as error:
        raise _NotAllowedError(f"template line {error.lineno}: {error.message}") from None
    except (RecursionError, MemoryError, ValueError, OverflowError):
        # Jinja's parser is recursive and reads number literals with int(), which refuses long ones.
        raise _NotAllowedError("the template is nested too deeply or holds an absurd number") from None
    used = _check(tree)
    return env.from_string(template), used


def _check(tree: nodes.Template) -> frozenset[str]:
    """Hold the tree against the allowed list without recursion; return the names it reads."""
    used: set[str] = set()
    queue: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while queue:
        node, depth = queue.pop()
        if not isinstance(node, _ALLOWED):
            what = next(
                (w for kind, w in _WORDS.items() if isinstance(node, kind)), type(node).__name__.lower()
            )
            raise _NotAllowedError(
                f"template line {node.lineno}: {what} is not allowed in a scenario text;"
                f" use variables, if/else and the filters {', '.join(sorted(FILTERS))}"
            )
        if depth > MAX_DEPTH:
            raise _NotAllowedError(f"the template is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, nodes.Filter) and node.name not in FILTERS:
            raise _NotAllowedError(f"filter {node.name!r} is not allowed; use {', '.join(sorted(FILTERS))}")
        if isinstance(node, nodes.Name):
            used.add(node.name)
        queue.extend((child, depth + 1) for child in node.iter_child_nodes())
    return frozenset(used)
