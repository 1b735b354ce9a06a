"""Claims about bars that are changed on purpose: wrong counts, and a line left out."""

import re

import pytest
from core_samples import RULE, calls, context
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ConfoundError
from harness.state import AgentState, CallCount, derive
from harness.statusbar import AgentStatus, Placebo
from harness.statusbar.base import looks_back, misfit, moment_of
from harness.statusbar.corrupted import Corrupted, changed
from harness.statusbar.tool_counter import ToolCounter
from harness.statusbar.without import Without
from harness.types import CallLimit

BAR = AgentStatus()
CONTEXT = context()


@pytest.mark.parametrize(
    ("count", "percent", "wrong"),
    [
        (3, 10, 4),  # 0.3 of a call: at least one
        (3, -10, 2),
        (3, 50, 5),  # 1.5, away from zero
        (3, -50, 1),
        (10, 25, 13),
        (10, -25, 7),
        (100, 1, 101),
        (1, -50, 0),
        (0, 50, 0),
        (7, 0, 7),
    ],
)
def test_a_count_moves_by_a_share_of_itself_rounded_away_from_zero(
    count: int, percent: int, wrong: int
) -> None:
    assert changed(count, percent) == wrong


@given(count=st.integers(1, 10_000), percent=st.integers(-50, 50))
def test_every_count_is_off_by_the_share_or_by_one(count: int, percent: int) -> None:
    wrong = changed(count, percent)
    assert wrong >= 0 and abs(wrong - count) <= max(1, count * abs(percent) / 100 + 0.5)
    if percent:
        assert (wrong > count) == (percent > 0) and wrong != count
        assert abs(wrong - count) == abs(changed(count, -percent) - count)


def test_the_wrong_bar_is_the_true_one_with_other_numbers() -> None:
    state = derive([*calls("Acme", "Acme", "Acme", "Bolt"), *calls("rights", tool="web_search", key="query")])
    drawn = Corrupted(BAR, -50).draw(state, CONTEXT)
    assert drawn is not None and drawn.lines == (
        "- Tool calls: 'phone_call' called 1 time (Acme: 1 time, Bolt: 0 times); 'web_search' called 0 times",
        "- Constraint: 'phone_call' at most 3 times per merchant; Acme: 2 calls left (1/3); "
        "Bolt: 3 calls left (0/3)",
    )
    true = BAR.draw(state, CONTEXT)
    assert Corrupted(BAR, 0).draw(state, CONTEXT) == true
    assert true is not None and (drawn.tag, drawn.heading) == (true.tag, true.heading)


@settings(max_examples=40)
@given(
    made=st.lists(st.sampled_from(["Acme", "Bolt", "Cord"]), min_size=1, max_size=12),
    percent=st.integers(-50, 50),
)
def test_the_total_of_a_ruled_tool_stays_the_sum_of_its_keys(made: list[str], percent: int) -> None:
    drawn = Corrupted(BAR, percent).draw(derive(calls(*made)), CONTEXT)
    assert drawn is not None
    total, *parts = (int(number) for number in re.findall(r"(\d+) time", drawn.lines[0]))
    assert total == sum(parts)
    assert (total == len(made)) == (percent == 0)


def test_limits_todos_and_everything_but_calls_stay_true() -> None:
    state = derive(calls("Acme", "Acme"))
    seen: list[AgentState] = []

    class Spy:
        name = "spy"

        def draw(self, state, context):
            seen.append(state)

    Corrupted(Spy(), 50).draw(state, CONTEXT)
    [wrong] = seen
    assert (wrong.tool_calls, wrong.calls["phone_call"].total) == (3, 3)
    assert wrong.latest is not None and state.latest is not None
    assert (wrong.latest.calls, wrong.latest.identical) == (3, state.latest.identical)
    assert (wrong.identical, wrong.user_turns, wrong.todos) == (
        state.identical,
        state.user_turns,
        state.todos,
    )
    assert dict(state.calls)["phone_call"].total == 2  # the true state is untouched


def test_a_tool_without_a_rule_moves_on_its_own() -> None:
    state = AgentState(calls={"fetch": CallCount(10, {"url": {"a": 9, "b": 1}})})
    drawn = Corrupted(BAR, 20).draw(state, context(rules=[CallLimit("phone_call", "merchant", 3)]))
    assert drawn is not None and drawn.lines[0] == "- Tool calls: 'fetch' called 12 times"


def test_the_wrong_counter_is_drawn_when_the_true_one_is() -> None:
    bar = Corrupted(ToolCounter(), 50)
    assert moment_of(Placebo(bar)) == moment_of(bar) == "result" and not looks_back(bar)
    drawn = bar.draw(derive(calls("Acme", "Acme", "Acme")), CONTEXT)
    assert drawn is not None and drawn.text == "Tool call #5 for 'phone_call'"


@pytest.mark.parametrize("percent", [-51, 51])
def test_a_bar_that_is_wrong_by_more_than_half_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match=f"percent={percent}: expected a whole number from -50 to 50"):
        Corrupted(BAR, percent)


@pytest.mark.parametrize(
    ("made", "percent", "real"),
    [
        (3, 20, 33),
        (3, -20, -33),
        (3, 50, None),
        (2, 50, None),
        (1, 50, 100),
        (20, 5, None),
        (20, -50, None),
        (3, 0, None),
    ],
)
def test_a_percent_that_whole_calls_miss_by_far_is_told(made: int, percent: int, real: int | None) -> None:
    bar = Placebo(Corrupted(BAR, percent))
    said = misfit(bar, derive(calls(*["Acme"] * made)), CONTEXT.rules)
    if real is None:
        assert said is None
    else:
        assert (
            said is not None
            and f"{made} call" in said
            and f"by {percent} %, in whole calls it is {real} %" in said
        )


def test_where_no_call_of_a_rule_was_made_nothing_is_wrong() -> None:
    assert (
        misfit(Corrupted(BAR, 5), derive(calls("rights", tool="web_search", key="query")), CONTEXT.rules)
        is None
    )
    assert misfit(BAR, derive(calls("Acme")), CONTEXT.rules) is None


# -- without -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rendering", ["key_value", "prose", "json", "checkbox"])
def test_one_line_is_left_out_and_the_others_stand_as_they_were(rendering: str) -> None:
    bar = AgentStatus(rendering=rendering)  # type: ignore[arg-type]
    state = derive(calls("Acme", "Bolt"))
    whole = bar.draw(state, CONTEXT)
    assert whole is not None
    for number in range(1, len(whole.lines) + 1):
        drawn = Without(bar, number).draw(state, CONTEXT)
        if len(whole.lines) == 1:
            assert drawn is None
            continue
        assert drawn is not None and len(drawn.text.splitlines()) == len(whole.text.splitlines()) - 1
        kept = [n for n in range(len(whole.lines)) if n != number - 1]
        assert drawn.lines == tuple(whole.lines[n] for n in kept)
        assert [drawn.frame(n) for n in range(len(kept))] == [whole.frame(n) for n in kept]


def test_nothing_is_left_of_a_bar_of_one_line_and_nothing_comes_of_nothing() -> None:
    state = derive(calls("Acme"))
    assert Without(BAR, 1).draw(state, context(rules=[])) is None
    assert Without(BAR, 2).draw(derive([]), CONTEXT) is None


def test_a_line_that_is_not_there_cannot_be_left_out() -> None:
    with pytest.raises(ConfoundError, match="line 3 of bar agent_status cannot be left out, it has 2 here"):
        Without(BAR, 3).draw(derive(calls("Acme")), context(rules=[RULE]))
    with pytest.raises(ValueError, match="line=0"):
        Without(BAR, 0)
