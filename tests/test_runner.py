"""Claims about the runner, with a scripted model: what is written, what is computed again, what ends a run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from core_config import REMOVE, plain
from core_samples import arms, words, xfinity
from core_tokens import SPECIAL, THINKER, tiny_template, tiny_tokenizer

from harness.config_checks import resolve
from harness.errors import ModelError, ProviderError
from harness.plan import build_plan
from harness.preflight import Preflight, prepare
from harness.runlog import RunLog, read_records
from harness.runner import Alone, Setting, Tally, finish_cell, rescore, run_all
from harness.scorers import score_record
from harness.template import ChatTemplate
from harness.types import Decoding, EvalRecord, ModelOutput, ModelUsage, Request, Timing

TEMPLATE = tiny_template()
CALL = '<tool_call>\n{"name": "reply", "arguments": {"message": "No."}}\n</tool_call>'
DECODING = {"choose": Decoding(1), "act": Decoding(8)}


@dataclass
class Scripted:
    """A model that says what `script` says. `seen`: the cells of each batch that it was asked for."""

    script: Callable[[Request], ModelOutput]
    seen: list[list[str]] = field(default_factory=list)
    prefixes: list[tuple[int, ...]] = field(default_factory=list)
    computed_tokens: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def share_prefix(self, ids: Sequence[int]) -> None:
        self.prefixes.append(tuple(ids))

    def run(self, requests: Sequence[Request], then: Any = None) -> Iterator[tuple[str, ModelOutput]]:
        self.seen.append([request.cell_id for request in requests])
        for request in reversed(requests):  # any order will do
            yield request.cell_id, self.script(request)

    cache_block: int | None = None
    cache_blocks: int | None = None

    def check_cache(self, cache: Any) -> None: ...

    def run_alone(self, request: Request, cache: Any = "cold", shared: int = 0) -> ModelOutput:
        self.seen.append([request.cell_id])
        return self.script(request)

    def close(self) -> None: ...


def say(text: str, request: Request, finish: Any = "stop", template: ChatTemplate = TEMPLATE) -> ModelOutput:
    ids = template.encode(text).ids
    usage = ModelUsage(prompt_tokens=len(request.prompt.ids), completion_tokens=len(ids))
    return ModelOutput(text, ids, finish, usage, Timing(started_at="2026-01-01T00:00:00+00:00"))


def answer(request: Request) -> ModelOutput:
    if request.probe == "act":
        return say(CALL, request)
    usage = ModelUsage(prompt_tokens=len(request.prompt.ids), completion_tokens=None)
    logprobs = {label: -1.0 - i for i, label in enumerate(request.choices)}
    return ModelOutput("", (), "choice", usage, Timing(started_at="t"), choice_logprobs=logprobs)


def preflight(template: ChatTemplate = TEMPLATE, **changes: Any) -> Preflight:
    plan = build_plan(resolve(plain(**changes)), xfinity(), words)
    return prepare(plan, template, arms(), DECODING)


def setting(template: ChatTemplate = TEMPLATE) -> Setting:
    bars = {c.name: (c.bar_name, c.placement_name) for c in arms()}
    return Setting("xfinity", "scripted", template.thinking, bars, template, score_record)


def go(
    folder: Path, model: Scripted, ready: Preflight, *, alone: Alone | None = None, progress: Any = None
) -> Tally:
    with RunLog.open(folder, {}, {"k": 1}) as log:
        return run_all(
            ready, model, log, setting(), alone=alone, progress=progress or (lambda done, total: None)
        )


def rows(folder: Path) -> list[EvalRecord]:
    return list(read_records(folder))


def test_every_cell_becomes_one_complete_row(tmp_path: Path) -> None:
    ready, model, steps = preflight(), Scripted(answer), []
    tally = go(tmp_path, model, ready, progress=lambda done, total: steps.append((done, total)))
    records = {record.cell_id: record for record in rows(tmp_path)}
    assert sorted(records) == sorted(ready.cell_order)
    assert (tally.cells, tally.failed) == (len(records), 0)
    assert steps == [(n, len(records)) for n in range(len(records) + 1)]
    assert model.prefixes == [ready.shared_prefix]
    for batch in ready.batches:
        for cell in batch.cells:
            record = records[cell.request.cell_id]
            assert record.batch == batch.number and record.seed == cell.cell.seed
            assert record.prompt_ids == cell.request.prompt.ids and record.spans == cell.request.prompt.spans
            assert (record.bar_text, record.placebo_id) == (cell.bar_text, cell.placebo_id)
            assert record.expectation == cell.cell.sample.expectation
            assert (record.bar == "none") == (record.condition == "control") == (record.placement == "none")
            if record.probe == "act":
                assert record.parsed is not None and [c.name for c in record.parsed.tool_calls] == ["reply"]
                assert record.score.outcome is not None
            else:
                assert record.parsed is None and record.score.p_act_norm is not None


def test_rows_are_written_while_the_batch_still_runs(tmp_path: Path) -> None:
    ready = preflight()
    written: list[int] = []

    def script(request: Request) -> ModelOutput:
        file = tmp_path / "samples.jsonl"
        written.append(len(file.read_bytes().splitlines()))
        return answer(request)

    go(tmp_path, Scripted(script), ready)
    assert written == list(range(len(ready.cell_order)))


class Stopped(BaseException):
    """The user's Ctrl-C."""


