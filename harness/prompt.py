"""messages → RenderedPrompt with spans, and the proof that the arms differ by the bar alone.

Every message's token range is found by rendering the conversation a second time with marks around each
content; that works for any template that copies contents, and is refused where one does not. The
proof compares each arm's text and token ids with the control's before any model runs.
"""

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from harness.conditions import Condition, Treated, apply
from harness.delivery import steps
from harness.errors import ConfoundError, TemplateError
from harness.statusbar.placements import printed
from harness.statusbar.policies import Boundary
from harness.template import ChatTemplate, Encoded
from harness.types import CallLimit, Message, RenderedPrompt, Sample, Span, ToolCall, ToolSpec

# Private-use characters: they survive JSON and never occur in a conversation (checked).
_OPEN, _CLOSE = "\ue000", "\ue001"
BAR, STALE_BAR = "bar", "stale_bar"
"""Regions of the newest copy of a bar and of the copies before it."""
MAX_STRADDLING = 2
"""Tokens of the control that may be spelt differently where the bar begins or ends."""


class CharSpan(NamedTuple):
    """A region and its character range [start, end) in a rendered text."""

    region: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Arm:
    """One sample under one condition, ready for a model."""

    prompt: RenderedPrompt
    bar_text: str
    placebo_id: int | None
    messages: tuple[Message, ...]
    """The conversation that the prompt renders, for engines that render it themselves."""


def render_arms(template: ChatTemplate, sample: Sample, conditions: Sequence[Condition]) -> Mapping[str, Arm]:
    """Every arm of one sample, each proved against the control (which is rendered in any case).

    Raises ConfoundError when an arm differs from the control by more than its bar's span, and
    TemplateError when the template refuses the conversation.
    """
    controls: dict[Boundary | None, _Control] = {}
    arms = {}
    for condition in conditions:
        where = f"condition {condition.name}, sample {sample.id}"
        treated = apply(sample, condition, template.count)
        if condition.boundary not in controls:
            controls[condition.boundary] = _Control.of(template, replace(sample, messages=treated.base))
        control = controls[condition.boundary]
        if treated.bar is None:
            prompt = _prompt(template, control.text, control.encoded, control.spans)
            arms[condition.name] = Arm(prompt, "", None, treated.base)
            continue
        try:
            prompt = _prove(template, sample.tools, treated, condition, control, where)
        except TemplateError as error:
            raise TemplateError(f"{where}: {error}") from error
        arms[condition.name] = Arm(prompt, treated.bar.text, treated.bar.variant, treated.messages)
    _prove_lengths(conditions, arms, sample)
    return arms


@dataclass(frozen=True, slots=True)
class _Control:
    """What the arms with the same base transcript are held against."""

    text: str
    encoded: Encoded
    spans: list[CharSpan]

    @classmethod
    def of(cls, template: ChatTemplate, sample: Sample) -> "_Control":
        text = template.text(sample.messages, sample.tools)
        return cls(text, template.encode(text), locate(template, sample, text))


# -- the proof -----------------------------------------------------------------------------------------


def _prove(
    template: ChatTemplate,
    tools: Sequence[ToolSpec],
    treated: Treated,
    condition: Condition,
    control: _Control,
    where: str,
) -> RenderedPrompt:
    """The arm's prompt. Its copies of the bar are put in one after the other, as the transcript grew, and each of
    them must be all that changes: what is left without them is then the control."""
    assert condition.placement is not None
    text, encoded, spans, added = control.text, control.encoded, list(control.spans), 0
    sent = treated.base
    for step in steps(treated.base, treated.injections, condition.placement):
        before, before_encoded = text, encoded
        bar = printed(step.place, step.injection.bar.text)
        text = template.text(step.messages, tools)
        encoded = template.encode(text)
        inserted = _insertion(before, text, bar, where)
        added += _prove_tokens(before_encoded, encoded, inserted, where)
        start = text.rindex(bar, *inserted)
        spans = _shifted(spans, inserted)
        newest = step.injection is treated.injections[-1]
        spans.append(CharSpan(BAR if newest else STALE_BAR, start, start + len(bar)))
        sent = step.messages
    if sent != treated.messages:
        raise ConfoundError(
            f"{where}: the copies put in one after the other do not make the conversation that is sent"
        )
    return _prompt(template, text, encoded, spans, bar_tokens=added)


