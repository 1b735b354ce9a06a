"""The local page of `tailgauge view`: every cell of a run, read from the disk as it is asked for.

Listens on 127.0.0.1 alone, answers GET alone and writes nothing. A request must name this address as its host, so that
a web page elsewhere cannot reach it under a name of its own. Pages of cells and single decision points are read by row
group; only the index stays in memory. Knows HTTP and the index, nothing of tables.
"""

import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pandas as pd
from markupsafe import Markup

from harness.analysis import html
from harness.analysis.page import looks
from harness.analysis.page.cells import FACETS, CellIndex, read_index, tone
from harness.analysis.page.embed import describe_cells
from harness.analysis.page.texts import Texts
from harness.errors import ReportError, TailgaugeError
from harness.runlog import read_manifest
from harness.runlog.pieces import read_pieces

HOST = "127.0.0.1"
SIZE = 50
"""Cells on a page of the list."""
SNIPPET = 160
"""Characters of a reply in the list."""
MOST_TEXT = 200
"""Characters of a text search."""
MOST_ARMS = 64
"""Cells of a decision point that are shown at most."""


class NotFoundError(Exception):
    """The address names nothing here."""


class Cells:
    """The run that is looked at. Its index is read anew when samples.parquet is replaced."""

    def __init__(self, run_dir: Path) -> None:
        """Raises ReportError or RunLogError when a file of the run is missing or unreadable."""
        self.run_dir = run_dir
        self.manifest = read_manifest(run_dir)
        self._lock = threading.Lock()
        self._index, self._read = read_index(run_dir), self._state()
        self._pieces = read_pieces(run_dir)

    def _state(self) -> tuple[int, int]:
        found = (self.run_dir / "samples.parquet").stat()
        return found.st_mtime_ns, found.st_size

    @property
    def index(self) -> CellIndex:
        """The index of the file as it is now."""
        with self._lock:
            now = self._state()
            if now != self._read:
                self._index, self._read = read_index(self.run_dir), now
                self._pieces = read_pieces(self.run_dir)
            return self._index

    def page(self) -> str:
        """The text of the page, and with it its policy."""
        model = self.manifest.get("model")
        name = model.get("name") if isinstance(model, Mapping) else model
        arms = self.manifest.get("conditions") or ()
        parts: dict[str, Any] = {
            "policy": self.policy(),
            "style": Markup(looks.style()),
            "script": Markup(looks.script("served.js")),
            "meta": looks.meta(
                [str(arm["name"]) for arm in arms if isinstance(arm, Mapping) and "name" in arm]
            ),
            "browser": looks.browser(),
            "title": f"{self.manifest.get('experiment', 'run')} on {name or 'unknown model'}",
            "run_id": str(self.manifest.get("run_id", self.run_dir.name)),
            "cells": f"{len(self.index):,}",
            "texts": bool(self._pieces),
        }
        return html.fill(looks.ASSETS / "view.html", parts)

    def policy(self) -> str:
        """The page's own style and script, and answers from here; nothing else."""
        return html.policy(looks.script("served.js"), looks.style(), "connect-src 'self'", "img-src data:")

    def facets(self) -> dict[str, Any]:
        """Values of each facet with their number of cells."""
        return dict(self.index.facets())

    def cells(self, query: Mapping[str, str]) -> dict[str, Any]:
        """One page of the cells that fit the query (facets, `text`, `page` from 0)."""
        index = self.index
        number = query.get("page", "0")
        if not number.isascii() or not number.isdigit() or len(number) > 9:
            raise ValueError("page: expected a whole number from 0 up")
        chosen = {name: value for name, value in query.items() if name in FACETS}
        found = index.select(chosen, query.get("text", "")[:MOST_TEXT])
        shown = found.iloc[int(number) * SIZE : (int(number) + 1) * SIZE]
        texts = index.read(shown["row"].tolist(), ("output.text", "output.error"))
        return {
            "total": len(found),
            "all": len(index),
            "size": SIZE,
            "cells": [_entry(cell, texts[int(cell["row"])]) for cell in shown.to_dict("records")],
        }

    def point(self, query: Mapping[str, str]) -> dict[str, Any]:
        """All arms of the decision point of one cell, with whole texts."""
        index = self.index
        cell = index.frame[index.frame["cell_id"] == query.get("id", "")]
        if cell.empty:
            raise NotFoundError("no such cell")
        texts = Texts(self._pieces)
        arms = describe_cells(
            index, index.point({str(k): v for k, v in cell.iloc[0].items()}).head(MOST_ARMS), texts
        )
        return {"texts": texts.texts, "arms": arms}


def _entry(cell: Mapping[Any, Any], texts: Mapping[str, Any]) -> dict[str, Any]:
    said = texts.get("output.error") or texts.get("output.text") or ""
    outcome = str(cell["outcome"])
    return {
        "id": cell["cell_id"], "condition": cell["condition"], "outcome": outcome,
        "tone": tone(outcome, str(cell["side"])), "probe": cell["probe"], "sample": cell["sample_id"],
        "p": None if pd.isna(cell["p"]) else float(cell["p"]), "snippet": said[:SNIPPET],
    }  # fmt: skip


class Server(ThreadingHTTPServer):
    """Serves one run until `shutdown`."""

    daemon_threads = True

    def __init__(self, cells: Cells, port: int) -> None:
        """Raises ReportError when the port cannot be had; 0 takes a free one."""
        self.cells = cells
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise ReportError(
                f"port {port}: cannot be listened on at {HOST} ({error}); choose another with --port, or leave it out"
            ) from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """The page's address."""
        return f"http://{HOST}:{self.port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no news; what went wrong otherwise was answered."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    server_version, sys_version = "tailgauge", ""
    timeout = 30

    def do_GET(self) -> None:
        """The page, or a part of the run as JSON."""
        if not self._from_here():
            self._json(
                {"error": "this page answers requests from its own address alone"}, HTTPStatus.FORBIDDEN
            )
            return
        where = urlsplit(self.path)
        query = dict(parse_qsl(where.query, max_num_fields=20))
        cells = self.server.cells
        try:
            match where.path:
                case "/":
                    self._send(
                        cells.page().encode("utf-8", "backslashreplace"),
                        "text/html; charset=utf-8",
                        HTTPStatus.OK,
                    )
                case "/api/facets":
                    self._json(cells.facets(), HTTPStatus.OK)
                case "/api/cells":
                    self._json(cells.cells(query), HTTPStatus.OK)
                case "/api/point":
                    self._json(cells.point(query), HTTPStatus.OK)
                case _:
                    raise NotFoundError("nothing is here")
        except NotFoundError as error:
            self._json({"error": str(error)}, HTTPStatus.NOT_FOUND)
        except ValueError as error:
            self._json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except (TailgaugeError, OSError) as error:
            self._json({"error": str(error)}, HTTPStatus.INTERNAL_SERVER_ERROR)

    def _from_here(self) -> bool:
        """Whether the request names this address, and no other site's page sent it."""
        host = self.headers.get("Host", "")
        site = self.headers.get("Sec-Fetch-Site", "none")
        return host in (f"{HOST}:{self.server.port}", f"localhost:{self.server.port}") and site in (
            "none",
            "same-origin",
        )

    def _json(self, found: Mapping[str, Any], status: HTTPStatus) -> None:
        self._send(json.dumps(found, allow_nan=False).encode(), "application/json", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store",
            "Content-Security-Policy": f"{self.server.cells.policy()}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not told on the terminal."""
