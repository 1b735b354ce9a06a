"""Requests → model → log. Three layers: one cell, one batch, one run.

The inner layers know no configuration object; they are given what they need. Nothing here decides what
is measured: order and composition come from the plan, prompts from the preflight.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import perf_counter

from harness.budget import Stop, Watch
from harness.cache import PrefixLedger, sharing_order
from harness.dataset import expected
from harness.errors import ConfoundError, ModelError, ProviderError
from harness.models.base import Model
from harness.models.thoughts import Codec, choose_after_thinking
from harness.parsing import count_thinking, count_thinking_pieces, parse_reply
from harness.parsing.thinking import ThinkingCount
from harness.preflight import Preflight, ReadyBatch, ReadyCell
from harness.runlog import RunLog
from harness.scorers.base import Scorer
from harness.template import THINK_CLOSE, THINK_OPEN, ChatTemplate
from harness.types import (
    CacheState,
    EvalRecord,
    ModelOutput,
    ModelUsage,
    ParsedReply,
    Request,
    Score,
    ThinkingMode,
    Timing,
)

MAX_FAILED_BATCHES = 3
"""Batches of so many samples in a row without one good cell end the run: the engine is gone."""

Progress = Callable[[int, int], None]
"""Called after each cell with (cells done, cells in all)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What every record of a run has in common."""

    scenario: str
    model: str
    thinking: ThinkingMode
    bars: dict[str, tuple[str, str]]
    """condition → (bar, placement)."""
    template: ChatTemplate
    score: Scorer


@dataclass(frozen=True, slots=True)
class Alone:
    """How lone requests are timed: the cache state before each, and how many are thrown away first."""

    cache: CacheState = "cold"
    warmups: int = 1


@dataclass(slots=True)
class Tally:
    """What this session computed, for the throughput table, and why it stopped before its end."""

    cells: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    seconds: float = 0.0
    stopped: Stop | None = None

    def count_in(self, output: ModelOutput) -> bool:
        """Adds one output; False when it is an error."""
        self.cells += 1
        self.prompt_tokens += output.usage.prompt_tokens
        self.new_tokens += output.usage.completion_tokens or 0
        failed = output.finish_reason == "error"
        self.failed += failed
        return not failed


def finish_cell(
    ready: ReadyCell, batch: int, output: ModelOutput, setting: Setting, predicted: int | None = None
) -> EvalRecord:
    """One finished cell: parsed, scored, complete. `predicted`: cached tokens by the ledger."""
    output = replace(output, usage=replace(output.usage, predicted_cached_tokens=predicted))
    cell, request, sample = ready.cell, ready.request, ready.cell.sample
    tool_names = tuple(tool.name for tool in sample.tools)
    parsed = None
    if cell.probe != "choose" and output.finish_reason != "error":
        parsed = parse_reply(output.text, tool_names=tool_names, think_open=request.prompt.think_open)
        output, parsed = _with_thinking(output, parsed, request.prompt.think_open, setting.template)
    expectation = expected(sample)
    bar, placement = setting.bars[cell.condition]
    record = EvalRecord(
        cell_id=cell.id,
        batch=batch,
        sample_id=sample.id,
        scenario=setting.scenario,
        cluster=sample.cluster,
        series=sample.series,
        side=expectation.side,
        target=expectation.target,
        prior_calls=sample.prior_calls,
        limit=sample.limit,
        filler_tokens=sample.filler_tokens,
        phrasing=sample.phrasing,
        condition=cell.condition,
        bar=bar,
        placement=placement,
        placebo_id=ready.placebo_id,
        probe=cell.probe,
        thinking=setting.thinking,
        epoch=cell.epoch,
        seed=cell.seed,
        model=setting.model,
        prompt_ids=request.prompt.ids,
        spans=request.prompt.spans,
        prompt_hash=request.prompt.prompt_hash,
        bar_text=ready.bar_text,
        bar_tokens=request.prompt.bar_tokens,
        choices=request.choices,
        decoding=request.decoding,
        expectation=expectation,
        tool_names=tool_names,
        output=output,
        parsed=parsed,
        score=Score(outcome=None),
        think_open=request.prompt.think_open,
        forced_ids=request.forced_ids,
    )
    return replace(record, score=setting.score(record))


def _with_thinking(
    output: ModelOutput, parsed: ParsedReply, think_open: bool, template: ChatTemplate
) -> tuple[ModelOutput, ParsedReply]:
    """Adds the think span's length, counted on the reply's own token ids (an engine that has only the
    text says so in `reasoning_counted_by`)."""
    if output.provider is not None:
        return _with_reported(output, parsed)
    count = count_reply(output, think_open, template)
    usage = replace(
        output.usage,
        reasoning_tokens=count.tokens,
        reasoning_counted_by=output.usage.reasoning_counted_by or "token_ids",
        reasoning_censored=count.censored,
    )
    parsed = replace(
        parsed, thinking_start_missing=count.start_missing, thinking_end_missing=count.end_missing
    )
    return replace(output, usage=usage), parsed


def _with_reported(output: ModelOutput, parsed: ParsedReply) -> tuple[ModelOutput, ParsedReply]:
    """A provider shows its thinking as a summary, or not at all, and tells no token ids: its own figure is the only one,
    and is recorded as that. A reply that was cut before anything was said was cut inside its thinking."""
    usage = output.usage
    cut = output.finish_reason == "length" and not parsed.content.strip() and not parsed.tool_calls
    reported = usage.reported_reasoning_tokens
    usage = replace(
        usage,
        reasoning_tokens=reported,
        reasoning_counted_by="provider" if reported is not None else None,
        reasoning_censored=cut and bool(reported),
    )
    return replace(output, usage=usage), parsed


def count_reply(output: ModelOutput, think_open: bool, template: ChatTemplate) -> ThinkingCount:
    """Thinking tokens of a reply, strictly between the template's marks."""
    opening, closing = template.encode(THINK_OPEN).ids, template.encode(THINK_CLOSE).ids
    ids = output.token_ids
    if ids and output.finish_reason == "stop" and not output.text.endswith(template.decode(ids[-1:])):
        ids = ids[:-1]  # the end token is no part of a thought that it broke off
    if len(opening) == len(closing) == 1:
        return count_thinking(
            ids,
            open_id=opening[0],
            close_id=closing[0],
            think_open=think_open,
            finish_reason=output.finish_reason,
        )
    # The delimiters are ordinary text here and may merge with a neighbour.
    if not think_open and THINK_OPEN not in output.text and THINK_CLOSE not in output.text:
        return count_thinking(
            (), open_id=-1, close_id=-2, think_open=False, finish_reason=output.finish_reason
        )
    pieces = [template.decode([token]) for token in ids]
    return count_thinking_pieces(pieces, think_open=think_open, finish_reason=output.finish_reason)


