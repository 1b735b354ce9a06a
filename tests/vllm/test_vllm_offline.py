"""The offline engine with the real 0.5B: the same numbers as transformers, and a cache that the ledger knows."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from core_samples import arms, xfinity

from harness.choices import ChoiceBuilder
from harness.compose import build_conditions, compose
from harness.dataset import expand
from harness.errors import ModelError
from harness.models.hf import TransformersModel
from harness.models.prefix_tree import common_prefix
from harness.models.vllm_engine import VllmModel
from harness.plan import build_plan
from harness.preflight import Preflight, prepare
from harness.prompt import render_arms
from harness.runlog import RunLog, read_records
from harness.runner import Alone, Setting, run_all
from harness.scorers import score_record
from harness.template import ChatTemplate
from harness.types import Decoding, EvalRecord, ModelOutput, Request

from conftest import ENGINE, settings  # isort: skip

BLOCK = 32
CONDITIONS = ("control", "placebo", "agent_status")


@pytest.fixture(scope="module")
def requests(qwen: ChatTemplate) -> list[Request]:
    """Two clusters × two sides × three arms, both probes."""
    found = []
    for each in expand(xfinity(), series="matched", clusters=2, seed=7):
        built = ChoiceBuilder(qwen).build(each)
        for name, arm in render_arms(qwen, each, [c for c in arms() if c.name in CONDITIONS]).items():
            cell = f"{each.id}|{name}"
            found.append(
                Request(f"{cell}|choose", "choose", arm.prompt, Decoding(1), 0, built.forced, built.choices)
            )
            found.append(Request(f"{cell}|act", "act", arm.prompt, Decoding(12), 0))
    return found


@pytest.fixture(scope="module")
def outputs(engine: VllmModel, requests: list[Request]) -> dict[str, ModelOutput]:
    return dict(engine.run(requests))


@pytest.fixture(scope="module")
def plain(weights_05b: Path, qwen: ChatTemplate, requests: list[Request]) -> dict[str, ModelOutput]:
    """The same cells on transformers."""
    model = TransformersModel(weights_05b, qwen.tokenizer, dtype="float32", device="cpu")
    prompts = [request.prompt.ids for request in requests]
    model.share_prefix(prompts[0][: common_prefix(prompts) - 1])
    found = dict(model.run(requests))
    model.close()
    return found


def test_every_cell_comes_out_once(outputs: dict[str, ModelOutput], requests: list[Request]) -> None:
    assert outputs.keys() == {request.cell_id for request in requests}
    assert {output.finish_reason for output in outputs.values()} <= {"stop", "length", "choice"}
    for request in requests:
        output = outputs[request.cell_id]
        assert output.usage.prompt_tokens == len(request.prompt.ids)
        assert output.timing.total is None, "a batched run has no latency"


def test_choice_probabilities_are_those_of_transformers(
    outputs: dict[str, ModelOutput], plain: dict[str, ModelOutput], requests: list[Request]
) -> None:
    for request in (r for r in requests if r.probe == "choose"):
        mine, theirs = (found[request.cell_id].choice_logprobs or {} for found in (outputs, plain))
        assert mine.keys() == theirs.keys() == request.choices.keys()
        for label in mine:
            assert math.exp(mine[label]) == pytest.approx(math.exp(theirs[label]), abs=0.02), label
        assert sum(map(math.exp, mine.values())) <= 1.0001


def test_greedy_ids_are_those_of_transformers_on_nine_cells_of_ten(
    outputs: dict[str, ModelOutput], plain: dict[str, ModelOutput], requests: list[Request]
) -> None:
    cells = [request.cell_id for request in requests if request.probe == "act"]
    same = [cell for cell in cells if outputs[cell].token_ids == plain[cell].token_ids]
    assert len(same) >= 0.9 * len(cells)
    assert all(outputs[cell].text == plain[cell].text for cell in same)


def test_a_drawn_reply_depends_on_its_seed(engine: VllmModel, requests: list[Request]) -> None:
    base = next(request for request in requests if request.probe == "act")
    drawn = replace(base, decoding=Decoding(12, temperature=1.5, top_p=0.95, top_k=50))
    cells = [replace(drawn, cell_id=str(seed), seed=seed) for seed in range(6)]
    found = dict(engine.run(cells))
    assert len({found[str(seed)].token_ids for seed in range(6)}) > 1
    alone = [engine.run_alone(replace(drawn, seed=3)).token_ids for _ in range(2)]
    assert alone[0] == alone[1]


@pytest.mark.parametrize("cache", ["cold", "warm", "natural"])
def test_the_cache_state_before_a_lone_request_is_the_asked_for_one(
    engine: VllmModel, requests: list[Request], cache: str
) -> None:
    act = [request for request in requests if request.probe == "act"][:3]
    shared = common_prefix([request.prompt.ids for request in act])
    engine.run_alone(act[-1], "cold")
    output = engine.run_alone(act[-1], cache, shared)  # type: ignore[arg-type]
    length = len(act[-1].prompt.ids)
    wanted = {"cold": 0, "warm": shared // BLOCK * BLOCK, "natural": (length - 1) // BLOCK * BLOCK}[cache]
    assert output.usage.cached_tokens == wanted
    times = output.timing
    assert times.first_token is not None and times.first_answer_token is not None and times.total is not None
    assert 0 < times.first_token <= times.first_answer_token <= times.total


def test_a_warm_prefix_shortens_the_time_to_the_first_token(
    engine: VllmModel, requests: list[Request]
) -> None:
    request = next(request for request in requests if request.probe == "act")
    cold = engine.run_alone(request, "cold").timing.first_token
    warm = engine.run_alone(request, "warm", len(request.prompt.ids) - 40).timing.first_token
    assert cold is not None and warm is not None
    assert warm < cold / 2  # 40 to 71 of some 850 tokens are left to compute


def test_a_prompt_that_does_not_fit_is_an_error_row_and_harms_no_other(
    engine: VllmModel, requests: list[Request]
) -> None:
    good = next(request for request in requests if request.probe == "act")
    long = replace(good, cell_id="long", prompt=replace(good.prompt, ids=good.prompt.ids * 8))
    found = dict(engine.run([long, good]))
    assert found["long"].finish_reason == "error" and "4096" in (found["long"].error or "")
    assert found[good.cell_id].finish_reason in ("stop", "length")


def test_a_run_that_is_left_early_leaves_a_working_engine(engine: VllmModel, requests: list[Request]) -> None:
    left = engine.run(requests)
    next(left)
    left.close()  # type: ignore[attr-defined]
    act = next(request for request in requests if request.probe == "act")
    assert dict(engine.run([act])).keys() == {act.cell_id}


# -- through the runner --------------------------------------------------------------------------------


def ready(template: ChatTemplate, *overrides: str) -> tuple[Preflight, Setting]:
    config = compose(["experiment=xfinity", "model=qwen2.5-coder-0.5b-vllm", *overrides])
    conditions = build_conditions(config.condition)
    choose = config.probe.get("choose")
    drawn = config.model.decoding
    decoding = {
        name: Decoding(probe.max_new_tokens, drawn.temperature, drawn.top_p, drawn.top_k)
        for name, probe in config.probe.items()
    }
    plan = build_plan(config, xfinity(), template.count)
    preflight = prepare(plan, template, conditions, decoding, thoughts=choose.thoughts if choose else None)
    bars = {c.name: (c.bar_name, c.placement_name) for c in conditions}
    return preflight, Setting("xfinity", "q", template.thinking, bars, template, score_record)


def run(
    folder: Path, engine: VllmModel, preflight: Preflight, setting: Setting, alone: Alone | None = None
) -> list[EvalRecord]:
    engine._engine.reset_prefix_cache()
    with RunLog.open(folder, {}, {"k": 1}) as log:
        run_all(preflight, engine, log, setting, alone=alone, progress=lambda *_: None)
    return list(read_records(folder))


def test_the_engine_reuses_what_the_ledger_predicts(
    engine: VllmModel, qwen: ChatTemplate, tmp_path: Path
) -> None:
    preflight, setting = ready(
        qwen,
        "probe.choose.series.matched.clusters=2",
        "probe.choose.series.prior_calls.clusters=1",
        "probe.act.series.matched.clusters=1",
        "probe.act.max_new_tokens=2",
    )
    rows = run(tmp_path, engine, preflight, setting)
    assert len(rows) == len(preflight.cell_order)
    measured = sum(row.output.usage.cached_tokens or 0 for row in rows)
    predicted = sum(row.output.usage.predicted_cached_tokens or 0 for row in rows)
    asked = sum(row.output.usage.prompt_tokens for row in rows)
    assert measured >= 0.95 * predicted > 0.6 * asked
    assert measured <= predicted * 1.001, "the engine holds more than the ledger knows of"


@pytest.mark.parametrize("cache", ["cold", "warm", "natural"])
def test_lone_requests_meet_the_ledger_too(
    engine: VllmModel, qwen: ChatTemplate, tmp_path: Path, cache: str
) -> None:
    preflight, setting = ready(
        qwen,
        "experiment=xfinity_latency",
        "model=qwen2.5-coder-0.5b-vllm",
        "latency.samples=2",
        "probe.act.max_new_tokens=2",
    )
    rows = run(tmp_path, engine, preflight, setting, Alone(cache, warmups=1))  # type: ignore[arg-type]
    assert len(rows) == 6
    for row in rows:
        assert row.output.usage.cached_tokens == row.output.usage.predicted_cached_tokens
        assert row.output.timing.total is not None
    by_cache = sum(row.output.usage.cached_tokens or 0 for row in rows)
    assert (by_cache == 0) == (cache == "cold")


def test_choices_after_thoughts_are_the_mean_over_them(
    engine: VllmModel, weights_05b: Path, qwen: ChatTemplate, tmp_path: Path
) -> None:
    """The 0.5B has no thinking of its own: it is asked to think between the marks."""
    template = ChatTemplate(qwen.tokenizer, "prompted")
    preflight, setting = ready(
        template,
        "model.thinking=prompted",
        "model.decoding.temperature=0.8",
        "probe=[choose]",
        "~probe.choose.series.prior_calls",
        "probe.choose.series.matched={clusters: 1, conditions: [control, agent_status]}",
        "probe.choose.thoughts=4",
        "probe.choose.max_new_tokens=40",
    )
    rows = run(tmp_path, engine, preflight, setting)
    assert len(rows) == 4
    for row in rows:
        output, labels = row.output, sorted(row.choices)
        assert len(output.thoughts) == 4 and output.choice_logprobs is not None
        for position, label in enumerate(labels):
            mean = sum(math.exp(thought.logprobs[position]) for thought in output.thoughts) / 4
            assert math.exp(output.choice_logprobs[label]) == pytest.approx(mean)
        for thought in output.thoughts:
            text = template.decode(thought.token_ids)
            assert thought.cut == ("</think>" not in text)
            assert thought.reasoning_tokens <= 40
        assert len({thought.token_ids for thought in output.thoughts}) > 1
        assert row.score.logit_act is not None


# -- starting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": {"max_model_len": 10**6}}, "lower model.engine.max_model_len"),
        ({"engine": {**ENGINE, "block_size": 7}}, "model.engine.block_size=32"),
        ({"engine": {}}, "model.engine.max_model_len: state it on a CPU"),
        ({"path": "/nowhere", "engine": ENGINE}, "vLLM does not start"),
    ],
)
def test_an_engine_that_cannot_start_says_which_setting_to_change(
    weights_05b: Path, qwen: ChatTemplate, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    given = settings(weights_05b, **changes)
    with pytest.raises(ModelError) as told:
        VllmModel.from_config(Path(given.path or ""), qwen.tokenizer, given, tmp_path)
    assert words in str(told.value) and "\n" not in str(told.value)
