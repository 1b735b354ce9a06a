"""Claims about a server that Tailgauge starts: it comes up, it says why it does not, and it never stays behind."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from core_tokens import tiny_tokenizer
from server_models import config, request

from harness.config import EngineConfig
from harness.errors import ModelError
from harness.models import serve
from harness.models.serve import (
    ServerProcess,
    explain_vllm,
    last_error,
    take_port,
    vllm_arguments,
    vllm_environment,
)
from harness.models.server import ServerModel

ROOT = Path(__file__).parent.parent
FAKE = Path(__file__).with_name("fake_server.py")
KEY = "sk-verysecret-0123456789abcdef"


def alive(pid: int) -> bool:
    """Is it there and not just a dead entry that nobody has waited for?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, within: float = 10.0) -> bool:
    end = time.monotonic() + within
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


def fake(folder: Path, *arguments: str, **options: Any) -> ServerProcess:
    port = take_port(None)
    command = [sys.executable, str(FAKE), "--port", str(port), *arguments]
    return ServerProcess(command, port=port, log=folder / "server.log", **options)


@contextmanager
def started(process: ServerProcess) -> Iterator[ServerProcess]:
    process.start(20)
    try:
        yield process
    finally:
        process.stop()


def test_a_slow_server_is_waited_for_and_its_log_is_kept(tmp_path: Path) -> None:
    begun = time.monotonic()
    with started(fake(tmp_path, "--slow", "0.6")) as process:
        assert time.monotonic() - begun >= 0.6 and process.running
        with urllib.request.urlopen(process.address + "/models") as answer:
            assert answer.status == 200
    assert not process.running
    assert "listening" in (tmp_path / "server.log").read_text()


def test_stopping_ends_the_whole_group_also_what_does_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "GRACE_S", 0.5)
    for stubborn in ((), ("--stubborn",)):
        with started(fake(tmp_path, "--child", str(tmp_path / "child"), *stubborn)) as process:
            pids = [int(word) for word in (tmp_path / "child").read_text().split()]
            assert len(pids) == 2 and all(map(alive, pids))
        assert all(gone(pid, 1) for pid in pids)
        process.stop()  # twice does no harm


def test_workers_of_a_dead_leader_are_ended_too(tmp_path: Path) -> None:
    with started(fake(tmp_path, "--child", str(tmp_path / "child"))) as process:
        leader, worker = (int(word) for word in (tmp_path / "child").read_text().split())
        os.kill(leader, signal.SIGKILL)
        time.sleep(0.2)
        assert alive(worker) and not process.running
    assert gone(worker, 1)


def test_a_death_at_the_start_is_told_with_its_last_error_and_the_log(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("OldError: from an earlier start\n")
    with pytest.raises(ModelError) as error:
        fake(tmp_path, "--die", "ValueError: no such thing as a free lunch").start(20)
    told = str(error.value)
    assert "ended with code 3" in told and "ValueError: no such thing as a free lunch" in told
    assert str(tmp_path / "server.log") in told and "OldError" not in told
    assert "OldError" in (tmp_path / "server.log").read_text(), "an earlier log is kept"


def test_what_is_quoted_from_a_log_is_cleaned(tmp_path: Path) -> None:
    redact = lambda text: text.replace(KEY, "***")  # noqa: E731
    with pytest.raises(ModelError) as error:
        fake(tmp_path, "--die", f"ValueError: bad key {KEY}", redact=redact).start(20)
    assert "bad key ***" in str(error.value)


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    process = fake(tmp_path, "--slow", "60", "--child", str(tmp_path / "child"))
    with pytest.raises(ModelError, match=r"not ready after 1 s: raise model\.server\.start_timeout_s"):
        process.start(1)
    assert all(gone(int(word), 1) for word in (tmp_path / "child").read_text().split())


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be started"):
        ServerProcess([str(tmp_path / "nothing")], port=1, log=tmp_path / "log").start(1)


def test_a_port_that_is_taken_is_refused_and_a_free_one_is_free() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ModelError, match=rf"model\.server\.port={port}"):
            take_port(port)
    assert take_port(port) == port
    assert take_port(None) != 0


