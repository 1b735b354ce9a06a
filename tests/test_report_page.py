"""report.html and report.md: whole without a network, true to the tables, legible on a phone, and equal for equal data."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from analysis_data import ROBUST, rows, write_run
from big_run import big_run
from browser import Opened, chromium, needs_browser, opened
from report_data import SMALL, packed, report, tables_of

from harness.analysis import html
from harness.analysis.attention.page import ASSETS as CAPTURE_ASSETS
from harness.analysis.page import looks
from harness.analysis.page.lines import lines
from harness.analysis.page.markdown import escaped
from harness.analysis.table import Table, fixed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = big_run(tmp_path_factory.mktemp("small"), SMALL)
    report(found)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens a page and waits until it shows a decision point."""
    rooms = []

    def go(path: Path, **options: Any) -> Opened:
        room = opened(browser, path, **options)
        rooms.append(room)
        found = room.__enter__()
        found.page.wait_for_selector(".arm")
        return found

    yield go
    for room in rooms:
        room.__exit__(None, None, None)


def counted(shown: Opened, text: str) -> None:
    """Waits until the count of cells says so."""
    shown.page.locator("#count", has_text=re.compile(f"^{re.escape(text)} ")).wait_for()


# --- the files -----------------------------------------------------------------------------------------------


def test_building_again_changes_no_byte(folder: Path) -> None:
    before = {name: (folder / name).read_bytes() for name in ("report.html", "report.md")}
    report(folder)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_the_page_asks_for_nothing_and_allows_its_own_script_and_style_alone(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|href)="(?!#|data:image/png;base64,)', text) == []
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[0]
    for part in (f"script-src '{html.source_hash(script)}'", f"style-src '{html.source_hash(style)}'"):
        assert part.replace("'", "&#39;") in policy
    assert policy.startswith("default-src &#39;none&#39;") and "unsafe" not in policy
    assert " style=" not in re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", ["empty run", "length of one side", "nothing scored"])
def test_a_partial_run_gives_both_files(tmp_path: Path, name: str) -> None:
    page = report(write_run(tmp_path, ROBUST[name]))
    text = page.read_text(encoding="utf-8")
    assert text.rstrip().endswith("</html>")
    assert not re.search(r"\b(nan|None)\b", re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL))
    assert "nan" not in page.with_suffix(".md").read_text(encoding="utf-8").split()


def test_scripts_use_no_sink_for_markup_and_cannot_end_their_element() -> None:
    for name in (*looks.SCRIPTS, "embedded.js", "served.js"):
        source = (looks.ASSETS / name).read_text(encoding="utf-8")
        assert "</script" not in source.lower() and "<!--" not in source
        for sink in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert sink not in source, f"{name} uses {sink}"


def test_unseen_characters_are_the_same_in_python_and_in_the_script() -> None:
    source = (looks.ASSETS / "shared.js").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"const UNSEEN = /(.*)/g;", source)
    kept = [chr(code) for code in range(0x3000) if not html.UNSEEN.match(chr(code))]
    (inside,) = re.findall(r"\|\[(\\u0000.*?)\]\|", pattern)
    script = re.compile(f"[{inside}]")
    assert [chr(code) for code in range(0x3000) if not script.match(chr(code))] == kept
    assert html.visible("a\u202eb\x07\n\t\U000e0041\ud800") == "a⟨U+202E⟩b␇\n\t⟨U+E0041⟩⟨U+D800⟩"
    assert "shared.js" not in {path.name for path in CAPTURE_ASSETS.iterdir()}, "one copy for all pages"


def test_a_secret_in_the_manifest_reaches_neither_file(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path, [])
    path = run_dir / "manifest.json"
    told = {"config": {"model": {"server": {"api_key": "sk-canary-0123456789abcdef"}}}}
    path.write_text(json.dumps(json.loads(path.read_text()) | told))
    page = report(run_dir)
    assert "canary" not in page.read_text(encoding="utf-8")
    assert "canary" not in page.with_suffix(".md").read_text(encoding="utf-8")


# --- verdicts and tables -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Table]]:
    run_dir = write_run(tmp_path_factory.mktemp("judged"), rows(9, curve=False))
    report(run_dir)
    return run_dir, tables_of(run_dir)


def test_every_comparison_stands_in_both_files_with_its_numbers_and_verdict(
    judged: tuple[Path, dict[str, Table]],
) -> None:
    run_dir, tables = judged
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    text = (run_dir / "report.md").read_text(encoding="utf-8")
    found = lines(tables)
    data = tables["comparisons"].rows()
    assert len(found) == len(data) > 20
    assert [line.confirmatory for line in found] == sorted(
        (line.confirmatory for line in found), reverse=True
    )
    for row in data:
        estimate = " [".join([fixed(row["estimate"], 2), f"{fixed(row['low'], 2)}, {fixed(row['high'], 2)}]"])
        (line,) = [
            line for line in found
            if (line.probe, line.measure, line.condition, line.against)
            == (row["probe"], row["measure"], row["condition"], row["against"])
            and line.note == (row["note"] or "")
        ]  # fmt: skip
        assert (line.estimate, line.verdict) == (estimate, row["verdict"])
        assert line.sign and line.tone != "unknown"
    assert page.count('class="badge v-') >= len(data)
    for table in tables.values():
        assert f"<summary>{html.visible(table.title)}" in page
        assert f"### {escaped(table.title)}\n" in text


