"""The shape of a scenario file: one frozen pydantic model per block, unknown keys refused.

Knows each value by itself (type, length, allowed characters). Does not know files, and does not hold one
block against another; `load` does that, since such an error belongs to a key of its own.
"""

import difflib
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator

MAX_NAME = 60
MAX_TEXT = 2_000
MAX_DEPTH = 8
"""Levels of lists and mappings in the arguments of a scripted call."""
_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_WORD = re.compile(r"[a-z]{1,20}")
KNOWN = (
    "diagnostics", "original_chars", "omitted_chars", "recalled", "recalled_seconds", "completions", "stack", "advice",
    "workspace", "cwd", "git",
)  # fmt: skip
"""What a framework may know beside a message's text (harness/state reads it)."""


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty; expected text")
    return _plain(value)


def _plain(value: str) -> str:
    if len(value) > MAX_TEXT:
        raise ValueError(f"is longer than {MAX_TEXT} characters")
    bad = next((c for c in value if unicodedata.category(c) in {"Cc", "Cf", "Cs"} and c != "\n"), None)
    if bad is not None:
        raise ValueError(f"holds the control character U+{ord(bad):04X}; remove it")
    if "<|" in value or "|>" in value:
        raise ValueError("holds '<|' or '|>', which chat templates use as markers; remove it")
    return value


def _merchant(value: str) -> str:
    """A name goes into ids, JSON arguments, bars and figures, so it is held to a plain alphabet."""
    shown = ascii(value if len(value) <= MAX_NAME else value[:MAX_NAME] + "...")
    if not 1 <= len(value) <= MAX_NAME:
        raise ValueError(f"{shown} has {len(value)} characters; a name has 1 to {MAX_NAME}")
    bad = next((c for c in value if not (c.isalnum() or c in " .-")), None)
    if bad is not None:
        raise ValueError(
            f"{shown} holds {bad!a}; a name may hold letters, digits, single spaces, '.' and '-'"
        )
    if not value[0].isalnum() or value[-1] in " -" or "  " in value or ".." in value:
        raise ValueError(
            f"{shown} must start with a letter or digit and have no '..', double or trailing space"
        )
    if unicodedata.normalize("NFKC", value) != value:
        raise ValueError(f"{shown} is not in Unicode normal form NFKC")
    return value


def _slug(value: str) -> str:
    if not _SLUG.fullmatch(value):
        raise ValueError(f"{value[:50]!a} must be lower-case letters, digits, '-' or '_', at most 40")
    return value


def _tool_name(value: str) -> str:
    if not _TOOL.fullmatch(value):
        raise ValueError(f"{value[:70]!a} is no tool name; letters, digits, '_' and '-', at most 64")
    return value


def _word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError(
            f"{value[:50]!a} must be small letters alone, at most 20, since it becomes a variable"
        )
    return value


def _variable(value: Any) -> Any:
    """A text, or several that belong together."""
    if isinstance(value, str):
        return _text(value)
    if not isinstance(value, dict) or not value:
        raise ValueError("expected text, or a mapping of names to texts that belong together")
    for name, each in value.items():
        _word(name)
        if not isinstance(each, str):
            raise ValueError(f"{name!r} must be text, not {each!a:.60}")
        try:
            _text(each)
        except ValueError as error:
            raise ValueError(f"{name!r} {error}") from None
    return value


