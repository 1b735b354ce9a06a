"""A provider's API on 127.0.0.1: real HTTP, real server-sent events, faults on request, every request looked at.

What one API looks like is said by a Speaker (`openai_server`, `anthropic_server`, `gemini_server`); what goes wrong
by `api_faults`. A request that breaks the API's rules gets HTTP 400 and is noted.
"""

import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self

from api_faults import Cut, Duplicates, Fault, Malformed, Reset, Silence, Skewed, Status, Trickle, WrongType

KEY = "sk-test-5e8c41f09b7d4a63"
"""The only key that a server here lets in; a test may look for it in whatever a run leaves."""


@dataclass
class Seen:
    """A request as it arrived. `headers` with names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    number: int
    at: float = field(default_factory=time.monotonic)

    @property
    def mark(self) -> str:
        return self.headers.get("idempotency-key", "")


@dataclass(frozen=True)
class Reply:
    """What the model says, in no provider's form. `calls`: name and arguments, an object or the raw text of them.
    `logprobs`: (token, logprob, {alternative: logprob}) for each token of the text or the call's arguments."""

    thinking: str = ""
    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any] | str], ...] = ()
    stop: str = "stop"
    input_tokens: int = 100
    """All of the prompt, cached and written ones included."""
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    output_tokens: int = 20
    """All of the reply, thinking included."""
    reasoning_tokens: int = 0
    logprobs: tuple[tuple[str, float, Mapping[str, float]], ...] = ()


class Speaker(Protocol):
    """One provider's protocol, from its public reference."""

    prefix: str

    def refuse(self, seen: Seen) -> str | None: ...

    def events(self, seen: Seen, reply: Reply) -> list[bytes]: ...

    def error(self, status: int, message: str) -> dict[str, Any]: ...

    def headers(self, number: int) -> dict[str, str]: ...


class ApiServer:
    """The server, as a context. `reply`: what the model says to a request. `delay`: seconds before it says it.
    `paced`: seconds between events. `faults`: what happens to the next requests in turn; or a function of the
    request."""

    def __init__(
        self,
        speaker: Speaker,
        reply: Callable[[Seen], Reply] = lambda seen: Reply(text="Hello."),
        *,
        delay: float = 0.0,
        paced: float = 0.0,
        faults: Iterable[Fault | None] | Callable[[Seen], Fault | None] = (),
        port: int = 0,
    ) -> None:
        self.speaker, self.reply, self.delay, self.paced = speaker, reply, delay, paced
        self.faults = faults if callable(faults) else deque(faults)
        self.seen: list[Seen] = []
        self.answered: list[str] = []
        """Idempotency key of each request that was answered whole, in order."""
        self.refused: list[str] = []
        self.most_at_once = 0
        self.gone = False
        self._now = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.speaker.prefix}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gone = True
        self._server.shutdown()
        self._server.server_close()

    def note(self, seen: Seen) -> None:
        with self._lock:
            seen.number = len(self.seen)
            self.seen.append(seen)

    def fault(self, seen: Seen) -> Fault | None:
        if callable(self.faults):
            return self.faults(seen)
        with self._lock:
            return self.faults.popleft() if self.faults else None

    def count(self, by: int) -> None:
        with self._lock:
            self._now += by
            self.most_at_once = max(self.most_at_once, self._now)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


def _handler(owner: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            self.send_json(404, owner.speaker.error(404, f"no such thing: {self.path}"), {})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if owner.gone:  # on a connection that is still open
                self.close_connection = True
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen("POST", self.path, headers, json.loads(raw), 0)
            owner.note(seen)
            owner.count(1)
            try:
                self.answer(seen)
            finally:
                owner.count(-1)

        def answer(self, seen: Seen) -> None:
            fault = owner.fault(seen)
            if isinstance(fault, Status):
                self.send_json(
                    fault.code,
                    owner.speaker.error(fault.code, fault.message),
                    dict(fault.headers),
                    seen.number,
                )
                return
            reason = owner.speaker.refuse(seen)
            if reason is not None:
                owner.refused.append(reason)
                self.send_json(400, owner.speaker.error(400, reason), {}, seen.number)
                return
            if isinstance(fault, WrongType):
                self.send_page(fault.page)
                return
            if owner.delay:
                time.sleep(owner.delay)
            self.stream(seen, owner.speaker.events(seen, owner.reply(seen)), fault)

        def stream(self, seen: Seen, events: list[bytes], fault: Fault | None) -> None:
            if isinstance(fault, Reset) and fault.after == 0:
                self.reset()
                return
            date = time.time() + (fault.seconds if isinstance(fault, Skewed) else 0.0)
            self.begin(seen.number, date)
            for number, event in enumerate(events):
                if isinstance(fault, Reset | Cut | Silence | Malformed) and number == fault.after:
                    if isinstance(fault, Reset):
                        self.reset()
                        return
                    if isinstance(fault, Cut):
                        self.chunk(b"")
                        return
                    if isinstance(fault, Silence):
                        self.wait(fault.seconds)
                    else:
                        self.chunk(fault.data)
                if isinstance(fault, Trickle):
                    for at in range(0, len(event), fault.size):
                        self.chunk(event[at : at + fault.size])
                        time.sleep(fault.pause)
                    continue
                if owner.paced and number:
                    time.sleep(owner.paced)
                self.chunk(event)
                if isinstance(fault, Duplicates):
                    self.chunk(event)
            if not (isinstance(fault, Malformed) and fault.after < len(events)):
                owner.answered.append(seen.mark)
            self.chunk(b"")

        def wait(self, seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end and not owner.gone:
                time.sleep(0.02)

        def reset(self) -> None:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True

        def begin(self, number: int, date: float) -> None:
            self.send_response_only(200)
            self.send_header("Date", formatdate(date, usegmt=True))
            for name, value in owner.speaker.headers(number).items():
                self.send_header(name, value)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def send_page(self, page: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def send_json(self, code: int, data: Any, headers: Mapping[str, str], number: int = 0) -> None:
            body = json.dumps(data).encode()
            self.send_response_only(code)
            for name, value in {
                "Date": formatdate(usegmt=True),
                **owner.speaker.headers(number),
                **headers,
            }.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def sse(data: Mapping[str, Any] | str, event: str = "") -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()
