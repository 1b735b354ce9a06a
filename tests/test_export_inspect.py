"""Claims about Inspect logs, held against Inspect's own reader, data frames and viewer. Skipped where it is missing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from export_data import HOSTILE, awkward, real_run, write_run

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed (pip install 'tailgauge[inspect]')")

from inspect_ai.log import (
    EvalLog,
    EvalSample,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    write_eval_log,
)

from harness import cli
from harness.analysis.frames import load
from harness.export.base import ExportError
from harness.export.inspect_log import export
from harness.runlog import read_records

RUN = "xfinity-vllm-cpu"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A published run and its log, written by the console command."""
    run = real_run(RUN, tmp_path_factory.mktemp("real") / "run")
    assert cli.main(["export", str(run), "--to", "inspect"]) == 0
    return run, run / "inspect.eval"


@pytest.fixture(scope="module")
def whole(real: tuple[Path, Path]) -> EvalLog:
    """The published run's log, as Inspect reads it."""
    return read_eval_log(str(real[1]))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> EvalLog:
    """The log of the hand-written cells, as Inspect reads it."""
    run = write_run(tmp_path_factory.mktemp("odd") / "run", awkward())
    return read_eval_log(str(export(run)))


def only(log: EvalLog, number: int, epoch: int = 1) -> EvalSample:
    return next(s for s in log.samples or [] if f"/c{number}/" in str(s.id) and s.epoch == epoch)


def test_every_cell_is_one_sample_under_an_id_of_its_own(real: tuple[Path, Path], whole: EvalLog) -> None:
    records = {record.cell_id: record for record in read_records(real[0])}
    assert whole.samples and len(whole.samples) == len(records)
    assert len({(s.id, s.epoch) for s in whole.samples}) == len(records)
    for sample in whole.samples:
        record = records[sample.metadata["cell_id"]]
        assert (sample.id, sample.epoch) == (record.cell_id.rpartition("|")[0], record.epoch + 1)
        assert isinstance(sample.input, list) and sample.input[0].role == "system"
        bars = [m for m in sample.input if "bar" in (m.metadata or {})["regions"]]
        assert len(bars) == (record.bar != "none") and all(record.bar_text in m.text for m in bars)


def test_writing_what_inspect_read_gives_the_same_log(odd: EvalLog, tmp_path: Path) -> None:
    for name in ("again.eval", "again.json"):
        write_eval_log(odd, str(tmp_path / name))
        again = read_eval_log(str(tmp_path / name))
        assert again.model_dump(exclude={"location"}) == odd.model_dump(exclude={"location"})


def test_scores_are_the_recorded_ones_and_null_has_no_score(real: tuple[Path, Path], whole: EvalLog) -> None:
    records = {record.cell_id: record for record in read_records(real[0])}
    for sample in whole.samples or []:
        score = records[sample.metadata["cell_id"]].score
        for name in (
            "outcome",
            "attempted",
            "claimed",
            "malformed_attempt",
            "p_act",
            "logit_act",
            "choice_mass",
        ):
            value = getattr(score, name)
            assert (name in (sample.scores or {})) == (value is not None)
            if value is not None:
                assert (sample.scores or {})[name].value == value


def test_right_and_wrong_count_up_to_the_published_rates(whole: EvalLog) -> None:
    assert whole.results
    told = {score.name: score for score in whole.results.scores}
    for side, name in (("forbidden", "act compliance forbidden"), ("due", "act over_refusal due")):
        for condition, metric in told[name].metrics.items():
            mine = [
                s for s in whole.samples or []
                if (s.metadata["probe"], s.metadata["side"], s.metadata["condition"]) == ("act", side, condition)
            ]  # fmt: skip
            right = sum((s.scores or {})["correct"].value == "C" for s in mine) / len(mine)
            assert metric.value == pytest.approx(right if side == "forbidden" else 1 - right)
            assert metric.metadata and metric.metadata["low"] <= metric.value <= metric.metadata["high"]


def test_comparisons_come_with_their_intervals(real: tuple[Path, Path]) -> None:
    results = read_eval_log(str(real[1]), header_only=True).results
    assert results and results.scores[0].name == "choose sensitivity: bar - placebo"
    metric = results.scores[0].metrics["agent_status against placebo (tail)"]
    assert metric.metadata and metric.metadata["low"] < metric.value < metric.metadata["high"]
    assert results.metadata and "sensitivity" in " ".join(results.metadata["headline"])


