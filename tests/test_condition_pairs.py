"""Claims about pairs of conditions: each file of variants draws on a fitting transcript, and its arms differ as they say."""

import re
from functools import cache

import pytest
from core_samples import words

from harness.compose import build_conditions, compose
from harness.conditions import Condition, apply
from harness.dataset import expand, load_scenario
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
    ("many_calls", "corruption"),
    ("work", "dates"),
    ("work", "work_lines"),
    ("work", "work_spellings"),
    ("long_list", "work_percent"),
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


def test_corrupted_bars_have_the_true_ones_lines_and_counts_off_by_the_stated_percent() -> None:
    said = texts("many_calls", "agent_status", "corruption")
    bars = {name: text for name, text in said.items() if not name.startswith("placebo")}
    assert len({tuple(line.partition(":")[0] for line in text.splitlines()) for text in bars.values()}) == 1
    true = re.search(r"(\d+)/20\b", bars["agent_status"])
    assert true is not None and true[1] == "20"
    shown = {}
    for name, text in bars.items():
        found = re.search(r"(\d+)/20\b", text)
        assert found is not None
        shown[name.removeprefix("corrupted_")] = int(found[1])
    off = {-50: 10, -20: 16, -10: 18, -5: 19, 5: 21, 10: 22, 20: 24, 50: 30}
    wrong = {f"{'minus' if by < 0 else 'plus'}{abs(by)}": count for by, count in off.items()}
    assert shown == {"agent_status": 20} | wrong


def test_the_time_gets_coarser_from_arm_to_arm_and_is_gone_at_last() -> None:
    said = texts("work", "dates")
    found = [
        re.search(r"\d{4}-\d\d-\d\d[ \d:]*", said[f"system_state_{each}"])
        for each in ("second", "minute", "day", "none")
    ]
    assert [match and len(match[0].strip()) for match in found] == [19, 16, 10, None]


def test_a_percent_misleads_only_under_the_lists_own_rule() -> None:
    said = texts("long_list", "work_tail", "work_percent")
    shown = {}
    for name in ("work_state", "work_state_floor", "work_state_unsummed"):
        found = re.search(r"(\d+)%", said[name])
        shown[name] = found and int(found[1])
        assert said[name].count("- [ ] ") == 1, "the open step stands there, whatever the percent says"
    assert shown == {"work_state": 100, "work_state_floor": 99, "work_state_unsummed": None}
