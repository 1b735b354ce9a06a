"""Pages in headless Chromium, driven by playwright; tests that need it are skipped by name where it is missing."""

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="no Chromium, or no playwright, on this machine: `make browser` installs both",
)
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@dataclass
class Opened:
    """A page with what went wrong in it, and everything it asked the network for."""

    page: Any
    devtools: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def working(self) -> float:
        """Seconds of processor time (no waiting, so whatever else the machine does) of the page's tasks so far."""
        self.page.wait_for_timeout(100)  # the frame that is due
        metrics = self.devtools.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


@contextmanager
def chromium() -> Iterator[Any]:
    """A running headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, path: Path, *, fragment: str = "", **context: Any) -> Iterator[Opened]:
    """The file at `path`, opened as from the file system; `context` as playwright's new_context has it."""
    room = browser.new_context(**{"viewport": {"width": 1500, "height": 950}, **context})
    room.set_default_timeout(60_000)
    try:
        page = room.new_page()
        devtools = room.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        found = Opened(page, devtools)
        page.on("console", lambda m: found.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: found.errors.append(str(error)))
        page.on("request", lambda request: found.requests.append(request.url))

        def dialog(asked: Any) -> None:
            found.dialogs.append(asked.message)
            asked.dismiss()

        page.on("dialog", dialog)
        page.goto(path.as_uri() + fragment)
        yield found
    finally:
        room.close()
