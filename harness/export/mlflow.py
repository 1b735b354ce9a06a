"""A finished run → one MLflow run: parameters, verdicts as tags, every estimate as a metric, report and tables.

Knows MLflow's client and a run's flat facts. Nothing leaves the machine unless the address says so: without one MLflow
takes MLFLOW_TRACKING_URI, else its local database `mlflow.db`, and its usage telemetry is switched off.
"""

import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from harness.export.base import ExportError, Facts, facts, require
from harness.runlog import redact

RUN_ID = "tailgauge.run_id"
"""The tag by which a run is found again."""
_NOTE = "mlflow.note.content"
"""Tag that MLflow shows as the run's description."""
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",  # else it tells of the making of a database
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # else a wrong address is tried for minutes
}
"""What is set where the user has not."""
PARAM_CHARS, TAG_CHARS, BATCH = 6000, 8000, 100
"""Longest parameter and tag that MLflow keeps, and most of them in one request."""
REASON_CHARS = 300
"""As much as is told of MLflow's own words, which can fill a screen."""


class Tracker:
    """Logs a run to MLflow. `uri`: tracking server or database; `experiment`: MLflow's, by default the run's own.

    Raises ExportError where mlflow is not installed.
    """

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        require("mlflow", "mlflow")
        self._uri, self._experiment = uri, experiment

    def log(self, run_dir: Path) -> str:
        """Logs the run, in place of what was logged of it before: an MLflow run with the same tag is brought up to date.

        A metric that this version of Tailgauge no longer knows stays there, since MLflow deletes none. Returns
        `<experiment>/<mlflow's run id>`. Raises ExportError when MLflow or its server refuses.
        """
        known = facts(run_dir)
        name = self._experiment or known.experiment
        for key, value in _SETTINGS.items():
            os.environ.setdefault(key, value)
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            client = MlflowClient(tracking_uri=self._uri)
            run_id = _send(client, name, known)
        except (MlflowException, OSError) as error:
            where = self._uri or os.environ.get("MLFLOW_TRACKING_URI") or "its local store"
            raise ExportError(
                f"mlflow at {redact(where)}: {redact(str(error))[:REASON_CHARS]}; the run folder {run_dir} is "
                "untouched: give the command again when that is mended"
            ) from error
        return f"{name}/{run_id}"


def _send(client: Any, experiment: str, known: Facts) -> str:
    """Writes what differs from what is there; returns MLflow's id of the run."""
    from mlflow.entities import Metric, Param, RunTag

    found = client.get_experiment_by_name(experiment)
    experiment_id = found.experiment_id if found else client.create_experiment(experiment)
    run = _run(client, experiment_id, known)
    run_id: str = run.info.run_id
    client.update_run(run_id, status="RUNNING")
    wanted = {**known.tags, RUN_ID: known.run_id, _NOTE: "\n\n".join(known.headline)}
    tags = {key: value[:TAG_CHARS] for key, value in wanted.items()}
    stale = [key for key in run.data.tags if key.startswith(("tailgauge.", "verdict/")) and key not in tags]
    for key in stale:
        client.delete_tag(run_id, key)
    # A parameter cannot be changed once it is logged; the same run id means the same configuration.
    params = {key: value[:PARAM_CHARS] for key, value in known.params.items() if key not in run.data.params}
    now = int(time.time() * 1000)
    changed = {key: value for key, value in known.metrics.items() if run.data.metrics.get(key) != value}
    for part in _parts([RunTag(key, value) for key, value in tags.items()]):
        client.log_batch(run_id, tags=part)
    for part in _parts([Param(key, value) for key, value in params.items()]):
        client.log_batch(run_id, params=part)
    for part in _parts([Metric(key, value, now, 0) for key, value in changed.items()]):
        client.log_batch(run_id, metrics=part)
    for path in known.artifacts:
        if path.is_dir():
            client.log_artifacts(run_id, str(path), artifact_path=path.name)
        else:
            client.log_artifact(run_id, str(path))
    client.set_terminated(run_id)
    return run_id


def _run(client: Any, experiment_id: str, known: Facts) -> Any:
    """The run logged before, else a new one."""
    query = f"tags.`{RUN_ID}` = '{_quoted(known.run_id)}'"
    found = client.search_runs([experiment_id], query, max_results=1)
    if found:
        return found[0]
    return client.create_run(experiment_id, tags={RUN_ID: known.run_id}, run_name=known.run_id)


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")


def _parts(items: Sequence[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    while part := list(islice(rest, BATCH)):
        yield part
