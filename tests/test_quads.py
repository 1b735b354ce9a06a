"""Which arms of two models belong together: the same bar on the same kind of transcript, or none at all."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from harness.analysis.across.quads import LARGE, LARGE_BAR, SMALL, SMALL_BAR, SMALL_PLACEBO, Quad, quads
from harness.analysis.across.runs import Entry
from harness.analysis.frames import RunData, arms_of
from harness.conditions import Condition
from harness.delivery import InjectionRules
from harness.statusbar import AgentStatus, Placebo, Placement, StatusBar, Tail
from harness.statusbar.placements import Front, SystemTail
from harness.statusbar.policies import Append, Boundary, EveryN, UpdatePolicy
from harness.statusbar.work_state import WorkState

NOTHING = pd.DataFrame(columns=["condition", "bar", "placement"])
PLAIN = Condition("control")
BAR = AgentStatus()


def entry(name: str, conditions: Sequence[Condition]) -> Entry:
    """A model whose manifest lists these conditions as a run writes them."""
    manifest = {"conditions": [each.entry(conditions) for each in conditions]}
    return Entry(name, RunData(Path(name), manifest, arms_of(manifest, NOTHING), NOTHING, NOTHING))


def found(small: Sequence[Condition], large: Sequence[Condition]) -> list[Quad]:
    return quads([(entry("small", small), entry("large", large))])


def compacted(messages: int, name: str = "bare", bar: StatusBar = BAR) -> list[Condition]:
    policy = Boundary(messages)
    return [
        Condition(name, policy=policy),
        Condition("agent_status", bar, Tail(), policy),
        Condition("placebo", Placebo(bar), Tail(), policy),
    ]


def test_two_models_with_the_same_arms_have_every_corner() -> None:
    arms = [PLAIN, Condition("agent_status", BAR, Tail()), Condition("placebo", Placebo(BAR), Tail())]
    (quad,) = found(arms, arms)
    assert quad.arms == {
        SMALL_BAR: "agent_status", SMALL: "control", LARGE: "control", SMALL_PLACEBO: "placebo", LARGE_BAR: "agent_status",
    }  # fmt: skip


def test_a_large_model_without_the_bar_gives_its_control_alone() -> None:
    (quad,) = found([PLAIN, Condition("agent_status", BAR, Tail())], [Condition("bare")])
    assert quad.arms == {SMALL_BAR: "agent_status", SMALL: "control", LARGE: "bare"}


# -- compacted transcripts -------------------------------------------------------------------------------


def test_a_compacted_bar_is_held_against_the_large_models_control_of_the_same_transcript() -> None:
    for name in ("bare", "another_name"):
        (quad,) = found([PLAIN, *compacted(9)], [PLAIN, *compacted(9, name)])
        assert quad.arms == {
            SMALL_BAR: "agent_status", SMALL: "bare", SMALL_PLACEBO: "placebo", LARGE: name, LARGE_BAR: "agent_status",
        }  # fmt: skip


@pytest.mark.parametrize(
    "large",
    [
        [PLAIN],
        [PLAIN, Condition("agent_status", BAR, Tail())],
        [PLAIN, *compacted(12)],
        [Condition("bare"), Condition("agent_status", BAR, Tail())],
    ],
    ids=[
        "no compacted arm",
        "the bar on a whole transcript",
        "compacted later",
        "a whole control of that name",
    ],
)
def test_a_large_model_without_that_compacted_control_is_no_pair(large: list[Condition]) -> None:
    assert found([PLAIN, *compacted(9)], large) == []


def test_a_bar_on_a_whole_transcript_never_meets_a_compacted_control() -> None:
    small = [PLAIN, Condition("agent_status", BAR, Tail())]
    assert found(small, compacted(9, "control")) == []
    (quad,) = found(small, [*compacted(9), Condition("whole")])
    assert quad.arms == {SMALL_BAR: "agent_status", SMALL: "control", LARGE: "whole"}


# -- the same bar ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bar", "place", "policy", "rules"),
    [
        (BAR, Front(), Append(), InjectionRules()),
        (BAR, Front(), EveryN(4), InjectionRules()),
        (BAR, Front(), EveryN(3), InjectionRules(dedupe=True)),
        (BAR, SystemTail(), EveryN(3), InjectionRules()),
        (BAR, Front(acknowledge="Noted."), EveryN(3), InjectionRules()),
        (AgentStatus(rendering="json"), Front(), EveryN(3), InjectionRules()),
        (WorkState(), Front(), EveryN(3), InjectionRules()),
    ],
    ids=["policy", "policy's options", "rules", "placement", "placement's options", "form", "bar"],
)
def test_a_bar_that_differs_in_any_respect_is_no_corner_of_the_large_model(
    bar: StatusBar, place: Placement, policy: UpdatePolicy, rules: InjectionRules
) -> None:
    small = [PLAIN, Condition("shown", BAR, Front(), EveryN(3))]
    (quad,) = found(small, [PLAIN, Condition("shown", bar, place, policy, rules)])
    assert quad.arms == {SMALL_BAR: "shown", SMALL: "control", LARGE: "control"}
    (same,) = found(small, [PLAIN, Condition("shown", BAR, Front(), EveryN(3))])
    assert same.arms[LARGE_BAR] == "shown"


def test_a_bar_of_another_kind_of_transcript_is_no_corner_of_the_large_model() -> None:
    small = [PLAIN, Condition("agent_status", BAR, Tail())]
    (quad,) = found(small, [PLAIN, *compacted(9)])
    assert LARGE_BAR not in quad.arms and quad.arms[LARGE] == "control"
