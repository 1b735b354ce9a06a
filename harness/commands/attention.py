"""`tailgauge attention RUN`: replays a finished run and draws where the model looks; calling it again resumes."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.attention import store
from harness.attention.settings import AttentionConfig, resolve
from harness.commands import console
from harness.commands.build import weights_spec
from harness.compose import compose_attention
from harness.config import ModelConfig
from harness.errors import AttentionError, ConfigError
from harness.runlog import differences, provenance, read_manifest, redact
from harness.runlog.columns import iterate_parquet
from harness.runlog.files import FolderLock, atomic_file, disk_error, remove_leftovers
from harness.runlog.identity import plain_config, tell_differences
from harness.runlog.rows import SAMPLES_NAME, failed
from harness.types import EvalRecord
from harness.weights import ResolvedWeights, WeightsSpec, load_tokenizer
from harness.weights import resolve as resolve_weights

_BEGUN = "capture.json"
"""What a capture was begun with: cells of another configuration must not be mixed with its own."""
_FREE = ("device", "threads", "query_block", "pack_tokens", "model_path", "tolerance")
"""Settings that say where, with how much room and how strictly, but not what: a stopped capture goes on under others."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A run's cells that are to be captured, and where they go."""

    run_dir: Path
    folder: Path
    manifest: Mapping[str, Any]
    settings: AttentionConfig
    records: tuple[EvalRecord, ...]

    @property
    def shown(self) -> frozenset[str]:
        """The first samples, kept token by token."""
        samples = dict.fromkeys(record.sample_id for record in self.records)
        return frozenset(list(samples)[: self.settings.shown.samples])


def main(parsed: argparse.Namespace) -> int:
    settings = resolve(compose_attention(parsed.overrides))
    run_dir = Path(parsed.run)
    manifest = read_manifest(run_dir)
    task = _Task(
        run_dir, run_dir / settings.folder, manifest, settings, _records(run_dir, manifest, settings)
    )
    try:
        task.folder.mkdir(exist_ok=True)
    except OSError as error:
        raise disk_error(task.folder, error, "nothing was written") from error
    lock = FolderLock(task.folder)
    try:
        _begin(task)
        if not _finished(task):
            _capture(task)
        publish(task.folder)
    finally:
        lock.release()
    console.out.print(str(task.folder), markup=False)
    return 0


def publish(folder: Path) -> None:
    """Tables, figures and the page from a capture's files, and what came out on the terminal."""
    from harness.analysis.attention import report  # pandas and matplotlib; only now

    try:
        made = report.build(folder)
    except OSError as error:
        raise disk_error(folder, error, "every captured cell is kept") from error
    for sentence in made.sentences:
        console.out.print(f"- {sentence}", markup=False)


# -- which cells -----------------------------------------------------------------------------------------


def _records(run_dir: Path, manifest: Mapping[str, Any], settings: AttentionConfig) -> tuple[EvalRecord, ...]:
    path = run_dir / SAMPLES_NAME
    if not path.is_file():
        raise AttentionError(
            f"{path}: no such file; finish the run with the command that started it, then capture it"
        )
    arms = settings.conditions or _usual_arms(manifest)
    wanted = [
        record
        for record in iterate_parquet(path)
        if record.probe in settings.probes
        and record.series in settings.series
        and record.condition in arms
        and record.epoch == 0
        and not failed(record)
    ]
    there = {record.condition for record in wanted}
    for name in settings.conditions or ():
        if name not in there:
            known = ", ".join(str(arm["name"]) for arm in manifest.get("conditions", []))
            raise ConfigError(
                f"conditions: the run has no cells of {name!r} here; its conditions are {known}"
            )
    clusters = list(dict.fromkeys((record.scenario, record.cluster) for record in wanted))
    kept = set(clusters[: settings.clusters])
    found = tuple(record for record in wanted if (record.scenario, record.cluster) in kept)
    if not found:
        raise AttentionError(
            f"{path}: no cell with probes={list(settings.probes)}, series={list(settings.series)}, "
            f"conditions={list(arms)}; set these keys to what the run has"
        )
    return found


