"""Scenario `work`: a job that is polled until it ends, one that stands still, and which loop guard speaks at which."""

from functools import cache

import pytest
from core_samples import words

from harness.compose import build_arms, compose
from harness.conditions import Condition, apply
from harness.dataset import expand, load_scenario
from harness.prompt import render_arms
from harness.statusbar import Placebo
from harness.types import Sample

CLUSTERS = 8


@cache
def samples(scenario: str = "work") -> tuple[Sample, ...]:
    return tuple(expand(load_scenario(scenario), series="matched", clusters=CLUSTERS, seed=7))


@cache
def arms() -> dict[str, Condition]:
    return {arm.name: arm for arm in build_arms(compose(["experiment=work_guards"]).condition)}


def polls(sample: Sample) -> dict[str, list[tuple[int, str]]]:
    """job → (number of the message, text) of each answer, in order."""
    found: dict[str, list[tuple[int, str]]] = {}
    jobs = {c.id: c.arguments["job"] for m in sample.messages for c in m.tool_calls if c.name == "check_job"}
    for number, message in enumerate(sample.messages):
        if message.tool_call_id in jobs:
            found.setdefault(jobs[message.tool_call_id], []).append((number, message.content))
    return found


@pytest.mark.parametrize("scenario", ["work", "forged", "forged_none"])
def test_one_job_answers_otherwise_each_time_and_another_never(scenario: str) -> None:
    for sample in samples(scenario):
        live, stuck = polls(sample).values()
        assert (len(live), len({text for _, text in live})) == (3, 3)
        assert (len(stuck), len({text for _, text in stuck})) == (3, 1)
        between = sample.messages[live[0][0] : stuck[-1][0]]
        assert "user" not in {message.role for message in between}, "a guard begins anew with a user message"


def test_the_guard_by_arguments_stops_the_live_poll_and_the_one_by_results_spares_it() -> None:
    for sample in samples():
        live, stuck = (answers[-1][0] + 1 for answers in polls(sample).values())
        spoken = {
            name: [(copy.at, copy.bar.text) for copy in apply(sample, arms()[name], words).injections]
            for name in ("loop_guard_arguments", "loop_guard_results")
        }
        head = "Blocked: this call of 'check_job' has already been made 3 times this turn with the same arguments"
        advice = "Change the arguments or take another way."
        assert spoken == {
            "loop_guard_arguments": [(live, f"{head}.\n{advice}"), (stuck, f"{head}.\n{advice}")],
            "loop_guard_results": [(stuck, f"{head} and the same result.\n{advice}")],
        }


@pytest.mark.weights
def test_every_guard_stands_in_its_prompt_beside_a_placebo_of_its_length(qwen) -> None:
    for sample in samples()[:4]:
        made = render_arms(qwen, sample, tuple(arms().values()))
        for name, arm in arms().items():
            if not name.startswith("loop_guard"):
                continue
            placebo = next(each for each in arms().values() if each.stands_in_for(arm))
            assert isinstance(placebo.bar, Placebo)
            shown, neutral = made[name], made[placebo.name]
            assert shown.bar_text and neutral.bar_text != shown.bar_text
            assert neutral.prompt.bar_tokens == shown.prompt.bar_tokens > 0


def test_the_job_that_stands_still_is_the_last_that_was_asked() -> None:
    """So that a guard whose newest copy alone stays speaks at the decision point as well."""
    for sample in samples():
        results = [number for number, message in enumerate(sample.messages) if message.role == "tool"]
        assert list(polls(sample).values())[-1][-1][0] == results[-1]
