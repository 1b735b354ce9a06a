"""Responses recorded and played back, so that a published run can be computed again by anyone without keys.

Sits between a vendor's client and the network: what is recorded are the bytes that the provider sent, and on replay
the vendor's own client reads them anew. A request is known by what it is for (cell and draw) and by its body; its
headers, and with them the key, are never looked at. Knows no provider.
"""

import base64
import hashlib
import json
import os
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import httpx2

from harness.errors import ConfigError, ProviderError, RunLogError
from harness.models.api.wire import Attempt
from harness.models.server_faults import Redactor

NAME = "cassette.jsonl"
VERSION = 1
_HEADERS = ("content-type", "x-request-id", "request-id", "date")
"""Response headers that are kept."""


class MissingReplyError(ProviderError):
    """Nothing was recorded for this request."""


class Cassette:
    """One file of recorded responses. `redact` takes the key out of what is kept, should a provider quote it.

    Raises ConfigError for a file that is no cassette, or is not there on replay.
    """

    def __init__(self, path: Path, mode: Literal["record", "replay"], redact: Redactor) -> None:
        self.path = path
        self.keeps = mode == "record"
        self._redact = redact
        self._lock = Lock()
        self._replies: dict[tuple[str, str], dict[str, Any]] = {}
        self._labels: set[str] = set()
        if mode == "replay":
            self._read()

    def replay(self, request: httpx2.Request, attempt: Attempt) -> httpx2.Response | None:
        """The recorded response; None while recording. Raises MissingReplyError where there is none."""
        if self.keeps:
            return None
        digest = _digest(request.method, request.url.path, request.read())
        entry = self._replies.get((attempt.label, digest))
        if entry is None:
            known = attempt.label in self._labels
            why = "another request was recorded for it" if known else "none was recorded"
            raise MissingReplyError(
                f"cassette {self.path}: no reply for {attempt.label}: {why}; replay with the configuration that it was "
                "recorded with, or record anew (cassette=record)"
            )
        return httpx2.Response(
            entry["status"], headers=entry["headers"], content=_bytes(entry["body"]), request=request
        )

    def keep(self, attempt: Attempt) -> None:
        """Adds the attempt's response. Raises RunLogError when it cannot be written."""
        if not self.keeps or attempt.request is None or attempt.received is None or attempt.status is None:
            return
        method, path, body = attempt.request
        entry = {
            "label": attempt.label,
            "request": _digest(method, path, body),
            "status": attempt.status,
            "headers": {name: attempt.headers[name] for name in _HEADERS if name in attempt.headers},
            "body": _plain(b"".join(attempt.received), self._redact),
        }
        line = json.dumps(entry, ensure_ascii=True, separators=(",", ":"))
        with self._lock:
            try:
                self._append(line)
            except OSError as error:
                raise RunLogError(
                    f"{self.path}: {error.strerror or error}; free some space or record elsewhere"
                ) from None

    def _append(self, line: str) -> None:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(handle).st_size
            head = "" if size else json.dumps({"tailgauge_cassette": VERSION}) + "\n"
            # A line that a kill tore off ends here, and is passed over when the file is read.
            torn = "\n" if size and os.pread(handle, 1, size - 1) != b"\n" else ""
            os.write(handle, f"{torn}{head}{line}\n".encode())
        finally:
            os.close(handle)

    def _read(self) -> None:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cassette=replay: {self.path} cannot be read ({error}); name the file with cassette_file=…, or record one "
                "with cassette=record"
            ) from None
        if not lines or _entry(lines[0]).get("tailgauge_cassette") != VERSION:
            raise ConfigError(
                f"{self.path}:1: no cassette of version {VERSION}; expected a file that cassette=record wrote"
            )
        for number, line in enumerate(lines[1:], start=2):
            entry = _entry(line)
            if not line.strip() or (not entry and number == len(lines)):
                continue
            if not entry or not _whole(entry):
                if number < len(lines) and not entry:
                    continue  # torn by a kill; the reply was recorded again afterwards
                raise ConfigError(
                    f"{self.path}:{number}: expected label, request, status, headers and body; record anew"
                )
            # The newest counts, as it does in the run log.
            self._replies[entry["label"], entry["request"]] = entry
            self._labels.add(entry["label"])


def _entry(line: str) -> dict[str, Any]:
    try:
        read = json.loads(line)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _whole(entry: dict[str, Any]) -> bool:
    kinds = {"label": str, "request": str, "status": int, "headers": dict, "body": str}
    return all(isinstance(entry.get(key), kind) for key, kind in kinds.items())


def _digest(method: str, path: str, body: bytes) -> str:
    """Of what is asked: two bodies that differ in the order of their keys alone are one."""
    try:
        plain = json.dumps(json.loads(body), sort_keys=True, ensure_ascii=True)
    except ValueError:
        plain = body.hex()
    return hashlib.sha256(f"{method} {path}\n{plain}".encode()).hexdigest()[:32]


def _plain(body: bytes, redact: Redactor) -> str:
    """The bytes as text where they are text, else marked base64."""
    try:
        return redact.whole(body.decode("utf-8"))
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(body).decode("ascii")


def _bytes(body: str) -> bytes:
    if body.startswith("base64:"):
        return base64.b64decode(body.removeprefix("base64:"))
    return body.encode("utf-8")