OWNER = """
import os, signal, sys, time
from pathlib import Path
from harness.models.serve import ServerProcess, take_port
port = take_port(None)
command = [sys.executable, {fake!r}, "--port", str(port), "--child", {child!r}]
ServerProcess(command, port=port, log=Path({child!r} + ".log")).start(20)
print("up", flush=True)
{end}
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)", -15),
        ("raise RuntimeError('crash')", 1),
    ],
)
def test_no_orphan_is_left_however_we_end(end: str, code: int, tmp_path: Path) -> None:
    child = str(tmp_path / "child")
    program = OWNER.format(fake=str(FAKE), child=child, end=end)
    owner = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert (owner.stdout, owner.returncode) == ("up\n", code), owner.stderr
    pids = [int(word) for word in Path(child).read_text().split()]
    assert len(pids) == 2 and all(gone(pid) for pid in pids)


# -- vLLM ----------------------------------------------------------------------------------------------------


def test_the_engines_settings_become_arguments_and_what_is_not_set_is_left_to_vllm() -> None:
    engine = {"max_model_len": 4096, "block_size": 32, "enforce_eager": True, "cpu_cores": "0-1"}
    settings = config(
        None, model_engine=engine, model_dtype="float32", reasoning_parser="qwen3", tool_call_parser="hermes"
    )
    arguments = vllm_arguments(settings, 8123)
    line = " ".join(arguments)
    for part in (
        "--host 127.0.0.1", "--port 8123", "--served-model-name tiny", "--dtype float32",
        "--max-model-len 4096", "--block-size 32", "--enforce-eager", "--enable-prompt-tokens-details",
        "--enable-prefix-caching", "--reasoning-parser qwen3", "--tool-call-parser hermes", "--enable-auto-tool-choice",
    ):  # fmt: skip
        assert part in line
    assert "None" not in line and "--max-num-seqs" not in line
    plain = " ".join(vllm_arguments(config(None, model="named"), 1))
    assert "--served-model-name named" in plain
    assert not any(part in plain for part in ("eager", "block-size", "parser", "auto-tool"))
    environment = vllm_environment(EngineConfig(cpu_cache_gb=3, cpu_cores="0-1"), KEY)
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "3" and environment["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    assert environment["VLLM_API_KEY"] == KEY
    assert {"VLLM_API_KEY", "VLLM_CPU_OMP_THREADS_BIND"}.isdisjoint(vllm_environment(EngineConfig(), None))


LOGS = {
    "(EngineCore pid=7) ERROR 11-30 12:00:00 [core.py:9] ValueError: To serve at least one request with the model's "
    "max seq len (40960), 4.4 GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB)."
    "": "model.engine.max_model_len",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": "model.engine.",
    "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.": "model.dtype",
    "OSError: [Errno 98] error while attempting to bind on address: address already in use": "model.server.port",
    "KeyError: 'invalid tool call parser: nope (chose from { hermes })'": "model.server.tool_call_parser",
    "KeyError: 'invalid reasoning parser: nope'": "model.server.reasoning_parser",
}


PYDANTIC = (
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
    "  Value error, User-specified max_model_len (1000000) is greater than the derived max_model_len "
    "(max_position_embeddings=32768.0). [type=value_error, input_value=ArgsKwargs((), {'dtype': 'x'}), input_type=A]",
    "    For further information visit https://errors.pydantic.dev/2.12/v/value_error",
)


@pytest.mark.parametrize(
    "prefix", ["", "(APIServer pid=7) ", "(EngineCore pid=7) ERROR 11-30 12:00:00 [core.py:9] "]
)
def test_an_error_is_read_to_the_end_of_its_indented_lines(prefix: str, tmp_path: Path) -> None:
    log = "\n".join(prefix + line for line in PYDANTIC)
    with pytest.raises(ModelError) as error:
        fake(tmp_path, "--die", log, explain=explain_vllm).start(20)
    told = str(error.value)
    assert "lower model.engine.max_model_len" in told
    assert (
        "ValidationError: 1 validation error for ModelConfig Value error, User-specified max_model_len (1000000)"
        in told
    )
    assert (
        "dtype" not in told
        and "pydantic.dev" not in told
        and "shutting down" not in told
        and "\n" not in told
    )
    endless = f"ValueError: a\n{'  more and more' * 99}"
    assert len(last_error(endless)) <= 300 and last_error("ValueError: a\n\n  b") == "ValueError: a"


@pytest.mark.parametrize("line", LOGS)
def test_the_cause_of_a_death_names_the_setting_to_change(line: str) -> None:
    log = f"INFO starting\n{line}\n\nRuntimeError: Engine core initialization failed. See root cause above. {{}}\nbye\n"
    told = explain_vllm(log)
    assert LOGS[line] in told and "See root cause" not in told
    assert line.split("] ", 1)[-1][:30] in told or line[6:30] in told


def test_a_log_without_an_error_gives_its_last_line_and_an_empty_one_says_so() -> None:
    assert last_error("one\ntwo\n\n") == "two"
    assert last_error(" \n") == "it wrote nothing"


def test_a_missing_vllm_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ModelError, match=r"vLLM is not installed here.*pip install vllm"):
        ServerModel.from_config(tmp_path, None, config(None), tmp_path)


@pytest.fixture
def fake_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python with a `vllm` beside it, which is the fake server."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    program = folder / "vllm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return tmp_path


def test_without_an_address_a_server_is_started_used_and_stopped(
    fake_vllm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    settings = config(None, api_key_env="SOME_KEY", model_engine={"block_size": 16})
    model = ServerModel.from_config(fake_vllm / "weights", tiny_tokenizer(), settings, fake_vllm / "logs")
    try:
        assert (model.cache_block, model.facts["model"], model.facts["started"]) == (16, "tiny", True)
        assert KEY not in repr(model.facts) and KEY not in " ".join(model.facts["arguments"])
        ((_, output),) = model.run([request()])
        assert (output.text, output.error) == ("Hello.", None)
        started_process = model._started
        assert started_process is not None and started_process.running
    finally:
        model.close()
    assert not started_process.running
    assert KEY not in (fake_vllm / "logs" / "server.log").read_text()


def test_a_started_server_that_is_of_no_use_is_stopped_again(fake_vllm: Path) -> None:
    settings = config(None, model="served-as")
    with pytest.raises(ModelError, match="key"):
        # It asks for a key that nobody gave us.
        os.environ["FAKE_WANTS_KEY"] = "1"
        try:
            ServerModel.from_config(fake_vllm, tiny_tokenizer(), settings, fake_vllm)
        finally:
            del os.environ["FAKE_WANTS_KEY"]
    pid = int((fake_vllm / "server.log").read_text().split("pid ")[1].split()[0])
    assert gone(pid, 1)
