"""Claims about the `choose` probe: what is forced and chosen is exactly what the template would write."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from core_samples import calls, sample, xfinity
from core_tokens import CHATML, THINKER, TOOLLESS, tiny_template, tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.choices import ChoiceBuilder, ChoiceSet
from harness.dataset import expand
from harness.errors import TemplateError
from harness.parsing import parse_reply
from harness.template import ChatTemplate
from harness.types import Message, Sample, ToolCall, ToolSpec


def asked(target: str, *others: str, tools: Sequence[str] = ()) -> Sample:
    each = sample(
        [Message("user", "Go."), *calls(target), Message("user", "Again?")], target=target, others=others
    )
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    return replace(each, tools=(*each.tools, *(ToolSpec(name, "A tool.", schema) for name in tools)))


def written(template: ChatTemplate, each: Sample, tool: str, arguments: dict[str, str]) -> tuple[str, str]:
    """The prompt of `each` and what the template itself writes for a call after it."""
    start = template.text(each.messages, each.tools)
    call = Message("assistant", tool_calls=(ToolCall(tool, arguments, id="call99999"),))
    whole = template.text([*each.messages, call], each.tools, reply=False)
    assert whole.startswith(start)
    return start, whole[len(start) :]


def assert_canonical(template: ChatTemplate, each: Sample, built: ChoiceSet) -> None:
    expected = each.expectation
    values = {f"{expected.tool}:{value}": value for value in (expected.target, *expected.others)}
    assert set(built.choices) == {*values, *(t.name for t in each.tools if t.name != expected.tool)}
    for label, ids in built.choices.items():
        value = values.get(label)
        tool = expected.tool if value is not None else label
        arguments = {"x": "y"} if value is None else {expected.key: value, "purpose": "ask"}
        start, call = written(template, each, tool, arguments)
        whole = tuple(template.tokenizer(start + call, add_special_tokens=False)["input_ids"])
        before = tuple(template.tokenizer(start, add_special_tokens=False)["input_ids"])
        tokens = before + built.forced + ids
        assert whole[: len(tokens)] == tokens, label
        said = template.decode(built.forced + ids)
        assert said.endswith(tool if value is None else value) and call.startswith(said)
        assert_parses_back(call, said, each, tool, arguments)


def assert_parses_back(call: str, said: str, each: Sample, tool: str, arguments: dict[str, str]) -> None:
    """The reply that runs through the choice is, finished as the template writes it, that very call."""
    parsed = parse_reply(said + call[len(said) :], tool_names=[t.name for t in each.tools])
    assert parsed.status == "ok"
    assert [(c.name, dict(c.arguments)) for c in parsed.tool_calls] == [(tool, arguments)]


def assert_prefix_free(built: ChoiceSet) -> None:
    rows = list(built.choices.values())
    assert all(rows) and len(set(rows)) == len(rows)
    for i, one in enumerate(rows):
        assert all(other[: len(one)] != one for j, other in enumerate(rows) if i != j)
    assert len({row[0] for row in rows}) > 1, "what all choices share belongs to the forced tokens"


@pytest.mark.weights
def test_on_the_real_template_choices_are_the_canonical_tokens_of_each_call(qwen: ChatTemplate) -> None:
    builder = ChoiceBuilder(qwen)
    for each in expand(xfinity(), series="matched", clusters=12, seed=7):
        built = builder.build(each)
        assert_canonical(qwen, each, built)
        assert_prefix_free(built)


@pytest.mark.parametrize("text", [CHATML, THINKER])
def test_on_made_up_templates_choices_are_the_canonical_tokens_of_each_call(text: str) -> None:
    template = tiny_template(text)
    for each in expand(xfinity(), series="matched", clusters=8, seed=3):
        built = ChoiceBuilder(template).build(each)
        assert_canonical(template, each, built)
        assert_prefix_free(built)


def test_both_sides_of_a_pair_have_the_same_choices() -> None:
    forbidden, due = expand(xfinity(), series="matched", clusters=1, seed=3)
    builder = ChoiceBuilder(tiny_template())
    assert builder.build(forbidden) == builder.build(due)


VALUES = st.text(st.sampled_from("abcXYZ éß漢 '\"\\/&<>-.,:!{}0123456789"), min_size=1, max_size=14).filter(
    lambda value: value == value.strip()
)


@settings(max_examples=80, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=3, unique=True))
def test_odd_values_are_either_canonical_or_refused(values: list[str]) -> None:
    template, each = tiny_template(), asked(*values)
    try:
        built = ChoiceBuilder(template).build(each)
    except TemplateError:
        return
    assert_prefix_free(built)
    for value in values:
        start, call = written(template, each, "phone_call", {"merchant": value})
        whole = template.tokenizer(start + call, add_special_tokens=False)["input_ids"]
        before = template.tokenizer(start, add_special_tokens=False)["input_ids"]
        tokens = [*before, *built.forced, *built.choices[f"phone_call:{value}"]]
        assert whole[: len(tokens)] == tokens
        assert call[len(template.decode(built.forced + built.choices[f"phone_call:{value}"])) :].startswith(
            '"'
        )


@pytest.mark.parametrize("value", ["merchant", "arguments", "a", "m", "name", "phone_call"])
def test_a_value_that_the_template_writes_elsewhere_too_is_found_in_its_own_place(value: str) -> None:
    template, each = tiny_template(), asked(value)
    assert_canonical(template, each, ChoiceBuilder(template).build(each))


@pytest.mark.parametrize("tool", ["call", "tool", "name", "tool_call", "e"])
def test_a_tool_whose_name_the_template_writes_elsewhere_too_is_found_in_its_own_place(tool: str) -> None:
    template, each = tiny_template(), asked("Xfinity", tools=[tool])
    assert_canonical(template, each, ChoiceBuilder(template).build(each))


def test_a_value_that_begins_another_cannot_be_told_apart() -> None:
    with pytest.raises(TemplateError, match="cannot be told apart"):
        ChoiceBuilder(tiny_template()).build(asked("Calder", "Calder Water"))


def test_a_value_whose_end_merges_with_the_closing_quote_is_refused() -> None:
    """`!"` is one token here: the tokens up to the quote are not those that a model would write."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(['!"'])
    with pytest.raises(TemplateError, match="closing quote"):
        ChoiceBuilder(ChatTemplate(tokenizer)).build(asked("Yahoo!"))


def test_a_template_that_drops_calls_cannot_force_one() -> None:
    with pytest.raises(TemplateError, match="choose"):
        ChoiceBuilder(tiny_template(TOOLLESS)).build(asked("Xfinity"))


def test_a_template_that_writes_calls_elsewhere_than_in_a_reply_cannot_force_one() -> None:
    moved = CHATML.replace("{{- '<|im_start|>assistant\\n' }}\n", "{{- '<|im_start|>model\\n' }}\n")
    assert moved != CHATML
    with pytest.raises(TemplateError, match="continuation of the reply"):
        ChoiceBuilder(tiny_template(moved)).build(asked("Xfinity"))


@pytest.mark.parametrize("thinking", ["native", "prompted"])
def test_a_model_that_would_think_first_is_refused(thinking: str) -> None:
    with pytest.raises(TemplateError, match="thinking=off"):
        ChoiceBuilder(tiny_template(thinking=thinking))