def _known(value: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = next((name for name in value if name not in KNOWN), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, KNOWN, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"{unknown[:50]!a} is nothing that a framework knows here; {hint}it may hold: {', '.join(KNOWN)}"
        )
    return value


def _schema(value: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = value.get("properties")
    if value.get("type") != "object" or not isinstance(properties, dict) or not properties:
        raise ValueError("must be a JSON schema with `type: object` and at least one entry in `properties`")
    for name, schema in properties.items():
        if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
            raise ValueError(f"property {name!r} must be a mapping with a `type`")
    required = value.get("required", [])
    if not isinstance(required, list) or any(
        not (isinstance(name, str) and name in properties) for name in required
    ):
        raise ValueError("`required` must be a list of names that `properties` holds")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("holds a value that is not JSON (a date, .nan or .inf)") from None
    return value


def _json(value: Any) -> Any:
    """JSON in which every string is fit for a transcript; an empty string is fine."""
    _check_json(value, 0)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("holds a value that is not JSON (a date, .nan or .inf); put it in quotes") from None
    return value


def _check_json(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        _plain(value)
    elif isinstance(value, dict):
        for name, each in value.items():
            _plain(name)
            _check_json(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _check_json(each, depth + 1)


Text = Annotated[StrictStr, AfterValidator(_text)]
"""Jinja template or plain text, 1 to 2,000 characters, no control characters but line feeds."""
MerchantName = Annotated[StrictStr, AfterValidator(_merchant)]
Slug = Annotated[StrictStr, AfterValidator(_slug)]
ToolName = Annotated[StrictStr, AfterValidator(_tool_name)]
JsonSchema = Annotated[dict[str, Any], AfterValidator(_schema)]
Word = Annotated[StrictStr, AfterValidator(_word)]
Value = Annotated[Any, AfterValidator(_variable)]
JsonObject = Annotated[dict[StrictStr, Any], AfterValidator(_json)]
"""Any JSON; every string in it, at whatever depth, is a template."""
Known = Annotated[dict[StrictStr, Any], AfterValidator(_json), AfterValidator(_known)]


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolBlock(_Block):
    """A tool offered to the model."""

    name: ToolName
    description: Text
    parameters: JsonSchema


class RuleBlock(_Block):
    """`tool` may be called at most `at_most` times per value of its argument `key`."""

    tool: StrictStr
    key: StrictStr
    at_most: Annotated[StrictInt, Field(ge=1, le=20)]


class AsideBlock(_Block):
    """Calls to another tool, interleaved with the counted ones."""

    tool: StrictStr
    count: Annotated[StrictInt, Field(ge=0, le=20)]
    arguments: dict[str, Text]


class ScriptBlock(_Block):
    """One entry of a script: something said (`user` or `assistant`), or a call with its result."""

    user: Text | None = None
    assistant: Text | None = None
    call: StrictStr | None = None
    """Name of a tool."""
    arguments: JsonObject = Field(default_factory=dict)
    result: Text | None = None
    say: Text | None = None
    """What the assistant says in the message that makes the call."""
    error: Text | None = None
    """The kind of error that the framework stated with the result."""
    time: Text | None = None
    """ISO 8601, of the message, or of the call and its result."""
    known: Known = Field(default_factory=dict)
    """Of a user message, or of a result."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> "ScriptBlock":
        kinds = [kind for kind in ("user", "assistant", "call") if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError(
                f"has {' and '.join(kinds) or 'none'} of user, assistant and call; expected one of them"
            )
        if self.call is None:
            for key in ("arguments", "result", "say", "error"):
                if getattr(self, key):
                    raise ValueError(f"{key!r} belongs to a call, not to what the {kinds[0]} says")
        elif self.result is None:
            raise ValueError("a call needs its `result`")
        if self.assistant is not None and self.known:
            raise ValueError("'known' belongs to a user message or a result, not to what the assistant says")
        return self


class FollowUpBlock(_Block):
    """What a framework stated beside the follow-up, whose text comes from `pools.phrasings`."""

    time: Text | None = None
    known: Known = Field(default_factory=dict)


class EpisodeBlock(_Block):
    """How the draws become messages. `call` fills every argument of the ruled tool but its key; `script` states all
    messages itself instead."""

    call: dict[str, Text] = Field(default_factory=dict)
    aside: AsideBlock | None = None
    script: Annotated[tuple[ScriptBlock, ...], Field(max_length=200)] = ()
    follow_up: FollowUpBlock | None = None


class FlagshipBlock(_Block):
    """The two merchants of cluster 0."""

    at_limit: MerchantName
    other: MerchantName


class CaseBlock(_Block):
    """A customer's problem with two merchants. `opening` uses `first` and `second`."""

    topic: Text
    opening: Text


class ResultBlock(_Block):
    """What a counted call returns, and the same as a clause for the closing sentence."""

    text: Text
    gist: Text


class SearchBlock(_Block):
    """Query and result of one aside."""

    query: Text
    result: Text


class FillerBlock(_Block):
    """One exchange about something else."""

    user: Text
    assistant: Text


class PoolsBlock(_Block):
    """What episodes draw from, without replacement within an episode."""

    merchants: Annotated[tuple[MerchantName, ...], Field(min_length=4, max_length=1000)]
    """May be spelt `names`."""
    cases: tuple[CaseBlock, ...] = ()
    purposes: tuple[Text, ...] = ()
    results: tuple[ResultBlock, ...] = ()
    searches: tuple[SearchBlock, ...] = ()
    closings: tuple[Text, ...] = ()
    phrasings: Annotated[dict[Slug, Annotated[tuple[Text, ...], Field(min_length=1)]], Field(min_length=1)]
    fillers: tuple[FillerBlock, ...] = ()
    variables: dict[Word, Annotated[tuple[Value, ...], Field(min_length=1, max_length=200)]] = Field(
        default_factory=dict
    )
    """For scripts: name → texts, or texts that belong together under names of their own."""


class ScenarioSpec(_Block):
    """A whole scenario file."""

    name: Slug
    description: Text
    system: Text
    tools: Annotated[tuple[ToolBlock, ...], Field(min_length=2, max_length=40)]
    rules: Annotated[tuple[RuleBlock, ...], Field(min_length=1)]
    reply_tool: StrictStr = "reply"
    episode: EpisodeBlock
    flagship: FlagshipBlock | None = None
    pools: PoolsBlock
    ask: tuple[Text, ...] = ()
    """Wordings of the question of probe `ask`; none: the general one."""
