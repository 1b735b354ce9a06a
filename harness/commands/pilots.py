"""Which earlier runs tell how long a new one takes and how far its clusters will spread.

Speed comes from runs of the same model on the same engine and machine, spread from runs of the same model and scenario
anywhere. Knows manifests and the configuration; estimates nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.planning import Pilot, read_pilot
from harness.commands.ablate import gpu_names
from harness.config import RunConfig
from harness.errors import ReportError, RunLogError
from harness.runlog import provenance, read_manifest

_MODEL = ("_target_", "embedded", "hub", "path", "revision", "thinking", "dtype", "device")
"""Keys of `model` that decide speed, the machine apart."""
_ANSWERS = ("embedded", "hub", "path", "revision", "thinking", "decoding")
"""Keys of `model` that decide what it answers."""


@dataclass(frozen=True, slots=True)
class Pilots:
    """`speed`: runs that tell of time. `spread`: runs that tell of answers. `notes`: what is odd about them."""

    speed: tuple[Pilot, ...]
    spread: tuple[Pilot, ...]
    notes: tuple[str, ...] = ()


def find(config: RunConfig, named: Sequence[str]) -> Pilots:
    """The runs that were named, whatever they are (how they differ is in `notes`), else those in the configured results
    folder that fit. Raises RunLogError or ReportError for a named folder that is no run or has computed nothing."""
    if named:
        pilots = tuple(read_pilot(Path(name), read_manifest(Path(name))) for name in named)
        told = tuple(
            f"pilot {pilot.path} is another design in: {', '.join(unlike)}; its numbers are taken as they are"
            for pilot in pilots
            if (
                unlike := sorted(
                    {*_speed_unlike(config, pilot.manifest), *_answers_unlike(config, pilot.manifest)}
                )
            )
        )
        return Pilots(pilots, pilots, told)
    speed: list[Pilot] = []
    spread: list[Pilot] = []
    notes: list[str] = []
    for path in sorted(Path(config.results).glob("*/*/manifest.json")):
        try:
            manifest = read_manifest(path.parent)
            fast, alike = not _speed_unlike(config, manifest), not _answers_unlike(config, manifest)
            pilot = read_pilot(path.parent, manifest) if fast or alike else None
        except (RunLogError, ReportError) as error:
            notes.append(f"passed over: {error}")
            continue
        if pilot is not None:
            speed += [pilot] if fast else []
            spread += [pilot] if alike else []
    return Pilots(tuple(speed), tuple(spread), tuple(notes))


def _speed_unlike(config: RunConfig, manifest: Mapping[str, Any]) -> list[str]:
    """What makes a run's time another one: keys of its configuration, or `machine`."""
    then: Mapping[str, Any] = manifest.get("config") or {}
    unlike = _keys_unlike(config, then, _MODEL)
    if then.get("measure") != config.measure:
        unlike.append("measure")
    return unlike if _same_machine(config, manifest) else [*unlike, "machine"]


def _answers_unlike(config: RunConfig, manifest: Mapping[str, Any]) -> list[str]:
    then: Mapping[str, Any] = manifest.get("config") or {}
    unlike = _keys_unlike(config, then, _ANSWERS)
    same = (then.get("scenario") or {}).get("file") == config.scenario.file
    return unlike if same else [*unlike, "scenario"]


def _keys_unlike(config: RunConfig, then: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    now, old = config.digested()["model"], then.get("model") or {}
    return [f"model.{key}" for key in keys if now.get(key) != old.get(key)]


def _same_machine(config: RunConfig, manifest: Mapping[str, Any]) -> bool:
    """Where the model runs: a named server, these GPUs, or a processor like this one."""
    engine: Mapping[str, Any] = manifest.get("engine") or {}
    if config.model.server is not None and config.model.server.address is not None:
        return str(engine.get("address") or "").rstrip("/") == config.model.server.address.rstrip("/")
    on_cpu = config.model.device == "cpu" or not (gpus := gpu_names())
    if on_cpu:
        return engine.get("device", "cpu") == "cpu" and bool(manifest.get("cpu") == provenance()["cpu"])
    return sorted(manifest.get("gpus") or ()) == sorted(gpus)
