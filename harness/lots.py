"""Cells that do not depend on each other → model → log: as they come, many clusters at once.

For models behind an API. An engine of ours computes a batch whole, so that a number does not depend on where a run was
stopped; here a cell is a request of its own, and one that is finished is never asked, nor paid, again.
"""

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Protocol

from harness.budget import Stop, Watch
from harness.errors import ModelError
from harness.preflight import Preflight, ReadyCell
from harness.runlog import RunLog
from harness.runner import MAX_FAILED_BATCHES, Progress, Setting, Tally, finish_cell
from harness.types import ModelOutput, Request

MAX_FAILED_CELLS = 12
"""Cells in a row, in the order in which they ended, without a good one between them: with those of
MAX_FAILED_BATCHES samples or more among them the provider is gone."""


class Independent(Protocol):
    """A model whose cells are computed apart."""

    spent_out: bool
    """Whether the last `run` ended because the next request would not have fitted the spend cap."""

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[str, ModelOutput]]: ...

    def halt(self) -> None:
        """No new cell begins; those in flight are finished."""


def run_lots(
    preflight: Preflight,
    model: Independent,
    log: RunLog,
    setting: Setting,
    *,
    progress: Progress,
    tally: Tally,
    meter: Watch | None = None,
) -> None:
    """Every unfinished cell, in plan order, all that are in flight at once. Where the `meter` or the spend cap says
    stop no new cell begins, `tally.stopped` says why, and what is in flight is still written.

    Raises ModelError when cell after cell fails: the provider is gone, and the same command goes on later.
    """
    todo = {
        ready.request.cell_id: (batch.number, ready)
        for batch in preflight.batches
        for ready in batch.cells
        if ready.request.cell_id not in log.finished
    }
    total = len(preflight.cell_order)
    progress(len(log.finished), total)
    if meter is not None:
        meter.computing()
    begun = perf_counter()
    failed: list[ReadyCell] = []
    for cell_id, output in model.run([ready.request for _, ready in todo.values()]):
        number, ready = todo[cell_id]
        record = finish_cell(ready, number, output, setting)
        log.append(record)
        if meter is not None:
            meter.add(record)
        tally.count_in(output)
        tally.seconds = perf_counter() - begun
        progress(len(log.finished), total)
        failed = [*failed, ready] if output.finish_reason == "error" else []
        _check_alive(failed, output)
        if tally.stopped is None and meter is not None:
            tally.stopped = meter.stop(())
            if tally.stopped is not None:
                model.halt()
    if model.spent_out and tally.stopped is None:
        tally.stopped = Stop(
            "max_spend", "max_spend: the most that the next request can cost does not fit any more"
        )


def _check_alive(failed: Sequence[ReadyCell], output: ModelOutput) -> None:
    samples = {ready.cell.sample.id for ready in failed}
    if len(failed) >= MAX_FAILED_CELLS and len(samples) >= MAX_FAILED_BATCHES:
        raise ModelError(
            f"the provider failed {len(failed)} cells in a row, the last with: {output.error}. Finished cells are kept; "
            "the same command goes on from there"
        )
