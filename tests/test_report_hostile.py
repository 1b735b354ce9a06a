"""A report of a run that is hostile in every text shows it all and runs none of it: page, local page, Markdown, tables,
figures."""

import csv
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browser import Opened, chromium, needs_browser, opened
from hostile_run import ARMS, ATTACKS, FIRING, LONG, PLAN, hostile_run
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console

from harness.analysis import report
from harness.analysis.html import visible
from harness.analysis.page.server import Cells, Server
from harness.runlog import records_from_parquet

TAGS = {
    "A", "ARTICLE", "B", "BODY", "BUTTON", "CODE", "DD", "DEL", "DETAILS", "DIV", "DL", "DT", "EM", "FIGCAPTION",
    "FIGURE", "FOOTER", "FORM", "H1", "H2", "H3", "H4", "H5", "HEADER", "I", "IMG", "INPUT", "INS", "LABEL", "LI", "MAIN",
    "MARK", "NAV", "NOSCRIPT", "OL", "OPTION", "P", "PRE", "SCRIPT", "SECTION", "SELECT", "SMALL", "SPAN", "STRONG",
    "SUMMARY", "TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL", "svg", "rect", "line", "polygon", "path", "circle",
    "title", "text", "g",
}  # fmt: skip
"""Elements that the page makes of its own accord; an attack that became an element would add to them or to their
number."""

WALK = """
async () => {
  const after = (ms) => new Promise((done) => setTimeout(done, ms));
  const until = async (check) => {
    for (let n = 0; n < 1500; n++) { if (check()) return; await after(10); }
    throw new Error("waited in vain: " + check);
  };
  const all = (selector) => [...document.querySelectorAll(selector)];
  const unfold = () => { for (const one of all("details")) one.open = true; };
  const links = ["src", "href", "action", "formaction", "srcdoc", "data", "xlink:href"];
  const found = { texts: [], tags: new Set(), attributes: [], points: 0 };
  const inspect = () => {
    for (const one of document.body.querySelectorAll("*")) {
      found.tags.add(one.tagName);
      for (const { name, value } of one.attributes) {
        const away = links.includes(name) && !/^(#|data:image\\/png;base64,)/.test(value);
        if (name.startsWith("on") || away) found.attributes.push(`${one.tagName} ${name}=${value.slice(0, 80)}`);
      }
    }
  };
  await until(() => document.querySelector(".hit"));
  unfold();
  await after(50);
  inspect();
  const seen = new Set();
  for (;;) {
    for (const hit of all(".hit")) {
      const point = hit.querySelector(".where").textContent;
      if (seen.has(point)) continue;
      seen.add(point);
      const before = document.querySelector("#detail > header");
      hit.click();
      const shown = () => document.querySelector("#detail > header") !== before;
      await until(() => hit.getAttribute("aria-current") === "true" && shown());
      for (const toggle of all("#detail .toggles button[aria-pressed=false]")) toggle.click();
      unfold();
      await after(0);
      unfold();
      await after(0);
      found.texts.push(document.querySelector("#detail").textContent);
      inspect();
    }
    const next = document.querySelector("#next");
    if (next.disabled) break;
    const page = document.querySelector("#page").textContent;
    next.click();
    await until(() => document.querySelector("#page").textContent !== page);
  }
  for (const button of all("#detail b, #detail i, #detail pre")) button.click();
  return { ...found, tags: [...found.tags], points: seen.size };
}
"""
"""Opens every decision point with all its arms, unfolds everything, and lists what elements the page then consists of."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = hostile_run(tmp_path_factory.mktemp("hostile"))
    report.build(folder)
    return folder


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[str]:
    with Server(Cells(run), 0) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server.address
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@dataclass(frozen=True)
class Walked:
    """A page of the run, every decision point of it opened once; `found` is what WALK gives."""

    opened: Opened
    found: dict[str, Any]


@pytest.fixture(scope="module", params=["report.html", "tailgauge view"])
def page(request: pytest.FixtureRequest, browser: Any, run: Path) -> Iterator[Walked]:
    with opened(browser, run / "report.html") as found:
        if request.param != "report.html":
            found.page.goto(request.getfixturevalue("address"))
        yield Walked(found, found.page.evaluate(WALK))


def canaries(found: Opened) -> list[str]:
    """What an attack that ran has left behind."""
    own = ("file://", "http://127.0.0.1", "data:", "blob:")
    asked = [f"request {url[:80]}" for url in found.requests if not url.startswith(own)]
    owned = found.page.evaluate(
        "['owned' in window && 'owned', 'owned' in {} && 'prototype'].filter(Boolean)"
    )
    return [*owned, *found.dialogs, *asked]


@needs_browser
def test_the_attacks_do_fire_where_nothing_stops_them(browser: Any, tmp_path: Path) -> None:
    for number, attack in enumerate(FIRING):
        path = tmp_path / f"{number}.html"
        path.write_text(f"<!doctype html><body><textarea></textarea>{attack}", encoding="utf-8")
        with opened(browser, path) as found:
            found.page.wait_for_function("window.owned === 1")
            assert canaries(found), attack


@needs_browser
def test_nothing_that_a_run_holds_is_run_by_its_pages(page: Walked) -> None:
    assert page.found["points"] == PLAN.cells // len(ARMS)
    assert canaries(page.opened) == [] and page.opened.errors == []
    assert set(page.found["tags"]) <= TAGS
    assert page.found["attributes"] == []
    count = "(selector) => document.querySelectorAll(selector).length"
    assert page.opened.page.evaluate(count, "#hits") == 1
    assert page.opened.page.evaluate(count, "form, #detail input, #detail a") == 1


@needs_browser
def test_attacks_are_shown_as_the_text_that_they_are(page: Walked) -> None:
    shown = "\n".join(page.found["texts"])
    assert [attack for attack in ATTACKS if visible(_sound(attack)) not in shown] == []
    assert LONG[:2000] in shown


@needs_browser
def test_each_condition_can_be_chosen_by_its_name_whatever_that_is(page: Walked) -> None:
    shown = page.opened.page
    for name in ARMS.values():
        shown.select_option("#by-condition", value=name)
        wanted = re.sub("([_:/])", "\\1\u200b", visible(name))
        only = f"{PLAN.cells // len(ARMS)} of {PLAN.cells} cells", {wanted}
        assert only == settled(shown, only)
    shown.select_option("#by-condition", value="")
    shown.fill("#text", "<iframe srcdoc")
    few = shown.locator("#count", has_not_text=re.compile(f"^({PLAN.cells}|{PLAN.cells // len(ARMS)}|0) of "))
    few.wait_for()
    assert canaries(page.opened) == []


def settled(shown: Any, wanted: object) -> object:
    """What the list says once it says `wanted`, or in the end: its count, and the conditions in it."""
    for _ in range(200):
        count = re.match(r"\d+ of \d+ cells", shown.text_content("#count") or "")
        found = count and count.group(), set(shown.locator(".hit .head b").all_text_contents())
        if found == wanted:
            break
        shown.wait_for_timeout(50)
    return found


def _sound(text: str) -> str:
    """As the run log keeps it: half a pair becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def test_the_page_is_one_that_opens_quickly_for_all_its_megabyte_lines(run: Path) -> None:
    assert (run / "report.html").stat().st_size < 15e6
    assert FIRING[0] not in (run / "report.html").read_text(encoding="utf-8")


