"""A scripted OpenAI-compatible server: real HTTP on 127.0.0.1, real server-sent events, faults on request.

A script answers each generation request (in order of arrival) with a list of steps: send an event, wait, cut the
connection, reset it. `/v1/models`, `/version` and `/tokenize` answer by themselves.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

MODEL = "scripted"


@dataclass(frozen=True)
class Event:
    """One event, `at` seconds after the request arrived (None: at once). Text is sent as it stands."""

    data: Mapping[str, Any] | str
    at: float | None = None


@dataclass(frozen=True)
class Cut:
    """The connection ends here, in the middle of the stream."""


@dataclass(frozen=True)
class Reset:
    """The connection is torn down with a TCP reset."""


@dataclass(frozen=True)
class Hang:
    """Nothing comes for so long."""

    seconds: float


@dataclass(frozen=True)
class Status:
    """No stream but an HTTP status with a body."""

    code: int
    body: Mapping[str, Any] | str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Comment:
    """A keep-alive, which is no event."""


Step = Event | Comment | Cut | Reset | Hang | Status
DONE = Event("[DONE]")


@dataclass
class Asked:
    """A request as it arrived; `at` on `time.monotonic`."""

    path: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    at: float


Script = Callable[[Asked], Iterable[Step]]


class Loopback:
    """The server. `script`: a function of the request, or the answers in order, the last one for good."""

    def __init__(
        self,
        script: Script | Sequence[Sequence[Step]] = (),
        *,
        models: Sequence[str] | Status = (MODEL,),
        tokenize: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        self._script = script
        self.models = models
        self.tokenize = tokenize
        self.asked: list[Asked] = []
        """Generation requests alone."""
        self.proofs: list[dict[str, Any]] = []
        self.most_at_once = 0
        self.gone = False
        self._now = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gone = True
        self._server.shutdown()
        self._server.server_close()

    def steps(self, asked: Asked) -> Iterable[Step]:
        with self._lock:
            self.asked.append(asked)
            number = len(self.asked)
        if callable(self._script):
            return self._script(asked)
        return self._script[min(number, len(self._script)) - 1]

    def count(self, by: int) -> None:
        with self._lock:
            self._now += by
            self.most_at_once = max(self.most_at_once, self._now)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of the script."""


def _handler(owner: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                if isinstance(owner.models, Status):
                    return self.status(owner.models)
                data = [{"id": name, "object": "model", "max_model_len": 4096} for name in owner.models]
                return self.json({"object": "list", "data": data})
            if self.path == "/version":
                return self.json({"version": "9.9"})
            return self.status(Status(404, {"detail": "Not Found"}))

        def do_POST(self) -> None:
            if owner.gone:  # on a connection that is still open
                self.close_connection = True
                return None
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/tokenize" and owner.tokenize is not None:
                owner.proofs.append(body)
                return self.json({"tokens": owner.tokenize(body)})
            arrived = time.monotonic()
            owner.count(1)
            try:
                steps = owner.steps(Asked(self.path, body, dict(self.headers), arrived))
                if body.get("stream"):
                    self.play(steps, arrived)
                else:
                    for step in steps:
                        if isinstance(step, Hang):
                            time.sleep(step.seconds)
                    self.json({"id": "1", "object": "text_completion", "model": MODEL, "choices": []})
            finally:
                owner.count(-1)

        def play(self, steps: Iterable[Step], arrived: float) -> None:
            begun = False
            for step in steps:
                if isinstance(step, Status):
                    return self.status(step)
                if not begun and not isinstance(step, Reset | Hang):
                    self.begin()
                    begun = True
                match step:
                    case Event(data, at):
                        if at is not None:
                            time.sleep(max(0.0, arrived + at - time.monotonic()))
                        text = data if isinstance(data, str) else json.dumps(data)
                        self.chunk(f"data: {text}\n\n".encode())
                    case Comment():
                        self.chunk(b": keep-alive\n\n")
                    case Hang(seconds):
                        time.sleep(seconds)
                    case Cut():
                        self.close_connection = True
                        return None
                    case Reset():
                        linger = struct.pack("ii", 1, 0)
                        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                        self.connection.close()
                        self.close_connection = True
                        return None
            if begun:
                self.chunk(b"")
            return None

        def begin(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def json(self, data: Any) -> None:
            self.status(Status(200, data))

        def status(self, step: Status) -> None:
            text = step.body if isinstance(step.body, str) else json.dumps(step.body)
            self.send_response(step.code)
            for name, value in step.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    return Handler


# -- events in the servers' forms ----------------------------------------------------------------------------


def text(
    piece: str, *, at: float | None = None, finish: str | None = None, ids: Sequence[int] | None = None
) -> Event:
    """A chunk of the completions API."""
    choice: dict[str, Any] = {"index": 0, "text": piece, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = list(ids)
    return Event({"id": "1", "object": "text_completion", "model": MODEL, "choices": [choice]}, at)


def delta(
    *, at: float | None = None, finish: str | None = None, ids: Sequence[int] | None = None, **fields: Any
) -> Event:
    """A chunk of the chat API; `fields` are the delta's."""
    choice: dict[str, Any] = {"index": 0, "delta": fields, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = list(ids)
    return Event({"id": "1", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice]}, at)


def usage(prompt: int, completion: int, **details: Any) -> Event:
    """The last chunk, which has no choice."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return Event(
        {
            "id": "1",
            "object": "text_completion",
            "model": MODEL,
            "choices": [],
            "usage": {**counts, **details},
        }
    )
