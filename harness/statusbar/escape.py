"""Content from a transcript inside a bar: it closes no tag, forges no line, hides nothing and shows no secret.

Knows texts alone. Everything that a model, a tool or a file wrote goes through `flatten` (one line) or `block` (several).
"""

import re
from functools import lru_cache

from harness.statusbar.redact import redact

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]+"
)
"""Characters without a picture of their own: soft hyphens, zero-width and bidirectional marks, fillers, tag characters.
They can turn a line round, or split a word that a rule looks for."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Halves of a pair, which no tokenizer takes."""
_SHORT = 400
"""Texts up to this length are remembered: the same content comes again with every request."""
_AHEAD = 8192
_MARGIN = 512
"""Characters beyond the limit that are looked at for a secret which the cut would leave half, and how many of them are not
used where the text goes on: a secret may be cut there."""


def flatten(value: str, limit: int = 80) -> str:
    """`value` on one line: control characters as one space, unseen ones gone, secrets redacted, cut to `limit` characters
    with an ellipsis, `&`, `<` and `>` as entities (after the cut, so that the text may be longer than `limit`)."""
    return _remembered(value, limit) if len(value) <= _SHORT else _flattened(value, limit)


def block(text: str, limit: int = 1200, prefix: str = "  ", lines: int | None = None) -> tuple[str, ...]:
    """Several lines, each behind `prefix` and otherwise as `flatten` makes them, tabs as four spaces; at most `limit`
    characters before the prefixes are put in, and at most `lines` lines; what was cut ends with an ellipsis.

    No line begins with content as long as `prefix` is not empty. Empty lines at the end are dropped.
    """
    shown = "\n".join(line.replace("\t", "    ") for line in _safe(text, limit).splitlines())
    parts = shown[:limit].rstrip().split("\n")
    cut = len(shown) > limit or len(text) > limit + _AHEAD
    if lines is not None and len(parts) > lines:
        parts, cut = parts[:lines], True
    if cut:
        parts[-1] = parts[-1][:-1] + "…" if parts[-1] else "…"
    return tuple(prefix + entities(_CONTROL.sub(" ", part).rstrip()) for part in parts) if any(parts) else ()


def entities(text: str) -> str:
    """`text` that holds no tag."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@lru_cache(maxsize=8192)
def _remembered(value: str, limit: int) -> str:
    return _flattened(value, limit)


def _flattened(value: str, limit: int) -> str:
    text = _CONTROL.sub(" ", _safe(value, limit)).strip()
    if len(text) > limit or len(value) > limit + _AHEAD:
        text = text[: max(limit - 1, 0)] + "…"
    return entities(text)


def _safe(value: str, limit: int) -> str:
    """The part of `value` that may be shown, secrets redacted before anything is cut, since a cut secret is still one."""
    text = value[: limit + _AHEAD]
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", _UNSEEN.sub("", text))
    redacted = redact(text)
    return redacted if len(value) <= limit + _AHEAD else redacted[:-_MARGIN]


def unsafe(line: str) -> bool:
    """Does a line of a bar hold a control character, an unseen one or half of a pair?"""
    return any(pattern.search(line) for pattern in (_CONTROL, _UNSEEN, _SURROGATE))
