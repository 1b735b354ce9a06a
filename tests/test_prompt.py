"""Claims about rendering and about the proof that the arms differ by the bar alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from core_samples import all_series, arms, calls, sample, xfinity
from core_tokens import (
    ALTERNATING,
    CHATML,
    COUNTER,
    MERGER,
    THINKER,
    TOOLLESS,
    TRIMMER,
    UPPER,
    tiny_template,
    tiny_tokenizer,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.conditions import Condition, apply
from harness.dataset import expand
from harness.errors import ConfoundError, TemplateError
from harness.prompt import Arm, render_arms
from harness.statusbar import AgentStatus, BeforeFollowUp, Placebo, StatusText, Tail
from harness.template import PROMPTED_INSTRUCTION, THINK_OPEN, ChatTemplate
from harness.types import Message, Sample

STATUS = Condition("agent_status", AgentStatus(), Tail())
BEFORE = Condition("agent_status_before", AgentStatus(), BeforeFollowUp())
FOLLOW_UP = Message("user", "Can you call Xfinity again?")


def conversation(*, reasoning: str | None = None, follow_up: Sequence[Message] = (FOLLOW_UP,)) -> Sample:
    turns = [
        replace(m, reasoning=reasoning) if m.role == "assistant" else m for m in calls("Xfinity", "Xfinity")
    ]
    return sample([Message("system", "Be kind."), Message("user", "Sort it out."), *turns, *follow_up])


def inserted(control: Sequence[int], arm: Sequence[int]) -> int:
    """Tokens of the control that an arm's common head and tail do not cover, by plain comparison."""
    head = next((i for i, (a, b) in enumerate(zip(control, arm, strict=False)) if a != b), len(control))
    rest = list(zip(reversed(control[head:]), reversed(arm[head:]), strict=False))
    tail = next((i for i, (a, b) in enumerate(rest) if a != b), len(rest))
    return len(control) - head - tail


def assert_arms_hold(template: ChatTemplate, each: Sample, conditions: Sequence[Condition]) -> None:
    rendered = render_arms(template, each, conditions)
    control = template.encode(template.text(each.messages, each.tools))
    for condition in conditions:
        arm = rendered[condition.name]
        prompt = arm.prompt
        assert prompt.ids == tuple(template.tokenizer(prompt.text, add_special_tokens=False)["input_ids"])
        assert template.decode(prompt.ids) == prompt.text
        assert prompt.bar_tokens == len(prompt.ids) - len(control.ids)
        assert inserted(control.ids, prompt.ids) <= 2
        assert (prompt.bar_tokens > 0) == (condition.bar is not None)
        assert_spans_hold(template, each, condition, arm)
    for place in ("", "_before"):
        lengths = {rendered[name + place].prompt.bar_tokens for name in ("placebo", "agent_status")}
        assert len(lengths) == 1


def assert_spans_hold(template: ChatTemplate, each: Sample, condition: Condition, arm: Arm) -> None:
    """Every message has its span, in order, which decodes to its content give or take a straddling token."""
    assert list(arm.prompt.spans) == sorted(arm.prompt.spans, key=lambda s: (s.start, s.end))
    expected: list[tuple[str, str]] = []
    for index, message in enumerate(each.messages):
        region = "follow_up" if index == len(each.messages) - 1 else message.role
        if message.content.strip() and message.role != "tool":
            expected.append((region, message.content.strip()))
    bar = [("bar", arm.bar_text)] if arm.bar_text else []
    expected = [*expected[:-1], *bar, expected[-1]] if condition in BEFORE_ARMS else [*expected, *bar]
    decoded = [(s.region, template.decode(arm.prompt.ids[s.start : s.end])) for s in arm.prompt.spans]
    plain = [(r, t) for r, t in decoded if r != "tools" and not r.startswith(("call:", "result:"))]
    assert [region for region, _ in plain] == [region for region, _ in expected]
    for (_, text), (_, content) in zip(plain, expected, strict=True):
        assert text.strip().startswith(content) and len(text) <= len(content) + 3
    assert_history_located(each, decoded)


