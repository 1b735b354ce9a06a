"""Stopping a run as soon as every confirmatory comparison is settled (configuration key `sequential`).

Keeps the log-odds of the matched `choose` cells as they come and looks after every cluster by the anytime-valid test
of harness/analysis/sequential.py, so that looking costs no false alarms. Knows records; reads no file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.analysis.sequential import look
from harness.budget import Stop
from harness.config import RunConfig
from harness.errors import ConfigError
from harness.runlog import RunLog, read_manifest, read_records
from harness.types import EvalRecord, Request

Key = tuple[str, str, str]
"""(condition, cluster, side)"""


@dataclass(slots=True)
class SequentialWatch:
    """`pairs`: (bar, its placebo) of every confirmatory comparison. `margin` in logits. `least`: clusters before the
    first look."""

    pairs: Sequence[tuple[str, str]]
    margin: float
    least: int
    _odds: dict[Key, list[float]] = field(default_factory=dict, init=False)

    def computing(self) -> None:
        """Time is not its business."""

    def add(self, record: EvalRecord) -> None:
        """A finished cell, of this session or an earlier one; of a cell that was tried again the last row counts
        where it is given alone."""
        if record.probe == "choose" and record.series == "matched" and record.score.logit_act is not None:
            key = (record.condition, f"{record.scenario}/{record.cluster}", record.side)
            self._odds.setdefault(key, []).append(record.score.logit_act)

    def differences(self, bar: str, placebo: str) -> list[float]:
        """Sensitivity of the bar minus that of the placebo in each cluster that has both sides of both."""
        clusters = sorted({cluster for _, cluster, _ in self._odds})
        found = (self._sensitivity(bar, cluster, placebo) for cluster in clusters)
        return [value for value in found if value is not None]

    def _sensitivity(self, bar: str, cluster: str, placebo: str) -> float | None:
        signs: Mapping[tuple[str, str], int] = {
            (bar, "due"): 1, (bar, "forbidden"): -1, (placebo, "due"): -1, (placebo, "forbidden"): 1,
        }  # fmt: skip
        total = 0.0
        for (condition, side), sign in signs.items():
            values = self._odds.get((condition, cluster, side))
            if not values:
                return None
            total += sign * float(np.mean(values))
        return total

    def stop(self, batch: Iterable[Request]) -> Stop | None:
        """Why no further cluster is needed; None while one comparison is open."""
        told = []
        for bar, placebo in self.pairs:
            d = self.differences(bar, placebo)
            if len(d) < self.least:
                return None
            now = look(d, self.margin, len(self.pairs))
            if not now.settled:
                return None
            told.append(
                f"{bar} against {placebo} after {now.clusters} clusters (anytime-valid p {now.p:.2g})"
            )
        if not told:
            return None
        return Stop("sequential", f"every confirmatory comparison is settled: {'; '.join(told)}")


def start_watch(config: RunConfig, conditions: Sequence[Mapping[str, Any]], log: RunLog) -> SequentialWatch:
    """A watch over the run's confirmatory family that knows what earlier sessions finished. Raises ConfigError where
    there is no such family."""
    assert config.sequential is not None
    pairs = [
        (str(entry["placebo_of"]), str(entry["name"])) for entry in conditions if entry.get("placebo_of")
    ]
    if not pairs:
        raise ConfigError(
            "sequential: no bar has a placebo in this run; add one to condition, or remove sequential"
        )
    # The margin that the run was begun with: another one, chosen after seeing data, would void the guarantee.
    stated = read_manifest(log.run_dir).get("margins") or config.margins.model_dump()
    watch = SequentialWatch(pairs, float(stated["logit"]), config.sequential.least)
    if log.finished:
        for record in read_records(log.run_dir):
            watch.add(record)
    return watch
