"""Claims about where a bar stands: in which message, in which role, and never in anybody's way."""

from pathlib import Path

import pytest
from conversations import Counter, OnInput, conversations
from core_samples import calls, context, sample
from core_tokens import ALTERNATING, CHATML, MERGER, THINKER, tiny_template
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from harness.conditions import Condition, apply, unfold
from harness.delivery import Delivery, Injection, place_all
from harness.errors import ConfigError, ConfoundError, TemplateError
from harness.prompt import render_arms
from harness.state import AgentState
from harness.statusbar import (
    AgentStatus,
    BeforeFollowUp,
    Front,
    LastBlock,
    LastResult,
    OwnAction,
    OwnBefore,
    Placement,
    PrefixLast,
    StatusText,
    SystemHead,
    SystemTail,
    Tail,
)
from harness.statusbar.base import BarContext
from harness.statusbar.placements import Both, has_place, parts_of, printed
from harness.statusbar.policies import Append, Replace
from harness.types import Message, ToolCall

PLACEMENTS: tuple[Placement, ...] = (
    Tail(),
    SystemTail(),
    OwnBefore(),
    OwnBefore(acknowledge="Noted."),
    Front(),
    Front(acknowledge="Noted."),
    OwnAction(),
    BeforeFollowUp(),
    LastBlock(),
    LastResult(),
    PrefixLast(),
    SystemHead(),
    SystemHead(at="start"),
    Both(),
)


class Numbered:
    """Numbers the results as they come in."""

    name = "numbered"
    moment = "result"

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        return StatusText("mark", (f"result {len(state.arrived)}",))


SYSTEM, USER, AGAIN = Message("system", "S"), Message("user", "U"), Message("user", "V")
CALL, RESULT = calls("A")
SAID = Message("assistant", "Done.")
TALK = (SYSTEM, USER, CALL, RESULT, SAID, AGAIN)
MIDWAY = (SYSTEM, USER, CALL, RESULT)
BAR, OK = Message("user", "BAR"), Message("assistant", "Noted.")
WRITE = Message("assistant", tool_calls=(ToolCall("write_file", {"content": "BAR"}, id="bar000006"),))
WRITTEN = Message("tool", "Written.", tool_call_id="bar000006", name="write_file")


def said(role: str, content: str) -> Message:
    if role == "tool":
        return Message("tool", content, tool_call_id=RESULT.tool_call_id, name=RESULT.name)
    return Message(role, content)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("placement", "placed"),
    [
        (Tail(), (*TALK, BAR)),
        (SystemTail(), (*TALK, Message("system", "BAR"))),
        (OwnBefore(), (*TALK[:5], BAR, AGAIN)),
        (OwnBefore("Noted."), (*TALK[:5], BAR, OK, AGAIN)),
        (Front(), (SYSTEM, BAR, *TALK[1:])),
        (Front("Noted."), (SYSTEM, BAR, OK, *TALK[1:])),
        (OwnAction(), (*TALK, WRITE, WRITTEN)),
        (BeforeFollowUp(), (*TALK[:5], said("user", "BAR\n\nV"))),
        (LastBlock(), (*TALK[:5], said("user", "V\n\nBAR"))),
        (LastResult(), (SYSTEM, USER, CALL, said("tool", "result 0\n\nBAR"), SAID, AGAIN)),
        (PrefixLast(), (*TALK[:5], said("user", "BAR V"))),
        (PrefixLast("\n\n"), (*TALK[:5], said("user", "BAR\n\nV"))),
        (SystemHead(), (said("system", "S\n\nBAR"), *TALK[1:])),
        (SystemHead("start"), (said("system", "BAR\n\nS"), *TALK[1:])),
    ],
    ids=str,
)
def test_after_a_follow_up_the_bar_stands_where_the_placement_says(
    placement: Placement, placed: tuple[Message, ...]
) -> None:
    assert placement.place(TALK, "BAR") == placed