def assert_history_located(each: Sample, decoded: Sequence[tuple[str, str]]) -> None:
    regions = [region for region, _ in decoded]
    assert regions.count("tools") == 1
    for value, count in each.truth["phone_call"].items():
        assert (
            regions.count(f"call:phone_call:{value}") == regions.count(f"result:phone_call:{value}") == count
        )
        calls_to = [text for region, text in decoded if region == f"call:phone_call:{value}"]
        assert all(value in text and text.lstrip(' "').startswith("phone_call") for text in calls_to)
    results = [text.strip() for region, text in decoded if region.startswith("result:")]
    contents = [m.content.strip() for m in each.messages if m.role == "tool"]
    assert all(
        text.startswith(c) and len(text) <= len(c) + 2 for c, text in zip(contents, results, strict=True)
    )


BEFORE_ARMS = [condition for condition in arms() if condition.placement_name == "before"]


@pytest.mark.weights
def test_on_the_real_template_every_condition_of_every_series_is_proved(qwen: ChatTemplate) -> None:
    samples = [
        *expand(xfinity(), series="matched", clusters=2, seed=7),
        *expand(xfinity(), series="prior_calls", clusters=1, seed=7, prior_calls=(1, 3, 6)),
        *expand(
            xfinity(), series="filler", clusters=1, seed=7, filler_tokens=(0, 300), count_tokens=qwen.count
        ),
    ]
    for each in samples:
        assert_arms_hold(qwen, each, arms())


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), trim=st.booleans())
def test_on_a_made_up_tokenizer_every_condition_is_proved(seed: int, trim: bool) -> None:
    template = ChatTemplate(tiny_tokenizer(trim_offsets=trim))
    for each in all_series(seed)[::3]:
        assert_arms_hold(template, each, arms())


def test_the_bar_stands_where_the_placement_says() -> None:
    template, each = tiny_template(), conversation()
    rendered = render_arms(template, each, [STATUS, BEFORE])
    bar = rendered["agent_status"].bar_text
    tail = f"again?<|im_end|>\n<|im_start|>user\n{bar}<|im_end|>\n<|im_start|>assistant\n"
    assert rendered["agent_status"].prompt.text.endswith(tail)
    assert f"<|im_start|>user\n{bar}\n\nCan you call" in rendered["agent_status_before"].prompt.text


def test_regions_follow_the_bar_that_pushes_them() -> None:
    template, each = tiny_template(), conversation()
    rendered = render_arms(template, each, [Condition("control"), STATUS, BEFORE])
    spans = {name: {s.region: (s.start, s.end) for s in arm.prompt.spans} for name, arm in rendered.items()}
    tail, before = spans["agent_status"], spans["agent_status_before"]
    assert tail["follow_up"] == spans["control"]["follow_up"]
    assert tail["follow_up"][1] < tail["bar"][0]
    added = rendered["agent_status_before"].prompt.bar_tokens
    assert before["follow_up"] == tuple(at + added for at in spans["control"]["follow_up"])
    assert before["bar"][1] <= before["follow_up"][0]


def test_the_same_prompt_has_the_same_hash_and_another_one_has_not() -> None:
    template, each = tiny_template(), conversation()
    rendered = render_arms(template, each, [Condition("control"), STATUS])
    again = render_arms(tiny_template(), each, [STATUS])["agent_status"].prompt
    assert again.prompt_hash == rendered["agent_status"].prompt.prompt_hash
    assert rendered["control"].prompt.prompt_hash != again.prompt_hash
    assert again.template_hash != tiny_template(TRIMMER).hash


# -- templates that change more than the bar ---------------------------------------------------------------


def test_a_bar_after_a_tool_result_that_strips_reasoning_is_a_confound() -> None:
    each = conversation(reasoning="The case is open.", follow_up=())
    template = tiny_template(THINKER)
    control = render_arms(template, each, [Condition("control")])["control"].prompt.text
    assert control.count("The case is open.") == 2
    with pytest.raises(ConfoundError, match=r"keep_reasoning=false"):
        render_arms(template, each, [STATUS])


