"""Claims about update policies over whole transcripts, and about prompts in which several copies of a bar stand."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import pytest
from core_samples import calls, context, sample, words
from core_tokens import CHATML, tiny_template

from harness.conditions import Condition, apply, unfold
from harness.delivery import Delivery, InjectionRules, place_all, requests
from harness.errors import ConfigError, ConfoundError
from harness.prompt import render_arms
from harness.state import AgentState
from harness.statusbar import AgentStatus, BarContext, Placebo, StatusText, Tail
from harness.statusbar.placements import Both, LastResult
from harness.statusbar.policies import (
    Append,
    Boundary,
    Event,
    EveryN,
    Never,
    OnChange,
    Replace,
    Staleness,
    UpdatePolicy,
)
from harness.types import Message, Sample, ToolCall

SYSTEM, TASK = Message("system", "Be kind."), Message("user", "Sort it out.")
MORE = Message("user", "And now?")
STATUS = AgentStatus()


def transcript(*merchants: str) -> Sample:
    """One request per merchant and one for the follow-up."""
    return sample([SYSTEM, TASK, *calls(*merchants), MORE])


def copies(each: Sample, policy: UpdatePolicy, bar: object = STATUS, **rules: object) -> list[list[str]]:
    """For each request the texts that stand in its messages as messages of their own."""
    condition = Condition("x", bar, Tail(), policy, InjectionRules(**rules))  # type: ignore[arg-type]
    delivered = list(unfold(each, condition, words))
    own = {message.content for message in each.messages}
    return [[m.content for m in one.messages if m.content not in own] for one in delivered]


def counts(each: Sample, policy: UpdatePolicy, **rules: object) -> list[int]:
    return [len(found) for found in copies(each, policy, **rules)]


@dataclass(frozen=True, slots=True)
class Constant:
    """Says the same at every request."""

    name: ClassVar[str] = "constant"

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        return StatusText("note", ("- as ever",))


@dataclass(frozen=True, slots=True)
class InResult:
    """Numbers each result as it comes in."""

    name: ClassVar[str] = "in_result"
    moment: ClassVar[str] = "result"

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        return StatusText("", (f"[{state.calls['phone_call'].total}]",), heading="")


@dataclass(frozen=True, slots=True)
class Later:
    """Says what it said before, and one word more."""

    name: ClassVar[str] = "later"
    looks_back: ClassVar[bool] = True

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        return StatusText("", (f"{context.previous or 'first'} again",), heading="")


def test_there_is_a_request_before_every_reply_and_one_for_an_open_end() -> None:
    each = transcript("A", "B").messages
    assert requests(each) == [2, 4, 7]
    assert requests(each[:-1]) == [2, 4, 6]
    assert requests([*each, Message("assistant", "Done.")]) == [2, 4, 7]
    assert requests([]) == []


def test_never_leaves_every_request_as_it_was() -> None:
    assert counts(transcript("A", "B"), Never()) == [0, 0, 0]


def test_replace_keeps_only_the_newest_copy_and_puts_it_last() -> None:
    found = list(unfold(transcript("A", "A"), Condition("x", STATUS, Tail(), Replace()), words))
    assert [len(one.injections) for one in found] == [0, 1, 1]
    assert "A: 2 times" in found[-1].messages[-1].content
    assert not any("A: 1 time)" in message.content for message in found[-1].messages)


def test_append_leaves_every_copy_where_it_was_put() -> None:
    each = transcript("A", "B", "A")
    found = list(unfold(each, Condition("x", STATUS, Tail(), Append()), words))
    assert [len(one.injections) for one in found] == [0, 1, 2, 3]
    for before, after in pairwise(found):
        assert after.messages[: len(before.messages)] == before.messages


def test_on_change_sends_no_text_twice_in_a_row() -> None:
    each = sample([SYSTEM, TASK, *calls("A"), Message("assistant", "Well."), MORE])
    assert counts(each, OnChange()) == [0, 1, 1]
    assert counts(each, Append()) == [0, 1, 2]


def test_every_n_waits_n_requests() -> None:
    assert counts(transcript(*"AAAAAA"), EveryN(3)) == [0, 1, 1, 1, 2, 2, 2]


def test_staleness_speaks_when_the_list_was_not_written_for_n_requests() -> None:
    write = ToolCall("todo_write", {"todos": [{"content": "a", "status": "pending"}]}, id="w")
    start = [
        Message("assistant", tool_calls=(write,)),
        Message("tool", "ok", tool_call_id="w", name="todo_write"),
    ]
    each = sample([SYSTEM, TASK, *start, *calls(*"AAAAA"), MORE])
    assert counts(each, Staleness(2)) == [0, 0, 0, 1, 1, 2, 2]
    assert counts(transcript(*"AAAAA"), Staleness(2)) == [0] * 6  # no list, nothing to nudge about


def test_an_event_bar_speaks_at_the_event() -> None:
    each = sample([SYSTEM, TASK, *calls("A", "B"), MORE, *calls("C"), MORE])
    assert counts(each, Event("user")) == [0, 0, 1, 2]
    with pytest.raises(ValueError, match="expected user or failure"):
        Event("noon")


def test_failure_events_speak_after_a_failed_result() -> None:
    failed = Message("tool", "Error: busy", tool_call_id="call00000", name="phone_call", error="busy")
    each = sample([SYSTEM, TASK, calls("A")[0], failed, *calls("B"), MORE])
    assert counts(each, Event("failure")) == [0, 1, 1]


def test_a_boundary_compacts_and_speaks_once() -> None:
    each = transcript(*"AAAA")
    policy = Boundary(messages=6, summary="Summary.")
    found = list(unfold(each, Condition("x", STATUS, Tail(), policy), words))
    assert [len(one.base) for one in found] == [2, 4, 4, 4, 2]
    assert [len(one.injections) for one in found] == [0, 0, 1, 1, 1]
    for one in found:
        answered = {call.id for m in one.base for call in m.tool_calls}
        assert {m.tool_call_id for m in one.base if m.role == "tool"} <= answered
    # The counts survive what the transcript has lost: they come from the state.
    assert "A: 4 times" in found[-1].drawn.text  # type: ignore[union-attr]


def test_the_control_of_a_boundary_is_compacted_too() -> None:
    each, policy = transcript(*"AAAAA"), Boundary(messages=5, summary="Summary.")
    arms = (Condition("control"), Condition("short", policy=policy))
    rendered = render_arms(tiny_template(CHATML), each, arms)
    assert len(rendered["short"].prompt.ids) < len(rendered["control"].prompt.ids)
    assert "Summary." in rendered["short"].prompt.text and rendered["short"].prompt.bar_tokens == 0


def test_dedupe_keeps_out_what_stands_there_already() -> None:
    each = transcript(*"AAA")
    assert [len(f) for f in copies(each, Append(), Constant(), dedupe=True)] == [1, 1, 1, 1]
    assert [len(f) for f in copies(each, Append(), Constant())] == [1, 2, 3, 4]


def test_the_budget_is_tried_on_a_copy_and_the_bar_skipped_when_it_would_break_it() -> None:
    each = transcript(*"AAA")
    bare = sum(words(m.content) for m in each.messages)
    bar = words(Constant().draw(AgentState(), context()).text)  # type: ignore[union-attr]
    assert counts(each, Replace(), max_tokens=0)[-1] == 0
    assert len(copies(each, Replace(), Constant(), max_tokens=bare + bar)[-1]) == 1
    assert len(copies(each, Replace(), Constant(), max_tokens=bare + bar - 1)[-1]) == 0


def test_a_bar_that_looks_back_sees_its_own_last_copy() -> None:
    found = copies(transcript("A", "B"), Append(), Later())
    assert found[-1] == ["first again", "first again again", "first again again again"]
    each = transcript("A", "B")
    assert apply(each, Condition("x", Later(), Tail(), Append()), words).messages[-1].content == found[-1][-1]


def test_a_bar_in_results_is_drawn_for_each_result() -> None:
    @dataclass(frozen=True, slots=True)
    class Suffix:
        name: ClassVar[str] = "suffix"

        def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
            last = messages[-1]
            done = Message(last.role, f"{last.content} {bar}", tool_call_id=last.tool_call_id, name=last.name)
            return (*messages[:-1], done)

    each = transcript("A", "B")
    kept = list(unfold(each, Condition("x", InResult(), Suffix(), Append()), words))[-1].messages
    assert [m.content for m in kept if m.role == "tool"] == ["result 0 [1]", "result 1 [2]"]
    newest = list(unfold(each, Condition("x", InResult(), Suffix(), Replace()), words))[-1].messages
    assert [m.content for m in newest if m.role == "tool"] == ["result 0", "result 1 [2]"]


@pytest.mark.parametrize("policy", [Replace(), Append(), OnChange(), EveryN(2), Boundary(messages=5)])
def test_the_decision_point_is_the_last_request(policy: UpdatePolicy) -> None:
    each, condition = transcript(*"ABAB"), Condition("x", STATUS, Tail(), policy)
    last = list(unfold(each, condition, words))[-1]
    treated = apply(each, condition, words)
    assert treated.messages == last.messages and treated.base == last.base
    assert place_all(treated.base, treated.injections, Tail()) == treated.messages


def test_every_copy_in_a_prompt_is_proved_and_has_its_span() -> None:
    each = transcript("A", "B", "A")
    template = tiny_template(CHATML)
    arms = (
        Condition("control"),
        Condition("append", STATUS, Tail(), Append()),
        Condition("placebo", Placebo(STATUS), Tail(), Append()),
    )
    prompts = {name: arm.prompt for name, arm in render_arms(template, each, arms).items()}
    added = len(prompts["append"].ids) - len(prompts["control"].ids)
    regions = [span.region for span in prompts["append"].spans if span.region in ("bar", "stale_bar")]
    assert regions == ["stale_bar", "stale_bar", "bar"]
    assert prompts["append"].bar_tokens == added == prompts["placebo"].bar_tokens
    for span in prompts["append"].spans:
        if span.region in ("bar", "stale_bar"):
            assert template.decode(prompts["append"].ids[span.start : span.end]).startswith("<agent_status>")


def test_one_copy_can_stand_at_two_places() -> None:
    each = transcript("A", "B")
    both = Both(Tail(), LastResult())
    arms = (
        Condition("control"),
        Condition("both", STATUS, both),
        Condition("placebo", Placebo(STATUS), both),
        Condition("append", STATUS, both, Append()),
    )
    template = tiny_template(CHATML)
    rendered = render_arms(template, each, arms)
    bar = rendered["both"].bar_text
    assert rendered["both"].prompt.text.count(bar) == 2
    assert [span.region for span in rendered["both"].prompt.spans].count("bar") == 2
    assert rendered["both"].prompt.bar_tokens == rendered["placebo"].prompt.bar_tokens
    regions = [span.region for span in rendered["append"].prompt.spans]
    assert (regions.count("bar"), regions.count("stale_bar")) == (2, 2)
    assert [len(one.injections) for one in list(unfold(each, arms[1], words))] == [0, 1, 1]
    with pytest.raises(ConfoundError, match="no bar is drawn"):
        apply(sample([SYSTEM, TASK]), Condition("both", Constant(), both), words)


def test_equal_copies_are_told_apart_in_a_prompt() -> None:
    each = transcript("A", "B")
    condition = Condition("append", Constant(), Tail(), Append())
    prompt = render_arms(tiny_template(CHATML), each, (Condition("control"), condition))["append"].prompt
    starts = [span.start for span in prompt.spans if span.region in ("bar", "stale_bar")]
    assert len(set(starts)) == 3


def test_an_arm_whose_policy_puts_nothing_in_is_refused() -> None:
    with pytest.raises(ConfoundError, match="no bar is drawn"):
        apply(transcript("A"), Condition("x", STATUS, Tail(), Never()), words)


def test_what_ends_with_the_assistant_asks_for_nothing() -> None:
    each = sample([SYSTEM, TASK, Message("assistant", "Done.")])
    with pytest.raises(ConfoundError, match="ends with the assistant"):
        apply(each, Condition("control"), words)


def test_a_bar_that_draws_something_else_is_a_mistake() -> None:
    class Wrong:
        name = "wrong"

        def draw(self, state: AgentState, context: BarContext) -> str:
            return "text"

    delivery = Delivery(Wrong(), Tail(), Replace())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must return a StatusText or None"):
        list(delivery.unfold(transcript("A").messages, (), context()))