@pytest.mark.parametrize(
    ("placement", "placed"),
    [
        (Tail(), (*MIDWAY, BAR)),
        (OwnBefore(), (SYSTEM, BAR, *MIDWAY[1:])),
        (BeforeFollowUp(), (SYSTEM, said("user", "BAR\n\nU"), CALL, RESULT)),
        (LastBlock(), (SYSTEM, said("user", "U\n\nBAR"), CALL, RESULT)),
        (LastResult(), (*MIDWAY[:3], said("tool", "result 0\n\nBAR"))),
        (PrefixLast(), (*MIDWAY[:3], said("tool", "BAR result 0"))),
    ],
    ids=str,
)
def test_between_two_actions_the_last_user_message_is_the_one_further_up(
    placement: Placement, placed: tuple[Message, ...]
) -> None:
    assert placement.place(MIDWAY, "BAR") == placed


def test_an_empty_result_holds_the_bar_alone_without_blank_lines() -> None:
    empty = (USER, CALL, said("tool", ""))
    for placement in (LastResult(), PrefixLast()):
        assert placement.place(empty, "BAR")[-1].content == "BAR"


@pytest.mark.parametrize(
    ("placement", "messages", "reason"),
    [
        (LastResult(), (SYSTEM, USER), "placement last_result: there is no tool result"),
        (BeforeFollowUp(), (SYSTEM, CALL, RESULT), "placement before: there is no user message"),
        (LastBlock(), (SYSTEM, CALL, RESULT), "placement last_block: there is no user message"),
        (OwnBefore(), (SYSTEM, CALL, RESULT), "placement own_before: there is no user message"),
        (SystemHead(), (USER,), "placement system_head: the conversation has no system prompt"),
        (PrefixLast(), (USER, SAID), "placement prefix: the newest message is neither"),
        (Tail(), (USER, CALL), "placement tail: 1 of the newest calls have no result yet"),
        (SystemTail(), (USER, CALL), "placement system_tail: 1 of the newest calls"),
        (OwnAction(), (USER, CALL), "placement own_action: 1 of the newest calls"),
        (
            Front("Noted."),
            (SYSTEM, SAID, USER),
            "placement front: the conversation begins with the assistant",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_placed_is_refused_in_one_line(
    placement: Placement, messages: tuple[Message, ...], reason: str
) -> None:
    with pytest.raises(ConfoundError) as refused:
        placement.place(messages, "BAR")
    assert str(refused.value).startswith(reason) and "\n" not in str(refused.value)


def test_before_the_first_result_the_last_one_is_no_place_yet() -> None:
    assert not has_place(LastResult(), (SYSTEM, USER)) and has_place(LastResult(), MIDWAY)
    assert not has_place(SystemHead(), (USER,)) and has_place(Tail(), ())


@pytest.mark.parametrize("make", [lambda: SystemHead(at="middle"), lambda: OwnAction(tool=" ")])
def test_an_option_that_means_nothing_is_refused(make) -> None:
    with pytest.raises(ConfigError, match="placement "):
        make()


def grown(placement: Placement) -> list[str]:
    """Role and content after three requests with a copy each: at the first question, after its result, and at the
    second question."""
    injections = [Injection(at, StatusText("", (f"B{n}",), heading="")) for n, at in enumerate((2, 4, 6))]
    return [f"{m.role[0]}:{m.content}" for m in place_all(TALK, injections, placement)]


def test_copies_that_stay_are_where_the_transcript_ended_when_they_came() -> None:
    assert grown(Tail()) == ["s:S", "u:U", "u:B0", "a:", "t:result 0", "u:B1", "a:Done.", "u:V", "u:B2"]
    assert grown(PrefixLast()) == ["s:S", "u:B0 U", "a:", "t:B1 result 0", "a:Done.", "u:B2 V"]
    assert grown(LastBlock()) == ["s:S", "u:U\n\nB0\n\nB1", "a:", "t:result 0", "a:Done.", "u:V\n\nB2"]
    assert grown(SystemHead()) == ["s:S\n\nB0\n\nB1\n\nB2", "u:U", "a:", "t:result 0", "a:Done.", "u:V"]
    assert grown(Front()) == ["s:S", "u:B2", "u:B1", "u:B0", "u:U", "a:", "t:result 0", "a:Done.", "u:V"]


def test_own_actions_that_stay_have_ids_of_their_own() -> None:
    injections = [Injection(at, StatusText("", ("B",), heading="")) for at in (2, 4, 6)]
    placed = place_all(TALK, injections, OwnAction())
    ids = [call.id for message in placed for call in message.tool_calls]
    assert len(ids) == len(set(ids)) == 4
    assert all(len(i) == 9 and i.isalnum() for i in ids if i != CALL.tool_calls[0].id)


@settings(max_examples=60)
@given(conversations(system=True), st.sampled_from(PLACEMENTS))
def test_nobody_elses_words_are_changed(messages: tuple[Message, ...], placement: Placement) -> None:
    if not has_place(placement, messages):
        return
    bar = "\ue010BAR\ue010"  # occurs in no message
    placed = placement.place(messages, bar)
    left = [message.content.replace(bar, "") for message in placed]
    others = [m.content for m in messages]
    at = 0
    for content in left:  # in order, up to the bar's separator, with its own messages between
        if at < len(others) and content.strip("\n ") == others[at].strip("\n "):
            at += 1
    assert at == len(others)
    shown = [m.content.count(bar) for m in placed]
    written = [call.arguments.get("content") == bar for m in placed for call in m.tool_calls]
    assert sum(shown) + sum(written) == len(parts_of(placement))


def parallel(calls: int = 2) -> tuple[Message, ...]:
    asked = Message(
        "assistant", tool_calls=tuple(ToolCall("phone_call", {}, id=f"x{i}") for i in range(calls))
    )
    return (USER, asked, *(Message("tool", f"R{i}", tool_call_id=f"x{i}") for i in range(calls)))


def test_a_bar_drawn_for_each_result_stands_in_it_or_waits_for_the_last_result_of_the_turn() -> None:
    *_, last = Delivery(OnInput(), PrefixLast(), Append()).unfold(parallel(), (), context())
    assert [m.content.startswith("<seen>") for m in last.messages] == [True, False, True, True]
    for place in (Tail(), SystemTail(), OwnAction()):
        talk = (*parallel(), Message("assistant", "A"), USER)
        first, second, third = Delivery(Numbered(), place, Append()).unfold(talk, (), context())
        assert (len(first.injections), len(second.injections), len(third.injections)) == (0, 2, 2)
        assert [copy.at for copy in second.injections] == [4, 4]
        assert [copy.bar.lines for copy in second.injections] == [("result 1",), ("result 2",)]
        assert second.messages[:4] == talk[:4], "no call is parted from its results"
        assert second.messages == place_all(second.base, second.injections, place)
        assert third.messages[: len(second.messages)] == second.messages, "append only appends"
        newest = list(Delivery(Numbered(), place, Replace()).unfold(talk, (), context()))[1]
        assert [copy.bar.lines for copy in newest.injections] == [("result 2",)]


def test_in_two_places_at_once_no_text_stands_in_the_result_of_another_call() -> None:
    one = Message("assistant", tool_calls=(ToolCall("phone_call", {}, id="y"),))
    lone = (USER, one, Message("tool", "R", tool_call_id="y"))
    [_, last] = Delivery(Numbered(), Both(), Append()).unfold(lone, (), context())
    assert sum("result 1" in message.content for message in last.messages) == 2, "inline and at the tail"
    with pytest.raises(ConfoundError, match="would come to stand in the result of another"):
        list(Delivery(Numbered(), Both(), Append()).unfold(parallel(), (), context()))
    for order in (Both(LastResult(), Tail()), Both(Tail(), LastResult())):
        with pytest.raises(ConfoundError, match="take last_result or tail"):
            list(Delivery(Numbered(), order, Append()).unfold(parallel(), (), context()))


def test_a_result_that_never_came_is_refused_and_not_papered_over() -> None:
    talk = parallel()[:-1]
    with pytest.raises(ConfoundError, match="nothing may stand between a call and its results"):
        list(Delivery(Numbered(), Tail(), Append()).unfold(talk, (), context()))


def test_every_placement_can_be_chosen_by_its_name() -> None:
    folder = Path(__file__).parents[1] / "conf" / "placement"
    chosen = {path.stem: instantiate(OmegaConf.load(path)) for path in sorted(folder.glob("*.yaml"))}
    names = {
        "before": "before",
        "both": "both",
        "front": "front",
        "last_block": "last_block",
        "last_result": "last_result",
        "own_action": "own_action",
        "own_before": "own_before",
        "prefix": "prefix",
        "system_head": "system_head",
        "system_tail": "system_tail",
        "tail": "tail",
    }
    assert {stem: placement.name for stem, placement in chosen.items()} == names
    defaults = {type(placement)() for placement in PLACEMENTS}
    assert set(chosen.values()) == defaults  # what the files state is what the classes do


# -- what templates make of them -----------------------------------------------------------------------

LATE_SYSTEM = (
    "{%- for m in messages -%}{%- if m.role == 'system' and not loop.first -%}"
    "{{- raise_exception('System message must be at the beginning.') -}}{%- endif -%}{%- endfor -%}" + CHATML
)


@pytest.mark.weights
@pytest.mark.parametrize("policy", [Replace(), Append()], ids=lambda policy: policy.name)
@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
@pytest.mark.parametrize("talk", [TALK, MIDWAY], ids=["follow-up", "midway"])
def test_a_real_template_shows_each_placement_and_nothing_else_changes(
    qwen, placement: Placement, policy, talk: tuple[Message, ...]
) -> None:
    each = sample(talk)
    condition = Condition("agent_status", AgentStatus(), placement, policy)
    arm = render_arms(qwen, each, [condition])["agent_status"]
    control = render_arms(qwen, each, [Condition("control")])["control"]
    assert printed(placement, arm.bar_text) in arm.prompt.text
    assert arm.prompt.bar_tokens == len(arm.prompt.ids) - len(control.prompt.ids) > 0
    assert [span.region for span in arm.prompt.spans if span.region in ("bar", "stale_bar")][-1] == "bar"


@pytest.mark.parametrize(
    ("template", "placement", "words"),
    [
        (LATE_SYSTEM, SystemTail(), "System message must be at the beginning."),
        (ALTERNATING, Tail(), "Conversation roles must alternate"),
        (ALTERNATING, OwnBefore(), "Conversation roles must alternate"),
        (ALTERNATING, Front(), "Conversation roles must alternate"),
    ],
    ids=["late system", "tail", "own before", "front"],
)
def test_a_placement_that_the_template_refuses_is_found_before_any_model_runs(
    template: str, placement: Placement, words: str
) -> None:
    condition = Condition("agent_status", AgentStatus(), placement)
    with pytest.raises(TemplateError, match=f"condition agent_status, sample hand/c000/due: .*{words}"):
        render_arms(tiny_template(template), sample(TALK), [condition])


@pytest.mark.parametrize("placement", [OwnBefore("Noted."), Front("Noted.")], ids=str)
def test_an_acknowledgement_makes_roles_alternate_again(placement: Placement) -> None:
    condition = Condition("agent_status", AgentStatus(), placement)
    assert render_arms(tiny_template(ALTERNATING), sample(TALK), [condition])


def test_a_template_that_merges_makes_the_tail_and_the_last_block_one_condition() -> None:
    arms = [Condition("own", AgentStatus(), Tail()), Condition("block", AgentStatus(), LastBlock())]
    merging = render_arms(tiny_template(MERGER), sample(TALK), arms)
    parting = render_arms(tiny_template(CHATML), sample(TALK), arms)
    assert merging["own"].prompt.text == merging["block"].prompt.text
    assert parting["own"].prompt.text != parting["block"].prompt.text


def test_where_a_user_message_strips_reasoning_the_refusal_says_what_to_do() -> None:
    thought = Message("assistant", tool_calls=CALL.tool_calls, reasoning="Let me call.")
    each = sample((SYSTEM, USER, thought, RESULT))
    for placement, refused in (
        (Tail(), True),
        (SystemTail(), False),
        (LastResult(), False),
        (Front(), False),
    ):
        condition = Condition("agent_status", AgentStatus(), placement)
        template = tiny_template(THINKER, "native")
        if refused:
            with pytest.raises(ConfoundError, match=r"another placement, or .*keep_reasoning=false"):
                render_arms(template, each, [condition])
            continue
        assert render_arms(template, each, [condition])


def test_a_trajectory_of_t_requests_has_t_prompts_at_each_placement() -> None:
    for placement in PLACEMENTS:
        if placement.name in ("last_result", "both"):  # no place at the first request
            continue
        delivered = list(unfold(sample(TALK), Condition("c", Counter(), placement), len))
        assert [len(one.base) for one in delivered] == [2, 4, 6]
        last = apply(sample(TALK), Condition("c", Counter(), placement), len)
        assert last.messages == delivered[-1].messages