def test_with_the_historys_reasoning_dropped_in_all_arms_there_is_no_confound() -> None:
    each = conversation(reasoning="The case is open.", follow_up=())
    # With thinking on the template writes no block of its own into earlier turns.
    template = tiny_template(THINKER, thinking="native", keep_reasoning=False)
    rendered = render_arms(template, each, [Condition("control"), STATUS])
    assert all("The case is open." not in arm.prompt.text for arm in rendered.values())


def test_a_real_follow_up_already_strips_reasoning_so_the_bar_changes_nothing_more() -> None:
    each = conversation(reasoning="The case is open.")
    rendered = render_arms(tiny_template(THINKER), each, [Condition("control"), STATUS, BEFORE])
    assert all("The case is open." not in arm.prompt.text for arm in rendered.values())


def test_a_template_that_keeps_reasoning_keeps_it_in_every_arm() -> None:
    keeper = CHATML.replace(
        "{{- message.content }}\n{%- for call", "{{- message.reasoning_content or '' }}{%- for call"
    )
    each = conversation(reasoning="The case is open.", follow_up=())
    rendered = render_arms(tiny_template(keeper), each, [Condition("control"), STATUS])
    assert all(arm.prompt.text.count("The case is open.") == 2 for arm in rendered.values())


def test_a_template_that_merges_user_messages_keeps_the_arms_comparable() -> None:
    rendered = render_arms(tiny_template(MERGER), conversation(), [STATUS, BEFORE])
    bar = rendered["agent_status"].bar_text
    assert f"again?\n\n{bar}<|im_end|>" in rendered["agent_status"].prompt.text
    assert rendered["agent_status"].prompt.bar_tokens > 0


def test_a_template_that_upper_cases_content_is_refused() -> None:
    with pytest.raises(ConfoundError, match="does not print the bar as it was drawn"):
        render_arms(tiny_template(UPPER), conversation(), [STATUS])


def test_a_template_that_trims_content_is_no_problem() -> None:
    each = conversation()
    untidy = replace(each, messages=(*each.messages[:-1], Message("user", "  Call Xfinity again? \n")))
    rendered = render_arms(tiny_template(TRIMMER), untidy, (*arms()[:2], STATUS))
    assert "user\nCall Xfinity again?<|im_end|>" in rendered["control"].prompt.text
    assert [s.region for s in rendered["control"].prompt.spans].count("follow_up") == 1


def test_a_template_that_refuses_the_conversation_says_so_in_its_own_words() -> None:
    template = tiny_template(ALTERNATING)
    with pytest.raises(TemplateError, match="roles must alternate"):
        render_arms(template, conversation(), [STATUS])
    assert render_arms(template, conversation(), [BEFORE])["agent_status_before"].prompt.bar_tokens > 0


def test_a_template_that_counts_messages_is_a_confound_at_the_tail_only() -> None:
    with pytest.raises(ConfoundError, match="changes more than the bar"):
        render_arms(tiny_template(COUNTER), conversation(), [STATUS])
    assert render_arms(tiny_template(COUNTER), conversation(), [BEFORE])


def test_a_template_that_drops_calls_is_refused() -> None:
    with pytest.raises(TemplateError, match="drops content"):
        render_arms(tiny_template(TOOLLESS), conversation(), [STATUS])


def test_a_template_that_rewrites_one_message_by_its_content_is_refused() -> None:
    shortener = CHATML.replace(
        "message.role + '\\n' + message.content", "message.role + '\\n' + message.content[:12]"
    )
    with pytest.raises(TemplateError, match=r"drops content|rewrites content"):
        render_arms(tiny_template(shortener), conversation(), [Condition("control")])


def test_a_tokenizer_without_a_template_is_refused() -> None:
    with pytest.raises(TemplateError, match="no chat template"):
        ChatTemplate(tiny_tokenizer(None))


def test_an_added_token_inside_the_bars_place_may_not_change_tokens_elsewhere() -> None:
    """Without a break between bar and follow-up their neighbouring characters merge; the proof must still
    find every token of the control outside the bar."""

    class Glued:
        name = "glued"

        def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
            return (*messages[:-1], replace(messages[-1], content=bar + messages[-1].content))

    glued = Condition("glued", AgentStatus(), Glued())
    control = render_arms(tiny_template(), conversation(), [Condition("control")])["control"].prompt
    arm = render_arms(tiny_template(), conversation(), [glued])["glued"].prompt
    assert inserted(control.ids, arm.ids) <= 2 and arm.bar_tokens == len(arm.ids) - len(control.ids)


