"""`tailgauge plan`: what a run will ask of the model, take, cost and be able to find, before it costs anything.

Needs no model: with the model's tokenizer at hand every prompt is rendered and counted as the run would; without one
cells, clusters and the differences that can be found are still known, tokens are not.
"""

import argparse
import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.analysis.frames import Arm, arms_of
from harness.analysis.pairs import Pair, pairs
from harness.analysis.planning import (
    Assumed,
    Effect,
    Seconds,
    Work,
    compliance_effects,
    estimate_seconds,
    expected_draw,
    sensitivity_effects,
    speed,
)
from harness.analysis.verdicts import Margins
from harness.budget import Price
from harness.commands.build import local_folder, prompts
from harness.commands.outlook import show
from harness.commands.pilots import Pilots, find
from harness.commands.workload import Part, computed_tokens, parts_of
from harness.compose import build_arms, compose
from harness.conditions import Condition
from harness.config import RunConfig
from harness.dataset import expected, load_scenario
from harness.errors import ConfigError
from harness.plan import Cell, build_plan
from harness.preflight import Preflight
from harness.runlog.files import atomic_file
from harness.weights import available

TRIAL = "10m"
"""Suggested `max_time` of a first stretch of the run itself, which then serves as the pilot."""


@dataclass(frozen=True, slots=True)
class Design:
    """What is known before any estimate. `preflight` is None without a tokenizer."""

    config: RunConfig
    conditions: tuple[Condition, ...]
    cells: tuple[Cell, ...]
    preflight: Preflight | None
    parts: tuple[Part, ...]


def main(parsed: argparse.Namespace) -> int:
    config = compose(parsed.overrides)
    assumed = _assumed(parsed)
    if parsed.json and not Path(parsed.json).absolute().parent.is_dir():
        raise ConfigError(f"--json {parsed.json}: its folder does not exist; make it, or name another")
    design = _design(config)
    pilots = find(config, parsed.pilot)
    outlook = _outlook(design, pilots, assumed, parsed)
    show(outlook)
    if parsed.json:
        with atomic_file(Path(parsed.json)) as handle:
            handle.write((json.dumps(outlook, indent=2, ensure_ascii=False) + "\n").encode())
    return 0


def _assumed(parsed: argparse.Namespace) -> Assumed:
    if parsed.sd is not None and not 0 < parsed.sd < float("inf"):
        raise ConfigError(f"--sd {parsed.sd}: expected a spread above 0, in logits")
    if parsed.rate is not None and not 0 < parsed.rate < 1:
        raise ConfigError(f"--rate {parsed.rate}: expected a share between 0 and 1, neither included")
    if parsed.icc is not None and not 0 <= parsed.icc < 1:
        raise ConfigError(f"--icc {parsed.icc}: expected a correlation from 0 to below 1")
    given = {key: getattr(parsed, key) for key in ("sd", "rate", "icc")}
    return Assumed(**{key: value for key, value in given.items() if value is not None})


def _design(config: RunConfig) -> Design:
    scenario, conditions = load_scenario(config.scenario.file), build_arms(config.condition)
    folder = local_folder(config.model)
    if folder is None:
        if config.model.path:
            raise ConfigError(f"model.path={config.model.path}: no such folder; give one with a tokenizer")
        plan = build_plan(config, scenario, lambda text: len(text.split()))
        cells = tuple(cell for batch in plan for cell in batch.cells)
        return Design(config, conditions, cells, None, tuple(parts_of(config, cells, None)))
    _, preflight = prompts(config, scenario, conditions, folder)
    ready = [each for batch in preflight.batches for each in batch.cells]
    cells = tuple(each.cell for each in ready)
    requests = {each.request.cell_id: each.request for each in ready}
    return Design(config, conditions, cells, preflight, tuple(parts_of(config, cells, requests)))


def _outlook(design: Design, pilots: Pilots, assumed: Assumed, parsed: argparse.Namespace) -> dict[str, Any]:
    """Everything that is shown, as plain data: the same numbers on the terminal and in the file."""
    config, preflight = design.config, design.preflight
    draws = {
        part: expected_draw(pilots.spread, part.probe, part.series, part.condition, part.tau)
        for part in design.parts
        if part.draws
    }
    rows = [_row(part, draws.get(part)) for part in design.parts]
    computed = None if preflight is None else computed_tokens(config, preflight)
    totals = {
        "cells": sum(part.cells for part in design.parts),
        "clusters": len({cell.sample.cluster for cell in design.cells}),
        "prompt_tokens": _sum(row["prompt_tokens"] for row in rows),
        "computed_tokens": computed,
        "new_tokens_expected": _sum(row["new_tokens_expected"] for row in rows),
        "new_tokens_most": sum(part.most_new for part in design.parts),
    }
    time = _time(totals, pilots)
    kept = [override for override in parsed.overrides if not override.startswith("max_time=")]
    command = shlex.join(["tailgauge", "run", *kept, f"max_time={TRIAL}"])
    return {
        "experiment": config.experiment,
        "model": config.model.name,
        "scenario": config.scenario.file,
        "measure": config.measure,
        "parts": rows,
        "totals": totals,
        "time": time,
        "money": _money(config.model.price, totals, time),
        "limits": {"max_time": config.max_time, "max_spend": config.max_spend},
        "effects": [asdict(effect) for effect in _effects(design, pilots, assumed, parsed)],
        "assumptions": asdict(assumed),
        "trial": command,
        "notes": [*_notes(design), *pilots.notes],
    }


def _sum(values: Any) -> float | None:
    found = list(values)
    return None if any(value is None for value in found) else sum(found)


