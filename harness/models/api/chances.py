"""Token probabilities of one forced call → the probability of each choice.

An API tells of the reply that it drew: each token with its probability and the likeliest others at its place. The
drawn choice has its whole product. Another choice is read where it parts from what was drawn: the product so far times
the tokens there that lead to it alone; what would follow is not told and, the choice being made, close to 1. Where two
choices part from the drawn one together, nothing is said of any, and the choices are drawn instead. Knows no provider.
"""

import json
import math
from collections.abc import Mapping, Sequence

from harness.models.api.base import Answer, TokenChances
from harness.models.api.replies import label_of

FLOOR = math.log(1e-6)
"""Of a choice that is not among the likeliest tokens at its place: less than this is not told apart."""


def chances_of(answer: Answer, labels: Sequence[str]) -> Mapping[str, float] | None:
    """label → natural log of its probability; None where the answer's tokens do not tell."""
    call = next((block for block in answer.blocks if block.kind == "call"), None)
    drawn = None if call is None else label_of(call, frozenset(labels))
    if call is None or drawn is None or not answer.chances:
        return None
    text = "".join(each.token for each in answer.chances)
    written = _written(text, call.name, drawn, labels)
    if written is None:
        return None
    result = {label: _along(answer.chances, label, drawn, written) for label in labels}
    told = {label: value for label, value in result.items() if value is not None}
    return told if len(told) == len(labels) else None


def _written(text: str, tool: str, drawn: str, labels: Sequence[str]) -> dict[str, str] | None:
    """label → the reply's text up to where that choice is settled: through the name's closing quote, or the value's.
    None where the call is not written in the tokens."""
    begin = text.find(f'"{tool}"') + 1
    if begin == 0:
        return None
    value_at = None
    if drawn != tool:
        value_at = text.find(_inside(drawn.removeprefix(f"{tool}:")) + '"', begin + len(tool))
        if value_at < 0:
            return None
    written = {}
    for label in labels:
        name, colon, value = label.partition(":")
        if value_at is not None and colon and name == tool:
            written[label] = text[:value_at] + _inside(value) + '"'
        else:
            written[label] = text[:begin] + name + '"'
    return written


def _inside(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _along(
    tokens: Sequence[TokenChances], label: str, drawn: str, written: Mapping[str, str]
) -> float | None:
    """The choice's log-probability along the drawn tokens. What all choices begin with is not counted: it is part of
    what was forced."""
    wanted = written[label]
    forced = len(_common(list(written.values())))
    at, total = 0, 0.0
    for each in tokens:
        rest = wanted[at:]
        if not rest:
            return total
        if _leads(each.token, rest):
            after = at + len(each.token)
            total += each.logprob if after > forced else 0.0
            at = after
            continue
        mass = 0.0
        for token, logprob in each.others.items():
            if not _leads(token, rest):
                continue
            rivals = [o for o, text in written.items() if o != label and _leads(token, text[at:])]
            rivals = [other for other in rivals if written[other][:at] == wanted[:at]]
            if drawn in rivals:
                continue  # a shorter token on both ways: whose it is, is not told
            if rivals:
                return None
            mass += math.exp(logprob)
        return total + max(FLOOR, math.log(mass)) if mass > 0 else total + FLOOR
    return total if at >= len(wanted) else None


def _common(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    length = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[:length]


def _leads(piece: str, rest: str) -> bool:
    """Whether a token's text goes along what is to be written, to its end or beyond."""
    return bool(piece) and bool(rest) and (rest.startswith(piece) or piece.startswith(rest))
