"""A run under `sequential` ends after the cluster at which enough is known, and never before."""

import hashlib
from pathlib import Path

import pytest
from core_config import plain
from test_runner import Scripted, answer, preflight, setting

from harness.commands.sequential import SequentialWatch, start_watch
from harness.config_checks import resolve
from harness.errors import ConfigError
from harness.preflight import Preflight
from harness.runlog import RunLog
from harness.runner import Tally, run_all
from harness.types import ModelOutput, Request

PAIRS = [("agent_status", "placebo")]


def ready(clusters: int = 40) -> Preflight:
    return preflight(probe__choose__series__matched__clusters=clusters)


def lifted(request: Request, effect: float, planned: Preflight) -> ModelOutput:
    """The bar's sensitivity is `effect` above the placebo's, and a little else that the cell's name decides."""
    if request.probe != "choose":
        return answer(request)
    cell = next(c.cell for b in planned.batches for c in b.cells if c.request.cell_id == request.cell_id)
    noise = int(hashlib.sha256(request.cell_id.encode()).hexdigest()[:4], 16) / 65535 - 0.5
    due = 1 if cell.sample.expectation.side == "due" else -1
    odds = noise + (effect / 2 * due if cell.condition == "agent_status" else 0.0)
    expectation = cell.sample.expectation
    acts = f"{expectation.tool}:{expectation.target}"
    assert acts in request.choices
    logprobs = {label: (odds if label == acts else 0.0) - 3.0 for label in request.choices}
    output = answer(request)
    return ModelOutput(
        output.text, output.token_ids, "choice", output.usage, output.timing, choice_logprobs=logprobs
    )


def go(folder: Path, planned: Preflight, effect: float, margin: float = 0.5) -> tuple[Tally, SequentialWatch]:
    model = Scripted(lambda request: lifted(request, effect, planned))
    watch = SequentialWatch(PAIRS, margin, 8)
    with RunLog.open(folder, {}, {"k": 1}) as log:
        tally = run_all(planned, model, log, setting(), alone=None, progress=lambda *_: None, meter=watch)
    return tally, watch


def test_a_clear_effect_ends_the_run_early_and_says_why(tmp_path: Path) -> None:
    planned = ready()
    tally, watch = go(tmp_path, planned, effect=3.0)
    assert tally.stopped and tally.stopped.reason == "sequential"
    done = len(watch.differences(*PAIRS[0]))
    assert 8 <= done < 40 and f"after {done} clusters" in tally.stopped.said


def test_no_effect_ends_it_when_that_is_shown(tmp_path: Path) -> None:
    tally, watch = go(tmp_path, ready(), effect=0.0, margin=0.9)
    assert tally.stopped and len(watch.differences(*PAIRS[0])) < 40


def test_what_stays_open_runs_to_its_planned_end(tmp_path: Path) -> None:
    tally, watch = go(tmp_path, ready(12), effect=0.4, margin=0.4)
    assert tally.stopped is None and len(watch.differences(*PAIRS[0])) == 12


def test_a_run_without_a_confirmatory_family_has_nothing_to_stop_by(tmp_path: Path) -> None:
    config = resolve(plain(sequential={}))
    with RunLog.open(tmp_path, {}, {"k": 1}) as log, pytest.raises(ConfigError, match="no bar has a placebo"):
        start_watch(config, [{"name": "control"}], log)
    with pytest.raises(ConfigError, match="probe `choose`, which this run lacks"):
        resolve(plain(sequential={}, probe={"act": plain()["probe"]["act"]}))


def test_a_resumed_run_keeps_the_margin_that_it_was_begun_with(tmp_path: Path) -> None:
    arms = [{"name": "agent_status"}, {"name": "placebo", "placebo_of": "agent_status"}]
    config = resolve(plain(sequential={}, margins={"logit": 2.0}))
    with RunLog.open(tmp_path, {"margins": {"logit": 0.5, "share": 0.1, "ratio": 1.25}}, {"k": 1}) as log:
        assert start_watch(config, arms, log).margin == 0.5


def test_stopping_early_makes_another_run_and_margins_do_not() -> None:
    base = resolve(plain()).digested()
    assert resolve(plain(margins={"logit": 0.2})).digested() == base
    assert resolve(plain(sequential=None)).digested() == base
    assert resolve(plain(sequential={"least": 10})).digested() != base
