"""Where the project's own files lie: configuration, scenarios, and the cache of weights.

Knows the two ways in which the package is installed (a wheel that carries `conf/` and `scenarios/`, or a
checkout beside them). Does not know what is in those folders, and creates none of them.
"""

import os
from pathlib import Path
from typing import Literal

PackagedName = Literal["conf", "scenarios"]

CACHE_ENV = "TAILGAUGE_CACHE"
"""Environment variable that names the cache folder."""

_PACKAGE = Path(__file__).resolve().parent


def packaged_dir(name: PackagedName) -> Path:
    """The folder `name` that came with the installed package.

    A wheel carries it as `harness/_packaged/<name>`; in a checkout it is the repository's own folder.
    """
    in_wheel = _PACKAGE / "_packaged" / name
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / name


def search_dirs(name: PackagedName) -> list[Path]:
    """Folders to look in for `name`, first match wins: `./<name>` of the working folder, then packaged.

    A folder is listed once, also when the working folder is the checkout itself.
    """
    packaged = packaged_dir(name)
    here = Path.cwd() / name
    if here.is_dir() and here.resolve() != packaged.resolve():
        return [here, packaged]
    return [packaged]


def cache_dir() -> Path:
    """The folder that holds downloaded and converted weights (absolute; may not exist yet).

    `TAILGAUGE_CACHE` names it; else it is `tailgauge` in the XDG cache home (`~/.cache`). An XDG path that
    is not absolute is ignored, as the XDG base directory specification asks.
    """
    chosen = os.environ.get(CACHE_ENV, "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "tailgauge"
