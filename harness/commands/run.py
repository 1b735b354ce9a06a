"""`tailgauge run`: an experiment from configuration to results folder. Calling it again resumes."""

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from harness.budget import Stop, Watch, Watches
from harness.commands import console
from harness.commands.build import Bench, build, load_model
from harness.commands.limits import note_stop, start_meter
from harness.compose import build_tracker, compose, sweep
from harness.config import RunConfig
from harness.config_checks import found_price
from harness.errors import ConfigError, ModelError, RunLogError
from harness.lots import run_lots
from harness.models.base import Model
from harness.runlog import (
    RunLog,
    finalize,
    provenance,
    read_manifest,
    run_folder,
    update_manifest,
    write_pieces,
)
from harness.runlog.files import disk_error
from harness.runner import Alone, Setting, Tally, requests_of, run_all, unfinished
from harness.scorers import score_record

_VLLM = "harness.models.vllm_engine."
STOPPED = 3
"""Exit code of a run that `max_time` or `max_spend` stopped."""
_SAME_ENGINE = ("backend", "kind", "api", "model", "host", "device", "dtype")
"""Facts of an engine that must not change within a run."""


def main(parsed: argparse.Namespace) -> int:
    """Runs one configuration, or with -m every combination of a sweep."""
    return execute_all(sweep(parsed.overrides) if parsed.multirun else [parsed.overrides])


def execute_all(runs: Sequence[Sequence[str]]) -> int:
    """Runs each list of overrides; the exit code of the first that fails, or STOPPED when a limit ended one of them
    (a limit is per run: the others go on). All are checked before the first one costs anything."""
    configs = [compose(overrides) for overrides in runs]
    if any(config.models for config in configs):
        if len(runs) > 1:
            raise ConfigError("models: an experiment with several models is one command; run it without -m")
        from harness.commands.several import execute_several  # the comparison's statistics; only here

        return execute_several(runs[0], configs[0], execute_each)
    return execute_each(runs, configs)


def execute_each(runs: Sequence[Sequence[str]], configs: Sequence[RunConfig]) -> int:
    """As `execute_all`, for configurations that were checked."""
    # An engine of vLLM gives its memory back when its process ends, and no sooner for certain.
    apart = len(runs) > 1 and any(config.model.target.startswith(_VLLM) for config in configs)
    if len(runs) > 1 and any(config.max_time or config.max_spend for config in configs):
        console.note("max_time and max_spend are limits of each run, not of all together")
    stopped = False
    for number, (overrides, config) in enumerate(zip(runs, configs, strict=True), start=1):
        if len(runs) > 1:
            console.note(f"run {number} of {len(runs)}: {' '.join(overrides)}")
        if apart:
            code = _child([sys.executable, "-m", "harness.cli", "run", *overrides])
            if code not in (0, STOPPED):
                return code if code > 0 else 128 - code
            stopped = stopped or code == STOPPED
        else:
            folder = execute(config)
            console.out.print(str(folder), markup=False)
            stopped = stopped or _by_limit(read_manifest(folder))
    return STOPPED if stopped else 0


def _by_limit(manifest: Mapping[str, Any]) -> bool:
    """True where a limit ended the run; one that ended because enough was known is whole."""
    stopped = manifest.get("stopped")
    return stopped is not None and stopped["reason"] != "sequential"


def _child(command: Sequence[str]) -> int:
    """Runs a command to its end. Ctrl-C reaches it from the terminal as it reaches us; it is given the time to
    note what it did."""
    with subprocess.Popen(command) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue


def execute(config: RunConfig) -> Path:
    """One run, its tables and figures; returns the run folder. Where a limit ended the run before its end, the
    manifest's `stopped` says so, and tables and figures are those of the finished cells."""
    tracker = build_tracker(config.tracker)  # a mistake in it is told before anything is spent
    if config.model.api is not None:
        from harness.commands.api_session import check_reachable  # HTTP clients; only where one is used

        check_reachable(config)
    folder = run_folder(Path(config.results), config.experiment, config.model.name, config.digested())
    with console.weights() as report:
        bench = build(config, report)
    total = len(bench.preflight.cell_order)
    alike = _alike(bench)
    manifest = _manifest(bench, folder) | ({"one_condition": alike} if alike else {})
    with RunLog.open(folder, manifest, config.digested()) as log:
        left = total - len(log.finished)
        done = f", {len(log.finished)} finished earlier" if log.finished else ""
        console.note(
            f"{config.experiment}: {total} cells on {config.model.name}{done}; results go to {folder}"
        )
        _tell_left_out(config)
        _tell_margins(config, folder)
        _tell_price(config)
        for sentence in (*bench.preflight.left_out, *alike):
            console.note(sentence)
        stop = _compute(bench, log) if left else None
        if not left:
            _tell_elsewhere(config, folder)
        told = note_stop(log, bench.preflight, stop)
        finished = len(log.finished)
    if finished:
        _publish(bench, folder)
    if told:
        console.note(told)
    if tracker and finished == total:
        console.note(f"logged to {tracker.log(folder)}")
    return folder


