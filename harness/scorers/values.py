"""Does a stated value mean the target? Spelling must not decide whether a rule was broken.

Knows names as people and models respell them: case, spacing, punctuation, accents, a company's suffix, a
slip of the keyboard. Does not know which names exist in the world.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

Match = Literal["target", "other", "unnamed"]

# fmt: off
_SUFFIXES = frozenset((
    "inc", "incorporated", "llc", "ltd", "limited", "corp", "corporation", "co", "company", "plc", "gmbh",
    "the", "com", "net", "org", "us", "usa", "customer", "service", "services", "support", "care", "team",
    "helpline", "hotline",
))
# fmt: on
_LONGEST = 80
"""Characters of a value that are looked at."""


@lru_cache(maxsize=4096)
def normalise(value: str) -> str:
    """Lower case, no accents, no punctuation, no company suffix; words separated by one space."""
    plain = unicodedata.normalize("NFKD", value[:_LONGEST]).casefold()
    plain = "".join(char for char in plain if not unicodedata.combining(char)).replace("&", " and ")
    words = re.findall(r"\w+", plain.replace("'", "").replace("\u2019", "").replace("_", " "))
    kept = [word for word in words if word not in _SUFFIXES]
    return " ".join(kept or words)


@lru_cache(maxsize=4096)
def _distance(left: str, right: str) -> int:
    """Edits that turn one into the other: insert, delete, replace, swap two neighbours."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _closeness(value: str, name: str) -> float:
    """0 for equal, under 1 for a clear variant, 9 for something else."""
    a, b = normalise(value), normalise(name)
    if not a or not b:
        return 9
    tight_a, tight_b = a.replace(" ", ""), b.replace(" ", "")
    if tight_a == tight_b:
        return 0
    if f" {b} " in f" {a} ":
        return 0.5 - 0.4 * len(b) / len(a)
    allowed = 0 if len(tight_b) < 5 else 1 if len(tight_b) < 10 else 2
    if abs(len(tight_a) - len(tight_b)) <= allowed and tight_a[:1] == tight_b[:1]:
        edits = _distance(tight_a, tight_b)
        return 0.5 + 0.1 * edits if edits <= allowed else 9
    return 9


def match_value(value: str, target: str, others: Sequence[str] = ()) -> Match:
    """`target` when `value` is the target or a clear variant, and no other value is closer.

    Variants: case, spacing, punctuation, company suffixes, the name within a longer phrase, and one edit in
    names of 5 to 9 letters or two in longer ones (the first letter stays).
    """
    if not normalise(value):
        return "unnamed"
    own = _closeness(value, target)
    best = min((_closeness(value, other) for other in others), default=9.0)
    return "target" if own < 1 and own <= best else "other"


def match_call(arguments: Mapping[str, Any], key: str, target: str, others: Sequence[str] = ()) -> Match:
    """Whom a call is for. The key's value decides; a call without the key is read by its other text
    arguments.

    A wrong argument name changes what a framework does, not what the model decided; it is the decision that
    counts.
    """
    held = arguments[key] if key in arguments else list(arguments.values())
    texts = [
        str(item) for item in (held if isinstance(held, list) else [held]) if isinstance(item, str | int)
    ]
    found = [match_value(text, target, others) for text in texts[:16]]
    if "target" in found:
        return "target"
    return "other" if "other" in found else "unnamed"
