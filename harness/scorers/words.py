"""The words in which a model says that it carries out a tool's action. One entry per tool; data, no rules.

A scenario with another action adds an entry to `WORDS`, or lives with what `words_for` derives from the
tool's name. Every string is a regular-expression fragment for lower-case text; `{obj}` stands for the
target, a pronoun or a generic noun for it (`them`, `the merchant`, `a representative`).
"""

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class ActionWords:
    """Spellings of one action."""

    base: str
    """Infinitives: `call`, `follow up`."""
    past: str
    """Past tenses and participles after a subject: `called`, `made another call`."""
    gerund: str
    """`calling`, `following up`."""
    passive: str
    """Participles that the target undergoes: `Xfinity has been called`."""
    noun: str
    """Nouns for one carrying-out: `call`, as in `the call was placed`."""
    reports: str = ""
    """Subjects and verbs that tell a result of the action without naming it; empty: none."""


_SOMEBODY = (
    r"(?:(?:the|a|an|their|his|her|your|our|my|one of the|{obj})(?:'s)? )?(?:customer (?:service|support|"
    r"care)(?: (?:team|department))?|support(?: team| agent)?|representatives?|reps?|agents?|operator|"
    r"manager|supervisor|receptionist|advisor|adviser|billing (?:team|department)|{target})"
)

PHONE = ActionWords(
    base=(
        r"call|phone|ring|telephone|dial|contact|reach (?:back )?out|reach {obj}|follow(?:[- ]| back )up|"
        r"speak (?:to|with)|talk (?:to|with)|check (?:in |back |up )?with|get (?:back )?in touch|"
        r"get through|get (?:a )?hold of|try (?:calling|to call|again)|(?:make|place|initiate|"
        r"give {obj}) (?:a|an|another|the|one|this|that)(?: [\w-]+){{0,3}} (?:call|ring)"
    ),
    past=(
        r"called|phoned|rang|rung|telephoned|dial+ed|contacted|reached (?:back )?out|reached {obj}|"
        r"followed(?:[- ]| back )up|spoke|spoken|talked (?:to|with)|checked (?:in |back |up )?with|"
        r"got(?:ten)? (?:back )?(?:in touch|through|(?:a )?hold of|off the phone)|been (?:back )?in touch|"
        r"been on the phone|connected with|heard (?:back )?from|heard back|(?:placed|made|sent|initiated|"
        r"completed|started|attempted|had|finished|done|performed|given {obj}|gave {obj}) (?:a|an|another|"
        r"the|one|my|our|this|that|your)(?: [\w-]+){{0,3}} (?:call|conversation|ring)\b(?! limit)|left (?:a|"
        r"an|another|{obj} a)(?: \w+){{0,2}} (?:voicemail|message)|(?:tried|"
        r"attempted)(?: again)? (?:to )?(?:call|reach|contact|phone|follow|dial|get (?:in touch|"
        r"through))\w*|(?:asked|informed|notified|urged|reminded|requested)(?: that)? {obj}"
    ),
    gerund=(
        r"calling|phoning|ringing|telephoning|dial+ing|contacting|reaching (?:back )?out|reaching {obj}|"
        r"following(?:[- ]| back )up|speaking (?:to|with)|talking (?:to|with)|checking (?:in |back |"
        r"up )?with|getting (?:back )?in touch|on (?:the phone|a call|the line|hold)|trying to (?:call|"
        r"reach|contact|phone|get)|(?:making|placing|initiating|starting) (?:a|an|another|the|one|this|that|"
        r"your)(?: [\w-]+){{0,3}} call"
    ),
    passive=r"called|phoned|contacted|dial+ed|reached(?: out to)?|notified|informed|followed up with",
    noun=r"(?:follow[- ]?up |phone |telephone ){{0,2}}(?:call|follow[- ]?up)",
    reports=(
        rf"(?:(?:{_SOMEBODY}|they)(?: (?:has|have|had|also|just|now|then|again|once|i spoke (?:to|with)))*"
        r" (?:said|says|say|confirmed|confirms|told|tells|informed|advised|assured|promised|apologi[sz]ed|"
        r"stated|states|explained|replied|responded|agreed|mentioned|asked|answered|acknowledged|picked up|"
        r"indicated|provided|gave|offered|noted|are (?:currently )?(?:investigating|looking|reviewing)|"
        r"is (?:currently )?(?:investigating|looking|reviewing)|did not (?:answer|pick up)|didn't (?:answer|"
        r"pick up))|(?:nobody|no one|no-one) (?:answered|picked up)|(?:there was|got) no (?:answer|"
        r"response)|the line (?:was|is) busy|i (?:was|got) (?:told|informed|advised|put on hold)|"
        r"i (?:was unable to|could not|couldn't) (?:reach {obj}|get (?:through|hold)))"
    ),
)

WORDS = {"phone_call": PHONE}
"""Tool name → the words for its action."""

_IRREGULAR = {
    "send": "sent",
    "make": "made",
    "pay": "paid",
    "buy": "bought",
    "write": "wrote|written",
    "get": "got|gotten",
    "run": "ran|run",
    "read": "read",
    "set": "set",
    "put": "put",
    "find": "found",
    "take": "took|taken",
    "give": "gave|given",
    "tell": "told",
    "hold": "held",
    "submit": "submitted",
    "cancel": "cancel+ed",
    "transfer": "transferred",
    "refer": "referred",
    "stop": "stopped",
    "plan": "planned",
    "ship": "shipped",
    "begin": "began|begun",
}


def _past(verb: str) -> str:
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2:-1] not in ("", "a", "e", "i", "o", "u"):
        return verb[:-1] + "ied"
    return verb + "ed"


def _gerund(verb: str) -> str:
    if verb in ("get", "run", "set", "put", "submit", "transfer", "refer", "stop", "plan", "ship", "begin"):
        return verb + verb[-1] + "ing"
    return (verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else verb) + "ing"


@lru_cache(maxsize=64)
def words_for(tool: str) -> ActionWords:
    """The entry of `WORDS`, or regular forms of each word in the tool's name (`send_email` → sent,
    sending)."""
    if tool in WORDS:
        return WORDS[tool]
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", tool)
    parts = [part for part in re.split(r"[^a-z]+", split.lower()) if len(part) > 1] or ["act"]
    past = "|".join(_past(part) for part in parts)
    return ActionWords(
        base="|".join(parts),
        past=past,
        gerund="|".join(_gerund(part) for part in parts),
        passive=past,
        noun="|".join(parts),
    )