class Ledger:
    """Predicts what the engine's prefix cache holds for each request, in the order they are made."""

    def __init__(self, block: int | None, capacity: int | None = None) -> None:
        self._kept = PrefixLedger(block, capacity) if block else None

    def order(self, cells: Sequence[ReadyCell]) -> list[ReadyCell]:
        """The cells of a batch in the order in which shared prefixes meet; plain cells before those that
        think first, which are computed in two passes of their own."""
        if self._kept is None:
            return list(cells)
        there = [cells[position] for position in sharing_order([_sent(c.request) for c in cells])]
        return sorted(there, key=lambda cell: cell.request.thoughts > 0)

    def visit(self, request: Request) -> int | None:
        """Cached prompt tokens of a request that is made now."""
        if self._kept is None:
            return None
        return min(self._kept.visit(_sent(request)), len(request.prompt.ids))

    def fill(self, ids: Sequence[int]) -> None:
        """Tokens computed ahead of a request."""
        if self._kept is not None:
            self._kept.visit(ids)

    def clear(self) -> None:
        if self._kept is not None:
            self._kept.clear()


def _sent(request: Request) -> tuple[int, ...]:
    """What the engine first gets for a cell."""
    return request.prompt.ids + (() if request.thoughts else request.forced_ids)


Result = tuple[ReadyCell, ModelOutput, int | None]
"""A cell, its output and its cached tokens by the ledger."""


def run_batch(
    batch: ReadyBatch, model: Model, ledger: Ledger, template: ChatTemplate, alone: Alone | None
) -> Iterator[Result]:
    """Outputs of one batch as they come; a failing engine turns the rest into error outputs."""
    waiting = {ready.request.cell_id: ready for ready in batch.cells}
    cells = ledger.order(batch.cells)
    predicted: dict[str, int | None] = {}
    try:
        if alone is None:
            predicted = {cell.request.cell_id: ledger.visit(cell.request) for cell in cells}
            outputs = _together([cell.request for cell in cells], model, template)
        else:
            outputs = _one_by_one(cells, model, ledger, alone, predicted)
        for cell_id, output in outputs:
            yield waiting.pop(cell_id), output, predicted[cell_id]
        if waiting:
            raise ProviderError("the engine ended the batch without a word about this cell")
    except ProviderError as error:
        for ready in list(waiting.values()):
            yield ready, _failed(ready, str(error)), None


def _together(
    requests: Sequence[Request], model: Model, template: ChatTemplate
) -> Iterator[tuple[str, ModelOutput]]:
    plain = [request for request in requests if not request.thoughts]
    thinking = [request for request in requests if request.thoughts]
    if plain:
        yield from model.run(plain)
    if thinking:
        yield from choose_after_thinking(model, thinking, _codec(template))


def _codec(template: ChatTemplate) -> Codec:
    return Codec(
        encode=lambda text: template.encode(text).ids,
        decode=template.decode,
        count=lambda output, think_open: count_reply(output, think_open, template),
    )


def _one_by_one(
    cells: Sequence[ReadyCell],
    model: Model,
    ledger: Ledger,
    alone: Alone,
    predicted: dict[str, int | None],
) -> Iterator[tuple[str, ModelOutput]]:
    for cell in cells:
        if alone.cache != "natural":
            ledger.clear()
        if alone.cache == "warm":
            ledger.fill(cell.request.prompt.ids[: cell.shared])
        predicted[cell.request.cell_id] = ledger.visit(cell.request)
        yield cell.request.cell_id, model.run_alone(cell.request, alone.cache, cell.shared)