def test_a_stopped_batch_is_computed_whole_again_and_its_finished_rows_stay(tmp_path: Path) -> None:
    ready = preflight()
    size = len(ready.batches[0].cells)
    done = 0

    def stop_inside(request: Request) -> ModelOutput:
        nonlocal done
        done += 1
        if done > size + 3:
            raise Stopped
        return answer(request)

    with pytest.raises(Stopped):
        go(tmp_path, Scripted(stop_inside), ready)
    before = rows(tmp_path)
    assert len(before) == size + 3
    # What comes out the second time is told apart by its text; nothing finished may take it.
    again = Scripted(lambda r: say("Other words.", r) if r.probe == "act" else answer(r))
    go(tmp_path, again, ready)
    after = rows(tmp_path)
    assert after[: len(before)] == before
    assert sorted(r.cell_id for r in after) == sorted(ready.cell_order)
    assert again.seen == [[c.request.cell_id for c in batch.cells] for batch in ready.batches[1:]]
    assert any(r.output.text == "Other words." for r in after)


def test_a_finished_run_asks_the_model_nothing(tmp_path: Path) -> None:
    ready = preflight()
    go(tmp_path, Scripted(answer), ready)
    idle = Scripted(answer)
    steps: list[tuple[int, int]] = []
    tally = go(tmp_path, idle, ready, progress=lambda done, total: steps.append((done, total)))
    assert (idle.seen, idle.prefixes, tally) == ([], [], Tally())
    assert steps == [(len(ready.cell_order), len(ready.cell_order))]


def test_a_providers_failure_is_a_row_that_resume_tries_again(tmp_path: Path) -> None:
    ready = preflight()
    first = [c.request.cell_id for c in ready.batches[0].cells]
    broken = first[1]

    def script(request: Request) -> ModelOutput:
        if request.cell_id == broken:
            raise ProviderError("503 from the server")
        return answer(request)

    tally = go(tmp_path, Scripted(script), ready)
    records = {r.cell_id: r for r in rows(tmp_path)}
    assert sorted(records) == sorted(ready.cell_order), "no cell is dropped"
    failed = {cell for cell, r in records.items() if r.output.finish_reason == "error"}
    # The engine works through a batch from its end here: what it had not come to fails with it.
    assert failed == set(first[:2]) and tally.failed == 2
    for cell in failed:
        assert records[cell].score.outcome == "provider_error" and records[cell].parsed is None
        assert records[cell].output.error == "503 from the server"
        assert records[cell].output.usage.completion_tokens is None, "unknown is not 0"
        assert records[cell].output.usage.prompt_tokens == len(records[cell].prompt_ids)
    again = Scripted(answer)
    go(tmp_path, again, ready)
    assert again.seen == [first], "only the batch with failures, and that whole"
    assert all(r.output.finish_reason != "error" for r in rows(tmp_path))


def test_an_output_that_says_it_failed_is_a_providers_error_too(tmp_path: Path) -> None:
    ready = preflight()
    broken = ready.batches[1].cells[0].request.cell_id

    def script(request: Request) -> ModelOutput:
        output = answer(request)
        return (
            replace(output, finish_reason="error", error="refused") if request.cell_id == broken else output
        )

    tally = go(tmp_path, Scripted(script), ready)
    (failed,) = [r for r in rows(tmp_path) if r.output.finish_reason == "error"]
    assert (failed.cell_id, failed.score.outcome, tally.failed) == (broken, "provider_error", 1)


