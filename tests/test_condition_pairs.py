"""Claims about pairs of conditions: each file of variants draws on a fitting transcript, and its arms differ as they say."""

import re
from dataclasses import replace
from functools import cache

import pytest
from core_samples import context, words
from example_states import EMPTY

from harness.compose import build_conditions, compose
from harness.conditions import Condition, apply
from harness.dataset import expand, load_scenario
from harness.state import TodoItem, TodoList
from harness.statusbar import Placebo
from harness.types import Sample


@cache
def both_sides(scenario: str) -> tuple[Sample, ...]:
    return tuple(expand(load_scenario(scenario), series="matched", clusters=1, seed=7))


def arms(*files: str, scenario: str = "work") -> dict[str, Condition]:
    chosen = ",".join(("control", *files))
    config = compose([f"scenario={scenario}", f"condition=[{chosen}]", "probe=[choose]"])
    return {condition.name: condition for condition in build_conditions(config.condition)}


def texts(scenario: str, *files: str) -> dict[str, str]:
    """What each arm but the control says of both sides, which is the same text."""
    said = {}
    for name, condition in arms(*files, scenario=scenario).items():
        drawn = [apply(sample, condition, words).bar for sample in both_sides(scenario)]
        if name != "control":
            assert len({bar and bar.text for bar in drawn}) == 1, name
            assert drawn[0] is not None, name
            said[name] = drawn[0].text
    return said


FILES = [
    ("xfinity", "corruption"),
    ("work", "corruption"),
    ("work", "dates"),
    ("work", "work_lines"),
    ("work", "work_spellings"),
    ("work", "work_percent"),
]


@pytest.mark.parametrize(("scenario", "file"), FILES)
def test_every_arm_of_the_file_draws_and_its_placebo_says_something_else(scenario: str, file: str) -> None:
    said = texts(scenario, file)
    built = arms(file, scenario=scenario)
    for name, condition in built.items():
        if isinstance(condition.bar, Placebo):
            meant = [each for each, arm in built.items() if arm.bar == condition.bar.of]
            assert len(meant) == 1 and said[meant[0]] != said[name], name


def numbers(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", text)]


def test_a_corrupted_bar_has_the_true_ones_lines_and_other_counts() -> None:
    said = texts("xfinity", "agent_status", "corruption")
    forms = {
        tuple(line.partition(":")[0] for line in text.splitlines())
        for name, text in said.items()
        if not name.startswith("placebo")
    }
    low, true, high = (
        sum(numbers(said[name])) for name in ("corrupted_minus50", "agent_status", "corrupted_plus50")
    )
    assert low < true < high
    assert len(forms) == 1


def test_the_time_gets_coarser_from_arm_to_arm_and_is_gone_at_last() -> None:
    said = texts("work", "dates")
    found = [
        re.search(r"\d{4}-\d\d-\d\d[ \d:]*", said[f"system_state_{each}"])
        for each in ("second", "minute", "day", "none")
    ]
    assert [match and len(match[0].strip()) for match in found] == [19, 16, 10, None]


def test_a_percent_misleads_only_under_the_lists_own_rule() -> None:
    todos = TodoList(
        tuple(TodoItem(n, f"item {n}", "completed" if n < 200 else "pending") for n in range(1, 201))
    )
    state = replace(EMPTY, todos=todos)
    built = arms("work_tail", "work_spellings", "work_percent")
    shown = {}
    for name in ("work_state", "work_state_floor", "work_state_no_percent"):
        bar = built[name].bar
        drawn = bar.draw(state, context()) if bar is not None else None
        assert drawn is not None
        found = re.search(r"(\d+)%", drawn.text)
        shown[name] = found and int(found[1])
    assert shown == {"work_state": 100, "work_state_floor": 99, "work_state_no_percent": None}
