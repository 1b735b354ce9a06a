"""A finished run → one run of a local trackio project.

Knows trackio's client and a run's flat facts. It writes to trackio's own folder (TRACKIO_DIR) and nowhere else: a run
on a Space or a server cannot be replaced through this client, so it would be there twice after a second export.
`trackio sync` publishes a local project.
"""

import contextlib
import io
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

from harness.export.base import ExportError, Facts, facts, require

_REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


class Tracker:
    """Logs a run to trackio. `project`: trackio's, by default the run's experiment.

    Raises ExportError where trackio is not installed.
    """

    def __init__(self, project: str | None = None) -> None:
        require("trackio", "trackio")
        self._project = project

    def log(self, run_dir: Path) -> str:
        """Logs the run, in place of one of the same name; returns `<project>/<run id>`.

        Raises ExportError when trackio is set up to log elsewhere, or refuses.
        """
        named = [name for name in _REMOTE if os.environ.get(name)]
        if named:
            raise ExportError(
                f"{named[0]} is set, and a second export would log the run there twice; unset it, export, then publish "
                "the project with: trackio sync"
            )
        known = facts(run_dir)
        project = self._project or known.experiment
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints hints of its own
                _send(project, known)
        except (OSError, ValueError, RuntimeError, sqlite3.Error) as error:
            raise ExportError(
                f"trackio, project {project}: {error}; the run folder {run_dir} is untouched: give the command again "
                "when that is mended"
            ) from error
        return f"{project}/{known.run_id}"


def _send(project: str, known: Facts) -> None:
    import trackio

    _remove(trackio.Api(), project, known.run_id)
    config: dict[str, Any] = {**known.tags, **known.params, "headline": list(known.headline)}
    run = trackio.init(
        project=project,
        name=known.run_id,
        config=config,
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    try:
        run.log(dict(known.metrics), step=0)
        for path in known.artifacts:
            name = re.sub(r"[^A-Za-z0-9_-]", "-", f"{known.run_id}-{path.name}")
            run.log_artifact(str(path), name=name, type="tailgauge", overwrite=True)
    finally:
        trackio.finish()


def _remove(api: Any, project: str, name: str) -> None:
    """Drops the runs of this name; there is nothing to drop where the project does not exist."""
    try:
        logged = list(api.runs(project))
    except ValueError:
        return
    for run in logged:
        if run.name == name:
            run.delete()
