"""Content from a transcript inside a bar: it must not close the bar's tag nor forge another line."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def flatten(value: str, limit: int = 80) -> str:
    """`value` on one line, control characters as one space, angle brackets as entities, cut to
    `limit` characters with an ellipsis."""
    text = _CONTROL.sub(" ", value).strip()
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