def _alike(bench: Bench) -> list[str]:
    """What conditions an API makes one of; raises ConfoundError for a conversation that it would refuse."""
    api = bench.config.model.api
    if api is None:
        return []
    from harness.commands.api_session import alike, said_alike

    return said_alike(api.provider, alike(api.provider, bench.preflight))


def _tell_elsewhere(config: RunConfig, folder: Path) -> None:
    """A finished run is shown again; whose it is must be plain when another server was named."""
    asked = config.model.server.address if config.model.server else None
    there = (read_manifest(folder).get("engine") or {}).get("address")
    if asked and there and asked.rstrip("/") != str(there).rstrip("/"):
        console.note(f"every cell was finished earlier at {there}; nothing was asked of {asked}")


def _tell_margins(config: RunConfig, folder: Path) -> None:
    """Margins are stated before a run: those that it was begun with stay."""
    asked, stated = config.margins.model_dump(), read_manifest(folder).get("margins")
    if stated is not None and stated != asked:
        console.note(f"margins stay those that the run was begun with: {stated} (asked for: {asked})")


def _tell_price(config: RunConfig) -> None:
    """An API model without a price that may be used: its cost stays unknown, which nobody should learn at the end."""
    if config.model.api is not None and not config.model.price.known:
        console.note(f"cost stays unknown: {found_price(config).why}")


def _tell_left_out(config: RunConfig) -> None:
    """A probe's own list of conditions may leave out an arm that the user has just added."""
    for name, probe in config.probe.items():
        for series, spec in probe.series.items():
            missing = [arm for arm in config.condition if spec.conditions and arm not in spec.conditions]
            if missing:
                console.note(
                    f"probe.{name}.series.{series} runs without {', '.join(missing)} "
                    f"(probe.{name}.series.{series}.conditions=null runs all)"
                )


def _compute(bench: Bench, log: RunLog) -> Stop | None:
    """The cells that are still to be computed. Returns why it stopped before their end, if it did; where nothing
    fits the limits the engine is not even started."""
    started = datetime.now(UTC).isoformat()
    meter = _watches(bench, log)
    if meter is not None and (stop := meter.stop(requests_of(unfinished(bench.preflight, log)[0]))):
        return stop
    model = _load(bench, log)
    latency = bench.config.latency
    alone = Alone(latency.cache, latency.warmups) if bench.config.measure == "latency" else None
    tally = Tally()
    try:
        _check_engine(log, model)
        before = model.computed_tokens
        try:
            with console.cells() as progress:
                how: dict[str, Any] = {"progress": progress, "tally": tally, "meter": meter}
                if bench.config.model.api is not None and alone is None:
                    run_lots(bench.preflight, cast(Any, model), log, _setting(bench), **how)
                else:
                    run_all(bench.preflight, model, log, _setting(bench), alone=alone, **how)
        except BaseException:
            # Also of a session that was stopped; a full disk has been told of already.
            with contextlib.suppress(RunLogError):
                _note_session(log.run_dir, model, tally, started, model.computed_tokens - before)
            raise
        _note_session(log.run_dir, model, tally, started, model.computed_tokens - before)
    finally:
        model.close()
    return tally.stopped


def _load(bench: Bench, log: RunLog) -> Model:
    """The run's model; one behind an API also gets the run's purse and cassette."""
    if bench.config.model.api is None:
        return load_model(bench, log.run_dir)
    from harness.commands.api_session import open_model

    return open_model(bench, log)


def _watches(bench: Bench, log: RunLog) -> Watches | None:
    """What may end the run early: limits of time and money, and a rule that says when enough is known."""
    each: list[Watch] = []
    if meter := start_meter(bench.config, log):
        each.append(meter)
    if bench.config.sequential:
        from harness.commands.sequential import start_watch  # scipy; only where it is asked for

        each.append(start_watch(bench.config, _manifest(bench, log.run_dir)["conditions"], log))
    return Watches(each) if each else None


