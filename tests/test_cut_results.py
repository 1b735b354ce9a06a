"""`scenario.cut_results`: what is cut is cut in every arm; that it is said how much is the bar's part alone."""

from typing import Any

import pytest
from core_samples import words
from test_config import plain

from harness.compose import compose
from harness.conditions import Condition, apply
from harness.config_checks import resolve
from harness.dataset import load_scenario
from harness.errors import ConfigError
from harness.plan import build_plan
from harness.prompt import render_arms
from harness.statusbar import LastResult, Placebo
from harness.statusbar.policies import Append
from harness.statusbar.truncation import Truncation
from harness.template import ChatTemplate
from harness.types import Sample


def samples(**changes: Any) -> list[Sample]:
    config = resolve(plain(**changes))
    plan = build_plan(config, load_scenario("xfinity"), words)
    return [cell.sample for batch in plan for cell in batch.cells if cell.sample.series == "matched"]


def test_every_result_is_cut_and_nothing_else_is() -> None:
    whole, cut = samples(), samples(scenario__cut_results=60)
    assert len(whole) == len(cut)
    for one, other in zip(whole, cut, strict=True):
        assert (one.id, one.truth, one.expectation) == (other.id, other.truth, other.expectation)
        for a, b in zip(one.messages, other.messages, strict=True):
            if a.role == "tool" and len(a.content) > 60:
                assert len(b.content) == 60 and b.known["original_chars"] == len(a.content)
            else:
                assert a == b
    assert any(len(m.content) > 60 for m in whole[0].messages if m.role == "tool")


def test_the_arms_share_the_cut_text_and_the_bar_states_the_true_counts(qwen: ChatTemplate) -> None:
    whole, cut = samples()[0], samples(scenario__cut_results=60)[0]
    bar = Truncation()
    arms = [
        Condition("control"),
        Condition("bar", bar, LastResult(), Append()),
        Condition("placebo", Placebo(bar), LastResult(), Append()),
    ]
    made = render_arms(qwen, cut, arms)  # the proof that they differ by the bar alone
    assert made["control"].messages == cut.messages != whole.messages
    said = [copy.bar.text for copy in apply(cut, arms[1], qwen.count).injections]
    long = [len(m.content) for m in whole.messages if m.role == "tool" and len(m.content) > 60]
    assert said == [
        f"(Original: {size} chars, omitted: {size - 60 + len(chr(10)) * 2 + 3} chars.)" for size in long
    ]


def test_uncut_runs_keep_their_name_and_cut_ones_have_their_own() -> None:
    base = compose([]).digested()
    assert "cut_results" not in base["scenario"]
    assert compose(["scenario.cut_results=60"]).digested() != base
    assert compose(["scenario.cut_results=null"]).digested() == base


def test_a_limit_that_cuts_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^scenario\.cut_results=5000: no tool result of series"):
        samples(scenario__cut_results=5000)


@pytest.mark.parametrize("limit", [0, 5, -1, True])
def test_a_limit_that_leaves_nothing_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match=r"^scenario\.cut_results: "):
        resolve(plain(scenario__cut_results=limit))