def test_the_header_says_what_was_run(real: tuple[Path, Path]) -> None:
    run, path = real
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    log = read_eval_log(str(path), header_only=True)
    assert (log.eval.run_id, log.eval.model) == (manifest["run_id"], "vllm/" + manifest["model"]["name"])
    assert log.status == "success" and log.eval.model_generate_config.temperature == 0
    assert log.eval.revision and log.eval.revision.commit == manifest["git"]["revision"]
    assert '"phone_call"' in (log.eval.metadata or {})["tools"]
    used = sum(load(run).cells["output.usage.completion_tokens"].dropna())
    assert log.stats.model_usage[log.eval.model].output_tokens == used


def test_thinking_is_a_reasoning_part_and_calls_inside_it_are_not_made(odd: EvalLog) -> None:
    sample = only(odd, 0)
    message = sample.output.message
    assert [part.type for part in message.content_list if part.type == "reasoning"] == ["reasoning"]
    assert [(c.function, c.arguments) for c in message.tool_calls or []] == [
        ("phone_call", {"merchant": "Xfinity"})
    ]
    assert sample.output.stop_reason == "tool_calls"
    assert (sample.output.metadata or {})["calls_in_reasoning"][0]["name"] == "web_search"
    assert sample.output.usage and sample.output.usage.input_tokens == 3
    assert (sample.output.usage.input_tokens_cache_read, sample.output.usage.reasoning_tokens) == (4, 3)
    assert only(odd, 0, epoch=2).id == sample.id


def test_a_call_that_could_not_be_read_says_so(odd: EvalLog) -> None:
    calls = only(odd, 1).output.message.tool_calls or []
    assert [(call.function, call.arguments, call.parse_error) for call in calls] == [
        ("phone_call", {}, '{"name": ')
    ]


def test_a_failed_request_is_a_sample_with_an_error_and_no_reply(odd: EvalLog) -> None:
    sample = only(odd, 2)
    assert sample.error and sample.error.message == "503 unavailable"
    assert sample.output.empty and "correct" not in (sample.scores or {})
    assert odd.results and odd.results.completed_samples == odd.results.total_samples - 1


def test_an_unknown_count_gives_no_usage_instead_of_zero(odd: EvalLog) -> None:
    sample = only(odd, 3)
    assert sample.output.usage is None and sample.model_usage == {}
    assert (sample.output.metadata or {})["usage"]["prompt_tokens"] == 7


def test_a_choice_has_probabilities_and_thoughts_but_no_reply(odd: EvalLog) -> None:
    sample = only(odd, 4)
    assert sample.choices == ["phone_call:Xfinity", "reply"] and sample.output.empty
    raw = sample.output.metadata or {}
    assert raw["choice_logprobs"] == {"phone_call:Xfinity": -0.1, "reply": -3.0}
    assert raw["thoughts"][0]["text"] == "Be kind.Call them?" and raw["thoughts"][0]["cut"] is True
    assert (sample.scores or {})["p_act"].answer == "reply"


def test_hostile_text_arrives_as_it_was_written(odd: EvalLog) -> None:
    """But for half a surrogate pair, which no UTF-8 file can hold: its escape stands there."""
    message = only(odd, 5).output.message
    written = HOSTILE.encode("utf-8", "backslashreplace").decode()
    assert message.text == message.tool_calls[0].arguments["merchant"] == written  # type: ignore[index]


def test_no_secret_is_in_a_log(tmp_path: Path) -> None:
    with zipfile.ZipFile(export(write_run(tmp_path / "run", awkward()))) as archive:
        assert not [name for name in archive.namelist() if b"sk-abcdef" in archive.read(name)]


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", awkward())
    for name in ("log.eval", "log.json"):
        first = export(run, tmp_path / f"a-{name}").read_bytes()
        time.sleep(0.01)
        assert export(run, tmp_path / f"b-{name}").read_bytes() == first


