"""A bar that is drawn for the human must come before the model: every bar of conf/bar under every policy of conf/policy.

One trajectory in which each bar has something to say is unfolded request by request; what was drawn is looked for in
the prompt that the chat template prints.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.utils import instantiate

from harness.conditions import Condition, apply, unfold
from harness.delivery import Delivered, place_all
from harness.errors import ConfoundError
from harness.statusbar import (
    Front,
    LastResult,
    Placement,
    PrefixLast,
    StatusBar,
    SystemHead,
    Tail,
)
from harness.statusbar.base import moment_of
from harness.statusbar.placements import Both
from harness.template import ChatTemplate
from harness.types import CallLimit, Message, Sample, ToolCall, ToolSpec

CONF = Path(__file__).parents[1] / "conf"
BARS = sorted(path.stem for path in (CONF / "bar").glob("*.yaml"))
POLICIES = sorted(path.stem for path in (CONF / "policy").glob("*.yaml"))
AT_ONCE = ("replace", "append", "on_change")
"""Policies under which what is drawn at a request stands in it."""
NEVER_LET_IN = {"result": {"event", "boundary"}, "input": {"boundary"}, "request": set()}
"""Moments at which a policy has no occasion: no user message arrives with a result, no boundary lies within a turn."""
NEVER_TOGETHER = {("todo", "staleness"), ("todo_reminder", "staleness"), ("diagnostics", "event")}
"""The list's own result speaks when it was just written, a nudge when that is long ago; diagnostics speak after an edit,
and a user message comes after a reply."""
PLACES: dict[str, Placement] = {"request": Tail(), "result": LastResult(), "input": PrefixLast()}
ROUNDS = 7
RECORDED = Path(__file__).parent / "recorded_bar.jsonl"


def options(group: str, name: str) -> Any:
    """The object that a file of conf/ describes; compacted early, so that the trajectory can stay short."""
    described = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))
    here: dict[str, dict[str, Any]] = {"boundary": {"messages": 12}, "recorded": {"file": str(RECORDED)}}
    return instantiate(described | here.get(name, {}))


bar_of = cache(lambda name: options("bar", name))
policy_of = cache(lambda name: options("policy", name))


def _call(number: int, tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(tool, arguments, id=f"c{number}{tool}")


def _result(call: ToolCall, text: str, time: str, error: str | None = None, **known: Any) -> Message:
    return Message("tool", text, tool_call_id=call.id, name=call.name, time=time, error=error, known=known)


@cache
def example() -> Sample:
    """Every round reads, edits and runs; the edit has diagnostics, the run fails in the same way and its output is
    cut. A list and a plan are written at the start, a sub-agent finishes in every round."""
    time = "2026-03-02T09:{:02d}:00"
    recalled = [{"source": "notes", "text": "the parser is old"}]
    done = [{"agent": "scout", "status": "completed", "summary": "looked around"}]
    todos = [
        {"content": "read the parser", "status": "completed"},
        {"content": "mend it", "status": "in_progress"},
        {"content": "test it", "status": "pending"},
    ]
    plan = _call(0, "update_plan", objective="mend the parser", approach="small steps", plan=todos)
    write = _call(0, "todo_write", todos=todos)
    messages = [
        Message("system", "You are a coding agent."),
        Message("user", "Mend src/parser.py.", time=time.format(0), known={"recalled": recalled, "workspace": "/w"}),
        Message("assistant", "First a plan.", tool_calls=(plan,)),
        _result(plan, "Plan updated.", time.format(1)),
        Message("assistant", "Then a list.", tool_calls=(write,)),
        _result(write, "Todos written.", time.format(2)),
    ]  # fmt: skip
    for number in range(ROUNDS):
        at = time.format(10 + number)
        if number == ROUNDS - 2:
            messages += [
                Message("assistant", "It is not done yet."),
                Message("user", "Go on with src/parser.py.", time=at, known={"recalled": recalled, "completions": done}),
            ]  # fmt: skip
        read = _call(number, "read_file", path="src/parser.py")
        edit = _call(number, "edit_file", path="src/parser.py", old="a", new="b")
        run = _call(number, "run_tests", target="parser")
        complaint = {
            "file": "src/parser.py",
            "severity": "error",
            "line": 3,
            "column": 5,
            "message": "no such name",
        }
        messages += [
            Message("assistant", f"Round {number}.", tool_calls=(read, edit, run)),
            _result(read, "def parse():\n    return a", at),
            _result(edit, "1 place changed.", at, diagnostics=[complaint], completions=done),
            _result(
                run, "Error: 1 failed", at, error="TestFailure", original_chars=900, omitted_chars=885,
                stack="parser.py:3 in parse", advice="read the traceback",
            ),
        ]  # fmt: skip
    parameters = {"type": "object", "properties": {}}
    names = ("update_plan", "todo_write", "read_file", "edit_file", "run_tests")
    return Sample(
        id="delivery/c000", scenario="delivery", cluster="delivery/c000", series="trace", messages=tuple(messages),
        tools=tuple(ToolSpec(name, f"Tool {name}.", parameters) for name in names),
        rules=(CallLimit("run_tests", "target", 3),), expectation=None, prior_calls=0, limit=3, phrasing="", seed=0,
        truth={}, decoys=("lexer", "writer"),
    )  # fmt: skip


def condition(bar: StatusBar, policy: str) -> Condition:
    return Condition(policy, bar, PLACES[moment_of(bar)], policy_of(policy))


def hidden(delivered: Sequence[Delivered], template: ChatTemplate) -> list[int]:
    """Requests, from 1, at which the bar was drawn and the model's prompt does not hold what it said."""
    return [
        number
        for number, each in enumerate(delivered, start=1)
        if each.drawn is not None and each.drawn.text not in template.text(each.messages, example().tools)
    ]


