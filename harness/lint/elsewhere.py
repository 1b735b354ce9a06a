"""The same bar over the same messages on what looks like another machine, 400 days later.

Run as a program (`python -m harness.lint.elsewhere`) it takes a pickled bar with cases on its input and gives the drawn
texts as JSON on its output; what both ends exchange is made by `texts_elsewhere` alone. The clock, the host's name and the
working folder's name are replaced before a bar is made, and the order of sets comes from PYTHONHASHSEED.
"""

import datetime as clock
import json
import os
import pickle
import platform
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.lint.cases import Case
from harness.lint.drawing import drawings
from harness.statusbar.base import StatusBar

Texts = list[str | None]
DAYS = 400
NUMBER = "TAILGAUGE_ELSEWHERE"
"""Environment variable with the number of the pretended machine."""
ZONES = ("Pacific/Kiritimati", "America/Los_Angeles")
LIMIT = 60.0
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


class _AnyOf(type):
    """A class that takes the instances of the class which it stands in for as its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


def _pretend(number: int) -> None:
    """Another clock, host and folder, for whoever asks from here on; classes that a module took over before are replaced
    in the modules that are nobody's package."""
    offset = clock.timedelta(days=DAYS * number)
    seconds = offset.total_seconds()
    real_time, real_localtime, real_gmtime = time.time, time.localtime, time.gmtime

    class Later(clock.datetime, metaclass=_AnyOf):
        @classmethod
        def now(cls, tz: clock.tzinfo | None = None) -> Any:
            return super().now(tz) + offset

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(clock.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    class LaterDay(clock.date, metaclass=_AnyOf):
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(real_time() + seconds)

    def later(at: float | None = None) -> float:
        return real_time() + seconds if at is None else at

    replaced: dict[Any, Any] = {
        clock.datetime: Later,
        clock.date: LaterDay,
        time.time: later,
        time.time_ns: lambda: int(later() * 1e9),
        time.localtime: lambda at=None: real_localtime(later(at)),
        time.gmtime: lambda at=None: real_gmtime(later(at)),
        socket.gethostname: lambda: f"host{number}",
        platform.node: lambda: f"host{number}",
        os.getcwd: lambda: f"/elsewhere/{number}",
        os.getpid: lambda: number,
    }
    for module in (clock, time, socket, platform, os, *_own_modules()):
        for name, value in list(vars(module).items()):
            stand_in = next((new for old, new in replaced.items() if old is value), None)
            if stand_in is not None:
                setattr(module, name, stand_in)


def _own_modules() -> list[ModuleType]:
    """Modules of the project and of the user: not of the standard library, nor of an installed package."""
    installed = tuple(
        {*sysconfig.get_paths().values()} - {sysconfig.get_path("data"), sysconfig.get_path("scripts")}
    )
    found = [module for module in sys.modules.values() if getattr(module, "__file__", None)]
    return [m for m in found if not str(m.__file__).startswith(installed) and m.__name__ != __name__]


def main() -> None:
    handed = sys.stdin.buffer.read()
    recipe, cases = pickle.loads(handed)
    _pretend(int(os.environ[NUMBER]))
    bar = _made(recipe)
    sys.stdout.write(json.dumps([drawn.text for case in cases for drawn in drawings(bar, case)]))


if __name__ == "__main__":
    from harness.lint import elsewhere  # under its own name, by which the recipes were pickled

    elsewhere.main()