def test_a_cell_that_the_engine_forgets_is_a_failure_and_never_lost(tmp_path: Path) -> None:
    class Forgetful(Scripted):
        def run(self, requests: Sequence[Request], then: Any = None) -> Iterator[tuple[str, ModelOutput]]:
            yield from ((r.cell_id, answer(r)) for r in requests[1:])

    ready = preflight()
    go(tmp_path, Forgetful(answer), ready)
    records = {r.cell_id: r for r in rows(tmp_path)}
    assert sorted(records) == sorted(ready.cell_order)
    forgotten = {batch.cells[0].request.cell_id for batch in ready.batches}
    assert {cell for cell, r in records.items() if r.output.finish_reason == "error"} == forgotten


def dead(request: Request) -> ModelOutput:
    raise ProviderError("connection refused")


def test_three_failing_batches_in_a_row_end_the_run_and_keep_what_is_done(tmp_path: Path) -> None:
    ready = preflight(probe__choose__series__matched__clusters=6)
    assert len(ready.batches) == 6
    model = Scripted(lambda r: answer(r) if r.cell_id in alive else dead(r))
    alive = {c.request.cell_id for c in ready.batches[0].cells}
    with pytest.raises(ModelError, match="3 samples in a row") as error:
        go(tmp_path, model, ready)
    assert "\n" not in str(error.value)
    assert len(model.seen) == 4
    records = rows(tmp_path)
    assert {r.cell_id for r in records if r.output.finish_reason != "error"} == alive
    go(tmp_path, Scripted(answer), ready)
    assert sorted(r.cell_id for r in rows(tmp_path)) == sorted(ready.cell_order)


def test_a_good_cell_in_between_starts_the_count_anew(tmp_path: Path) -> None:
    ready = preflight(probe__choose__series__matched__clusters=6)
    third = ready.batches[2].cells[-1].request.cell_id
    with pytest.raises(ModelError):
        go(tmp_path, model := Scripted(lambda r: answer(r) if r.cell_id == third else dead(r)), ready)
    assert len(model.seen) == 6


def test_an_engines_own_crash_is_not_taken_for_data(tmp_path: Path) -> None:
    def crash(request: Request) -> ModelOutput:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        go(tmp_path, Scripted(crash), preflight())
    assert rows(tmp_path) == []


# -- one at a time -----------------------------------------------------------------------------------------

LATENCY = {"measure": "latency", "probe__choose": REMOVE}


@pytest.mark.parametrize("warmups", [0, 1, 3])
def test_the_latency_pass_warms_up_and_then_asks_one_by_one(tmp_path: Path, warmups: int) -> None:
    """With a prompt that shares nothing with the run's: no timed request finds anything of it."""
    ready, prompts = preflight(**LATENCY), []

    def script(request: Request) -> ModelOutput:
        prompts.append(request.prompt.ids)
        return answer(request)

    model = Scripted(script)
    go(tmp_path, model, ready, alone=Alone(warmups=warmups))
    first = ready.cell_order[0]
    assert model.seen == [*([first] for _ in range(warmups)), *([c] for c in ready.cell_order)]
    real = ready.batches[0].cells[0].request.prompt.ids
    assert prompts[:warmups] == [real[::-1]] * warmups and prompts[warmups] == real
    assert model.prefixes == [], "nothing is computed ahead of a timed request"
    assert [r.cell_id for r in rows(tmp_path)] == ready.cell_order


def test_a_failure_while_asking_one_by_one_is_a_row_too(tmp_path: Path) -> None:
    ready = preflight(**LATENCY)
    broken = ready.cell_order[4]
    model = Scripted(lambda r: dead(r) if r.cell_id == broken else answer(r))
    tally = go(tmp_path, model, ready, alone=Alone())
    records = {r.cell_id: r for r in rows(tmp_path)}
    assert sorted(records) == sorted(ready.cell_order)
    assert [cell for cell, r in records.items() if r.output.finish_reason == "error"] == [broken]
    assert tally.failed == 1


def test_a_warm_up_that_fails_is_no_cell_and_no_crash(tmp_path: Path) -> None:
    ready, asked = preflight(**LATENCY), []

    def script(request: Request) -> ModelOutput:
        asked.append(request.cell_id)
        return dead(request) if len(asked) == 1 else answer(request)

    tally = go(tmp_path, Scripted(script), ready, alone=Alone())
    assert (tally.cells, tally.failed) == (len(ready.cell_order), 0)


def test_one_sample_that_the_engine_refuses_in_every_arm_does_not_end_the_run(tmp_path: Path) -> None:
    ready = preflight(**LATENCY)
    bad = ready.batches[0].cells[0].cell.sample.id
    tally = go(
        tmp_path,
        Scripted(lambda r: dead(r) if r.cell_id.startswith(f"{bad}|") else answer(r)),
        ready,
        alone=Alone(),
    )
    assert tally.failed >= 3 and tally.cells == len(ready.cell_order)


