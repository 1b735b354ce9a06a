"""The same bar over the same messages on what looks like another machine, 400 days later.

Run as a program (`python -m harness.lint.elsewhere`) it takes a pickled bar with cases on its input and gives the drawn
texts as JSON on its output; what both ends exchange is made by `texts_elsewhere` alone. The clock, the host's name and the
working folder's name are replaced before any module of a bar is imported, and the order of sets comes from PYTHONHASHSEED.
"""

import datetime as clock
import json
import os
import pickle
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from harness.lint.cases import Case
from harness.lint.drawing import drawings
from harness.statusbar.base import StatusBar

Texts = list[str | None]
DAYS = 400
NUMBER = "TAILGAUGE_ELSEWHERE"
"""Environment variable with the number of the pretended machine."""
ZONES = ("Pacific/Kiritimati", "America/Los_Angeles")
LIMIT = 120.0
"""Seconds that a process may take."""


class ElsewhereError(Exception):
    """The bar cannot be drawn in another process."""


def texts_elsewhere(bar: StatusBar, cases: Sequence[Case]) -> tuple[Texts, Texts]:
    """The drawn texts on two other machines. Raises ElsewhereError where the bar cannot be taken there."""
    try:
        handed = pickle.dumps((_recipe(bar), tuple(cases)))
    except Exception as error:
        raise ElsewhereError(f"it cannot be pickled: {error}") from error
    path = os.pathsep.join([str(Path(__file__).parents[2]), *(entry or os.getcwd() for entry in sys.path)])
    running = [_started(number, zone, path) for number, zone in enumerate(ZONES, start=1)]
    try:
        found = [_answer(process, handed) for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return found[0], found[1]


def _started(number: int, zone: str, path: str) -> "subprocess.Popen[bytes]":
    env = {
        "PYTHONPATH": path,
        "PYTHONHASHSEED": str(number),
        "TZ": zone,
        "USER": f"user{number}",
        "HOME": f"/home/user{number}",
        "PATH": os.environ.get("PATH", ""),
        NUMBER: str(number),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "harness.lint.elsewhere"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _answer(process: "subprocess.Popen[bytes]", handed: bytes) -> Texts:
    try:
        out, err = process.communicate(handed, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise ElsewhereError(f"it took longer than {LIMIT:.0f} s in another process") from None
    if process.returncode:
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        raise ElsewhereError(f"it fails in another process: {''.join(last)}")
    texts: Texts = json.loads(out)
    return texts


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A dataclass by its options: what else an object keeps for itself (a compiled template) may not travel."""

    kind: type
    options: dict[str, Any]


def _recipe(value: Any) -> Any:
    if not is_dataclass(value) or isinstance(value, type):
        return value
    options = [field.name for field in fields(value) if field.init and not field.name.startswith("_")]
    return _Recipe(type(value), {name: _recipe(getattr(value, name)) for name in options})


def _made(value: Any) -> Any:
    if not isinstance(value, _Recipe):
        return value
    return value.kind(**{name: _made(option) for name, option in value.options.items()})


def _pretend(number: int) -> None:
    """Another clock, host and folder, for whoever asks from here on."""
    offset = clock.timedelta(days=DAYS * number)
    seconds = offset.total_seconds()
    real_time, real_localtime, real_gmtime = time.time, time.localtime, time.gmtime

    class Later(clock.datetime):
        @classmethod
        def now(cls, tz: clock.tzinfo | None = None) -> "Later":
            return super().now(tz) + offset

        @classmethod
        def utcnow(cls) -> "Later":
            return super().fromtimestamp(real_time(), clock.UTC).replace(tzinfo=None) + offset

        @classmethod
        def today(cls) -> "Later":
            return cls.now()

    class LaterDay(clock.date):
        @classmethod
        def today(cls) -> "LaterDay":
            return cls.fromtimestamp(real_time() + seconds)

    clock.datetime, clock.date = Later, LaterDay  # type: ignore[misc]
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: int((real_time() + seconds) * 1e9)
    time.localtime = lambda at=None: real_localtime(real_time() + seconds if at is None else at)
    time.gmtime = lambda at=None: real_gmtime(real_time() + seconds if at is None else at)
    name = f"host{number}"
    socket.gethostname = lambda: name
    platform.node = lambda: name
    os.getcwd = lambda: f"/elsewhere/{number}"
    os.getpid = lambda: number


def main() -> None:
    handed = sys.stdin.buffer.read()
    _pretend(int(os.environ[NUMBER]))
    recipe, cases = pickle.loads(handed)
    bar = _made(recipe)
    sys.stdout.write(json.dumps([drawn.text for case in cases for drawn in drawings(bar, case)]))


if __name__ == "__main__":
    from harness.lint import elsewhere  # under its own name, by which the recipes were pickled

    elsewhere.main()
