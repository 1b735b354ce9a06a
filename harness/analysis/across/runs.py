"""Finished runs → entries of a comparison: which runs belong to one model, and which points two models share.

Knows manifests and the columns that describe a decision point; knows no statistic and no table. A latency run joins
the other run of the same model; a run that stands alone is an entry of its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.analysis.decisions import MATCHED
from harness.analysis.frames import RunData, load
from harness.analysis.sentences import model_name
from harness.analysis.verdicts import Margins, margins_of
from harness.budget import Price
from harness.errors import ReportError

_POINT = ["side", "target", "phrasing", "prior_calls", "limit", "filler_tokens"]
"""What must agree at a sample id before two runs count as having asked the same question."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the comparison: the run that decisions are read from, and its latency runs."""

    name: str
    """The model's name; the run id where the same model takes part twice."""
    run: RunData
    timed: tuple[RunData, ...] = ()
    """Runs of measure=latency; `run` itself where it is one."""
    price: Price | None = None

    @property
    def run_id(self) -> str:
        return run_id(self.run)


def load_all(paths: Sequence[Path], different_scenarios: bool = False) -> tuple[Entry, ...]:
    """Read the run folders and join them into one entry per model, in the order given.

    Raises ReportError: a folder is no finished run, a run is named twice, or the runs replay different scenarios
    (unless `different_scenarios`), or one was looked at after every cluster.
    """
    if not paths:
        raise ReportError("compare: no run given; name the folders of at least one finished run")
    runs = [load(path) for path in paths]
    for number, run in enumerate(runs):
        twin = next((other for other in runs[:number] if run_id(other) == run_id(run)), None)
        if twin is not None:
            raise ReportError(
                f"{run.path}: the same run as {twin.path} (run_id {run_id(run)}); name each run once"
            )
    looked = next((run for run in runs if run.manifest.get("sequential")), None)
    if looked is not None:
        raise ReportError(
            f"{looked.path}: the run was looked at after every cluster (sequential), so that a p for a fixed number of "
            "clusters does not hold for it; compare runs without sequential, or read its own report"
        )
    if not different_scenarios:
        _check_scenarios(runs)
    return _named(_joined(runs))


def run_id(run: RunData) -> str:
    """The manifest's run id, else the folder's name."""
    return str(run.manifest.get("run_id") or run.path.resolve().name)


def scenario(run: RunData) -> str | None:
    """The scenario's hash, None where the manifest has none."""
    return _input(run, "scenario")


def template(run: RunData) -> str | None:
    """The chat template's hash, None where the manifest has none."""
    return _input(run, "template")


def seed(run: RunData) -> object:
    """The seed that the episodes were drawn with, None where unknown."""
    return _mapping(run.manifest.get("config")).get("seed")


def engine(run: RunData) -> str:
    """Engine, device, number type and machine in a few words; empty where the manifest says nothing."""
    facts = _mapping(run.manifest.get("engine"))
    kind = facts.get("backend") or facts.get("engine")
    hardware = facts.get("gpu") or (
        _mapping(run.manifest.get("cpu")).get("model") if facts.get("device") == "cpu" else None
    )
    count = _mapping(run.manifest.get("cpu")).get("count") if facts.get("device") == "cpu" else None
    machine = f"{hardware} × {count}" if hardware and count else hardware
    return ", ".join(str(fact) for fact in (kind, facts.get("device"), facts.get("dtype"), machine) if fact)


def is_latency(run: RunData) -> bool:
    """Whether its cells were measured one at a time."""
    return bool((run.timings["measure"] == "latency").any())


def margins_for(entries: Sequence[Entry], stated_by: str | None = None) -> Margins:
    """The equivalence margins that all runs state, or those of the entry named `stated_by`.

    Raises ReportError when the runs state different ones and none is named.
    """
    if stated_by is not None:
        return margins_of(find(entries, stated_by).run.manifest)
    stated = {entry.name: margins_of(entry.run.manifest) for entry in entries}
    first, margins = next(iter(stated.items()))
    other = next((name for name in stated if stated[name] != margins), None)
    if other is not None:
        raise ReportError(
            f"{other}: states other margins ({stated[other]}) than {first} ({margins}); name the run whose margins "
            "are to hold with --margins-of"
        )
    return margins


