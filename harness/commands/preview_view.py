"""What a preview shows of one sample: each arm's prompt as runs of regions, the bar's copies marked, and the bill.

Knows samples, conditions and templates; knows no terminal and no page. Without a tokenizer the runs are messages and the
counts are words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from harness.cache import PrefixLedger
from harness.conditions import Condition, unfold
from harness.delivery import Delivered
from harness.errors import ConfoundError, TemplateError
from harness.prompt import BAR, STALE_BAR, Arm, render_arms
from harness.statusbar.redact import redact
from harness.template import ChatTemplate
from harness.types import Message, Sample

TEMPLATE = "template"
"""Region of what the chat template itself prints."""


class Run(NamedTuple):
    """A stretch of a prompt in one region; `size` is in tokens, or in words."""

    region: str
    text: str
    size: int


@dataclass(frozen=True, slots=True)
class Bill:
    """What one request costs, in tokens. None: unknown, as without a tokenizer."""

    prompt: int
    newest: int
    """Tokens of the newest copy of the bar, its wrapper left out."""
    copies: int
    stale: int
    """Copies before the newest one."""
    added: int | None
    """Tokens over the control, message wrappers included."""
    cached: int | None
    """Tokens that the request before this one left in a prefix cache, in whole blocks."""
    billed: int | None
    """The rest: what an engine computes anew."""
    over_control: int | None = None
    """`billed` minus the control's."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One sample under one condition; without runs `refused` says why."""

    name: str
    bar: str
    placement: str
    policy: str
    runs: tuple[Run, ...] = ()
    bill: Bill | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A sample under every condition, in their order."""

    sample: str
    side: str
    requests: int
    """Requests of its transcript, this one included."""
    arms: tuple[Shown, ...]


def view(
    sample: Sample,
    conditions: Sequence[Condition],
    template: ChatTemplate | None,
    block: int,
    lenient: bool = False,
) -> View:
    """`block`: tokens per block of the prefix cache. `lenient`: an arm that cannot be made says why; otherwise
    ConfoundError and TemplateError go on."""
    count = template.count if template else words
    arms: list[Shown] = []
    requests = 0
    control: Bill | None = None
    for condition in conditions:
        named = (condition.name, condition.bar_name, condition.placement_name, condition.policy.name)
        try:
            made = list(unfold(sample, condition, count))
            requests = max(requests, len(made))
            if template is None:
                shown = Shown(*named, *_words(sample, made, condition))
            else:
                arm = render_arms(template, sample, [condition])[condition.name]
                shown = Shown(*named, _runs(arm, template), _bill(arm, sample, made, template, block))
        except (ConfoundError, TemplateError) as error:
            if not lenient:
                raise
            shown = Shown(*named, refused=str(error))
        if shown.bill and condition.bar is None and control is None:
            control = shown.bill
        arms.append(_against(shown, control))
    side = sample.expectation.side if sample.expectation else ""
    return View(sample.id, side, requests, tuple(arms))


def words(text: str) -> int:
    return len(text.split())


def _against(shown: Shown, control: Bill | None) -> Shown:
    bill = shown.bill
    if bill is None or control is None or bill.billed is None or control.billed is None:
        return shown
    return replace(shown, bill=replace(bill, over_control=bill.billed - control.billed))


def _runs(arm: Arm, template: ChatTemplate) -> tuple[Run, ...]:
    """The prompt cut where the region changes; where regions overlap the shorter one is shown."""
    ids = arm.prompt.ids
    regions = [TEMPLATE] * len(ids)
    numbers = [0] * len(ids)
    longest_first = sorted(arm.prompt.spans, key=lambda span: span.start - span.end)
    for number, span in enumerate(longest_first, start=1):
        for at in range(span.start, span.end):
            regions[at], numbers[at] = span.region, number
    runs: list[Run] = []
    start = 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or (regions[end], numbers[end]) != (regions[start], numbers[start]):
            runs.append(Run(regions[start], redact(template.decode(ids[start:end])), end - start))
            start = end
    return _tidied(runs)


def _tidied(runs: Sequence[Run]) -> tuple[Run, ...]:
    """A token may hold the end of a bar and the blank line after it: the text of the blank line goes to the next run."""
    done: list[Run] = []
    carried = ""
    for number, run in enumerate(runs):
        text, carried = carried + run.text, ""
        if run.region in (BAR, STALE_BAR) and number + 1 < len(runs):
            carried = text[len(text.rstrip()) :]
            text = text.rstrip()
        done.append(run._replace(text=text))
    return tuple(done)


def _bill(arm: Arm, sample: Sample, made: Sequence[Delivered], template: ChatTemplate, block: int) -> Bill:
    cached = 0
    if len(made) > 1:
        ledger = PrefixLedger(block)
        ledger.visit(template.encode(template.text(made[-2].messages, sample.tools)).ids)
        cached = ledger.predict(arm.prompt.ids)
    size = len(arm.prompt.ids)
    newest = sum(span.end - span.start for span in arm.prompt.spans if span.region == BAR)
    stale = sum(span.region == STALE_BAR for span in arm.prompt.spans)
    return Bill(size, newest, stale + bool(newest), stale, arm.prompt.bar_tokens, cached, size - cached)


# -- without a tokenizer ---------------------------------------------------------------------------------


def _words(sample: Sample, made: Sequence[Delivered], condition: Condition) -> tuple[tuple[Run, ...], Bill]:
    if not made:
        raise ConfoundError(f"sample {sample.id}: it has no request")
    last = made[-1]
    texts = [injection.bar.text for injection in last.injections]
    if condition.bar is not None and not texts:
        raise ConfoundError(f"condition {condition.name}: no bar is drawn for sample {sample.id}")
    runs: list[Run] = []
    for message in last.messages:
        runs.extend(_message(message, texts))
    newest = max((number for number, run in enumerate(runs) if run.region == BAR), default=-1)
    done = tuple(
        Run(STALE_BAR if run.region == BAR and number != newest else run.region, redact(run.text), run.size)
        for number, run in enumerate(runs)
    )
    size, bar = sum(run.size for run in done), words(texts[-1]) if texts else 0
    return done, Bill(size, bar, len(texts), max(len(texts) - 1, 0), None, None, None)


def _message(message: Message, bars: Sequence[str]) -> list[Run]:
    calls = "".join(f"\n  → {call.name}({dict(call.arguments)})" for call in message.tool_calls)
    runs = [Run(TEMPLATE, f"[{message.role}] ", 0)]
    text = message.content + calls
    # What an earlier copy and the newest share may be the same text: the longest first.
    found = next((bar for bar in sorted({*bars}, key=len, reverse=True) if bar in text), None)
    region = "result" if message.role == "tool" else message.role
    if found is None:
        return [*runs, Run(region, f"{text}\n", words(text))]
    before, _, after = text.partition(found)
    parts = ((region, before), (BAR, found), (region, f"{after}\n"))
    return [*runs, *(Run(kind, part, words(part)) for kind, part in parts if part)]


def regions(runs: Sequence[Run]) -> Mapping[str, int]:
    """Tokens of each kind of region, in the order of first appearance: `call:phone_call:Xfinity` is a `call`."""
    counted: dict[str, int] = {}
    for run in runs:
        counted[kind(run.region)] = counted.get(kind(run.region), 0) + run.size
    return counted


def kind(region: str) -> str:
    """The first word of a region's name."""
    return region.partition(":")[0]
