"""How the blocks of a scenario file must fit together.

Knows the rules between blocks (a rule names a tool that exists, no merchant's name hides in a text, every
template renders). Does not know files or lines: it yields key paths and reasons. Nothing is rendered later
that was not tried here with stand-in names.
"""

from collections.abc import Iterator, Sequence

from harness.dataset.schema import ScenarioSpec
from harness.dataset.script import FOLLOW_UP, SCRIPT
from harness.dataset.script_checks import script_problems, script_texts
from harness.errors import TemplateError
from harness.safeyaml import KeyPath
from harness.sandbox import render, used_names

Problem = tuple[KeyPath, str]


def problems(spec: ScenarioSpec) -> Iterator[Problem]:
    """Every mistake as (key path, reason), in order. Lazy: a later check may rest on an earlier one."""
    yield from _tool_problems(spec)
    yield from _rule_problems(spec)
    yield from _merchant_problems(spec)
    yield from script_problems(spec)
    yield from _pool_problems(spec)
    if not spec.episode.script:
        yield from _episode_problems(spec)
    yield from _template_problems(spec)


def _tool_problems(spec: ScenarioSpec) -> Iterator[Problem]:
    names = [tool.name for tool in spec.tools]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield ("tools", i, "name"), f"tool {name!r} occurs twice"
    if spec.reply_tool not in names:
        yield ("reply_tool",), f"unknown tool {spec.reply_tool!r}; `tools` has: {', '.join(names)}"


def _rule_problems(spec: ScenarioSpec) -> Iterator[Problem]:
    tools = {tool.name: tool for tool in spec.tools}
    seen: set[str] = set()
    for i, rule in enumerate(spec.rules):
        if rule.tool not in tools:
            yield ("rules", i, "tool"), f"unknown tool {rule.tool!r}; `tools` has: {', '.join(tools)}"
            continue
        if rule.tool == spec.reply_tool:
            yield ("rules", i, "tool"), f"{rule.tool!r} answers the customer and cannot be limited"
        if rule.tool in seen:
            yield ("rules", i, "tool"), f"{rule.tool!r} has a rule already; one rule per tool"
        seen.add(rule.tool)
        properties = tools[rule.tool].parameters["properties"]
        if rule.key not in properties:
            have = ", ".join(properties)
            yield ("rules", i, "key"), f"{rule.tool!r} has no parameter {rule.key!r}; it has: {have}"
        elif next(iter(properties)) != rule.key:
            # The `choose` probe reads the probability of tool and key; other arguments must come after.
            yield ("rules", i, "key"), f"{rule.key!r} must be the first parameter of {rule.tool!r}"
        elif properties[rule.key]["type"] != "string":
            yield ("rules", i, "key"), f"parameter {rule.key!r} of {rule.tool!r} must have type string"


def _merchant_problems(spec: ScenarioSpec) -> Iterator[Problem]:
    folded = [name.casefold() for name in spec.pools.merchants]
    for i, name in enumerate(folded):
        for j in range(i):
            if name == folded[j]:
                yield ("pools", "merchants", i), f"{spec.pools.merchants[i]!r} repeats entry {j}"
            elif name in folded[j] or folded[j] in name:
                inner, outer = sorted((spec.pools.merchants[i], spec.pools.merchants[j]), key=len)
                yield ("pools", "merchants", i), f"{inner!r} is part of {outer!r}; no name may hold another"
    if spec.flagship is not None:
        for key in ("at_limit", "other"):
            name = getattr(spec.flagship, key)
            if name not in spec.pools.merchants:
                yield ("flagship", key), f"{name!r} is not in pools.merchants"
        if spec.flagship.at_limit == spec.flagship.other:
            yield ("flagship", "other"), "must differ from flagship.at_limit"
    for path, text in _texts(spec):
        found = next((n for n in spec.pools.merchants if n.casefold() in text.casefold()), None)
        if found is not None:
            yield path, f"holds the merchant name {found!r}; a name may enter through a variable only"


def _pool_problems(spec: ScenarioSpec) -> Iterator[Problem]:
    seen: dict[tuple[str, str], KeyPath] = {}
    episode = 2 * spec.rules[0].at_most + 1
    drawn = () if spec.episode.script else ("results", "purposes")
    for pool in drawn:
        have = len(getattr(spec.pools, pool))
        if have < episode and not (pool == "purposes" and not have):
            yield (
                ("pools", pool),
                f"has {have} texts; an episode draws up to {episode} different ones (2 × limit + 1)",
            )
    for path, text in _texts(spec):
        if path[0] == "pools" and path[1] != "variables" and path[-1] not in ("topic", "gist"):
            pool = str(path[1])
            if (pool, text) in seen:
                yield path, "repeats an earlier text of the same pool; draws are meant to differ"
            seen[pool, text] = path


def _episode_problems(spec: ScenarioSpec) -> Iterator[Problem]:
    tools = {tool.name: tool for tool in spec.tools}
    rule = spec.rules[0]
    wanted = [p for p in tools[rule.tool].parameters["properties"] if p != rule.key]
    yield from _argument_problems(("episode", "call"), spec.episode.call, wanted, rule.tool)
    aside = spec.episode.aside
    if aside is None:
        return
    if aside.tool not in tools:
        yield ("episode", "aside", "tool"), f"unknown tool {aside.tool!r}; `tools` has: {', '.join(tools)}"
    elif aside.tool in {r.tool for r in spec.rules} or aside.tool == spec.reply_tool:
        yield ("episode", "aside", "tool"), f"{aside.tool!r} has a rule or is the reply tool; take another"
    else:
        wanted = list(tools[aside.tool].parameters["properties"])
        yield from _argument_problems(("episode", "aside", "arguments"), aside.arguments, wanted, aside.tool)
    if aside.count > len(spec.pools.searches):
        have = len(spec.pools.searches)
        yield ("episode", "aside", "count"), f"asks for {aside.count} asides, pools.searches has {have}"


