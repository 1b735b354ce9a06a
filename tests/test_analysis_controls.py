"""Each arm is held against the control of its own transcript, and a placebo stands in under the same policy alone."""

from pathlib import Path
from typing import Any

import pytest
from analysis_data import rows, write_run
from core_samples import words
from test_config import REMOVE, plain
from test_delivery import example

from harness.analysis.comparisons import comparisons
from harness.analysis.costs import tokens
from harness.analysis.frames import arms_of, control_for, control_of, load, placebo_for
from harness.analysis.pairs import pairs
from harness.analysis.places import places
from harness.analysis.publication.methods import _arm
from harness.compose import build_arms
from harness.conditions import Condition, apply
from harness.config_checks import resolve
from harness.errors import ConfigError
from harness.statusbar import AgentStatus, LastBlock, Placebo, Tail
from harness.statusbar.advised import Advised
from harness.statusbar.policies import Append, Boundary, EveryN
from harness.statusbar.without import Without
from harness.statusbar.work_state import WorkState

BAR, CUT = AgentStatus(), Boundary(messages=12)
CONDITIONS = (
    Condition("control"),
    Condition("compacted", policy=CUT),
    Condition("placebo", Placebo(BAR), Tail()),
    Condition("agent_status", BAR, Tail()),
    Condition("placebo_cut", Placebo(BAR), Tail(), CUT),
    Condition("agent_status_cut", BAR, Tail(), CUT),
    Condition("placebo_append", Placebo(BAR), Tail(), Append()),
    Condition("agent_status_append", BAR, Tail(), Append()),
)
ENTRIES = [condition.entry(CONDITIONS) for condition in CONDITIONS]


def arms() -> dict[str, Any]:
    import pandas as pd

    found = arms_of({"conditions": ENTRIES}, pd.DataFrame(columns=["condition", "bar", "placement"]))
    return {arm.name: arm for arm in found}


def test_the_manifest_names_the_control_of_a_compacted_transcript_and_what_is_not_the_default() -> None:
    by_name = {entry["name"]: entry for entry in ENTRIES}
    assert by_name["agent_status"] == {"name": "agent_status", "bar": "agent_status", "placement": "tail"}
    assert by_name["agent_status_cut"]["control"] == "compacted"
    assert by_name["agent_status_cut"]["policy_options"] == {"messages": 12}
    assert by_name["compacted"]["control"] == "compacted"
    every = (Condition("x", AgentStatus(rendering="json"), Tail(), EveryN(3)),)
    assert every[0].entry(every) == {
        "name": "x", "bar": "agent_status", "placement": "tail", "policy": "every_n", "policy_options": {"n": 3},
        "bar_options": {"rendering": "json"},
    }  # fmt: skip


def test_every_arm_has_the_control_that_its_prompt_was_proved_against() -> None:
    """`apply` says what an arm's transcript is without its bar."""
    found, given = arms(), {condition.name: condition for condition in CONDITIONS}
    every = tuple(found.values())
    for name, arm in found.items():
        control = control_for(arm, every)
        assert control is not None
        if arm.role != "control":
            bare = apply(example(), given[control.name], words).messages
            assert apply(example(), given[name], words).base == bare, name
    assert control_for(found["compacted"], every) is found["control"] is control_of(every)
    assert apply(example(), given["compacted"], words).messages != example().messages


def test_a_placebo_stands_in_under_the_same_policy_alone() -> None:
    found = arms()
    for name in ("agent_status", "agent_status_cut", "agent_status_append"):
        own = placebo_for(found[name], tuple(found.values()))
        assert own is not None and own.name == name.replace("agent_status", "placebo")
    without = tuple(arm for arm in found.values() if arm.name != "placebo_append")
    assert placebo_for(found["agent_status_append"], without) is None


def test_comparisons_hold_a_compacted_arm_against_the_compacted_control() -> None:
    kinds = {(pair.kind, pair.arm.name): pair.against.name for pair in pairs(tuple(arms().values()))}
    assert (
        kinds["bar - control", "agent_status_cut"] == kinds["placebo - control", "placebo_cut"] == "compacted"
    )
    assert (
        kinds["bar - control", "agent_status"] == kinds["bar - control", "agent_status_append"] == "control"
    )
    assert kinds["control - control", "compacted"] == "control"
    assert kinds["bar - bar", "agent_status_append"] == "agent_status"
    assert ("bar - bar", "agent_status_cut") not in kinds, "two transcripts and two bars are two differences"