def _usual_arms(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The control, the first bar that has a placebo, and that placebo; without a placebo, all arms."""
    arms = manifest.get("conditions", [])
    for arm in arms:
        if arm.get("placebo_of"):
            controls = [other["name"] for other in arms if other["bar"] == "none"]
            return (*controls[:1], str(arm["name"]), str(arm["placebo_of"]))
    return tuple(str(arm["name"]) for arm in arms)


# -- capture ---------------------------------------------------------------------------------------------


def _begin(task: _Task) -> None:
    """Refuses to mix two captures; notes what this one is made with."""
    asked = task.settings.model_dump(mode="json", exclude=set(_FREE))
    now = plain_config(
        {"config": asked, "cells": [record.cell_id for record in task.records], "format": store.FORMAT}
    )
    path = task.folder / _BEGUN
    remove_leftovers(task.folder)
    remove_leftovers(task.folder / store.CELLS)
    if path.exists() and any((task.folder / store.CELLS).glob("*.npz")):
        try:
            old = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise AttentionError(
                f"{path}: cannot be read ({error}); delete {task.folder} and capture again"
            ) from error
        changed = differences(old, now)
        if changed:
            raise AttentionError(
                f"{task.folder}: holds a capture made with other settings ({tell_differences(changed)}); set "
                "folder=NAME to keep both, or delete the folder"
            )
        return
    with atomic_file(path, "nothing was captured") as handle:
        handle.write((json.dumps(now, indent=1) + "\n").encode())


def _finished(task: _Task) -> bool:
    return (task.folder / "manifest.json").is_file() and not _missing(
        task, store.read_manifest(task.folder).get("skipped", {})
    )


def _missing(task: _Task, skipped: Mapping[str, str]) -> list[EvalRecord]:
    return [
        record
        for record in task.records
        if record.cell_id not in skipped and not store.cell_path(task.folder, record.cell_id).is_file()
    ]


def _capture(task: _Task) -> None:
    from harness.attention.replay import Replayer, by_episode  # torch; only now

    started = datetime.now(UTC).isoformat()
    with console.weights() as report:
        model = _model(task)
        path = task.settings.model_path
        weights = resolve_weights(WeightsSpec(path=path) if path else weights_spec(model), report)
    _check_weights(task, weights)
    replayer = Replayer(
        weights.path,
        load_tokenizer(weights.path),
        task.settings,
        dtype=task.settings.dtype or _dtype(task.manifest),
        shown=task.shown,
        tell=console.note,
    )
    try:
        reasons = {record.cell_id: replayer.reason(record) for record in task.records}
        skipped = {cell: reason for cell, reason in reasons.items() if reason is not None}
        _tell(task, skipped)
        left = _missing(task, skipped)
        if left:
            replayer.share(task.records)
            lost = {record.cell_id for record in left}
            # Whole episodes: a cell's last digits depend on the passes that its episode is cut into.
            ready = [record for record in task.records if record.cell_id not in skipped]
            again = {
                name: records
                for name, records in by_episode(ready).items()
                if any(record.cell_id in lost for record in records)
            }
            total, done = replayer.work([record for records in again.values() for record in records]), 0
            with console.cells("replays") as progress:
                progress(0, total)

                def told() -> None:
                    nonlocal done
                    done += 1
                    progress(done, total)

                for records in again.values():
                    for captured in replayer.episode(records, told):
                        if captured.cell.cell_id in lost:
                            store.write_cell(task.folder, captured)
        _write_manifest(task, weights, replayer.facts, skipped, started)
    finally:
        replayer.close()


def _model(task: _Task) -> ModelConfig:
    """The run's model, as its manifest has it."""
    try:
        return ModelConfig.model_validate(task.manifest["config"]["model"])
    except (KeyError, TypeError, ValidationError) as error:
        raise AttentionError(
            f"{task.run_dir / 'manifest.json'}: config.model is missing or not valid; restore the manifest, or run the "
            "experiment again"
        ) from error


def _tell(task: _Task, skipped: Mapping[str, str]) -> None:
    if len(skipped) == len(task.records):
        raise AttentionError(f"nothing can be replayed: {next(iter(skipped.values()))}")
    arms = ", ".join(dict.fromkeys(record.condition for record in task.records))
    clusters = len({record.cluster for record in task.records})
    console.note(
        f"{len(task.records) - len(skipped)} cells of {clusters} episodes ({arms}); results go to {task.folder}"
    )
    if skipped:
        console.note(f"{len(skipped)} cells cannot be replayed, such as: {next(iter(skipped.values()))}")


def _check_weights(task: _Task, weights: ResolvedWeights) -> None:
    ran = task.manifest.get("inputs", {}).get("weights")
    now = weights.sha256 or weights.revision
    if ran and now and ran != now:
        raise AttentionError(
            f"{task.run_dir}: was run with weights {ran[:12]}…, {weights.path} has {now[:12]}…; set model_path=FOLDER to "
            "the run's own"
        )


def _dtype(manifest: Mapping[str, Any]) -> str:
    """The run's own, where it is one that transformers computes in."""
    ran = str((manifest.get("engine") or {}).get("dtype", "auto")).removeprefix("torch.")
    return ran if ran in ("float32", "bfloat16", "float16") else "auto"


def _write_manifest(
    task: _Task, weights: ResolvedWeights, facts: Mapping[str, Any], skipped: Mapping[str, str], started: str
) -> None:
    cells = [record.cell_id for record in task.records if record.cell_id not in skipped]
    sizes = [store.cell_path(task.folder, cell).stat().st_size for cell in cells]
    errors = [captured.replay_error for captured in store.read_cells_of(task.folder, cells)]
    manifest = {
        "format": store.FORMAT,
        "run_id": task.manifest.get("run_id"),
        "model": task.manifest.get("model", {}).get("name"),
        "weights": weights.sha256 or weights.revision,
        "conditions": task.manifest.get("conditions", []),
        "cells": cells,
        "skipped": dict(skipped),
        "groups": list(store.GROUPS),
        "top_k": task.settings.top_k,
        "config": {
            **task.settings.model_dump(mode="json"),
            "seed": task.manifest.get("config", {}).get("seed", 0),
        },
        "budget": _budget(sizes),
        "replay_error": max((error for error in errors if error is not None), default=None),
        "engine": dict(facts),
        "started": started,
        "ended": datetime.now(UTC).isoformat(),
        **provenance(),
    }
    text = json.dumps(redact(manifest), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_file(task.folder / "manifest.json", "every captured cell is kept") as handle:
        handle.write(text.encode("utf-8", "backslashreplace"))


def _budget(sizes: Sequence[int]) -> dict[str, int]:
    """Bytes on the disk: what a capture of more cells will take."""
    return {"bytes": sum(sizes), "bytes_per_cell": round(sum(sizes) / len(sizes)), "largest_cell": max(sizes)}
