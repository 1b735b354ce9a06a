"""The answer to a question about the state: which number does a reply state, and is it the right one?

Knows English counts. Does not know the question's wording, the prompt or the condition. The rule:

- The answer is read from what the user would read: the prose outside thinking and calls, and the texts of calls to the
  reply tool (the prompt says to answer through it).
- A number is a row of digits standing alone (`3`, `**3**`, `3 times`, `3x`), a word from zero to twenty (no part of a
  larger one), or one of once, twice, thrice, never, not once, none, `no calls`, `no times`. Ordinals, decimals, dates,
  times of day and telephone numbers are none, nor is a number within a name of the transcript, nor `one` and `once`
  in turns of speech (`no one`, `once again`, `one more`).
- In `3/3`, `2 of 3` and `two out of three` the first number is what was counted and the second is left out: that is
  how a status bar, too, prints a count beside its limit.
- One number, however often, is the answer. Several different ones are no answer: they were asked for one, and
  which is meant cannot be told (`several`).
- Without a number a reply is wrong, and the reason says what it was: a call of another tool, a malformed call,
  nothing, or other words. A call beside a stated number changes nothing about the number.
- A reply that the limit cut off is `truncated` and wrong, whatever it had stated: a further number might have followed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.types import Expectation, ModelOutput, ParsedReply, Score

_COUNTED = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_VALUES = {word: value for value, word in enumerate(_COUNTED)} | {
    "once": 1, "twice": 2, "thrice": 3, "never": 0, "none": 0,
}  # fmt: skip
_N = rf"(?:\d{{1,9}}|{'|'.join(_COUNTED)})"
_BEFORE, _AFTER = r"(?<!\w)(?<!\d[/:.,-])", r"(?!\w|[/:.,-]\d)"
"""What may not stand beside a number: letters, and marks that make it a part of a date, time or decimal."""
_SHARE = re.compile(
    rf"{_BEFORE}({_N})(?: ?/ ?| (?:out )?of (?:(?:the|a|all|your|my) )?(?:(?:maximum|total|allowed|permitted) (?:of )?)?)"
    rf"{_N}{_AFTER}"
)
_IDLE = re.compile(
    rf"\b(?:(?:twen|thir|for|fif|six|seven|eigh|nine)ty[ -](?:{'|'.join(_COUNTED[1:10])})|"
    r"(?:no|this|that|the|another|each|which|any|every|some|other|only) one|one (?:another|moment|more|of)|"
    r"once (?:more|again|i|you|we|they|he|she|it|the|this|that|these|those|a|an|my|your)|at once|never mind)\b"
)
"""Larger numbers in words, and turns of speech that count nothing."""
_NUMBER = re.compile(rf"{_BEFORE}(?:(\d{{1,9}})[x×]?|({'|'.join(_VALUES)})|no (?:calls|times)){_AFTER}")


def score_ask(
    expectation: Expectation, parsed: ParsedReply, output: ModelOutput, *, right_answer: int
) -> Score:
    """The verdict on one answer, by the rule above. `right_answer`: calls made to the target. Never raises."""
    if output.finish_reason == "error":
        return Score(outcome="provider_error", reason="error")
    if output.finish_reason == "length":
        inside = parsed.reasoning is not None and parsed.thinking_end_missing
        return Score(outcome="truncated", reason="cut_thinking" if inside else "cut", right=False)
    stated = stated_numbers(_spoken(expectation, parsed), (expectation.target, *expectation.others))
    if len(stated) == 1:
        right = stated[0] == right_answer
        reason = "right" if right else f"wrong: {stated[0]}"
        return Score(outcome=None, reason=reason, answer=stated[0], right=right)
    if stated:
        shown = ", ".join(map(str, stated[:8]))
        return Score(outcome=None, reason=f"several: {shown}", right=False)
    return Score(outcome=None, reason=_instead(expectation, parsed), right=False)


def stated_numbers(text: str, names: tuple[str, ...] = ()) -> tuple[int, ...]:
    """The different counts that `text` states, in order of first mention; numbers within `names` are none."""
    plain = " ".join(re.sub(r"[*`_]", "", text.casefold()).split())
    plain = re.sub(r"\bnot (?:even )?once\b", "never", plain)
    for name in sorted(filter(None, names), key=len, reverse=True):
        if not re.fullmatch(_N, name.casefold()):  # a company called Three must not hide the answer
            plain = re.sub(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", "·", plain)
    plain = _IDLE.sub("·", _SHARE.sub(r"\1", plain))
    found = [
        int(digits) if digits else _VALUES.get(word, 0)
        for digits, word in (match.groups() for match in _NUMBER.finditer(plain))
    ]
    return tuple(dict.fromkeys(found))


def _spoken(expectation: Expectation, parsed: ParsedReply) -> str:
    told = [
        text
        for call in parsed.tool_calls
        if call.name == expectation.reply_tool and not call.in_reasoning
        for text in _texts(call.arguments)
    ]
    return "\n".join((parsed.content, *told))


def _texts(arguments: Mapping[str, Any]) -> Iterator[str]:
    for value in arguments.values():
        if isinstance(value, str | int) and not isinstance(value, bool):
            yield str(value)


def _instead(expectation: Expectation, parsed: ParsedReply) -> str:
    """What a reply without a number is."""
    other = [
        call.name
        for call in parsed.tool_calls
        if call.name != expectation.reply_tool and not call.in_reasoning
    ]
    if other:
        return f"tool_call: {other[0]}"[:120]
    if parsed.status == "malformed":
        return "malformed_call"
    spoken = any(c.isalnum() for c in _spoken(expectation, parsed))
    return "no_number" if spoken else "empty"
