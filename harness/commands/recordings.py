"""`--trace FILE[:N]` of the verbs: one recorded trajectory, or all that a file holds.

Knows how a trajectory is named on the command line; knows no format.
"""

from collections.abc import Sequence
from pathlib import Path

from harness.errors import ConfigError
from harness.traces import Trajectory, load


def trajectories(trace: str) -> Sequence[Trajectory]:
    """Of `FILE` all, at least one; of `FILE:N` the one with number N, from 0 as in its id. A file whose own name ends
    like that goes before. Raises ConfigError, and TraceError for a file that cannot be read."""
    name, colon, number = trace.rpartition(":")
    if not (colon and number.isdecimal()) or Path(trace).exists():
        found = load(Path(trace))
        if not found:
            raise ConfigError(f"--trace {trace}: it holds no trajectory")
        return found
    found = load(Path(name))
    if int(number) >= len(found):
        raise ConfigError(
            f"--trace {trace}: {name} holds {len(found)} trajectories; N is 0 to {len(found) - 1}"
        )
    return [found[int(number)]]