def _insertion(control: str, arm: str, bar: str, where: str) -> tuple[int, int]:
    """Character range of `arm` that was inserted into `control` and holds the whole bar."""
    size = len(arm) - len(control)
    start = _common_prefix(control, arm)
    if size <= 0 or control[start:] != arm[start + size :]:
        around = control[max(0, start - 20) : start + 40]
        raise ConfoundError(
            f"{where}: the chat template changes more than the bar, first near {around!r}; "
            "the arms would not be comparable. Choose another placement, or drop the history's reasoning "
            "in all arms (model.keep_reasoning=false)"
        )
    # The same text may stand elsewhere too, as an older copy: what was inserted is the last one that ends in time.
    bar_start = arm.rfind(bar, 0, start + size)
    if bar_start < 0:
        raise ConfoundError(f"{where}: the chat template does not print the bar as it was drawn")
    # Where the text around the bar repeats itself the insertion can be read in several ways;
    # take one that holds the bar.
    while start > bar_start and arm[start - 1] == arm[start + size - 1]:
        start -= 1
    if start > bar_start or start + size < bar_start + len(bar):
        raise ConfoundError(f"{where}: what was inserted is not the bar")
    return start, start + size


def _prove_tokens(control: Encoded, arm: Encoded, inserted: tuple[int, int], where: str) -> int:
    """Tokens that the arm has over the control. Tokens outside the insertion must be the control's."""
    first, last = arm.token_range(*inserted)
    head = _same(control.ids, arm.ids, first)
    # The same from the end.
    tail = _same(control.ids[::-1], arm.ids[::-1], len(arm.ids) - last)
    if head is None or tail is None or len(control.ids) - head - tail > MAX_STRADDLING:
        raise ConfoundError(
            f"{where}: token ids outside the bar differ from the control's; choose another placement"
        )
    return len(arm.ids) - len(control.ids)


def _same(control: tuple[int, ...], arm: tuple[int, ...], outside: int) -> int | None:
    """How many of the arm's `outside` first tokens are the control's: all, or all but those at the boundary, where
    the bar cut a token of the control in two and a part of it is left. None when more of them differ."""
    counts = range(outside, max(outside - MAX_STRADDLING, 0) - 1, -1)
    return next((count for count in counts if control[:count] == arm[:count]), None)


def _prove_lengths(conditions: Sequence[Condition], arms: Mapping[str, Arm], sample: Sample) -> None:
    """A placebo must have its bar's length where both stand at the same place."""
    for placebo in conditions:
        for bar in conditions:
            if placebo.stands_in_for(bar):
                lengths = [arms[arm.name].prompt.bar_tokens for arm in (placebo, bar)]
                if abs(lengths[0] - lengths[1]) > 1:
                    raise ConfoundError(
                        f"sample {sample.id}: {placebo.name} adds {lengths[0]} tokens, {bar.name} adds {lengths[1]}; "
                        "they must be equal"
                    )


def _common_prefix(a: str, b: str) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# -- spans ---------------------------------------------------------------------------------------------


def locate(template: ChatTemplate, sample: Sample, text: str) -> list[CharSpan]:
    """Character range of every message's content in `text`, the sample's rendered conversation."""
    if _OPEN in text or _CLOSE in text:
        raise TemplateError(
            f"sample {sample.id}: private-use characters U+E000/U+E001 are reserved for marks"
        )
    marked = template.text([_mark(message) for message in sample.messages], sample.tools)
    regions = [r for i, m in enumerate(sample.messages) for r in _regions(m, i, sample)]
    spans: list[CharSpan] = []
    plain: list[str] = []
    position = removed = 0
    for region in regions:
        start, end = marked.find(_OPEN, position), marked.find(_CLOSE, position)
        if start < 0 or end < start:
            raise TemplateError(f"the chat template drops content of sample {sample.id} (region {region})")
        plain.append(marked[position:start] + marked[start + 1 : end])
        spans.append(CharSpan(region, start - removed, end - removed - 1))
        removed += 2
        position = end + 1
    plain.append(marked[position:])
    if "".join(plain) != text:
        raise TemplateError(
            f"the chat template rewrites content of sample {sample.id}; it cannot be measured"
        )
    return _with_tools(spans, text, sample)