def _check_engine(log: RunLog, model: Model) -> None:
    """Refuses to go on with a run on another engine than it was begun on; notes the engine of a new one."""
    now = model.facts
    old = read_manifest(log.run_dir).get("engine") if log.finished else None
    changed = [
        f"{key}: {old[key]!r} → {now.get(key)!r}"
        for key in _SAME_ENGINE
        if old and key in old and old[key] != now.get(key)
    ]
    if changed:
        raise ModelError(
            f"{log.run_dir}: cannot resume on another engine ({'; '.join(changed)}); go back to the old one, or start "
            "afresh elsewhere (results=… or model.name=…)"
        )
    update_manifest(log.run_dir, engine=now)


def _note_session(run_dir: Path, model: Model, tally: Tally, started: str, computed: int) -> None:
    """Adds this session's facts; a resumed run has several, and its throughput is their sum."""
    session = {
        "started": started,
        "ended": datetime.now(UTC).isoformat(),
        "cells": tally.cells,
        "failed": tally.failed,
        "seconds": tally.seconds,
        "prompt_tokens": tally.prompt_tokens,
        "computed_tokens": computed,
        "new_tokens": tally.new_tokens,
        "engine": model.facts,
    }
    sessions = [*read_manifest(run_dir).get("sessions", []), session]
    summed = ("cells", "seconds", "prompt_tokens", "computed_tokens", "new_tokens")
    throughput = {key: sum(each[key] for each in sessions) for key in summed}
    update_manifest(
        run_dir,
        sessions=sessions,
        throughput=throughput,
        engine=model.facts,
        ledger={"block_size": model.cache_block},
        ended=session["ended"],
    )


def _setting(bench: Bench) -> Setting:
    return Setting(
        scenario=bench.scenario.name,
        model=bench.config.model.name,
        thinking="native" if _api_thinks(bench.config) else bench.config.model.thinking,
        bars={c.name: (c.bar_name, c.placement_name) for c in bench.conditions},
        template=bench.template,
        score=score_record,
    )


def _api_thinks(config: RunConfig) -> bool:
    """Whether a model behind an API was told to think. One that does so by default is not told of: its figures are."""
    api = config.model.api
    return api is not None and (api.effort not in (None, "none") or bool(api.thinking_budget))


def _manifest(bench: Bench, folder: Path) -> dict[str, Any]:
    config = bench.config
    return {
        "run_id": folder.name,
        "experiment": config.experiment,
        "measure": config.measure,
        "model": {
            "name": config.model.name,
            **({"api": config.model.api.provider, "id": config.model.api.model} if config.model.api else {}),
            # Of a model behind an API: those of the reference tokenizer.
            "source": bench.weights.source,
            "sha256": bench.weights.sha256,
            "revision": bench.weights.revision,
        },
        "conditions": [c.entry(bench.conditions) for c in bench.conditions],
        "inputs": bench.inputs,
        "cells": len(bench.preflight.cell_order),
        "left_out": list(bench.preflight.left_out),
        "shared_prefix_tokens": len(bench.preflight.shared_prefix),
        "started": datetime.now(UTC).isoformat(),
        "margins": config.margins.model_dump(),
        **({"sequential": config.sequential.model_dump()} if config.sequential else {}),
        **({"price": config.model.price.stated()} if config.model.price.known else {}),
        **provenance(),
    }


def _publish(bench: Bench, folder: Path) -> None:
    """samples.parquet, tables and figures; the headline on the terminal."""
    latency = bench.config.measure == "latency"
    finalize(
        folder,
        cell_order=bench.preflight.cell_order,
        measure=bench.config.measure,
        cache_state=bench.config.latency.cache if latency else "shared",
    )
    write_pieces(folder, bench.template.piece)
    publish_report(folder)


def publish_report(folder: Path) -> None:
    """Tables and figures from the records, and the headline on the terminal."""
    from harness.analysis import report  # pandas and matplotlib; only now

    try:
        report.build(folder)
    except OSError as error:
        raise disk_error(folder / "tables", error, "every record is kept") from error
    console.out.print(report.terminal_table(folder))
    for sentence in report.headline(folder):
        console.out.print(f"- {sentence}", markup=False)