def _failed(ready: ReadyCell, error: str) -> ModelOutput:
    usage = ModelUsage(prompt_tokens=len(ready.request.prompt.ids), completion_tokens=None)
    timing = Timing(started_at=datetime.now(UTC).isoformat())
    return ModelOutput("", (), "error", usage, timing, error=error)


def unfinished(preflight: Preflight, log: RunLog) -> list[list[ReadyBatch]]:
    """What is still to be computed: batches that have an unfinished cell, in plan order, those of the same clusters
    together. Between two such groups a run may stop, and every arm has the same clusters."""
    todo = [b for b in preflight.batches if any(c.request.cell_id not in log.finished for c in b.cells)]
    return [list(group) for _, group in itertools.groupby(todo, _clusters)]


def _clusters(batch: ReadyBatch) -> frozenset[tuple[str, str]]:
    return frozenset((ready.cell.sample.series, ready.cell.sample.cluster) for ready in batch.cells)


def requests_of(group: Sequence[ReadyBatch]) -> list[Request]:
    """The requests of a group of batches."""
    return [ready.request for batch in group for ready in batch.cells]


def run_all(
    preflight: Preflight,
    model: Model,
    log: RunLog,
    setting: Setting,
    *,
    alone: Alone | None,
    progress: Progress,
    tally: Tally | None = None,
    meter: Watch | None = None,
) -> Tally:
    """Every batch that has an unfinished cell, in plan order; with `alone` one request at a time, timed. A
    batch is computed whole, so that its numbers do not depend on where a run was stopped; its finished rows
    are kept as they are. `tally` is kept up to date, so that it tells of a run that was stopped, too; where the
    `meter` says stop (a limit would be passed, or enough is known), `tally.stopped` says why and nothing more is run.

    Raises ModelError when the engine fails batch after batch.
    """
    total = len(preflight.cell_order)
    tally = tally if tally is not None else Tally()
    todo = unfinished(preflight, log)
    progress(len(log.finished), total)
    if not todo or _stop(tally, meter, todo[0]):
        return tally
    ledger = Ledger(model.cache_block, model.cache_blocks)
    begun = perf_counter()
    if alone:
        _warm_up(todo[0][0], model, alone)
        begun = perf_counter()
    else:
        model.share_prefix(preflight.shared_prefix)
        ledger.fill(preflight.shared_prefix)
    if meter is not None:
        meter.computing()
    failed: set[str] = set()
    for group in todo:
        if _stop(tally, meter, group):
            break
        for batch in group:
            good = False
            for ready, output, predicted in run_batch(batch, model, ledger, setting.template, alone):
                record = finish_cell(ready, batch.number, output, setting, predicted)
                log.append(record)
                if meter is not None:
                    meter.add(record)
                good = tally.count_in(output) or good
                tally.seconds = perf_counter() - begun
                progress(len(log.finished), total)
            # By sample: one that the engine refuses fails in each arm, which is no sign that the engine is gone.
            failed = set() if good else failed | {batch.cells[0].cell.sample.id}
            _check_alive(failed)
    return tally


def _stop(tally: Tally, meter: Watch | None, group: Sequence[ReadyBatch]) -> bool:
    """Notes in the tally why these clusters are not to be run; False when they are."""
    tally.stopped = meter.stop(requests_of(group)) if meter is not None else None
    return tally.stopped is not None


def _check_alive(failed: set[str]) -> None:
    """Raises ModelError when so many samples in a row failed that the engine must be gone."""
    if len(failed) == MAX_FAILED_BATCHES:
        raise ModelError(
            f"the engine failed {MAX_FAILED_BATCHES} samples in a row; finished cells are kept. "
            "See the provider_error rows for its words, then run the same command to go on"
        )


def _warm_up(batch: ReadyBatch, model: Model, alone: Alone) -> None:
    """Requests that are thrown away: the first ones pay for what an engine sets up on first use. The prompt runs
    backwards: as long as a real one, and it leaves nothing in a cache that a timed request could find. An
    engine that renders conversations by itself takes a proved one only."""
    request = batch.cells[0].request
    backwards = replace(request, prompt=replace(request.prompt, ids=request.prompt.ids[::-1]))
    for _ in range(alone.warmups):
        with contextlib.suppress(ProviderError):  # if it lasts, the first cell says so
            try:
                model.run_alone(backwards, alone.cache, 0)
            except ConfoundError:
                model.run_alone(request, alone.cache, 0)


def rescore(records: Sequence[EvalRecord], score: Scorer) -> list[EvalRecord]:
    """The same cells, parsed and scored anew from what was recorded."""
    fresh = []
    for record in records:
        if record.parsed is not None:
            again = parse_reply(
                record.output.text, tool_names=record.tool_names, think_open=record.think_open
            )
            parsed = replace(
                again,
                thinking_start_missing=record.parsed.thinking_start_missing,
                thinking_end_missing=record.parsed.thinking_end_missing,
            )
            record = replace(record, parsed=parsed)
        fresh.append(replace(record, score=score(record)))
    return fresh