def test_a_placement_that_rewords_another_message_is_a_confound() -> None:
    class Nudger:
        name = "nudger"

        def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
            first = replace(messages[0], content=messages[0].content + " Obey the bar.")
            return (first, *messages[1:], Message("user", bar))

    with pytest.raises(ConfoundError, match="changes more than the bar"):
        render_arms(tiny_template(), conversation(), [Condition("nudger", AgentStatus(), Nudger())])


def test_a_placement_that_only_says_it_placed_the_bar_is_a_confound() -> None:
    class Forgetful:
        name = "forgetful"

        def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
            return (*messages, Message("user", "Thank you."))

    with pytest.raises(ConfoundError):
        render_arms(tiny_template(), conversation(), [Condition("forgetful", AgentStatus(), Forgetful())])


def test_a_placebo_of_another_length_is_refused() -> None:
    class Longer(Placebo):
        def draw(self, state, context) -> StatusText | None:
            drawn = super().draw(state, context)
            return drawn and replace(
                drawn, lines=(*drawn.lines[:-1], drawn.lines[-1] + "; the lamp is green")
            )

    longer = Condition("placebo", Longer(AgentStatus()), Tail())
    with pytest.raises(ConfoundError, match="must be equal"):
        render_arms(tiny_template(), conversation(), [longer, STATUS])


def test_reserved_marks_in_the_conversation_are_refused() -> None:
    each = conversation(follow_up=[Message("user", "Call \ue000 again")])
    with pytest.raises(TemplateError, match="private-use"):
        render_arms(tiny_template(), each, [STATUS])


# -- text and thinking -------------------------------------------------------------------------------------


def test_thinking_is_always_said_explicitly_and_opened_blocks_are_noticed() -> None:
    each = conversation()
    off, native = tiny_template(THINKER), tiny_template(THINKER, thinking="native")
    assert off.text(each.messages, each.tools).endswith("assistant\n<think>\n\n</think>\n\n")
    assert native.text(each.messages, each.tools).endswith("<|im_start|>assistant\n")
    opener = THINKER.replace(
        "{%- if enable_thinking is false -%}", "{%- if enable_thinking -%}{{- '<think>\\n' }}{%- else -%}"
    )
    opened = render_arms(tiny_template(opener, thinking="native"), each, [STATUS])["agent_status"].prompt
    assert opened.think_open
    assert not render_arms(native, each, [STATUS])["agent_status"].prompt.think_open


def test_prompted_thinking_instructs_in_the_system_prompt_and_opens_the_block() -> None:
    each, template = conversation(), tiny_template(thinking="prompted")
    prompt = render_arms(template, each, [STATUS])["agent_status"].prompt
    assert f"Be kind.\n{PROMPTED_INSTRUCTION}" in prompt.text
    assert prompt.text.endswith(f"<|im_start|>assistant\n{THINK_OPEN}\n") and prompt.think_open
    without = template.text(each.messages[1:], each.tools)
    assert without.startswith(f"<|im_start|>system\n{PROMPTED_INSTRUCTION}")


def test_prompted_thinking_on_a_template_that_thinks_natively_is_refused() -> None:
    each = conversation()
    with pytest.raises(TemplateError, match="thinking=native"):
        tiny_template(THINKER, thinking="prompted").text(each.messages, each.tools)


def test_the_control_arm_needs_no_bar_and_adds_no_token() -> None:
    arm = render_arms(tiny_template(), conversation(), [Condition("control")])["control"]
    assert (arm.bar_text, arm.placebo_id, arm.prompt.bar_tokens) == ("", None, 0)
    placebo = Condition("placebo", Placebo(AgentStatus()), Tail())
    drawn = apply(conversation(), placebo, tiny_template().count).bar
    assert drawn is not None
    assert render_arms(tiny_template(), conversation(), [placebo])["placebo"].placebo_id == drawn.variant