def _mark(message: Message) -> Message:
    content = message.content
    core = content.strip()
    if core:
        lead = content[: len(content) - len(content.lstrip())]
        content = lead + _OPEN + core + _CLOSE + content[len(lead) + len(core) :]
    return replace(message, content=content, tool_calls=tuple(map(_marked_call, message.tool_calls)))


def _marked_call(call: ToolCall) -> ToolCall:
    """The end goes into the last string argument, where it stays inside valid JSON; a call without one is marked at
    its name alone."""
    arguments = dict(call.arguments)
    for key in reversed(arguments):
        if isinstance(arguments[key], str):
            arguments[key] = f"{arguments[key]}{_CLOSE}"
            return replace(call, name=_OPEN + call.name, arguments=arguments)
    return replace(call, name=_OPEN + call.name + _CLOSE)


def _regions(message: Message, index: int, sample: Sample) -> list[str]:
    """Region names of one message, in the order in which a template prints them."""
    names = []
    if message.content.strip():
        if message.role == "tool":
            names.append("result:" + _result_of(message, sample))
        elif message.role == "user" and index == len(sample.messages) - 1:
            names.append("follow_up")
        else:
            names.append(message.role)
    names.extend(
        "call:" + _call_region(call.name, call.arguments, sample.rules) for call in message.tool_calls
    )
    return names


def _result_of(message: Message, sample: Sample) -> str:
    for earlier in sample.messages:
        for call in earlier.tool_calls:
            if call.id and call.id == message.tool_call_id:
                return _call_region(call.name, call.arguments, sample.rules)
    return message.name or "unknown"


def _call_region(name: str, arguments: Mapping[str, object], rules: Sequence[CallLimit]) -> str:
    for rule in rules:
        if rule.tool == name and rule.key in arguments:
            return f"{name}:{arguments[rule.key]}"
    return name


def _with_tools(spans: list[CharSpan], text: str, sample: Sample) -> list[CharSpan]:
    """Adds the tools' region, from the first tool's name to the end of the last tool's line, where the
    template prints them between the system prompt and the conversation."""
    start = spans[0].end if spans and spans[0].region == "system" else 0
    end = next((span.start for span in spans if span.region != "system"), len(text))
    if not sample.tools:
        return spans
    first = text.find(f'"{sample.tools[0].name}"', start, end)
    last = text.rfind(f'"{sample.tools[-1].name}"', start, end)
    if first < 0 or last < first:
        return spans
    line_end = text.find("\n", last, end)
    return [*spans, CharSpan("tools", first, line_end if line_end > 0 else last + 1)]


def _shifted(spans: Sequence[CharSpan], inserted: tuple[int, int]) -> list[CharSpan]:
    at, size = inserted[0], inserted[1] - inserted[0]
    return [
        CharSpan(s.region, s.start + (size if s.start >= at else 0), s.end + (size if s.end > at else 0))
        for s in spans
    ]


def _prompt(
    template: ChatTemplate, text: str, encoded: Encoded, spans: Sequence[CharSpan], bar_tokens: int = 0
) -> RenderedPrompt:
    ranges = [Span(s.region, *encoded.token_range(s.start, s.end)) for s in spans]
    return RenderedPrompt(
        ids=encoded.ids,
        text=text,
        spans=tuple(sorted(ranges, key=lambda span: (span.start, span.end))),
        template_hash=template.hash,
        prompt_hash=hashlib.sha256(array("I", encoded.ids).tobytes()).hexdigest()[:16],
        bar_tokens=bar_tokens,
        think_open=template.opens_thinking(text),
    )
