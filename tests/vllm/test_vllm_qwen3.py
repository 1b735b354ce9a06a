"""A structurally true Qwen3 through the vLLM engine: thinking spans, thoughts, template gates, roles."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ENGINE, settings
from core_samples import arms, xfinity
from qwen3 import END_OF_TURN, END_THINK, THINK

from harness.choices import ChoiceBuilder
from harness.compose import compose
from harness.conditions import Condition
from harness.dataset import expand
from harness.errors import ConfoundError
from harness.models.vllm_engine import VllmModel
from harness.prompt import render_arms
from harness.runlog import read_records
from harness.statusbar import AgentStatus, Tail
from harness.template import ChatTemplate
from harness.template_check import check_template
from harness.types import EvalRecord, Message, Sample, ToolCall

TAU = 24


@pytest.fixture(scope="module")
def model(
    qwen3_folder: Path, qwen3_template: ChatTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmModel]:
    folder = tmp_path_factory.mktemp("engine")
    engine = VllmModel.from_config(qwen3_folder, qwen3_template.tokenizer, settings(qwen3_folder), folder)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def rows(model: VllmModel, qwen3_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[EvalRecord]:
    """The thinking probes of the GPU profile, cut to a size for a CPU, by the run command itself."""
    from harness.commands import run as command

    config = compose(
        [
            "experiment=xfinity",
            *("model=qwen3-0.6b-vllm", f"model.path={qwen3_folder}", "model.dtype=float32"),
            *(f"model.engine.{key}={str(value).lower()}" for key, value in ENGINE.items()),
            "probe=[choose_thinking,act_thinking]",
            "~probe.choose.series.prior_calls",
            "probe.choose.series.matched={clusters: 2, conditions: [control, agent_status]}",
            f"probe.choose.max_new_tokens={TAU}",
            "probe.act.series.matched={clusters: 6, conditions: [control, placebo, agent_status]}",
            f"probe.act.max_new_tokens={TAU}",
            f"results={tmp_path_factory.mktemp('results')}",
        ]
    )
    patch = pytest.MonkeyPatch()
    patch.setattr(command, "load_model", lambda bench, log_dir: _Kept(model))
    try:
        folder = command.execute(config)
    finally:
        patch.undo()
    return list(read_records(folder))


class _Kept:
    """The module's engine, which outlives the run."""

    def __init__(self, model: VllmModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def close(self) -> None: ...


def test_thinking_is_counted_on_the_ids_strictly_between_the_marks(rows: list[EvalRecord]) -> None:
    act = [row for row in rows if row.probe == "act"]
    assert len(act) == 36
    thought = 0
    for row in act:
        ids, usage = row.output.token_ids, row.output.usage
        inside, count = False, 0
        opened = THINK in ids and (END_THINK not in ids or ids.index(THINK) < ids.index(END_THINK))
        inside = END_THINK in ids and not opened  # no opening mark: all up to the first end is thinking
        ended = row.output.finish_reason == "stop"
        for token in ids[:-1] if ended else ids:
            if token == THINK and not inside:
                inside = True
            elif token == END_THINK:
                inside = False
            else:
                count += inside
        assert usage.reasoning_tokens == count, ids
        assert usage.reasoning_counted_by == "token_ids"
        assert usage.reasoning_censored == (inside and row.output.finish_reason == "length")
        thought += count > 0
    assert thought >= 6, "too few replies think for this test to say anything"


def test_a_reply_cut_inside_its_thinking_is_truncated_and_no_pass(rows: list[EvalRecord]) -> None:
    cut = [row for row in rows if row.probe == "act" and row.output.usage.reasoning_censored]
    assert cut
    assert {row.score.outcome for row in cut} == {"truncated"}


def test_every_thought_is_closed_by_the_stated_rule_and_cut_ones_are_flagged(
    rows: list[EvalRecord],
) -> None:
    choose = [row for row in rows if row.probe == "choose"]
    assert len(choose) == 8
    for row in choose:
        output = row.output
        assert len(output.thoughts) == 4 and output.choice_logprobs is not None
        for thought in output.thoughts:
            ids = thought.token_ids
            own_end = END_THINK in ids and (THINK in ids)
            assert thought.cut == (not own_end), ids
            assert not thought.censored or (thought.cut and THINK in ids and len(ids) == TAU), ids
            assert END_THINK not in ids[:-1], "a thought ends at its first closing mark"
            assert thought.reasoning_tokens <= TAU
        for place, label in enumerate(sorted(row.choices)):
            mean = sum(math.exp(thought.logprobs[place]) for thought in output.thoughts) / 4
            assert math.exp(output.choice_logprobs[label]) == pytest.approx(mean)
    seeds = {row.sample_id: row.seed for row in choose}
    assert len(set(seeds.values())) == len(seeds)


def test_arms_of_a_sample_share_their_seed(rows: list[EvalRecord]) -> None:
    for sample in {row.sample_id for row in rows if row.probe == "choose"}:
        assert len({row.seed for row in rows if row.sample_id == sample and row.probe == "choose"}) == 1


def test_the_cache_holds_what_the_ledger_predicts(rows: list[EvalRecord]) -> None:
    measured = sum(row.output.usage.cached_tokens or 0 for row in rows)
    predicted = sum(row.output.usage.predicted_cached_tokens or 0 for row in rows)
    assert measured >= 0.95 * predicted > 0


def test_the_prompt_leaves_thinking_to_the_model(
    rows: list[EvalRecord], qwen3_template: ChatTemplate
) -> None:
    for row in rows:
        assert THINK not in row.prompt_ids and row.prompt_ids[-3:] != (END_OF_TURN,)
        assert not row.think_open
    sample = expand(xfinity(), series="matched", clusters=1, seed=7)[0]
    off = ChatTemplate(qwen3_template.tokenizer, "off")
    closed = off.text(sample.messages, sample.tools)
    assert closed.endswith("<think>\n\n</think>\n\n")
    assert not qwen3_template.text(sample.messages, sample.tools).rstrip().endswith("</think>")


def test_choices_after_a_thought_are_those_after_the_empty_one(
    rows: list[EvalRecord], qwen3_template: ChatTemplate
) -> None:
    sample = expand(xfinity(), series="matched", clusters=1, seed=7)[0]
    built = ChoiceBuilder(ChatTemplate(qwen3_template.tokenizer, "off")).build(sample)
    row = next(row for row in rows if row.sample_id == sample.id and row.probe == "choose")
    assert row.forced_ids == built.forced and dict(row.choices) == dict(built.choices)
    assert "<tool_call>" in qwen3_template.decode(built.forced)


def after_a_tool_result(sample: Sample) -> Sample:
    """The same, but it ends with a tool result after a turn that thought."""
    call = ToolCall("web_search", {"query": "opening hours"}, id="c9")
    turn = Message("assistant", tool_calls=(call,), reasoning="I will look it up first.")
    result = Message("tool", "Nothing was found.", tool_call_id="c9", name="web_search")
    return replace(sample, messages=(*sample.messages, turn, result))


def test_a_user_tail_after_a_tool_result_is_refused_before_any_model_runs(
    qwen3_template: ChatTemplate,
) -> None:
    """The template drops the reasoning of turns before the last user message, which the bar would become."""
    sample = after_a_tool_result(expand(xfinity(), series="matched", clusters=1, seed=7)[0])
    bar = Condition("agent_status", AgentStatus(), Tail())
    with pytest.raises(ConfoundError, match="keep_reasoning=false"):
        render_arms(qwen3_template, sample, [bar])
    without = ChatTemplate(qwen3_template.tokenizer, "native", keep_reasoning=False)
    assert render_arms(without, sample, [bar])["agent_status"].prompt.bar_tokens > 0


def test_a_tail_after_a_real_follow_up_changes_nothing_but_the_bar(qwen3_template: ChatTemplate) -> None:
    for sample in expand(xfinity(), series="matched", clusters=1, seed=7):
        assert len(render_arms(qwen3_template, sample, arms())) == len(arms())


def test_doctor_tells_what_the_template_does(qwen3_template: ChatTemplate) -> None:
    told = {finding.question: finding.answer for finding in check_template(qwen3_template)}
    strips = "does a user-role tail after a tool result strip the history's reasoning?"
    assert told[strips] == "yes"
    assert told["does it accept a system message at the tail?"] == "yes"
    assert told["does it print the tools that are offered?"] == "yes"