def test_a_variant_is_set_beside_the_bar_that_it_is_made_of_and_unrelated_bars_beside_nothing() -> None:
    work = WorkState()
    made = (
        Condition("control"),
        Condition("agent_status", BAR, Tail()),
        Condition("json", AgentStatus(rendering="json"), Tail()),
        Condition("work_state", work, Tail()),
        Condition("without_1", Without(work, 1), Tail()),
        Condition("without_2", Without(work, 2), Tail()),
        Condition("advised", Advised(BAR, "Go."), Tail(), Append()),
    )
    import pandas as pd

    entries = [condition.entry(made) for condition in made]
    found = pairs(arms_of({"conditions": entries}, pd.DataFrame(columns=["condition", "bar", "placement"])))
    assert {pair.arm.name: pair.against.name for pair in found if pair.kind == "bar - bar"} == {
        "json": "agent_status", "without_1": "work_state", "without_2": "work_state",
    }  # fmt: skip


def test_the_tables_of_a_run_with_a_compacted_control(tmp_path: Path) -> None:
    listed = tuple((entry["name"], entry["bar"], entry["placement"]) for entry in ENTRIES)
    made = rows(9, seed=3)
    cells = []
    for name, bar, _ in listed:
        base = {"none": "control", "placebo": "placebo", "agent_status": "agent_status"}[bar]
        cells += [
            cell | {"condition": name, "cell_id": f"{name}|{number}"}
            for number, cell in enumerate(made) if cell["condition"] == base
        ]  # fmt: skip
    for cell in cells:  # held against the plain control, the compacted arms would differ by as much
        if cell["condition"] == "control" and cell["probe"] == "choose":
            cell["score.logit_act"] += 3.0 if cell["side"] == "due" else -3.0
    run = load(write_run(tmp_path / "run", cells, listed, manifest={"conditions": ENTRIES}))
    found = {
        (row["condition"], row["against"]): row
        for row in comparisons(run).rows()
        if row["measure"] == "sensitivity"
    }
    assert (
        abs(found["agent_status_cut", "compacted"]["estimate"])
        < 3
        < abs(found["compacted", "control"]["estimate"])
    )
    assert ("agent_status_cut", "control") not in found
    table = places(run)
    assert table is not None
    assert {(row["policy"], row["against_policy"]) for row in table.rows()} == {
        ("boundary (messages=12)", "replace"), ("append", "replace"),
    }  # fmt: skip
    assert tokens(run).rows(), "ratios to the control"
    told = _arm(next(arm for arm in run.arms if arm.name == "agent_status_cut"), run.arms, "")
    assert "under the policy" in told and "boundary (messages=12)" in told.replace("`", "").replace("\\", "")


def test_a_bar_in_a_compacted_transcript_without_its_control_is_refused_in_one_line() -> None:
    arm = {
        "bar": {"_target_": "harness.statusbar.AgentStatus"},
        "placement": {"_target_": "harness.statusbar.Tail"},
        "policy": {"_target_": "harness.statusbar.policies.Boundary", "messages": 12},
    }
    with pytest.raises(
        ConfigError, match=r"^condition\.cut\.policy: boundary .* bar: null, placement: null"
    ) as told:
        build_arms(resolve(plain(condition__cut=arm)).condition)
    assert "\n" not in str(told.value)
    bare = arm | {"bar": None, "placement": None}
    assert build_arms(resolve(plain(condition__cut=arm, condition__bare=bare)).condition)
    with pytest.raises(ConfigError, match="its transcript is whole"):
        build_arms(resolve(plain(condition__bare=bare, condition__control=REMOVE)).condition)
    other = bare | {"policy": arm["policy"] | {"messages": 14}}
    with pytest.raises(ConfigError):
        build_arms(resolve(plain(condition__cut=arm, condition__bare=other)).condition)


def test_the_same_bar_in_another_form_is_not_the_same_bar_elsewhere() -> None:
    made = (
        Condition("a", BAR, Tail()),
        Condition("pa", Placebo(BAR), Tail()),
        Condition("b", AgentStatus(rendering="json"), LastBlock()),
        Condition("pb", Placebo(AgentStatus(rendering="json")), LastBlock()),
    )
    import pandas as pd

    from harness.analysis.places import effects

    entries = [condition.entry(made) for condition in made]
    assert (
        list(
            effects(arms_of({"conditions": entries}, pd.DataFrame(columns=["condition", "bar", "placement"])))
        )
        == []
    )
