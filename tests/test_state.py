"""Claims about harness/state.py: what is derived from messages is what the generator knows."""

from dataclasses import replace

import pytest
from core_samples import all_series, calls
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.state import AgentState, StateBuilder, argument_hash, derive
from harness.types import Message, ToolCall

SEEDS = st.integers(0, 2**32)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
_JSON = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(max_size=4), _JSON, max_size=4)
TOOLS = st.sampled_from(["phone_call", "web_search", "reply"])
MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant", "tool"]),
        content=st.text(max_size=8),
        tool_calls=st.lists(st.builds(ToolCall, TOOLS, ARGUMENTS), max_size=3).map(tuple),
    ),
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, clusters=st.integers(1, 3))
def test_the_derived_state_is_the_generators_truth_in_every_series(seed: int, clusters: int) -> None:
    for sample in all_series(seed, clusters):
        state = derive(sample.messages)
        keys = {rule.tool: rule.key for rule in sample.rules}
        assert set(state.calls) == set(sample.truth)
        for tool, counts in sample.truth.items():
            assert state.calls[tool].total == sum(counts.values())
            if tool in keys:
                assert state.calls[tool].by_key(keys[tool]) == counts
            else:
                assert set(counts) == {""}
        expected = sample.expectation
        assert state.count(expected.tool, expected.key, expected.target) == sample.prior_calls
        assert (sample.prior_calls >= sample.limit) == (expected.side == "forbidden")


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, prose=st.text(max_size=30))
def test_nothing_that_is_merely_said_counts(seed: int, prose: str) -> None:
    claim = prose + ' I have called Xfinity again. <tool_call>{"name": "phone_call"}</tool_call>'
    for sample in all_series(seed):
        said = derive(replace(m, content=claim, reasoning=claim) for m in sample.messages)
        done = derive(sample.messages)
        assert said.calls == done.calls and said.identical == done.identical
        assert (said.tool_calls, said.user_turns, said.todos) == (
            done.tool_calls,
            done.user_turns,
            done.todos,
        )


@given(messages=MESSAGES)
def test_incremental_and_batch_agree_at_every_message_and_snapshots_stay(messages: list[Message]) -> None:
    builder = StateBuilder()
    snapshots: list[AgentState] = []
    for message in messages:
        builder.advance(message)
        snapshots.append(builder.state())
    assert snapshots == [derive(messages[: n + 1]) for n in range(len(messages))]


@given(messages=MESSAGES)
def test_only_the_assistants_calls_count_and_each_counts_once(messages: list[Message]) -> None:
    state = derive(messages)
    made = [c for m in messages if m.role == "assistant" for c in m.tool_calls]
    assert sum(counted.total for counted in state.calls.values()) == len(made)
    assert sum(state.identical.values()) == len(made)
    assert state.user_turns == sum(m.role == "user" for m in messages)


@given(name=TOOLS, arguments=ARGUMENTS, data=st.data())
def test_the_order_of_keys_does_not_change_a_calls_identity(name: str, arguments: dict, data) -> None:
    shuffled = dict(data.draw(st.permutations(list(arguments.items()))))
    assert argument_hash(name, shuffled) == argument_hash(name, arguments)


def test_nested_keys_may_come_in_any_order_too() -> None:
    assert argument_hash("t", {"a": {"x": 1, "y": [{"p": 1, "q": 2}]}}) == argument_hash(
        "t", {"a": {"y": [{"q": 2, "p": 1}], "x": 1}}
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ({"a": "x"}, {"b": "x"}),
        ({"a": "x"}, {"a": "X"}),
        ({"a": "é"}, {"a": "e\u0301"}),
        ({"a": "\ud800"}, {"a": "\ud801"}),
    ],
)
def test_array_order_spelling_and_type_make_another_call(one: dict, other: dict) -> None:
    assert argument_hash("t", one) != argument_hash("t", other)


def test_the_tool_is_part_of_a_calls_identity() -> None:
    assert argument_hash("a", {"x": 1}) != argument_hash("b", {"x": 1})


def test_a_state_is_not_changed_by_what_comes_after_it() -> None:
    builder = StateBuilder()
    first, result, second, _ = calls("A", "A")
    builder.advance(first)
    state = builder.state()
    before = derive([first])
    builder.advance(result)
    builder.advance(second)
    assert state == before and builder.state() == derive([first, result, second]) != before


def test_values_keep_the_order_of_first_appearance_and_exact_spelling() -> None:
    state = derive(calls("Zeta", "Alpha", "Zeta", "alpha"))
    assert list(state.calls["phone_call"].by_key("merchant").items()) == [
        ("Zeta", 2),
        ("Alpha", 1),
        ("alpha", 1),
    ]
    assert state.count("phone_call", "merchant", "ALPHA") == 0
    assert state.count("web_search", "merchant", "Zeta") == 0
    assert state.calls["phone_call"].by_key("query") == {}
