"""The part of Jinja that a user's own bar may use, in Jinja's immutable sandbox and within a budget of steps.

Knows one template and plain data (texts, numbers, booleans, None, lists, mappings). Does not know the state, files or bars.

Scenario texts (harness/sandbox.py) need no loop; a bar over lists does. So loops, fields, items, arithmetic on numbers and
tests are allowed here, and what makes them dangerous is not: no calls, no `set`, no macros, no joining with `~`, none of
Jinja's own filters. Every turn of a loop and every filter takes steps from a budget, so a template stops at the same place
on every machine. Whatever is inserted goes through one function, which escapes it.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from harness.errors import TemplateError

MAX_TEMPLATE = 8_000
MAX_DEPTH = 24
MAX_STEPS = 5_000
"""Turns of loops and hundreds of characters through filters."""
MAX_NUMBER = 10**12

_BUDGET = "_budget"
_LOOP = "_counted"
_ALLOWED: tuple[type[nodes.Node], ...] = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.List, nodes.Tuple,
    nodes.Filter, nodes.Test, nodes.If, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not,
    nodes.For, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Neg,
    nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod,
)  # fmt: skip
_WORDS: dict[type[nodes.Node], str] = {
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "import",
    nodes.Extends: "extends",
    nodes.Block: "a block",
    nodes.Macro: "a macro",
    nodes.CallBlock: "a call",
    nodes.Call: "a call",
    nodes.Assign: "set",
    nodes.AssignBlock: "set",
    nodes.Concat: "joining with ~",
    nodes.Pow: "a power",
    nodes.Dict: "a mapping",
}
TESTS = frozenset({"defined", "none"})
"""Jinja's other tests take a text as a format (`'%999999999d' is even`)."""
LOOP_FIELDS = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


@dataclass(frozen=True, slots=True)
class Later:
    """A fact that is made only when a template reads it."""

    make: Callable[[], Any]


class _RefusedError(Exception):
    """A reason without a place."""