def test_json_and_archive_say_the_same(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", awkward()[:-1])
    logs = [read_eval_log(str(export(run, tmp_path / f"log{suffix}"))) for suffix in (".eval", ".json")]
    archive, document = (log.model_dump(exclude={"location"}) for log in logs)
    assert archive == document


def test_an_unfinished_run_is_not_called_a_success(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", awkward())
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    (run / "manifest.json").write_text(json.dumps(manifest | {"cells": 99}), encoding="utf-8")
    assert read_eval_log(str(export(run)), header_only=True).status == "cancelled"


def test_a_log_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.export import inspect_log

    run = write_run(tmp_path / "run", awkward())
    before = export(run).read_bytes()

    def fails(_: Path) -> Iterator[Any]:
        yield from awkward()[:2]
        raise OSError("the disk went away")

    monkeypatch.setattr(inspect_log, "read_records", fails)
    with pytest.raises(Exception, match="cannot be written"):
        export(run)
    assert (run / "inspect.eval").read_bytes() == before
    assert not list(run.glob(".*"))


def test_names_of_other_formats_and_runs_without_pieces_are_refused_in_one_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", awkward())
    with pytest.raises(ExportError, match=r"end in \.eval or \.json"):
        export(run, tmp_path / "log.zip")
    (run / "tokens.parquet").unlink()
    with pytest.raises(ExportError, match=r"tokens\.parquet: no such file"):
        export(run)


def test_samples_are_listed_by_their_question(real: tuple[Path, Path], whole: EvalLog) -> None:
    listed = read_eval_log_sample_summaries(str(real[1]))
    assert {(entry.id, entry.epoch) for entry in listed} == {(s.id, s.epoch) for s in whole.samples or []}
    assert all(isinstance(entry.input, str) and entry.input.endswith(("?", ".")) for entry in listed)
    assert real[1].stat().st_size / len(listed) < 4_000


def test_inspects_data_frames_take_the_log(real: tuple[Path, Path]) -> None:
    from inspect_ai.analysis import samples_df

    frame, cells = samples_df(str(real[1])), load(real[0]).cells
    assert len(frame) == len(cells)
    assert frame["score_p_act"].notna().sum() == (cells["probe"] == "choose").sum()


@pytest.fixture(scope="module")
def viewer(real: tuple[Path, Path]) -> Iterator[str]:
    """`inspect view` on the folder of the log; its address."""
    script = "from inspect_ai._cli.main import main; main()"
    arguments = ["view", "start", "--log-dir", str(real[1].parent), "--port", "0", "--host", "127.0.0.1"]
    port = _free_port()
    arguments[arguments.index("0")] = str(port)
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"INSPECT_VIEW_AUTHORIZATION_TOKEN": ""},
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api/logs", process)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def test_inspect_view_opens_the_run(real: tuple[Path, Path], viewer: str) -> None:
    listed = json.loads(_get(f"{viewer}/api/logs"))["files"]
    assert [(Path(entry["name"]).name, entry["task"]) for entry in listed] == [("inspect.eval", "xfinity")]
    name = urllib.parse.quote(listed[0]["name"], safe="")
    whole = json.loads(_get(f"{viewer}/api/logs/{name}"))
    assert whole["status"] == "success" and whole["results"]["total_samples"] == len(whole["samples"]) == 396
    # The page itself fetches ranges of the archive.
    size = int(_get(f"{viewer}/api/log-size/{name}"))
    assert size == real[1].stat().st_size
    assert _get(f"{viewer}/api/log-bytes/{name}?start=0&end=3") == b"PK\x03\x04"


def test_one_sample_can_be_read_without_the_others(real: tuple[Path, Path]) -> None:
    run, path = real
    record = next(read_records(run))
    sample = read_eval_log_sample(str(path), record.cell_id.rpartition("|")[0], 1)
    assert sample.metadata["cell_id"] == record.cell_id


def test_recorded_logs_have_the_members_that_ours_have(cases_dir: Path, real: tuple[Path, Path]) -> None:
    """Against logs that Inspect itself wrote, where a folder of them is at hand."""
    theirs = sorted((cases_dir / "inspect").glob("*.eval"))
    assert theirs
    kinds = {re.sub(r"/.*", "", name) for path in theirs for name in zipfile.ZipFile(path).namelist()}
    ours = {re.sub(r"/.*", "", name) for name in zipfile.ZipFile(real[1]).namelist()}
    assert {"header.json", "summaries.json", "samples", "_journal"} <= ours <= kinds
    for path in theirs:
        spec = read_eval_log(str(path), header_only=True).eval.model_dump(exclude_none=True)
        mine = read_eval_log(str(real[1]), header_only=True).eval.model_dump(exclude_none=True)
        assert {"task", "model", "created", "dataset", "config"} <= spec.keys() & mine.keys()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return bytes(answer.read())


def _wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "inspect view ended by itself"
        try:
            _get(address)
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("inspect view did not answer within a minute")