def test_strips_draw_the_interval_to_scale(judged: tuple[Path, dict[str, Table]]) -> None:
    _, tables = judged
    for row, line in zip(
        sorted(tables["comparisons"].rows(), key=lambda row: row["label"] != "confirmatory"),
        lines(tables),
        strict=True,
    ):
        strip = line.strip
        if strip is None or strip.interval is None or row["unit"] == "ratio":
            continue
        assert strip.interval[0] <= strip.estimate <= strip.interval[1]
        assert (strip.estimate - strip.none) * row["estimate"] >= 0
        assert strip.margin is not None
        scale = (strip.margin[1] - strip.margin[0]) / (row["margin_high"] - row["margin_low"])
        assert strip.interval[1] - strip.interval[0] == pytest.approx(
            (row["high"] - row["low"]) * scale, rel=0.03, abs=0.3
        )


# --- Markdown -------------------------------------------------------------------------------------------------


def test_markdown_shows_foreign_text_as_it_is() -> None:
    hostile = "<img src=x onerror=1> [a](javascript:b) `code` *em* ~s~ a_b_c & \u202e\n# next"
    shown = escaped(hostile)
    assert "\n" not in shown and "<" not in shown and "](" not in shown
    assert "\\`code\\`" in shown and "\\*em\\*" in shown and "&amp;" in shown and "⟨U+202E⟩" in shown


