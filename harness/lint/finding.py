"""What the lint can find: one table of codes, each with the decision that it asks for and the way out.

Knows no bar and no state.
"""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding."""

    name: str
    severity: Severity
    what: str
    decision: str
    """The decision that would have to turn out differently for this to be worth its tokens."""
    remedy: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One flaw of a bar, with the line that shows it in two drawn texts."""

    code: Code
    where: str
    """The trajectory, and the request or result in it."""
    before: str = ""
    after: str = ""
    detail: str = ""
    more: int = 0
    """How often else it was found."""

    @property
    def severity(self) -> Severity:
        return self.code.severity


_TABLE: tuple[tuple[str, Severity, str, str, str], ...] = (
    (
        "raises", "error", "drawing the bar fails",
        "none: a bar that fails takes the request with it",
        "draw what there is and return None where there is nothing",
    ),
    (
        "clock", "error", "the text follows the clock",
        "what would the model do otherwise a second or an hour later on the same day?",
        "state the day; give the exact time to the human's side; put a deadline in as a fact (left, passed)",
    ),
    (
        "turn-counter", "error", "the text changes with every turn although no fact did",
        "what would the model do otherwise one idle exchange later?",
        "drop the counter, or draw a level of it that changes rarely (of the budget: plenty, short, used up)",
    ),
    (
        "machine", "error", "another machine, day or process draws another text from the same messages",
        "none: what the transcript does not say cannot be replayed",
        "take times and places from the messages or from options; sort sets before they are joined",
    ),
    (
        "not-deterministic", "error", "the same state drawn twice gives two texts",
        "none", "draw from the state alone",
    ),
    (
        "order", "warning", "the same facts in another order of arrival are other lines",
        "does it matter to the next step what came first?",
        "sort by what matters (touches, severity), then by name",
    ),
    (
        "respelling", "error", "a line is spelt otherwise although its facts are the same",
        "none: spacing, case and underscores decide nothing, but every token behind them is billed again",
        "one spelling for each status; no padding to the widest row",
    ),
    (
        "outside-lines", "error", "tag, attributes, heading or note follow the state",
        "does the bar's effect come from its content? The placebo would keep this part of it",
        "put the state into `lines`",
    ),
    (
        "frame", "error", "there is not one frame for each line, or what they keep follows the state",
        "does the bar's effect come from its content? The placebo would keep this part of it",
        "give every line its frame, which holds the line's form whatever it says; status marks belong to the line",
    ),
    (
        "secret", "error", "a secret from the transcript stands in the text",
        "none that it would need the secret for", "pass content through harness.statusbar.escape.flatten or block",
    ),
    (
        "forgeable", "error", "content can write the bar's tags or a line of its own",
        "which lines may the model believe?", "pass content through harness.statusbar.escape.flatten or block",
    ),
    (
        "control", "error", "control or unseen characters of the content stand in the text",
        "none", "pass content through harness.statusbar.escape.flatten or block",
    ),
    (
        "growth", "error", "the text grows with the transcript although the facts stay the same in number",
        "what would the model do otherwise with the older entries gone?",
        "sum up, or show the newest few and say how many were left out",
    ),
    (
        "growth-with-facts", "warning", "the text has no bound: it grows with the number of facts",
        "does the next step need all of them?",
        "bound lines and characters, count what was left out, keep the active item",
    ),
    (
        "active-item-lost", "error", "the list is cut and the item in progress is not in it",
        "what to do next", "the item in progress comes first, or survives every bound",
    ),
    (
        "shell", "error", "without anything to say it draws an empty shell",
        "what would the model do otherwise because a heading stands there?", "return None",
    ),
    (
        "not-silent", "warning", "it has something to say before anything happened",
        "what would the model do otherwise at the first request?", "return None until there is a fact",
    ),
)  # fmt: skip

CODES = {row[0]: Code(*row) for row in _TABLE}