def parsed(path: Path) -> list[Token]:
    """All tokens of a Markdown file, by a parser that takes HTML for HTML."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(path.read_text(encoding="utf-8"))
    return [inner for token in tokens for inner in (token, *(token.children or ()))]


def test_report_md_holds_no_element_and_no_link_but_its_figures(run: Path) -> None:
    tokens = parsed(run / "report.md")
    assert [token.content for token in tokens if token.type in ("html_block", "html_inline")] == []
    assert [token.attrs for token in tokens if token.type == "link_open"] == []
    images = [str(token.attrs["src"]) for token in tokens if token.type == "image"]
    assert images and all((run / source).is_file() for source in images)
    assert {token.type for token in tokens} & {"fence", "code_block", "blockquote_open", "hr"} == set()
    headings = [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open"]
    assert "heading" not in headings and headings[1] == "In short"


def test_report_md_shows_the_names_as_they_are(run: Path) -> None:
    cells = {
        "".join(child.content for child in token.children or () if child.type in ("text", "text_special"))
        for token in parsed(run / "report.md")
        if token.type == "inline"
    }
    assert [name for name in ARMS.values() if visible(name) not in cells] == []


@pytest.mark.parametrize("kind", ["csv", "md"])
def test_the_tables_hold_the_names_and_no_element(run: Path, kind: str) -> None:
    for path in sorted((run / "tables").glob(f"*.{kind}")):
        if kind == "md":
            tokens = parsed(path)
            assert [token.content for token in tokens if token.type in ("html_block", "html_inline")] == [], (
                path
            )
            assert [token.attrs for token in tokens if token.type == "link_open"] == [], path
            continue
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        names = {row["condition"].removeprefix("'") for row in rows if "condition" in row}
        assert names <= set(ARMS.values()), path
        formulas = {text for row in rows for text in row.values() if text[:1] in "=+@\t\r" and text}
        assert formulas == set(), path


def test_figures_are_well_formed_and_hold_nothing_that_runs(run: Path) -> None:
    figures = sorted((run / "figures").glob("*.svg"))
    assert figures
    for path in figures:
        for element in ElementTree.parse(path).iter():
            assert element.tag.rpartition("}")[2] not in ("script", "foreignObject", "image", "a"), path
            links = [value for name, value in element.attrib.items() if name.rpartition("}")[2] == "href"]
            assert all(link.startswith("#") for link in links), path
            assert not [name for name in element.attrib if name.startswith("on")], path


def test_the_terminal_shows_the_names_and_takes_no_order_from_them(run: Path) -> None:
    console = Console(record=True, width=400, file=StringIO())
    console.print(report.terminal_table(run))
    text = console.export_text(styles=False)
    assert [name for name in ARMS.values() if visible(name) not in text] == []
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


def test_the_records_of_a_hostile_run_are_read_back_whole(run: Path) -> None:
    found = records_from_parquet(run / "samples.parquet")
    assert len(found) == PLAN.cells
    assert {record.condition for record in found} == set(ARMS.values())
    assert max(len(record.output.text) for record in found) == len(LONG)