@pytest.mark.parametrize("cache", ["cold", "warm", "natural"])
def test_the_ledger_predicts_the_cache_of_lone_requests(tmp_path: Path, cache: str) -> None:
    ready = preflight(**LATENCY)
    model = Scripted(answer)
    model.cache_block = 4
    go(tmp_path, model, ready, alone=Alone(cache))  # type: ignore[arg-type]
    shared = {c.request.cell_id: c.shared for b in ready.batches for c in b.cells}
    for row in rows(tmp_path):
        predicted = row.output.usage.predicted_cached_tokens
        assert predicted is not None
        if cache == "natural":
            first = row.cell_id == ready.cell_order[0]
            assert (predicted == 0) == first, "only what earlier timed requests left"
        else:
            assert predicted == (0 if cache == "cold" else shared[row.cell_id] // 4 * 4)


def test_a_batch_is_asked_in_the_order_in_which_prefixes_meet(tmp_path: Path) -> None:
    ready = preflight()
    model = Scripted(answer)
    model.cache_block = 16
    go(tmp_path, model, ready)
    prompts = {c.request.cell_id: c.request.prompt.ids for b in ready.batches for c in b.cells}
    for batch in model.seen:
        assert [prompts[cell] for cell in batch] == sorted(prompts[cell] for cell in batch)
    for row in rows(tmp_path):
        assert (row.output.usage.predicted_cached_tokens or 0) >= len(ready.shared_prefix) // 16 * 16


# -- one cell ----------------------------------------------------------------------------------------------


def one(text: str, *, finish: str = "stop", template: ChatTemplate = TEMPLATE) -> EvalRecord:
    ready = preflight(template, probe__choose=REMOVE)
    cell = ready.batches[0].cells[0]
    output = say(text, cell.request, finish, template)
    return finish_cell(cell, 0, output, setting(template))


THINKING = tiny_template(THINKER, thinking="native")


@pytest.mark.parametrize(
    ("text", "finish", "tokens", "censored", "start_missing", "end_missing"),
    [
        (f"<think>a b c</think>{CALL}", "stop", "a b c", False, False, False),
        ("<think>a b c", "length", "a b c", True, False, True),
        ("<think>a b c", "stop", "a b c", False, False, True),
        (f"a b c</think>{CALL}", "stop", "a b c", False, True, False),
        (CALL, "stop", "", False, True, True),
    ],
)
def test_thinking_is_counted_on_token_ids(
    text: str, finish: str, tokens: str, censored: bool, start_missing: bool, end_missing: bool
) -> None:
    record = one(text, finish=finish, template=THINKING)
    usage, parsed = record.output.usage, record.parsed
    assert parsed is not None
    assert usage.reasoning_tokens == len(THINKING.encode(tokens).ids)
    assert (usage.reasoning_counted_by, usage.reasoning_censored) == ("token_ids", censored)
    assert (parsed.thinking_start_missing, parsed.thinking_end_missing) == (start_missing, end_missing)


def test_thinking_delimiters_that_are_ordinary_text_are_counted_too() -> None:
    tokenizer = tiny_tokenizer(special=[token for token in SPECIAL if "think" not in token])
    prompted = ChatTemplate(tokenizer, "prompted")
    assert len(prompted.encode("<think>").ids) > 1
    record = one(f"some thought\n</think>\n{CALL}", template=prompted)
    assert record.think_open and record.parsed is not None
    assert (record.parsed.reasoning, record.parsed.thinking_start_missing) == ("some thought", False)
    assert record.output.usage.reasoning_tokens == len(prompted.encode("some thought\n").ids)
    off = one(CALL, template=ChatTemplate(tokenizer))
    assert (off.output.usage.reasoning_tokens, off.output.usage.reasoning_counted_by) == (0, "token_ids")


def test_a_failed_cell_is_not_parsed_and_its_thinking_is_unknown() -> None:
    record = one("half a rep", finish="error")
    assert record.parsed is None and record.output.usage.reasoning_tokens is None
    assert record.score.outcome == "provider_error"


def test_scoring_again_needs_no_model_and_changes_nothing_that_was_recorded(tmp_path: Path) -> None:
    go(tmp_path, Scripted(answer), preflight())
    records = rows(tmp_path)
    assert rescore(records, score_record) == records
    blank = [replace(r, score=replace(r.score, outcome=None, reason="", p_act_norm=None)) for r in records]
    assert blank != records and rescore(blank, score_record) == records
    thought = one("<think>a b c", finish="length", template=THINKING)
    assert rescore([thought], score_record) == [thought]
