"""Claims about MLflow and trackio, with their real clients on local stores. Skipped by name where they are missing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from export_data import real_run

from harness import cli
from harness.export.base import ExportError, facts

RUN = "xfinity-latency-cpu"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published run's copy, in a folder of its own that is also where clients put local files."""
    monkeypatch.chdir(tmp_path)
    return real_run(RUN, tmp_path / "run")


# -- MLflow ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database that the tests share, each with an experiment of its own: making one takes seconds."""
    pytest.importorskip("mlflow", reason="mlflow is not installed (pip install 'tailgauge[mlflow]')")
    pytest.importorskip("sqlalchemy", reason="mlflow's local store needs sqlalchemy")
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/store.db"


def logged(uri: str, experiment: str) -> tuple[Any, list[Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    return client, list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


def test_mlflow_holds_what_the_tables_say(run: Path, mlflow_store: str) -> None:
    assert cli.main(["export", str(run), "--to", "mlflow", "--uri", mlflow_store]) == 0
    client, runs = logged(mlflow_store, "xfinity_latency")
    known = facts(run)
    assert len(runs) == 1 and runs[0].info.status == "FINISHED"
    assert runs[0].data.metrics == dict(known.metrics)
    assert runs[0].data.params == dict(known.params)
    assert {key: runs[0].data.tags[key] for key in known.tags} == dict(known.tags)
    assert known.headline[0] in runs[0].data.tags["mlflow.note.content"]
    assert {a.path for a in client.list_artifacts(runs[0].info.run_id)} >= {
        "tables",
        "figures",
        "manifest.json",
    }


def test_a_second_export_updates_the_mlflow_run(run: Path, mlflow_store: str) -> None:
    from harness.export.mlflow import Tracker

    tracker = Tracker(mlflow_store, "twice")
    first = tracker.log(run)
    client, (before,) = logged(mlflow_store, "twice")
    assert tracker.log(run) == first
    name = next(iter(before.data.metrics))
    assert len(client.get_metric_history(before.info.run_id, name)) == 1

    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    manifest["inputs"] = {"scenario": "rewritten"}
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    client.log_metric(before.info.run_id, name, -99.0)
    client.set_tag(before.info.run_id, "verdict/of.old/pair", "better")
    assert tracker.log(run) == first
    _, (after,) = logged(mlflow_store, "twice")
    assert after.data.tags["tailgauge.input_scenario"] == "rewritten"
    assert after.data.metrics == before.data.metrics
    assert "verdict/of.old/pair" not in after.data.tags


def test_runs_of_two_configurations_are_two_mlflow_runs(run: Path, mlflow_store: str, tmp_path: Path) -> None:
    from harness.export.mlflow import Tracker

    other = Path(shutil.copytree(run, tmp_path / "other"))
    manifest = json.loads((other / "manifest.json").read_text(encoding="utf-8"))
    (other / "manifest.json").write_text(json.dumps(manifest | {"run_id": "other's"}), encoding="utf-8")
    for folder in (run, other):
        Tracker(mlflow_store, "together").log(folder)
    assert {entry.data.tags["tailgauge.run_id"] for entry in logged(mlflow_store, "together")[1]} == {
        manifest["run_id"],
        "other's",
    }


def test_an_mlflow_that_does_not_answer_is_one_line_without_its_password(
    run: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert cli.main(["export", str(run), "--to", "mlflow", "--uri", "http://me:hunter2@127.0.0.1:9/"]) == 2
    told = capsys.readouterr().err
    assert "hunter2" not in told and "is untouched" in told and len(told.strip().splitlines()) == 1


# -- trackio -----------------------------------------------------------------------------------------------


@pytest.fixture
def trackio_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """trackio's module, with a store of this test's own: it reads its folder once, when it is imported."""
    pytest.importorskip("trackio", reason="trackio is not installed (pip install 'tailgauge[trackio]')")
    for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    import trackio
    import trackio.sqlite_storage as storage

    for module in [module for name, module in sorted(_trackio_modules()) if hasattr(module, "TRACKIO_DIR")]:
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    assert tmp_path / "trackio" == storage.TRACKIO_DIR
    return trackio


def _trackio_modules() -> list[tuple[str, Any]]:
    import sys

    return [(name, module) for name, module in sys.modules.items() if name.split(".")[0] == "trackio"]


def test_trackio_holds_the_run_once_however_often_it_is_exported(
    run: Path, trackio_store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert cli.main(["export", str(run), "--to", "trackio", "--project", "bars"]) == 0
    known = facts(run)
    assert capsys.readouterr().out.split() == [f"bars/{known.run_id}"] * 2
    runs = list(trackio_store.Api().runs("bars"))
    assert [entry.name for entry in runs] == [known.run_id]
    config = runs[0].config or {}
    assert config["tailgauge.model"] == "qwen2.5-coder-0.5b" and config["seed"] == known.params["seed"]
    from trackio.sqlite_storage import SQLiteStorage

    (row,) = SQLiteStorage.get_logs("bars", known.run_id, run_id=runs[0].id)
    assert {key: row[key] for key in known.metrics} == dict(known.metrics)


def test_trackio_is_not_sent_anywhere(run: Path, trackio_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.export.trackio import Tracker

    monkeypatch.setenv("TRACKIO_SPACE_ID", "somebody/space")
    with pytest.raises(ExportError, match="TRACKIO_SPACE_ID is set"):
        Tracker().log(run)