def _row(part: Part, draw: float | None) -> dict[str, Any]:
    expected = 0.0 if not part.draws else None if draw is None else draw * part.draws
    return {
        "probe": part.probe,
        "series": part.series,
        "condition": part.condition,
        "cells": part.cells,
        "clusters": part.clusters,
        "prompt_tokens": part.prompt,
        "new_tokens_expected": expected,
        "new_tokens_most": part.most_new,
    }


def _time(totals: Mapping[str, Any], pilots: Pilots) -> dict[str, Any] | None:
    """Seconds; None where no pilot tells, or no tokenizer."""
    if totals["prompt_tokens"] is None or not pilots.speed:
        return None
    by_computed = totals["computed_tokens"] is not None
    prompt = float(totals["computed_tokens"] if by_computed else totals["prompt_tokens"])
    seen = [
        (pilot.work if by_computed else Work(pilot.prompt, pilot.work.new), pilot.seconds)
        for pilot in pilots.speed
    ]
    most = estimate_seconds(seen, Work(prompt, float(totals["new_tokens_most"])))
    if most is None:
        return None
    new = totals["new_tokens_expected"]
    expected = (
        estimate_seconds(seen, Work(prompt, float(new))) if new is not None else Seconds(None, 0.0, None)
    )
    rates = speed(seen)
    return {
        "expected": expected.expected if expected else None,
        "low": expected.low if expected and new is not None else most.low,
        "high": expected.high if expected else None,
        "most": most.high,
        "start": max(pilot.start for pilot in pilots.speed),
        "seconds_per_prompt_token": rates.prompt if rates else None,
        "seconds_per_new_token": rates.new if rates else None,
        "per": "computed prompt token" if by_computed else "prompt token",
        "pilots": [str(pilot.path) for pilot in pilots.speed],
    }


def _money(price: Price, totals: Mapping[str, Any], time: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`low`, `high`: replies as long as the pilots'; `most`: every reply at its limit and nothing cached. None where
    the model has no price; a part of which nothing is known makes its sum None."""
    if not price.known:
        return None

    def amount(new: float | None, cached: float | None, seconds: float | None) -> float | None:
        prompt = totals["prompt_tokens"]
        tokens = None if price.by_token and prompt is None else price.of_tokens(prompt or 0.0, cached, new)
        if tokens is None or (price.per_hour is not None and seconds is None):
            return None
        return tokens + price.of_seconds(seconds or 0.0)

    held = {key: None if time is None or time[key] is None else time[key] + time["start"] for key in _HELD}
    computed, expected = totals["computed_tokens"], totals["new_tokens_expected"]
    cached = None if computed is None else max(totals["prompt_tokens"] - computed, 0)
    return {
        "currency": price.currency,
        "low": amount(expected, cached, held["low"]),
        "high": amount(expected, None, held["high"]),
        "most": amount(totals["new_tokens_most"], None, held["most"]),
    }


_HELD = ("low", "high", "most")


def _effects(design: Design, pilots: Pilots, assumed: Assumed, parsed: argparse.Namespace) -> list[Effect]:
    found = [pair for pair in pairs(_arms(design.conditions)) if pair.kind == "bar - placebo"]
    margins = Margins(**design.config.margins.model_dump())
    matched = [cell for cell in design.cells if cell.sample.series == "matched"]
    chosen = {pair: _shared(matched, "choose", pair) for pair in found}
    sizes = {pair: _sizes(matched, pair) for pair in found}
    return [
        *sensitivity_effects(
            {pair: clusters for pair, clusters in chosen.items() if clusters},
            pilots.spread, assumed, parsed.sd is not None, margins,
        ),
        *compliance_effects(
            {pair: size for pair, size in sizes.items() if size},
            pilots.spread, assumed, parsed.rate is not None, margins,
        ),
    ]  # fmt: skip


def _arms(conditions: Sequence[Condition]) -> tuple[Arm, ...]:
    """The arms with their roles, as the analysis of the finished run will see them."""
    import pandas as pd

    entries = [condition.entry(conditions) for condition in conditions]
    return arms_of({"conditions": entries}, pd.DataFrame(columns=["condition", "bar", "placement"]))


def _shared(cells: Sequence[Cell], probe: str, pair: Pair) -> int:
    """Clusters in which both arms of a pair have cells of a probe."""
    found = [
        {cell.sample.cluster for cell in cells if cell.probe == probe and cell.condition == arm.name}
        for arm in (pair.arm, pair.against)
    ]
    return len(found[0] & found[1])


def _sizes(cells: Sequence[Cell], pair: Pair) -> tuple[int, ...]:
    """Forbidden-side free replies of each cluster in the arm and the one that it is compared with."""
    there = [
        Counter(
            cell.sample.cluster
            for cell in cells
            if cell.probe == "act"
            and cell.condition == arm.name
            and expected(cell.sample).side == "forbidden"
        )
        for arm in (pair.arm, pair.against)
    ]
    return tuple(min(there[0][cluster], there[1][cluster]) for cluster in there[0] if there[1][cluster])


def _notes(design: Design) -> list[str]:
    if design.preflight is not None:
        return list(design.preflight.left_out)
    model = design.config.model
    status = next((each for each in available() if each.name == model.embedded), None)
    what = f"{status.source} ({status.state})" if status else f"the hub, {model.hub}"
    return [
        f"the tokenizer of {model.name} is not on this machine, so tokens, time and money are unknown and lengths "
        f"that do not fit the model are not left out; `tailgauge run` fetches it with the weights: {what}"
    ]
