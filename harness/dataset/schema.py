"""The shape of a scenario file: one frozen pydantic model per block, unknown keys refused.

Knows each value by itself (type, length, allowed characters). Does not know files, and does not hold one
block against another; `load` does that, since such an error belongs to a key of its own.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr

MAX_NAME = 60
MAX_TEXT = 2_000
_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty; expected text")
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


Text = Annotated[StrictStr, AfterValidator(_text)]
"""Jinja template or plain text, 1 to 2,000 characters, no control characters but line feeds."""
MerchantName = Annotated[StrictStr, AfterValidator(_merchant)]
Slug = Annotated[StrictStr, AfterValidator(_slug)]
ToolName = Annotated[StrictStr, AfterValidator(_tool_name)]
JsonSchema = Annotated[dict[str, Any], AfterValidator(_schema)]


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


class EpisodeBlock(_Block):
    """How the draws become messages. `call` fills every argument of the ruled tool but its key."""

    call: dict[str, Text] = Field(default_factory=dict)
    aside: AsideBlock | None = None


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
    cases: Annotated[tuple[CaseBlock, ...], Field(min_length=1)]
    purposes: tuple[Text, ...] = ()
    results: Annotated[tuple[ResultBlock, ...], Field(min_length=1)]
    searches: tuple[SearchBlock, ...] = ()
    closings: Annotated[tuple[Text, ...], Field(min_length=1)]
    phrasings: Annotated[dict[Slug, Annotated[tuple[Text, ...], Field(min_length=1)]], Field(min_length=1)]
    fillers: tuple[FillerBlock, ...] = ()


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