class _Budget:
    """Steps that one rendering may still take."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise _RefusedError(f"the template takes more than {MAX_STEPS} steps; loop over fewer items")


class _Environment(ImmutableSandboxedEnvironment):
    """Fields are looked up in mappings alone, arithmetic is on numbers alone."""

    intercepted_binops = frozenset(_OPERATORS)

    def getattr(self, obj: Any, attribute: str) -> Any:
        if type(obj) is dict and attribute in obj:
            found = obj[attribute]
            return found.make() if type(found) is Later else found
        if isinstance(obj, LoopContext) and attribute in LOOP_FIELDS:
            return getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, jinja2.Undefined):
            return getattr(obj, str(argument))  # StrictUndefined: says what is missing
        try:
            if isinstance(obj, (dict, list, tuple)):
                found = obj[argument]
                return found.make() if isinstance(found, Later) else found
        except (LookupError, TypeError, ValueError):
            pass
        return self.undefined(hint=_missing(obj, argument))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _require(left, right)
        for number in (left, right):
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise _RefusedError(f"{operator} is for numbers, not for {_kind(number)}")
        result = _OPERATORS[operator](left, right)
        if abs(result) > MAX_NUMBER:
            raise _RefusedError(f"a number beyond {MAX_NUMBER}")
        return result


def _require(*values: Any) -> None:
    """Raise what Jinja says of an undefined value, if there is one among these."""
    for value in values:
        if isinstance(value, jinja2.Undefined):
            str(value)


def _kind(value: Any) -> str:
    if value is None:
        return "an unknown value"
    kinds: tuple[tuple[Any, str], ...] = (
        (bool, "yes or no"), (str, "a text"), (dict, "a mapping"), ((list, tuple), "a list"),
    )  # fmt: skip
    return next((word for kind, word in kinds if isinstance(value, kind)), type(value).__name__)


def _missing(obj: Any, argument: Any) -> str:
    if isinstance(obj, dict):
        return f"no field {argument!r}; there are: {', '.join(map(str, list(obj)[:20])) or 'none'}"
    if isinstance(obj, LoopContext):
        return f"no field {argument!r} of loop; there are: {', '.join(sorted(LOOP_FIELDS))}"
    if isinstance(obj, (list, tuple)) and isinstance(argument, int):
        return f"no item {argument} in a list of {len(obj)}"
    return f"no field {argument!r} in {_kind(obj)}"


# -- filters -------------------------------------------------------------------------------------------


def _counted(context: Context, items: Any) -> Any:
    """What a loop goes over, a step for each turn."""
    _require(items)
    if not isinstance(items, (list, tuple)):
        raise _RefusedError(f"a loop is over a list, not over {_kind(items)}")
    context[_BUDGET].spend(len(items))
    return items


def _text(value: Any) -> str:
    if isinstance(value, (dict, list, tuple)):
        raise _RefusedError(f"{_kind(value)} where a text is needed; loop over it")
    return str(value)


def _join(items: Any, separator: str = ", ") -> str:
    if not isinstance(items, (list, tuple)):
        raise _RefusedError(f"join is for a list, not for {_kind(items)}")
    if len(separator) > 20:
        raise _RefusedError("a separator longer than 20 characters")
    return separator.join(map(_text, items))


def _length(value: Any) -> int:
    if not isinstance(value, (str, list, tuple, dict)):
        raise _RefusedError(f"length is for a list or a text, not for {_kind(value)}")
    return len(value)


def _truncate(value: Any, limit: int) -> str:
    text = _text(value)
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def _default(value: Any, instead: Any) -> Any:
    return instead if value is None or value == "" else value


def _round(value: Any, digits: int = 0) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= digits <= 12:
        raise _RefusedError("round is for a number and at most 12 digits")
    return round(value, digits) if digits else round(value)


FILTERS: dict[str, Callable[..., Any]] = {
    "upper": lambda value: _text(value).upper(),
    "lower": lambda value: _text(value).lower(),
    "capitalize": lambda value: _text(value).capitalize(),
    "title": lambda value: _text(value).title(),
    "trim": lambda value: _text(value).strip(),
    "truncate": _truncate,
    "join": _join,
    "length": _length,
    "default": _default,
    "round": _round,
}


def _paid(function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, paid for by the length of its text; an undefined value stops it with what is missing."""

    @jinja2.pass_context
    def apply(context: Context, value: Any, *arguments: Any) -> Any:
        _require(value, *arguments)
        length = len(value) if isinstance(value, str) else 0
        if function is _join and isinstance(value, (list, tuple)):
            length = sum(len(part) for part in value if isinstance(part, str))
        context[_BUDGET].spend(1 + length // 100)
        return function(value, *arguments)

    return apply


# -- compiling and rendering ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compiled:
    """A template that has been held against what is allowed. `used`: names of the data that it reads."""

    where: str
    used: frozenset[str]
    _template: jinja2.Template

    def render(self, data: Mapping[str, Any], characters: int) -> tuple[str, bool]:
        """The text, and whether it is all of it: rendering stops where it grows beyond `characters`. Raises
        TemplateError with file and line for a missing field, a wrong type and too many steps."""
        size = 0
        parts: list[str] = []
        try:
            for part in self._template.generate({**data, _BUDGET: _Budget(MAX_STEPS)}):
                size += len(part)
                parts.append(part)
                if size > characters:
                    break
        except (jinja2.TemplateError, _RefusedError, TypeError, ValueError, ArithmeticError) as error:
            raise TemplateError(f"{self.where}:{self._line(error)}: {error}") from None
        return "".join(parts)[:characters], size <= characters

    def _line(self, error: BaseException) -> int:
        """The template's line at which `error` came up: Jinja puts the template's own lines into the traceback."""
        trace, line = error.__traceback__, 1
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.where:
                line = trace.tb_lineno
            trace = trace.tb_next
        return line


def compile_template(
    source: str, where: str, names: frozenset[str], insert: Callable[[str], str]
) -> Compiled:
    """`source` made ready; `where` (the file) opens every error, `insert` escapes what is inserted.

    Raises TemplateError with file and line for bad syntax, anything outside the allowed part, and names not in `names`.
    """
    if len(source) > MAX_TEMPLATE:
        raise TemplateError(f"{where}: the template is longer than {MAX_TEMPLATE} characters")
    env = _environment(insert)
    try:
        tree = env.parse(source)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"{where}:{error.lineno}: {error.message}") from None
    except (RecursionError, MemoryError, ValueError, OverflowError):
        # Jinja's parser is recursive and reads number literals with int(), which refuses long ones.
        raise TemplateError(f"{where}: the template is nested too deeply or holds an absurd number") from None
    used = _check(tree, where, names)
    for loop in tree.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, _LOOP, [], [], None, None, lineno=loop.lineno)
    code = env.compile(tree, filename=where)
    return Compiled(where, used, jinja2.Template.from_code(env, code, {}))


