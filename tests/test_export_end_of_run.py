"""`tracker=…` logs a run when it is whole, and a mistake in it is told before anything is computed."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from core_config import plain

from harness.compose import build_tracker
from harness.config_checks import resolve
from harness.errors import ConfigError


@dataclass
class Kept:
    """A tracker that remembers."""

    name: str
    logged: list[Path] = field(default_factory=list)

    def log(self, run_dir: Path) -> str:
        self.logged.append(run_dir)
        return self.name


def test_a_tracker_is_built_from_its_target_and_makes_no_other_run() -> None:
    node = {"_target_": "test_export_end_of_run.Kept", "name": "here"}
    config = resolve(plain(tracker=node))
    assert build_tracker(config.tracker).name == "here"
    assert config.digested() == resolve(plain()).digested()
    assert build_tracker(None) is None


def test_an_unknown_tracker_is_one_line() -> None:
    with pytest.raises(ConfigError, match="tracker: ") as caught:
        build_tracker({"_target_": "harness.export.nowhere.Tracker"})
    assert "\n" not in str(caught.value)
