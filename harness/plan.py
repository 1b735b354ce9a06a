"""Configuration + scenario → the cells of a run, in batches whose composition never changes.

Pure: no tokenizer, no model, no file. A batch is the unit that a backend computes as one; it is fixed by
the plan alone, so that resuming a run cannot change a number in it.
"""

import hashlib
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.config import ProbeConfig, RunConfig, SeriesConfig
from harness.dataset import Scenario, asking, expand
from harness.errors import ConfigError
from harness.statusbar.truncation import cut_results
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
            for sample in _samples(config, scenario, series, spec, count_tokens):
                sample = asking(scenario, sample) if name == "ask" else sample
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
    config: RunConfig, scenario: Scenario, series: str, spec: SeriesConfig, count_tokens: Callable[[str], int]
) -> list[Sample]:
    """The samples of a series; where the configuration says so with their results cut, before any bar comes in."""
    extra = {
        "matched": {},
        "prior_calls": {"prior_calls": spec.prior_calls},
        "moved_limit": {"prior_calls": spec.prior_calls},
        "filler": {"filler_tokens": spec.filler_tokens or (), "count_tokens": count_tokens},
    }[series]
    made = expand(scenario, series=series, clusters=spec.clusters, seed=config.seed, **extra)  # type: ignore[arg-type]
    limit = config.scenario.cut_results
    if limit is None:
        return made
    cut = [replace(sample, messages=cut_results(sample.messages, limit)) for sample in made]
    if all(one.messages == other.messages for one, other in zip(cut, made, strict=True)):
        raise ConfigError(
            f"scenario.cut_results={limit}: no tool result of series {series} is longer, so that nothing is cut; lower it"
        )
    return cut


def _cells(sample: Sample, probe: ProbeName, arms: Iterable[str], config: RunConfig) -> Iterator[Cell]:
    # Exact probabilities do not vary from draw to draw: one epoch.
    epochs = 1 if probe == "choose" else config.epochs
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
    """One cell per batch, one series of the probe after the other; in each, every sample runs all arms, their
    orders drawn from the seed so that each order comes equally often, over a curve also at every one of its
    points. Raises ConfigError when a series has too few samples, or its clusters would not be whole."""
    probe: ProbeConfig = config.probe["act"]
    wanted = config.latency.samples
    timed: dict[str, list[Sample]] = {
        series: _samples(config, scenario, series, spec, count_tokens)
        for series, spec in probe.series.items()
    }
    _check_whole(timed, wanted)
    arms = [name for name in config.condition if name in config.latency.conditions]
    orders = list(itertools.permutations(arms))
    random.Random(config.seed).shuffle(orders)
    cells = [
        cell
        for series, samples in timed.items()
        for turn, sample in zip(_turns(wanted, _points(series, samples)), samples, strict=False)
        for cell in _cells(sample, "act", orders[turn % len(orders)], config)
    ]
    return tuple(Batch(number, (cell,)) for number, cell in enumerate(cells))


def _points(series: str, samples: Sequence[Sample]) -> int:
    """Samples in a cluster of a curve; matched pairs are no curve, each of their samples stands for itself."""
    return 1 if series == "matched" else sum(sample.cluster == samples[0].cluster for sample in samples)


def _turns(wanted: int, points: int) -> list[int]:
    """For the first `wanted` samples of a series, whose turn it is among the orders of the arms: the next one for
    the next point of a curve, and for the same point of the next cluster."""
    return [index % points + index // points for index in range(wanted)]


def _check_whole(timed: Mapping[str, Sequence[Sample]], wanted: int) -> None:
    """Refuses orders that would not be balanced, and a last cluster of which only some points are timed."""
    points = {series: _points(series, samples) for series, samples in timed.items()}
    for series, samples in timed.items():
        if len(samples) < wanted:
            raise ConfigError(
                f"latency.samples={wanted}: probe.act.series.{series} has only {len(samples)} samples; "
                "the orders of the arms would not be balanced. Raise its clusters or lower latency.samples"
            )
        if wanted % points[series]:
            raise ConfigError(
                f"latency.samples={wanted}: each cluster of probe.act.series.{series} has {points[series]} samples; "
                f"take a multiple of {math.lcm(*points.values())}, so that every length and side is timed equally often"
            )
