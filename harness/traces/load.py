"""A file → Trajectories, its format recognised by what is in it.

Knows the formats by their modules' `is_run`; a new format is one module more and a line here.
"""

import re
from pathlib import Path
from typing import Any

from harness.dialects import TraceError
from harness.dialects.fields import kind
from harness.traces import openai, swe_agent
from harness.traces.files import EXPECTED, read_values
from harness.traces.trajectory import Trajectory


def load(path: Path | str) -> list[Trajectory]:
    """All trajectories of a file, in its order. Raises TraceError with one line that names file and place for a file
    of another format, a malformed one, and one of more than 64 MiB."""
    path = Path(path)
    value = read_values(path)
    runs: list[Any]
    if openai.is_messages(value):
        runs, places = [{"messages": value}], [""]
    elif isinstance(value, dict):
        runs, places = [value], [""]
    else:
        runs = [{"messages": run} if openai.is_messages(run) else run for run in value]
        places = [f"[{number}]." for number in range(len(runs))]
    if not runs:
        raise TraceError(f"{path}: holds an empty list; {EXPECTED}")
    stem = re.sub(r"[^\w.-]", "_", path.stem)
    found = []
    for number, (run, place) in enumerate(zip(runs, places, strict=True)):
        found.append(_trajectory(run, f"{stem}/{number:03d}", path, place))
    return found


def _trajectory(run: object, id: str, path: Path, place: str) -> Trajectory:
    where = f"{path}: {place}"
    if isinstance(run, dict) and swe_agent.is_run(run):
        trajectory = swe_agent.trajectory(run, id, path.name, where)
    elif isinstance(run, dict) and openai.is_run(run):
        trajectory = openai.trajectory(run, id, path.name, where)
    else:
        raise TraceError(f"{path}: {place.rstrip('.') or 'the whole'} is {kind(run)}; {EXPECTED}")
    if not trajectory.messages:
        raise TraceError(f"{where.rstrip(' .:')}: holds no message")
    return trajectory