def drawn(delivered: Sequence[Delivered]) -> list[int]:
    return [number for number, each in enumerate(delivered, start=1) if each.drawn is not None]


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "never"])
@pytest.mark.parametrize("bar", BARS)
def test_what_is_drawn_for_the_human_comes_before_the_model(
    qwen: ChatTemplate, bar: str, policy: str
) -> None:
    found = list(unfold(example(), condition(bar_of(bar), policy), qwen.count))
    said, missing = drawn(found), hidden(found, qwen)
    assert said, "the example has nothing for this bar to say"
    if policy in AT_ONCE:
        assert not missing
    elif not any(each.injections for each in found):
        # The policy waits for a moment that did not come. No run can go on like that unnoticed.
        with pytest.raises(ConfoundError, match="no bar is drawn"):
            apply(example(), condition(bar_of(bar), policy), qwen.count)
        assert policy in NEVER_LET_IN[moment_of(bar_of(bar))] or (bar, policy) in NEVER_TOGETHER
    for each in found:
        text = qwen.text(each.messages, example().tools)
        assert all(injection.bar.text in text for injection in each.injections), "a copy was lost on its way"


@pytest.mark.parametrize("bar", BARS)
def test_a_bar_that_is_drawn_and_never_delivered_is_caught(qwen: ChatTemplate, bar: str) -> None:
    found = list(unfold(example(), condition(bar_of(bar), "never"), qwen.count))
    assert hidden(found, qwen) == drawn(found) != []
    with pytest.raises(ConfoundError, match="no bar is drawn"):
        apply(example(), condition(bar_of(bar), "never"), qwen.count)


def test_a_copy_that_a_placement_swallows_is_caught(qwen: ChatTemplate) -> None:
    class Swallows:
        name = "swallows"

        def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
            return messages

    found = list(
        unfold(
            example(), Condition("lost", bar_of("agent_status"), Swallows(), policy_of("append")), qwen.count
        )
    )
    assert hidden(found, qwen) == drawn(found) != []


def test_every_policy_of_the_configuration_is_looked_at() -> None:
    assert set(AT_ONCE) < set(POLICIES) and "never" in POLICIES and len(BARS) >= 20


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("place", [Tail(), LastResult(), SystemHead(), Front("Noted."), Both()])
def test_what_the_model_gets_is_every_copy_put_in_anew(policy: str, place: Placement) -> None:
    """A run keeps what stood at the request before; that must not show."""
    for each in unfold(example(), Condition("x", bar_of("agent_status"), place, policy_of(policy)), len):
        assert each.messages == place_all(each.base, each.injections, place)


def test_a_copy_that_stays_is_placed_once() -> None:
    class Counts(Tail):
        placed = 0

        def place(self, messages: tuple[Message, ...], bar: str) -> tuple[Message, ...]:
            Counts.placed += 1
            return (*messages, Message("user", bar))

    found = list(
        unfold(example(), Condition("x", bar_of("agent_status"), Counts(), policy_of("append")), len)
    )
    assert Counts.placed == len(found[-1].injections) > 5
