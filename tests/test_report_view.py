"""`tailgauge view`: every cell of a run from the disk, on a page that only this machine's own browser can ask."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from analysis_data import rows, write_run
from big_run import Plan, big_run
from browser import chromium, needs_browser

from harness.analysis.page import looks
from harness.analysis.page.cells import read_index
from harness.analysis.page.server import HOST, SIZE, Cells, Server
from harness.errors import ReportError, RunLogError
from harness.runlog.pieces import read_pieces, text_of

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return big_run(tmp_path_factory.mktemp("run"), Plan(matched=18, prior_calls=2, filler=1, asked=2))


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with Server(Cells(folder), 0) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield running
        running.shutdown()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    connection.request(
        method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def said(server: Server, path: str) -> Any:
    status, _, body = ask(server, path)
    assert status == 200, body
    return json.loads(body)


def test_every_cell_is_listed_once_page_by_page(server: Server, folder: Path) -> None:
    recorded = pd.read_parquet(folder / "samples.parquet", columns=["cell_id"])["cell_id"]
    listed: list[str] = []
    for page in range(-(-len(recorded) // SIZE)):
        found = said(server, f"/api/cells?page={page}")
        assert (found["total"], found["all"]) == (len(recorded), len(recorded))
        listed += [cell["id"] for cell in found["cells"]]
    assert sorted(listed) == sorted(recorded) and len(set(listed)) == len(listed)
    assert said(server, "/api/cells?page=999999")["cells"] == []


def test_facets_count_all_cells_and_filters_keep_to_them(server: Server, folder: Path) -> None:
    recorded = pd.read_parquet(folder / "samples.parquet")
    facets = said(server, "/api/facets")
    assert facets["condition"] == recorded["condition"].value_counts().to_dict()
    chosen = recorded[
        (recorded["probe"] == "act")
        & (recorded["side"] == "due")
        & (recorded["score.outcome"] == "truncated")
    ]
    found = said(server, "/api/cells?probe=act&side=due&outcome=truncated")
    assert found["total"] == len(chosen) > 0
    assert {cell["id"] for cell in found["cells"]} <= set(chosen["cell_id"])


def test_a_search_reads_replies_bars_reasons_and_ids_in_either_case(server: Server, folder: Path) -> None:
    recorded = pd.read_parquet(folder / "samples.parquet")
    word = recorded.loc[recorded["output.text"].str.len() > 20, "output.text"].iloc[0].split()[0]
    held = pd.Series(False, index=recorded.index)
    for name in ("sample_id", "output.text", "bar_text", "score.reason", "output.error"):
        held |= recorded[name].fillna("").str.lower().str.contains(word.lower(), regex=False)
    assert 0 < said(server, f"/api/cells?text={word.upper()}")["total"] == int(held.sum())
    assert said(server, "/api/cells?text=.*")["total"] == 0, "a text, not a pattern"


def test_a_cell_comes_with_all_arms_of_its_decision_point_and_whole_texts(
    server: Server, folder: Path
) -> None:
    recorded = pd.read_parquet(folder / "samples.parquet").set_index("cell_id")
    cell = next(i for i in recorded.index if "|act|" in i and recorded.loc[i, "series"] == "matched")
    found = said(server, f"/api/point?id={cell.replace('|', '%7C')}")
    mine = recorded.loc[cell]
    same = recorded[(recorded["sample_id"] == mine["sample_id"]) & (recorded["probe"] == "act")]
    assert {arm["cell_id"] for arm in found["arms"]} == set(same.index)
    arm = next(arm for arm in found["arms"] if arm["cell_id"] == cell)
    text = text_of(mine["prompt_ids"].tolist(), read_pieces(folder))
    assert "".join(found["texts"][n] for _, n in arm["prompt"]) == text
    assert (found["texts"][arm["reply"]] if arm["reply"] is not None else "") == mine["output.text"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/facets", {"Host": "evil.example"}, 403),
        ("/api/facets", {"Host": "127.0.0.1"}, 403),
        ("/", {"Host": "evil.example:80"}, 403),
        ("/api/facets", {"Sec_Fetch_Site": "cross-site"}, 403),
        ("/api/facets", {"Sec_Fetch_Site": "same-site"}, 403),
        ("/api/facets", {"Sec_Fetch_Site": "same-origin"}, 200),
        ("/api/point?id=nobody", {}, 404),
        ("/manifest.json", {}, 404),
        ("/../manifest.json", {}, 404),
        ("/api/cells?page=-1", {}, 400),
        ("/api/cells?page=x", {}, 400),
        ("/api/cells?page=" + "9" * 40, {}, 400),
    ],
)  # fmt: skip
def test_it_answers_its_own_page_and_nobody_else(
    server: Server, path: str, headers: dict[str, str], status: int
) -> None:
    found, _, body = ask(server, path, **headers)
    assert found == status
    assert status == 200 or list(json.loads(body)) == ["error"]


def test_it_listens_on_this_machine_alone_and_takes_no_other_verb(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    for verb in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, "/", verb)[0] == 501


def test_every_answer_carries_the_policy(server: Server) -> None:
    for path in ("/", "/api/facets", "/nothing"):
        _, headers, body = ask(server, path)
        policy = headers["Content-Security-Policy"]
        assert (
            policy.startswith("default-src 'none'")
            and "connect-src 'self'" in policy
            and "unsafe" not in policy
        )
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
        assert body


def test_a_file_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    cells = Cells(write_run(tmp_path, rows(1, curve=False)))
    before = len(cells.index)
    write_run(tmp_path, rows(2, curve=False))
    assert len(cells.index) == 2 * before


def test_what_is_missing_is_one_clear_line(tmp_path: Path, server: Server) -> None:
    with pytest.raises(RunLogError):
        Cells(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ReportError, match=r"samples\.parquet"):
        Cells(tmp_path)
    with pytest.raises(ReportError, match="--port"):
        Server(server.cells, server.port)
    with pytest.raises(ReportError, match="--port"):
        Server(server.cells, 70_000)


def test_the_verb_prints_its_address_and_ends_with_ctrl_c(folder: Path) -> None:
    command = [sys.executable, "-m", "harness.cli", "view", str(folder), "--no-browser"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        # A shell's background job ignores Ctrl-C, and what it starts would do so, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert running.stdout is not None
        address = running.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        connection = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=30)
        connection.request("GET", "/api/facets")
        assert connection.getresponse().status == 200
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == 0 and "Traceback" not in told


def test_an_index_of_many_cells_stays_small(folder: Path) -> None:
    index = read_index(folder)
    size = index.frame.memory_usage(deep=True).sum() / len(index)
    assert size < 500, "bytes a cell: 100,000 take 50 MB at most"
    assert not {"prompt_ids", "output.text", "bar_text", "parsed"} & set(index.frame.columns)


def test_a_page_of_cells_reads_the_row_groups_that_it_lies_in_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = read_index(folder)
    assert len(index.starts) > 2, "else there is nothing to leave out"
    read: list[int] = []
    batches = type(index)._batches

    def noted(self: Any, columns: Any, groups: Any) -> Any:
        read.extend(groups)
        return batches(self, columns, groups)

    monkeypatch.setattr(type(index), "_batches", noted)
    found = index.read([3, 5], ("output.text", "cell_id"))
    assert read == [0] and sorted(found) == [3, 5]
    recorded = pd.read_parquet(folder / "samples.parquet", columns=["cell_id"])["cell_id"]
    assert [found[3]["cell_id"], found[5]["cell_id"]] == [recorded[3], recorded[5]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_browses_filters_and_stays_at_home(server: Server, browser: Any, width: int) -> None:
    room = browser.new_context(viewport={"width": width, "height": 844})
    page = room.new_page()
    errors: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.address)
    page.wait_for_selector(".arm")
    assert page.locator(".hit").count() == SIZE
    page.select_option("#by-outcome", "violation")
    page.locator("#hits .badge", has_text="violation").first.wait_for()
    total = said(server, "/api/cells?outcome=violation")["total"]
    page.locator("#count", has_text=f"{total} of").wait_for()
    page.locator(".hit").first.click()
    page.locator('.hit[aria-current="true"]').wait_for()
    page.locator("details.shared summary").click()
    page.wait_for_selector("details.shared .stretch")
    assert page.locator(".arm ins mark").count() >= 1
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert errors == [] and all(url.startswith((server.address, "data:")) for url in asked)
    room.close()


def test_both_pages_share_script_and_style() -> None:
    embedded, served = looks.script("embedded.js"), looks.script("served.js")
    common = next(i for i, (a, b) in enumerate(zip(embedded, served, strict=False)) if a != b)
    assert common > 0.7 * len(embedded)
    assert all(
        name in embedded[:common] for name in ("function browse(", "function armCard(", "function common(")
    )
