"""The neutral bar: same tag, heading, line count and frames as the bar it stands in for, same token length.

Its content says nothing about calls, limits, counts, work or what to do. There are ten texts, assigned by
cluster, because the effect of one particular wording is not the effect of neutral content. A text is a
list of short phrases; each line takes the subset whose token lengths add up to the length of the bar's
line, so that no sentence is cut off. Lines too short for that take single words.

It knows the frames of a bar's lines and nothing else of the bar: what a line begins and ends with stays,
what is between is replaced, and a line without a frame stays as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from harness.errors import ConfoundError
from harness.state import AgentState
from harness.statusbar.base import BarContext, Frame, StatusBar, StatusText

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

# For lines of a few tokens, beside the phrases: things and colours, each text its own.
WORDS: tuple[tuple[str, ...], ...] = (
    ("green", "river", "paper", "chair", "soft", "lamp", "quiet garden", "blue sky", "the white bridge"),
    ("silver", "cloud", "stone", "mirror", "round", "bread", "warm tea", "grey wool", "the old castle"),
    ("wood", "music", "spring", "basket", "cool", "shade", "fresh air", "pink rose", "the small harbour"),
    ("summer", "apple", "forest", "wide", "hall", "pine", "brown leaf", "clear glass", "the long beach"),
    ("winter", "coffee", "lake", "smooth", "tower", "orange", "oak shelf", "soft sand", "the stone wall"),
    ("bright", "flower", "bridge", "lobby", "yellow", "wool", "thin paper", "cold milk", "the blue door"),
    ("castle", "rose", "purple", "studio", "mild", "sand", "dark wood", "sweet corn", "the green hill"),
    ("white", "shelf", "library", "pleasant", "hill", "rain", "light wind", "wet grass", "the red roof"),
    ("brown", "garden", "cotton", "beach", "snow", "glass", "black ink", "dry hay", "the calm sea"),
    ("black", "honey", "moon", "leaf", "grass", "roof", "yellow sun", "ripe plum", "the quiet street"),
)

REMEMBERED = 20_000
"""Lengths and fits that are kept at most."""
Fit = tuple[tuple[str, ...], int | None]
"""The lines that fit, and the target of the one that does not."""
Measure = Callable[[Sequence[str], str], int]
"""Tokens of a line, or of the block up to it, given the lines before it."""


@dataclass(frozen=True, slots=True)
class Placebo:
    """Stands in for `of`, token for token. `_fitted` remembers lengths that recur across clusters, `_lengths` those
    of the phrases."""

    name: ClassVar[str] = "placebo"
    of: StatusBar
    _fitted: dict[tuple[object, ...], Fit] = field(default_factory=dict, repr=False, compare=False)
    _lengths: dict[tuple[object, str], int] = field(default_factory=dict, repr=False, compare=False)

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        """The neutral text of the cluster. Raises ConfoundError when no exact fit exists."""
        real = self.of.draw(state, context)
        if real is None:
            return None
        variant, count = context.cluster_index % len(TEXTS), context.count_printed or context.count_tokens
        total = count(real.text)
        for measure in (_local(real, count, self._lengths), _whole(real, count)):
            lines, missed = self._fit(real, variant, measure, count)
            if missed is None and count(replace(real, lines=lines).text) == total:
                return replace(real, lines=lines, variant=variant, meant=real.said)
        raise ConfoundError(
            f"no placebo line of exactly {missed or total} tokens; add phrases to the placebo text"
        )

    def _fit(self, real: StatusText, variant: int, measure: Measure, count: Callable[[str], int]) -> Fit:
        targets = tuple(measure(real.lines[:number], line) for number, line in enumerate(real.lines))
        kept = tuple(line for number, line in enumerate(real.lines) if _stays(real, number))
        key = (variant, replace(real, lines=kept), targets, count)
        if key not in self._fitted:
            if len(self._fitted) >= REMEMBERED:
                self._fitted.clear()
            self._fitted[key] = _fit(real, variant, targets, measure)
        return self._fitted[key]


def _stays(bar: StatusText, number: int) -> bool:
    """Does the placebo keep the line: is it without a frame, or with nothing in it?"""
    frame = bar.frame(number)
    return frame is None or bar.lines[number] == "".join(frame)


# -- lengths -------------------------------------------------------------------------------------------


def _after(bar: StatusText) -> str:
    """What follows the last line."""
    closing = f"\n</{bar.tag}>" if bar.tag else ""
    return f"{closing}\n{bar.note}" if bar.note else closing


def _upto(bar: StatusText, lines: Sequence[str]) -> str:
    """The block with `lines` in place of its first ones, up to and with the last of them and its line break; the last
    of all counts with what follows it, since a tokenizer may merge the characters around a line break."""
    text = replace(bar, lines=tuple(lines)).text
    return text if len(lines) == len(bar.lines) else text.removesuffix(_after(bar)) + "\n"


def _local(bar: StatusText, count: Callable[[str], int], known: dict[tuple[object, str], int]) -> Measure:
    """Tokens of a line between its line breaks. Quick; right wherever no token reaches across the beginning of a line."""

    def measure(before: Sequence[str], line: str) -> int:
        end = _after(bar) if len(before) == len(bar.lines) - 1 else "\n"
        key = (count, f"\n{line}{end}")
        if key not in known:
            if len(known) >= REMEMBERED:
                known.clear()
            known[key] = count(key[1])
        return known[key]

    return measure


def _whole(bar: StatusText, count: Callable[[str], int]) -> Measure:
    """Tokens of the block up to and with the line."""
    return lambda before, line: count(_upto(bar, (*before, line)))


# -- fitting -------------------------------------------------------------------------------------------


def _fit(real: StatusText, variant: int, targets: Sequence[int], measure: Measure) -> Fit:
    lines: tuple[str, ...] = ()
    for number, target in enumerate(targets):
        frame = real.frame(number)
        if frame is None or _stays(real, number):
            lines = (*lines, real.lines[number])
            continue

        def length(phrases: Sequence[str], before: tuple[str, ...] = lines, frame: Frame = frame) -> int:
            return measure(before, _written(frame, phrases))

        pools = (_unused_first(pool, lines) for pool in _pools(frame, variant))
        chosen = next((found for pool in pools if (found := _phrases(length, pool, target))), None)
        if chosen is None:
            return lines, target
        lines = (*lines, _written(frame, chosen))
    return lines, None


def _pools(frame: Frame, variant: int) -> Iterator[tuple[str, ...]]:
    """What a line may be made of, the better first. A sentence is made of clauses, a value in JSON of what holds no
    colon; only where that does not do come the other phrases, and single words."""
    texts, words = TEXTS[variant], WORDS[variant]
    clauses = tuple(phrase for phrase in texts if ":" not in phrase)
    if _is_sentence(frame):
        yield clauses
        yield (*clauses, *words)
    elif '"' in frame[0]:
        yield (*clauses, *words)
    else:
        yield texts
    yield (*texts, *words)


def _is_sentence(frame: Frame) -> bool:
    """Does what stands in the frame begin a sentence and end it?"""
    opening = frame[0].rstrip()
    return frame[1].startswith(".") and (not opening or opening.endswith("."))


def _written(frame: Frame, phrases: Sequence[str]) -> str:
    said = "; ".join(phrases)
    return f"{frame[0]}{said[0].upper() + said[1:] if _is_sentence(frame) else said}{frame[1]}"


def _unused_first(pool: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The phrases that the fewest lines have so far come first."""
    said = [line.lower() for line in lines]
    return sorted(pool, key=lambda phrase: sum(phrase.lower() in line for line in said))


def _phrases(length: Callable[[Sequence[str]], int], pool: Sequence[str], target: int) -> list[str] | None:
    """Phrases that make a line of `target` tokens; the first ones are taken first, and the same phrase comes twice
    only where a line is longer than all of them together."""
    anchor = min(pool)
    base = length([anchor])
    cost = [length([anchor, phrase]) - base for phrase in pool]
    rounds = 2 + max(0, target) // max(1, sum(cost))
    more, cost = [*pool] * rounds, cost * rounds
    for start, phrase in enumerate(pool):
        chosen = _subset(cost, start, target - length([phrase]))
        if chosen is not None:
            found = [more[index] for index in (start, *chosen)]
            if length(found) == target:
                return found
    return None


def _subset(cost: Sequence[int], start: int, missing: int) -> list[int] | None:
    """Indices other than `start`, ascending, whose costs add up to `missing` (dynamic program)."""
    if missing < 0:
        return None
    reach: dict[int, list[int]] = {0: []}
    for index in range(len(cost)):
        if index == start:
            continue
        for total, indices in list(reach.items()):
            new = total + cost[index]
            if new <= missing and new not in reach:
                reach[new] = [*indices, index]
        if missing in reach:
            return reach[missing]
    return None
