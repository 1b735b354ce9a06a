"""Configuration + scenario → the cells of a run, in batches whose composition never changes.

Pure: no tokenizer, no model, no file. A batch is the unit that a backend computes as one; it is fixed by
the plan alone, so that resuming a run cannot change a number in it.
"""

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.config import ProbeConfig, RunConfig, SeriesConfig
from harness.dataset import Scenario, expand
from harness.errors import ConfigError
from harness.types import ProbeName, Sample


@dataclass(frozen=True, slots=True)
class Cell:
    """sample × condition × probe × epoch."""

    sample: Sample
    condition: str
    probe: ProbeName
    epoch: int
    seed: int

    @property
    def id(self) -> str:
        return f"{self.sample.id}|{self.condition}|{self.probe}|{self.epoch}"


@dataclass(frozen=True, slots=True)
class Batch:
    """Cells that are computed together, in a fixed order."""

    number: int
    cells: tuple[Cell, ...]


def build_plan(
    config: RunConfig, scenario: Scenario, count_tokens: Callable[[str], int]
) -> tuple[Batch, ...]:
    """All batches of a run. Raises ConfigError or ScenarioError when a series cannot be expanded."""
    if config.measure == "latency":
        return _latency_plan(config, scenario, count_tokens)
    clusters: dict[str, list[Cell]] = {}
    for name, probe in config.probe.items():
        for series, spec in probe.series.items():
            arms = _arms(config, spec)
            for sample in _samples(scenario, series, spec, config.seed, count_tokens):
                cells = clusters.setdefault(sample.cluster, [])
                cells.extend(_cells(sample, name, arms, config))
    groups = _batched(list(clusters.values()), config.model.batch_clusters)
    return tuple(
        Batch(number, tuple(itertools.chain.from_iterable(group))) for number, group in enumerate(groups)
    )


def _batched(items: Sequence[list[Cell]], size: int) -> Iterator[Sequence[list[Cell]]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _arms(config: RunConfig, spec: SeriesConfig) -> list[str]:
    """The run's arms in its own order, narrowed to those that the series wants."""
    return [name for name in config.condition if spec.conditions is None or name in spec.conditions]


def _samples(
    scenario: Scenario, series: str, spec: SeriesConfig, seed: int, count_tokens: Callable[[str], int]
) -> list[Sample]:
    extra = {
        "matched": {},
        "prior_calls": {"prior_calls": spec.prior_calls},
        "moved_limit": {"prior_calls": spec.prior_calls},
        "filler": {"filler_tokens": spec.filler_tokens or (), "count_tokens": count_tokens},
    }[series]
    return expand(scenario, series=series, clusters=spec.clusters, seed=seed, **extra)  # type: ignore[arg-type]


def _cells(sample: Sample, probe: ProbeName, arms: Iterable[str], config: RunConfig) -> Iterator[Cell]:
    # Exact probabilities do not vary from draw to draw: one epoch.
    epochs = config.epochs if probe == "act" else 1
    for arm in arms:
        for epoch in range(epochs):
            yield Cell(sample, arm, probe, epoch, cell_seed(config.seed, sample.id, probe, epoch))


def cell_seed(seed: int, sample_id: str, probe: str, epoch: int) -> int:
    """The same in every arm of a sample: common random numbers sharpen the paired comparison."""
    digest = hashlib.sha256(f"{seed}|{sample_id}|{probe}|{epoch}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _latency_plan(
    config: RunConfig, scenario: Scenario, count_tokens: Callable[[str], int]
) -> tuple[Batch, ...]:
    """One cell per batch; every sample runs all arms, their orders drawn from the seed so that each
    order comes equally often, over a curve also at every one of its points."""
    probe: ProbeConfig = config.probe["act"]
    series = "matched" if "matched" in probe.series else next(iter(probe.series))
    samples = _samples(scenario, series, probe.series[series], config.seed, count_tokens)
    if len(samples) < config.latency.samples:
        raise ConfigError(
            f"latency.samples={config.latency.samples}: probe.act.series.{series} has only {len(samples)} samples; "
            "the orders of the arms would not be balanced. Raise its clusters or lower latency.samples"
        )
    wanted = config.latency.samples
    turns = range(wanted) if series == "matched" else _turns(samples, wanted, series)
    arms = [name for name in config.condition if name in config.latency.conditions]
    orders = list(itertools.permutations(arms))
    random.Random(config.seed).shuffle(orders)
    cells = [
        cell
        for sample, turn in zip(samples, turns, strict=False)
        for cell in _cells(sample, "act", orders[turn % len(orders)], config)
    ]
    return tuple(Batch(number, (cell,)) for number, cell in enumerate(cells))


def _turns(samples: Sequence[Sample], wanted: int, series: str) -> list[int]:
    """For the first `wanted` samples of a curve, whose turn it is among the orders of the arms: the next
    one for the next point of the curve, and for the same point of the next cluster. Raises ConfigError
    when they end in the middle of a cluster, so that some points would be timed more often than others."""
    points = sum(sample.cluster == samples[0].cluster for sample in samples)
    if wanted % points:
        raise ConfigError(
            f"latency.samples={wanted}: each cluster of probe.act.series.{series} has {points} samples; take a "
            f"multiple of {points}, so that every length and side is timed equally often"
        )
    return [index % points + index // points for index in range(wanted)]
