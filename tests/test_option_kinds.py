"""Claims about options of the wrong kind: each is refused in one line of our own, before anything is made of it."""

import dataclasses
from typing import Any, get_type_hints

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf

from harness.commands.parts import PLUGS, names, node, part
from harness.errors import ConfigError
from harness.objects import built

FILES = [(group, name) for group in PLUGS for name in names(group) if name != "recorded"]
PYTHONS = (
    "Traceback",
    "NoneType",
    "has no attribute",
    "unexpected keyword",
    "not supported between",
    "<class",
)


def refused(group: str, plain: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        built(plain, f"condition.odd.{group}", PLUGS[group])
    said = str(error.value)
    assert "\n" not in said and not any(word in said for word in PYTHONS), said
    assert said.startswith(f"condition.odd.{group}")
    return said


@pytest.mark.parametrize(("group", "name"), FILES)
def test_what_is_shipped_is_taken(group: str, name: str) -> None:
    assert part(group, name) is not None


@pytest.mark.parametrize(("group", "name"), FILES)
def test_an_object_where_an_option_is_something_else_is_refused_by_its_key(group: str, name: str) -> None:
    plain = node(group, name)
    made = get_object(plain["_target_"])
    hints = get_type_hints(made)
    for each in dataclasses.fields(made):
        if not each.init or each.name.startswith("_"):
            continue
        said = refused(group, plain | {each.name: {"an": "object"}})
        if each.name != "limits":  # of tool_budget: a mapping itself, whose values the bar checks
            assert said.startswith(f"condition.odd.{group}.{each.name}: expected "), said
        if hints[each.name] in (int, float):
            assert "not True" in refused(group, plain | {each.name: True}), "true is no number"
        if hints[each.name] is str:
            assert "expected a text, not 3" in refused(group, plain | {each.name: 3})
        if hints[each.name] is bool:
            assert "expected true or false, not 1" in refused(group, plain | {each.name: 1})


@pytest.mark.parametrize("group", PLUGS)
def test_one_kind_of_part_does_not_stand_for_another(group: str) -> None:
    examples = {"bar": "agent_status", "placement": "tail", "policy": "append"}
    for other, name in examples.items():
        plain = node(other, name)
        if other == group:
            assert built(plain, "here", PLUGS[group])
        else:
            made = plain["_target_"].rpartition(".")[2]
            said = refused(group, plain)
            assert said.startswith(
                f"condition.odd.{group}: {made} is no {group}; expected a {group} such as {{_target_: "
            )


def test_a_place_inside_a_place_must_be_one() -> None:
    both = node("placement", "both")
    inner = {"_target_": "harness.statusbar.AgentStatus"}
    assert refused("placement", both | {"second": inner}).startswith(
        "condition.odd.placement.second: AgentStatus is no placement; expected a placement such as "
    )


def test_a_style_must_be_the_bars_own() -> None:
    other = {"_target_": "harness.statusbar.Tail"}
    bar = {"_target_": "harness.statusbar.work_state.WorkState"}
    assert refused("bar", bar | {"style": other}) == (
        "condition.odd.bar.style: Tail is no WorkStyle; "
        "expected a WorkStyle such as {_target_: harness.statusbar.work.WorkStyle}"
    )
    assert "expected a WorkStyle such as" in refused("bar", bar | {"style": 3})


def test_a_word_that_is_almost_one_of_the_choices_is_recognised() -> None:
    bar = {"_target_": "harness.statusbar.AgentStatus", "rendering": "jsn"}
    assert refused("bar", bar) == (
        "condition.odd.bar.rendering: expected one of key_value, prose, json, checkbox, not 'jsn'; did you mean json?"
    )


def test_what_may_be_nothing_may_be_nothing_and_what_may_not_may_not() -> None:
    style = {"_target_": "harness.statusbar.work.WorkStyle"}
    assert built(style | {"max_lines": None}, "here").max_lines is None
    with pytest.raises(ConfigError, match=r"here\.max_item: expected a whole number, not None"):
        built(style | {"max_item": None}, "here")
    with pytest.raises(ConfigError, match=r"here\.max_lines: expected a whole number or null, not 'few'"):
        built(style | {"max_lines": "few"}, "here")


@dataclasses.dataclass(frozen=True)
class Mine:
    """A class of a user's own."""

    names: tuple[str, ...] = ()
    odd: "NoSuchName | None" = None  # type: ignore[name-defined]  # noqa: F821


def test_a_class_whose_annotations_cannot_be_read_is_made_as_before() -> None:
    assert built({"_target_": f"{__name__}.Mine", "names": ["a"]}, "here").names == ["a"]


def test_a_list_must_be_one_also_when_it_comes_from_a_file() -> None:
    plain = OmegaConf.to_container(
        OmegaConf.create({"_target_": "harness.statusbar.recorded.Recorded", "file": [1]})
    )
    assert isinstance(plain, dict)
    assert refused("bar", {str(key): value for key, value in plain.items()}) == (
        "condition.odd.bar.file: expected a text, not [1]"
    )