def _argument_problems(
    path: KeyPath, given: dict[str, str], wanted: Sequence[str], tool: str
) -> Iterator[Problem]:
    for name in given:
        if name not in wanted:
            have = ", ".join(wanted) or "none"
            yield (*path, name), f"{tool!r} takes no such argument here; it takes: {have}"
    for name in wanted:
        if name not in given:
            yield path, f"argument {name!r} of {tool!r} is missing"


_STAND_IN = {"first": "Aaaa", "second": "Bbbb", "merchant": "Aaaa", "name": "Aaaa"}
_FREE = {
    "limit": "1", "topic": "a topic", "purpose": "a purpose", "query": "a query", "gist": "a gist",
    "tool": "a_tool", "key": "a_key",
}  # fmt: skip
_LIMITS = tuple(str(limit) for limit in range(1, 22))
_VARIABLES: dict[str, tuple[str, ...]] = {
    "system": ("limit",),
    "opening": ("first", "second", "topic"),
    "purposes": ("topic",),
    "text": ("merchant", "topic"),
    "gist": ("topic",),
    "query": ("topic",),
    "result": ("topic",),
    "closings": ("merchant", "gist", "topic"),
    "phrasings": ("merchant", "topic"),
    "call": ("merchant", "purpose", "topic"),
    "arguments": ("query", "topic"),
    "ask": ("merchant", "tool", "key"),
}
"""Which variables each kind of text may use; the other texts are taken as they stand."""
_SCRIPTED = {"phrasings": ("name",), "ask": ("name", "tool", "key")}
"""The same where the episode is scripted."""
_MUST_USE: dict[str, tuple[str, ...]] = {
    "opening": ("first", "second"),
    "phrasings": ("merchant", "name"),
    "ask": ("merchant", "name"),
}


def _kind(path: KeyPath) -> str:
    if path[:2] == ("pools", "variables"):
        return ""
    return next((str(p) for p in path if isinstance(p, str) and p in _VARIABLES), "")


def _template_problems(spec: ScenarioSpec) -> Iterator[Problem]:
    needs_purpose = False
    allowed = _VARIABLES | (_SCRIPTED if spec.episode.script else {})
    for path, text in _texts(spec):
        if path[:2] in (SCRIPT, FOLLOW_UP):
            continue
        kind = _kind(path)
        if not kind:
            if any(mark in text for mark in ("{{", "{%", "{#")):
                yield path, "is taken as it stands: no template is rendered here, remove the braces"
            continue
        values = {name: _STAND_IN.get(name) or _FREE[name] for name in allowed[kind]}
        try:
            out = render(text, values, where="")
            if kind == "system":
                # A series moves the limit: no branch of the text may turn out empty.
                out = min((render(text, {"limit": limit}, where="") for limit in _LIMITS), key=len)
            needs_purpose |= kind == "call" and "purpose" in used_names(text, where="")
        except TemplateError as error:
            yield path, str(error).removeprefix(":").strip()
            continue
        for name in (each for each in _MUST_USE.get(kind, ()) if each in values):
            if _STAND_IN[name] not in out:
                yield path, f"must name {{{{ {name} }}}}"
        if not out.strip():
            yield path, "renders to nothing"
    if needs_purpose and not spec.pools.purposes:
        yield ("pools", "purposes"), "episode.call uses {{ purpose }}, and this pool is empty"


def _texts(spec: ScenarioSpec) -> Iterator[tuple[KeyPath, str]]:
    """Every text of the file that can reach a transcript, with its key path."""
    pools = spec.pools
    yield ("system",), spec.system
    for i, tool in enumerate(spec.tools):
        yield ("tools", i, "description"), tool.description
    for name, text in spec.episode.call.items():
        yield ("episode", "call", name), text
    if spec.episode.aside is not None:
        for name, text in spec.episode.aside.arguments.items():
            yield ("episode", "aside", "arguments", name), text
    for i, case in enumerate(pools.cases):
        yield ("pools", "cases", i, "topic"), case.topic
        yield ("pools", "cases", i, "opening"), case.opening
    for i, text in enumerate(pools.purposes):
        yield ("pools", "purposes", i), text
    for i, result in enumerate(pools.results):
        yield ("pools", "results", i, "text"), result.text
        yield ("pools", "results", i, "gist"), result.gist
    for i, search in enumerate(pools.searches):
        yield ("pools", "searches", i, "query"), search.query
        yield ("pools", "searches", i, "result"), search.result
    for i, text in enumerate(pools.closings):
        yield ("pools", "closings", i), text
    for label, texts in pools.phrasings.items():
        for i, text in enumerate(texts):
            yield ("pools", "phrasings", label, i), text
    for i, filler in enumerate(pools.fillers):
        yield ("pools", "fillers", i, "user"), filler.user
        yield ("pools", "fillers", i, "assistant"), filler.assistant
    for i, text in enumerate(spec.ask):
        yield ("ask", i), text
    yield from script_texts(spec)