def _environment(insert: Callable[[str], str]) -> _Environment:
    def finalize(value: Any) -> str:
        if type(value) is str:
            return insert(value)
        if value is None:
            return "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        return insert(_text(value))

    env = _Environment(
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=0,
        finalize=finalize,
    )
    env.globals.clear()
    env.filters.clear()
    env.filters.update({name: _paid(function) for name, function in FILTERS.items()})
    env.filters[_LOOP] = jinja2.pass_context(_counted)
    env.tests = {name: test for name, test in env.tests.items() if name in TESTS}
    return env


def _check(tree: nodes.Template, where: str, names: frozenset[str]) -> frozenset[str]:
    """Hold the tree against the allowed list without recursion; return the names of the data that it reads."""
    used: set[str] = set()
    loops: set[str] = {"loop"}
    queue: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while queue:
        node, depth = queue.pop()
        reason = _refused(node, depth)
        if reason:
            raise TemplateError(f"{where}:{node.lineno}: {reason}")
        if isinstance(node, nodes.Name):
            (used if node.ctx == "load" else loops).add(node.name)
        queue.extend((child, depth + 1) for child in node.iter_child_nodes())
    unknown = sorted(used - loops - names)
    if unknown:
        line = next(n.lineno for n in tree.find_all(nodes.Name) if n.name == unknown[0])
        raise TemplateError(
            f"{where}:{line}: unknown name {unknown[0]!r}; a template may use: {', '.join(sorted(names))}"
        )
    return frozenset(used & names)


def _refused(node: nodes.Node, depth: int) -> str | None:
    """Why this node is not allowed; None when it is."""
    if not isinstance(node, _ALLOWED):
        what = next((w for kind, w in _WORDS.items() if isinstance(node, kind)), type(node).__name__.lower())
        return f"{what} is not allowed in a bar's template; see the packaged example"
    if depth > MAX_DEPTH:
        return f"the template is nested deeper than {MAX_DEPTH} levels"
    if isinstance(node, nodes.Filter) and node.name not in FILTERS:
        return f"filter {node.name!r} is not allowed; use {', '.join(sorted(FILTERS))}"
    if isinstance(node, nodes.Test) and node.name not in TESTS:
        return f"test {node.name!r} is not allowed; use {', '.join(sorted(TESTS))}"
    if isinstance(node, nodes.For) and node.recursive:
        return "a recursive loop is not allowed"
    if isinstance(node, nodes.Filter) and (node.kwargs or node.dyn_args or node.dyn_kwargs):
        return f"filter {node.name!r} takes plain arguments only"
    if isinstance(node, nodes.Name) and re.match(r"_|loop$", node.name) and node.ctx != "load":
        return f"{node.name!r} is no name for a loop's variable"
    return None