def find(entries: Sequence[Entry], name: str) -> Entry:
    """The entry of this model name, run id or folder; raises ReportError that lists the entries."""
    wanted = name.rstrip("/")
    for entry in entries:
        folders = {str(run.path) for run in (entry.run, *entry.timed)}
        names = {entry.name, entry.run_id, model_name(entry.run.manifest), entry.run.path.name, *folders}
        if wanted in names:
            return entry
    there = ", ".join(entry.name for entry in entries)
    raise ReportError(f"{name}: no such model in this comparison; expected one of: {there}")


def unpaired_because(first: RunData, second: RunData) -> str:
    """Why the two runs' decision points are not the same ones; empty where they are, so that pairs can be formed."""
    if scenario(first) is None or scenario(second) is None:
        return "a manifest names no scenario hash"
    if scenario(first) != scenario(second):
        return "the scenarios differ"
    if seed(first) != seed(second) or seed(first) is None:
        return "the seeds differ" if None not in (seed(first), seed(second)) else "a manifest names no seed"
    points = [
        run.cells[run.cells["series"] == MATCHED].drop_duplicates("sample_id").set_index("sample_id")[_POINT]
        for run in (first, second)
    ]
    shared = points[0].index.intersection(points[1].index)
    if not len(shared):
        return "no decision point is in both"
    left, right = (frame.loc[shared].fillna(-1).astype(str) for frame in points)
    if not left.equals(right):
        return "the same sample ids stand for different questions"
    return ""


def _check_scenarios(runs: Sequence[RunData]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if scenario(run) != scenario(first):
            short = [(scenario(one) or "unknown")[:10] for one in (first, run)]
            raise ReportError(
                f"{run.path}: replays another scenario ({short[1]}) than {first.path} ({short[0]}); compare "
                "runs of one scenario, or add --different-scenarios for an unpaired comparison"
            )


def _joined(runs: Sequence[RunData]) -> list[Entry]:
    """Latency runs join every other run of their model; those that find none are entries of their own."""
    hosts = [run for run in runs if not is_latency(run)]
    timings = [run for run in runs if is_latency(run)]
    alone: dict[tuple[object, ...], list[RunData]] = {}
    for run in timings:
        if not any(_key(host) == _key(run) for host in hosts):
            alone.setdefault(_key(run), []).append(run)
    opened = {id(run) for run in hosts} | {id(group[0]) for group in alone.values()}
    made = []
    for run in runs:
        if id(run) in opened:
            mine = tuple(other for other in timings if _key(other) == _key(run))
            made.append(Entry("", run, mine, price_of(run)))
    return made


def _key(run: RunData) -> tuple[object, ...]:
    """What makes two runs ones of the same model: name, weights, template, thinking and scenario."""
    model = _mapping(_mapping(run.manifest.get("config")).get("model"))
    return (
        model_name(run.manifest), _input(run, "weights"), template(run), model.get("thinking"), scenario(run),
    )  # fmt: skip


def _named(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    models = [model_name(entry.run.manifest) for entry in entries]
    often = Counter(models)
    return tuple(
        replace(entry, name=model if often[model] == 1 else entry.run_id)
        for entry, model in zip(entries, models, strict=True)
    )


def price_of(run: RunData) -> Price | None:
    """The price that the manifest states, itself or in its configuration's model; None where there is none.

    Raises ReportError when it is no price: a negative number, an unknown key, no currency.
    """
    model = _mapping(_mapping(run.manifest.get("config")).get("model"))
    stated = run.manifest.get("price") or model.get("price")
    if not stated:
        return None
    try:
        price = Price.model_validate(stated)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["price", *(str(part) for part in first["loc"])])
        raise ReportError(
            f"{run.path / 'manifest.json'}: {where}: {first['msg']}; mend it, or delete `price`"
        ) from error
    return price if price.known else None


def _input(run: RunData, name: str) -> str | None:
    value = _mapping(run.manifest.get("inputs")).get(name)
    return str(value) if value else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
