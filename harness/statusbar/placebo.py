"""The neutral bar: same tag, heading and line count as the bar it stands in for, same token length.

Its content says nothing about calls, limits, counts or what to do. There are ten texts, assigned by
cluster, because the effect of one particular wording is not the effect of neutral content. A text is a
list of short phrases; each line takes the subset whose token lengths add up to the length of the bar's
line, so that no sentence is cut off.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from harness.errors import ConfoundError
from harness.state import AgentState
from harness.statusbar.base import BarContext, StatusBar, StatusText

# No numbers, no limit words (maximum, left, only, again, already, yet), no tool, no merchant.
TEXTS: tuple[tuple[str, ...], ...] = (
    (
        "Desk: customer care, day shift", "Language: English", "Channel: web chat",
        "the chat window is open", "the agent is signed in", "the notes panel is visible",
        "the profile page has loaded", "Theme: light", "Layout: standard", "sound is on",
        "the spelling check is on", "the screen is shared with nobody", "Region: east",
        "the clock hangs on the wall", "Queue: general", "the font is the usual kind",
    ),
    (
        "Session: regular conversation", "Workspace: main office", "the connection is stable",
        "messages are shown in order", "Display: full window", "the keyboard is set to English",
        "the sidebar is folded", "Mode: text", "attachments are switched on", "Tone: friendly",
        "the customer prefers written answers", "the history is scrolled to the end",
        "Style: plain", "the cursor is in the text field", "Team: support", "the lamp is green",
    ),
    (
        "Weather at the office: mild", "the windows are open", "Room: long corridor",
        "the heating runs quietly", "Seat: by the window", "the kitchen serves coffee",
        "the plants were watered in the morning", "Light: daylight", "Noise: low",
        "the printer has paper", "the lift works", "Door: open", "the street is calm",
        "the carpet was cleaned", "Air: fresh", "the calendar on the wall is new",
    ),
    (
        "Document style: short paragraphs", "Spelling: American", "Greeting: by given name",
        "signatures are added by the system", "Format: plain text", "links open in a new tab",
        "Emphasis: sparing", "quotes use straight marks", "lists use dashes", "Voice: active",
        "headings are in bold", "the draft is saved by itself", "Colour: blue", "Margins: wide",
        "the footer shows the company name", "Paper: recycled",
    ),
    (
        "System: customer desk", "Release: stable", "the service page is reachable",
        "backups run at night", "Storage: fine", "the status page is green", "Network: fine",
        "the browser is up to date", "Encryption: on", "cookies are accepted", "Memory: fine",
        "the certificate is valid", "updates install at the weekend", "Access: regular",
        "Monitor: connected", "the login screen uses the new logo",
    ),
    (
        "Customer mood: patient", "the conversation is polite", "Topic: household services",
        "the customer writes full sentences", "Place: at home", "Device: laptop",
        "the picture of the customer is a landscape", "Reading speed: normal", "Pace: relaxed",
        "the greeting was friendly", "names are spelt as in the profile", "Accent: none",
        "the customer likes clear words", "Form: informal", "Evening: free", "the cat is asleep",
    ),
    (
        "Training: finished in spring", "the handbook lies on the desk", "Mentor: nearby",
        "the team meets on Fridays", "Lunch: canteen", "the badge is valid", "Parking: yard",
        "the welcome poster is colourful", "Shift: day", "the locker has a new key",
        "colleagues share a calendar", "Desk mate: experienced", "Music: soft",
        "the library is on the ground floor", "Uniform: casual", "the newsletter came out",
    ),
    (
        "Archive: sorted by name", "the folder is open", "Labels: alphabetical",
        "pages are sorted by the system", "Index: complete", "the entry field is empty",
        "Colours: by department", "scans are in good quality", "Shelf: upper", "Ink: black",
        "the cover sheet has the usual wording", "Binding: soft", "the copies are readable",
        "the stamp is dry", "Paper size: letter", "the drawer closes well",
    ),
    (
        "Newsfeed: quiet", "the home page shows a garden", "Banner: seasonal", "Menu: closed",
        "the help page has a new picture", "Icons: round", "the survey link is in the footer",
        "Contrast: high", "the page is translated well", "Buttons: large", "Scroll: smooth",
        "tooltips are switched on", "the welcome text is cheerful", "Frame: thin",
        "Animation: off", "the map shows the town centre",
    ),
    (
        "Handwriting: legible", "the pens are in the cup", "Notebook: ruled", "Lamp: warm",
        "the tea is hot", "Chair: adjusted", "the blinds are half open", "Headset: comfortable",
        "the mat is under the mouse", "Cable: tidy", "the photograph shows a lake",
        "Cushion: soft", "the bin is empty", "the water bottle is full", "Screen: clean",
        "the desk was dusted in the morning",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Placebo:
    """Stands in for `of`, token for token. `_fitted` remembers lengths that recur across clusters."""

    name: ClassVar[str] = "placebo"
    of: StatusBar
    _fitted: dict[tuple[object, ...], tuple[str, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """The neutral text of the cluster. Raises ConfoundError when no exact fit exists."""
        real = self.of.draw(state, context)
        if real is None:
            return None
        variant = context.cluster_index % len(TEXTS)
        targets = tuple(context.count_tokens(_upto(real, number)) for number in range(1, len(real.lines) + 1))
        key = (variant, real.tag, real.heading, targets, context.count_tokens)
        if key not in self._fitted:
            self._fitted[key] = _fit(real, TEXTS[variant], targets, context.count_tokens)
        return replace(real, lines=self._fitted[key], variant=variant)


def _upto(bar: StatusText, lines: int) -> str:
    """The block up to and with its n-th line; the last line counts with the closing tag, since a
    tokenizer may merge the characters around a line break."""
    text = replace(bar, lines=bar.lines[:lines]).text
    return text if lines == len(bar.lines) else text.removesuffix(f"</{bar.tag}>")


def _fit(
    real: StatusText, phrases: Sequence[str], targets: Sequence[int], count: Callable[[str], int]
) -> tuple[str, ...]:
    lines: tuple[str, ...] = ()
    unused = list(phrases)
    for number, target in enumerate(targets, start=1):
        padding = ("",) * (len(real.lines) - number)

        def length(line: str, number: int = number, padding: tuple[str, ...] = padding) -> int:
            return count(_upto(replace(real, lines=(*lines, line, *padding)), number))  # noqa: B023

        line = _line(length, unused if len(unused) > 4 else list(phrases), phrases, target)
        if line is None:
            raise ConfoundError(
                f"no placebo line of exactly {target} tokens; add phrases to the placebo text"
            )
        lines = (*lines, line)
        unused = [phrase for phrase in phrases if all(phrase not in done for done in lines)]
    return lines


def _line(length: Callable[[str], int], first: Sequence[str], more: Sequence[str], target: int) -> str | None:
    """Phrases joined by semicolons whose line has `target` tokens; unused phrases come first, and
    the same phrase comes twice only where a line is longer than the whole text."""
    pool = [*first, *(p for p in more if p not in first), *more]
    base = length(f"- {pool[0]}")
    cost = [length(f"- {pool[0]}; {phrase}") - base for phrase in pool]
    for start in range(len(first)):
        chosen = _subset(pool, cost, start, target - length(f"- {pool[start]}"))
        if chosen is not None:
            line = "- " + "; ".join(pool[index] for index in [start, *chosen])
            if length(line) == target:
                return line
    return None


def _subset(pool: Sequence[str], cost: Sequence[int], start: int, missing: int) -> list[int] | None:
    """Indices other than `start`, ascending, whose costs add up to `missing` (dynamic program)."""
    if missing < 0:
        return None
    reach: dict[int, list[int]] = {0: []}
    for index in range(len(pool)):
        if index == start:
            continue
        for total, indices in list(reach.items()):
            new = total + cost[index]
            if new <= missing and new not in reach:
                reach[new] = [*indices, index]
        if missing in reach:
            return reach[missing]
    return None
