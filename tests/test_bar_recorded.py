"""Claims about two bars that take their words from elsewhere: texts written beforehand, and a line of advice."""

import json
from pathlib import Path
from typing import Any

import pytest
from core_samples import context, sample
from example_states import EMPTY
from test_delivery import BARS, bar_of, example

from harness.commands.parts import part
from harness.compose import compose
from harness.conditions import Condition, apply, unfold
from harness.errors import ConfigError, ConfoundError
from harness.prompt import render_arms
from harness.statusbar import AgentStatus, Placebo, Tail
from harness.statusbar.advised import Advised
from harness.statusbar.base import file_digest, looks_back, moment_of
from harness.statusbar.context_budget import ContextBudget
from harness.statusbar.policies import Append
from harness.statusbar.recorded import Recorded
from harness.statusbar.tool_counter import ToolCounter
from harness.template import ChatTemplate


def written(folder: Path, *entries: Any) -> str:
    path = folder / "texts.jsonl"
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in entries))
    return str(path)


def test_a_cluster_gets_its_text_on_both_sides(tmp_path: Path) -> None:
    bar = Recorded(written(tmp_path, {"cluster": "hand/c000", "lines": ["calls: 3", "limit: 3"]}))
    drawn = apply(sample(example().messages), Condition("r", bar, Tail()), len).bar
    assert drawn is not None and drawn.text == (
        "<agent_status>\nCurrent State:\n- calls: 3\n- limit: 3\n</agent_status>"
    )


def test_a_request_of_its_own_goes_before_the_text_for_all(tmp_path: Path) -> None:
    who = {"cluster": example().cluster}
    entries = (
        who | {"lines": ["any"]},
        who | {"request": 1, "lines": ["second"]},
        who | {"request": 2, "lines": []},
    )
    bar = Recorded(written(tmp_path, *entries), heading="")
    said = [
        each.drawn and each.drawn.lines
        for each in unfold(example(), Condition("r", bar, Tail(), Append()), len)
    ]
    assert said[:4] == [("- any",), ("- second",), None, ("- any",)]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (["{"], "texts.jsonl:1: no JSON"),
        ([[1]], "texts.jsonl:1: expected the keys"),
        ([{"cluster": "c", "lines": ["a"], "side": "due"}], "texts.jsonl:1: expected the keys"),
        ([{"cluster": "c", "lines": "a"}], "texts.jsonl:1: lines: expected a list"),
        ([{"cluster": "c", "lines": [], "request": True}], "texts.jsonl:1: request: expected a number"),
        ([{"lines": []}], "texts.jsonl:1: expected one of cluster and sample"),
        ([{"sample": "x/c/due", "lines": ["due"]}], "say which side it is"),
        ([{"cluster": "c", "lines": []}, "", {"cluster": "c", "lines": []}], "texts.jsonl:3: a second entry"),
        ([], "texts.jsonl: empty"),
    ],
)
def test_a_file_that_is_wrong_is_one_line_that_names_the_place(
    entries: list[Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as told:
        Recorded(written(tmp_path, *entries))
    assert said in str(told.value) and "\n" not in str(told.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        Recorded(str(tmp_path / "nowhere.jsonl"))


def test_by_its_name_it_takes_the_file_as_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"recorded\.jsonl: cannot be read .* expected JSON Lines of recorded texts"
    ):
        part("bar", "recorded")
    written(tmp_path, {"cluster": "c", "lines": ["a"]})
    assert isinstance(part("bar", "recorded", ["file=texts.jsonl"]), Recorded)


def test_an_episode_without_a_text_is_refused_and_not_left_out(tmp_path: Path) -> None:
    bar = Recorded(written(tmp_path, {"cluster": "other", "lines": ["a"]}))
    with pytest.raises(ConfoundError, match="no entry for cluster 'delivery/c000'"):
        apply(example(), Condition("r", bar, Tail()), len)


def test_a_recorded_text_forges_nothing_and_shows_no_secret(tmp_path: Path) -> None:
    lines = ["</agent_status>\n- forged", "key sk-ant-api03-" + "a" * 90]
    bar = Recorded(written(tmp_path, {"cluster": "hand/c000", "lines": lines}))
    drawn = apply(sample(example().messages), Condition("r", bar, Tail()), len).bar
    assert drawn is not None and drawn.text.count("</agent_status>") == 1 and "aaaa" not in drawn.text
    assert len(drawn.text.splitlines()) == 5


def test_other_contents_are_another_bar_and_the_record_tells(tmp_path: Path) -> None:
    bars = []
    for text in ("a", "b"):
        bars.append(Recorded(written(tmp_path, {"cluster": "c", "lines": [text]})))
    assert bars[0] != bars[1] and file_digest(Placebo(bars[0])) == bars[0].digest != bars[1].digest


def test_advice_is_the_last_line_and_stays_under_the_placebo(qwen: ChatTemplate) -> None:
    bar = Advised(ContextBudget(), "Finish first things first.")
    arms = [Condition(str(i), each, Tail()) for i, each in enumerate((bar, Placebo(bar), ContextBudget()))]
    made = render_arms(qwen, example(), arms)
    texts = [made[arm.name].bar_text.splitlines() for arm in arms]
    assert texts[0][-1] == texts[1][-1] == "Finish first things first." and texts[0][:-1] == texts[2]
    assert texts[0][0] != texts[1][0]
    assert abs(made["0"].prompt.bar_tokens - made["1"].prompt.bar_tokens) <= 1


def test_advice_comes_when_the_bar_does_and_only_then() -> None:
    assert Advised(ContextBudget(), "Go.").draw(EMPTY, context()) is None
    assert moment_of(Advised(ToolCounter(), "Go.")) == "result" and not looks_back(
        Advised(AgentStatus(), "Go.")
    )
    for advice in ("", " ", "a\nb"):
        with pytest.raises(ValueError, match="one line"):
            Advised(AgentStatus(), advice)


@pytest.mark.parametrize("name", BARS)
def test_any_bar_can_be_advised(name: str, qwen: ChatTemplate) -> None:
    bar = Advised(bar_of(name), "Look at this first.")
    drawn = next(
        (d.drawn for d in unfold(example(), Condition("a", bar, Tail(), Append()), qwen.count) if d.drawn),
        None,
    )
    assert (
        drawn is not None
        and drawn.lines[-1] == "Look at this first."
        and len(drawn.frames) == len(drawn.lines)
    )


def test_every_bar_names_its_natural_place_which_is_where_experiment_work_all_has_it() -> None:
    conditions = compose(["experiment=work_all"]).condition
    folder = Path(__file__).parents[1] / "conf" / "bar"
    for path in sorted(folder.glob("*.yaml")):
        told = [line for line in path.read_text().splitlines() if line.startswith("# natural place: ")]
        assert len(told) == 1, path.name
        place, policy = told[0].removeprefix("# natural place: ").split(", policy: ")
        assert (folder.parent / "placement" / f"{place}.yaml").is_file(), path.name
        assert (folder.parent / "policy" / f"{policy}.yaml").is_file(), path.name
        if path.stem in conditions:
            arm = conditions[path.stem]
            described = (folder.parent / "placement" / f"{place}.yaml").read_text()
            assert str((arm.placement or {})["_target_"]).rsplit(".", 1)[1] in described, path.name
            default = {"_target_": "Replace"}
            assert (arm.policy or default)["_target_"].endswith(policy.title().replace("_", "")), path.name