def test_markdown_has_no_element_and_links_its_figures_alone(judged: tuple[Path, dict[str, Table]]) -> None:
    text = (judged[0] / "report.md").read_text(encoding="utf-8")
    assert not re.search(r"<[a-zA-Z/!]", text)
    assert all(target.startswith("figures/") for target in re.findall(r"\]\((.*?)\)", text))
    widths = [line.count(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert widths and min(widths) > 0


# --- in a browser ------------------------------------------------------------------------------------------------


@needs_browser
def test_it_opens_from_the_file_system_without_errors_or_requests(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    path = folder / "report.html"
    shown = visit(path)
    for part in shown.page.locator("details").all():
        part.evaluate("part => { part.open = true; }")
    shown.page.wait_for_timeout(200)
    assert shown.requests == [path.as_uri()] and shown.errors == [] and shown.dialogs == []


@needs_browser
def test_filters_leave_what_they_say(folder: Path, visit: Callable[..., Opened]) -> None:
    shown = visit(folder / "report.html")
    carried = packed(folder / "report.html")
    frame = pd.DataFrame(carried["cells"])
    counted(shown, f"{len(frame)} of {len(frame)}")
    shown.page.select_option("#by-probe", "act")
    shown.page.select_option("#by-side", "forbidden")
    shown.page.select_option("#by-outcome", "violation")
    wanted = frame[
        (frame["probe"] == "act") & (frame["side"] == "forbidden") & (frame["outcome"] == "violation")
    ]
    counted(shown, f"{len(wanted)} of {len(frame)}")
    assert set(shown.page.locator(".hit .badge").all_text_contents()) == {"✗ violation"}
    replies = frame["reply"].map(lambda n: "" if pd.isna(n) else carried["texts"][int(n)])
    word = next(word for word in replies[wanted.index[0]].split() if word.isalpha())
    shown.page.click("#clear")
    counted(shown, f"{len(frame)} of {len(frame)}")
    shown.page.fill("#text", word.upper())
    texts = pd.Series(carried["texts"])
    held = pd.Series(False, index=frame.index)
    for name in ("reply", "bar_text", "reason", "error"):
        held |= (
            frame[name].map(lambda n: not pd.isna(n) and word.lower() in texts[int(n)].lower()).astype(bool)
        )
    held |= frame["sample_id"].str.lower().str.contains(word.lower(), regex=False)
    counted(shown, f"{int(held.sum())} of {len(frame)}")
    shown.page.fill("#text", "nobody ever said this")
    shown.page.locator("#hits .none").wait_for()


@needs_browser
def test_the_list_goes_by_pages(folder: Path, visit: Callable[..., Opened]) -> None:
    shown = visit(folder / "report.html")
    first = shown.page.locator(".hit").first.get_attribute("data-id")
    assert shown.page.locator(".hit").count() == 50 and shown.page.is_disabled("#previous")
    shown.page.click("#next")
    shown.page.locator("#page", has_text="page 2 of").wait_for()
    assert shown.page.locator(".hit").first.get_attribute("data-id") != first
    shown.page.click("#previous")
    assert shown.page.locator(".hit").first.get_attribute("data-id") == first


@needs_browser
def test_a_cell_shows_its_arms_side_by_side_and_what_differs(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    shown = visit(folder / "report.html")
    carried = packed(folder / "report.html")
    shown.page.select_option("#by-probe", "act")
    shown.page.select_option("#by-condition", "agent_status")
    shown.page.select_option("#by-series", "matched")
    hit = shown.page.locator(".hit").first
    hit.click()
    cell = next(cell for cell in carried["cells"] if cell["cell_id"] == hit.get_attribute("data-id"))
    shown.page.locator("#detail h3", has_text=cell["sample_id"].split("/")[-1]).wait_for()
    arms = shown.page.locator("#detail .arm")
    names = [name.replace("\u200b", "") for name in arms.locator("h4").all_inner_texts()]
    assert names == ["control", "placebo", "agent_status"]
    mine = arms.nth(2)
    bar = next(carried["texts"][n] for region, n in cell["prompt"] if region == "bar")
    assert mine.locator("ins mark").inner_text().split() == bar.split()
    assert arms.nth(0).locator("ins").count() == 0
    if cell["reply"] is not None:
        raw = carried["texts"][cell["reply"]]
        assert raw.split()[-1] in mine.inner_text()
    shared = shown.page.locator("details.shared")
    shared.locator("summary").click()
    shared.locator(".words").first.wait_for()
    told = "".join(shared.locator(".words").all_text_contents())
    mine.locator("details.whole summary").click()
    mine.locator("details.whole .words").first.wait_for()  # drawn when it is opened
    whole = "".join(mine.locator("details.whole .words").all_text_contents())
    assert whole == html.visible("".join(carried["texts"][n] for _, n in cell["prompt"]))
    differing = "".join(mine.locator(".differs .words").all_text_contents())
    assert sorted(told + differing) == sorted(whole), "common and differing parts are the whole prompt"
    assert mine.locator("details.whole mark").inner_text().split() == bar.split()
    shown.page.locator(".toggles button", has_text="placebo").first.click()
    shown.page.wait_for_function("document.querySelectorAll('#detail .arm').length === 2")


@needs_browser
def test_thinking_is_folded_and_calls_reasons_and_probabilities_are_shown(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    shown = visit(folder / "report.html")
    carried = packed(folder / "report.html")
    thinking = next(c for c in carried["cells"] if c["thinking_text"] is not None and c["calls"])
    shown.page.fill("#text", thinking["sample_id"])
    shown.page.select_option("#by-probe", "act")
    shown.page.locator(f'.hit[data-id="{thinking["cell_id"]}"]').click()
    name = re.compile("^" + re.sub("([_:/])", "\\g<1>\u200b", thinking["condition"]) + "$")
    arm = shown.page.locator(".arm", has=shown.page.locator("h4", has_text=name)).first
    arm.locator(".calls").wait_for()
    thought = carried["texts"][thinking["thinking_text"]]
    assert (
        thought not in arm.inner_text()
        and arm.locator("details.thinking").first.get_attribute("open") is None
    )
    arm.locator("details.thinking summary").first.click()
    assert thought.split()[0] in arm.locator("details.thinking .words").first.inner_text()
    assert carried["texts"][thinking["calls"][0][0]] in arm.locator(".calls").inner_text()
    assert carried["texts"][thinking["reason"]] in arm.inner_text()
    choice = next(c for c in carried["cells"] if c["choices"])
    shown.page.fill("#text", choice["sample_id"])
    shown.page.select_option("#by-probe", "choose")
    shown.page.locator(f'.hit[data-id="{choice["cell_id"]}"]').click()
    table = shown.page.locator(".arm .choices").first
    table.wait_for()
    shares = [float(text) for text in table.locator("td b").all_inner_texts()]
    assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(1, abs=0.01)


@needs_browser
@pytest.mark.parametrize("width", [390, 768, 920, 1280])
def test_no_width_scrolls_sideways(folder: Path, visit: Callable[..., Opened], width: int) -> None:
    shown = visit(folder / "report.html", viewport={"width": width, "height": 844}, has_touch=True)
    for part in shown.page.locator("details").all():
        part.evaluate("part => { part.open = true; }")
    shown.page.wait_for_timeout(200)
    assert shown.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert shown.errors == []


@needs_browser
def test_without_scripts_everything_but_the_cells_is_there(folder: Path, browser: Any) -> None:
    room = browser.new_context(java_script_enabled=False)
    page = room.new_page()
    page.goto((folder / "report.html").as_uri())
    assert (
        page.locator("table.verdicts").first.is_visible() and page.locator(".threats li").first.is_visible()
    )
    assert page.locator("noscript").count() == 1
    room.close()
