"""The files of conf/condition, and what a condition that cannot be built says."""

from typing import Any

import pytest
from test_config import named, plain

from harness.compose import build_conditions, compose
from harness.conditions import Condition
from harness.config_checks import resolve
from harness.errors import ConfigError
from harness.objects import built
from harness.statusbar.placebo import Placebo


def arms_of(name: str) -> dict[str, Condition]:
    chosen = [name] if name == "control" else ["control", name]
    config = compose([f"condition=[{','.join(chosen)}]", "probe=[choose]"])
    return {condition.name: condition for condition in build_conditions(config.condition)}


SINGLE = [name for name in named("condition") if name in arms_of(name)]
GRIDS = [name for name in named("condition") if name not in SINGLE]


@pytest.mark.parametrize("name", SINGLE)
def test_a_file_of_one_condition_is_named_after_its_bar_and_place(name: str) -> None:
    condition = arms_of(name)[name]
    assert (condition.placement_name == "before") == name.endswith("_before")
    base = name.removesuffix("_before").removesuffix("_advice")
    assert condition.bar_name == (base if name != "control" else "none")


@pytest.mark.parametrize("name", GRIDS)
def test_in_a_file_of_many_every_bar_has_exactly_one_placebo_of_its_own(name: str) -> None:
    arms = arms_of(name)
    bars = [arm for arm in arms.values() if arm.bar is not None and not isinstance(arm.bar, Placebo)]
    assert bars
    stand_ins = {bar.name: [arm.name for arm in arms.values() if arm.stands_in_for(bar)] for bar in bars}
    assert {name: len(found) for name, found in stand_ins.items() if len(found) != 1} == {}


# -- what cannot be built ----------------------------------------------------------------------------------


def refused(bar: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> str:
    bar = bar or {"_target_": "harness.statusbar.AgentStatus"}
    placement = {"_target_": "harness.statusbar.Tail"}
    arm = {"bar": bar, "placement": placement, "policy": policy}
    with pytest.raises(ConfigError) as error:
        build_conditions(resolve(plain(condition__odd=arm)).condition)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_class_that_is_not_there_is_one_line_that_names_the_arm() -> None:
    assert refused(bar={"_target_": "harness.nowhere.Bar"}).startswith("condition.odd.bar: ")


def test_an_unknown_option_is_named_with_the_options_that_there_are() -> None:
    said = refused(policy={"_target_": "harness.statusbar.policies.EveryN", "m": 3})
    assert said == "condition.odd.policy.m: EveryN has no such option; there are n"
    said = refused(policy={"_target_": "harness.statusbar.policies.Never", "n": 3})
    assert said == "condition.odd.policy.n: Never has no such option; it has none"


def test_an_unknown_option_of_the_bar_inside_a_placebo_is_named() -> None:
    inner = {"_target_": "harness.statusbar.AgentStatus", "colour": "red"}
    said = refused(bar={"_target_": "harness.statusbar.Placebo", "of": inner})
    assert said.startswith("condition.odd.bar.of.colour: AgentStatus has no such option; there are ")
    assert "rendering" in said and "_" not in said.split("there are ")[1].split(", ")[0][0]


@pytest.mark.parametrize("inner", ["agent_status", None, {"rendering": "json"}, 3])
def test_what_a_bar_is_wrapped_around_must_be_a_bar(inner: object) -> None:
    for wrapper in ("Placebo", "advised.Advised", "without.Without", "corrupted.Corrupted"):
        said = refused(bar={"_target_": f"harness.statusbar.{wrapper}", "of": inner})
        assert said.startswith("condition.odd.bar.of: expected a bar such as ")


def test_a_wrong_value_is_one_line_in_the_options_own_words() -> None:
    said = refused(policy={"_target_": "harness.statusbar.policies.EveryN", "n": 0})
    assert said == "condition.odd.policy: n=0: expected 1 or more"


def test_what_is_no_dataclass_may_take_what_it_likes() -> None:
    assert built({"_target_": "builtins.dict", "anything": 1}, "here") == {"anything": 1}
