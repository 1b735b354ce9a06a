"""The interactive page: what it shows is what was captured, and nothing a model wrote can do more than be read."""

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import attention_data
import numpy as np
import pytest
from browser import Opened, chromium, needs_browser, opened

from harness.analysis.attention.groups import GROUP_COLORS, NAMES
from harness.analysis.attention.page import ASSETS, SCRIPTS, build_page
from harness.attention.measures import group_share
from harness.attention.store import GROUPS, Browsable, CellAttention, cell_path, read_cell, write_cell

ARMS = ("control", "agent_status", "placebo")
LAYER, HEAD = 2, 1


def write_folder(folder: Path, cells: list[CellAttention]) -> Path:
    for cell in cells:
        write_cell(folder, cell)
    manifest = {"cells": [cell.cell.cell_id for cell in cells], "top_k": 10, "model": "made-up-0.1b"}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "attention"
    folder.mkdir()
    attention_data.make_folder(folder, clusters=1)
    assert build_page(folder) == folder / "attention.html"
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens a page and waits until it shows a row."""
    rooms = []

    def go(path: Path, **options: Any) -> Opened:
        room = opened(browser, path, **options)
        rooms.append(room)
        found = room.__enter__()
        found.page.wait_for_selector(".t.query", state="attached")
        return found

    yield go
    for room in rooms:
        room.__exit__(None, None, None)


def captured(folder: Path, condition: str = "agent_status", side: str = "forbidden") -> CellAttention:
    return read_cell(cell_path(folder, f"xfinity/matched/c000/{side}|{condition}|choose|0"))


def kept(cell: CellAttention, position: int, layer: int = LAYER, head: int = HEAD) -> dict[int, float]:
    """Key → raw weight of one row, straight from the file."""
    assert cell.browsable is not None
    n = cell.browsable.positions.tolist().index(position)
    pairs = zip(cell.browsable.keys[n, layer, head], cell.browsable.weights[n, layer, head], strict=True)
    return {int(key): float(weight) for key, weight in pairs}


def row_that_keeps_a_sink(cell: CellAttention) -> int:
    """The position whose kept weights give most to the sinks."""
    assert cell.browsable is not None
    sunk = (cell.key_region[cell.browsable.keys] == len(cell.regions) - 1) * cell.browsable.weights
    mass = sunk[:, LAYER, HEAD].sum(-1)
    assert mass.max() > 0.05, "else leaving the sinks out changes nothing"
    return int(cell.browsable.positions[mass.argmax()])


def column(shown: Opened, arm: str) -> Any:
    return shown.page.locator("section.arm").nth(ARMS.index(arm))


def token(shown: Opened, arm: str, position: int) -> Any:
    return column(shown, arm).locator(".t").nth(position)


def most_read(shown: Opened, arm: str) -> list[tuple[int, float]]:
    """(key, share) of the list of most read tokens."""
    entries = shown.page.locator(".most").nth(ARMS.index(arm)).locator("li").all_inner_texts()
    found = []
    for entry in entries:
        share, *_, place = entry.split("\n")
        found.append((int(place.split(" ")[0].removeprefix("#")), float(share.removesuffix(" %")) / 100))
    return found


def says(shown: Opened, selector: str, text: str) -> None:
    """Waits until an element holds a text (without eval, which the page's policy refuses to playwright as well)."""
    shown.page.locator(selector, has_text=text).wait_for()


def tip_names(shown: Opened, position: int) -> None:
    shown.page.locator("#tip .position b", has_text=re.compile(f"^#{position}$")).wait_for()


def region_table(shown: Opened, arm: str) -> dict[str, str]:
    cells = shown.page.locator("#regions tr").evaluate_all(
        "rows => rows.slice(1).map(row => [row.className, ...[...row.cells].map(cell => cell.textContent)])"
    )
    return {line[0].split()[0].removeprefix("g-"): line[2 + ARMS.index(arm)] for line in cells}


# --- the file ------------------------------------------------------------------------------------------------


def test_a_capture_without_browsable_rows_gives_no_page_and_removes_an_old_one(tmp_path: Path) -> None:
    write_folder(tmp_path, [attention_data.make_cell(0, "due", "control")])
    old = tmp_path / "attention.html"
    old.write_text("of an earlier capture")
    assert build_page(tmp_path) is None
    assert not old.exists()


def test_equal_captures_give_equal_bytes(folder: Path) -> None:
    first = (folder / "attention.html").read_bytes()
    build_page(folder)
    assert (folder / "attention.html").read_bytes() == first


def test_the_page_holds_the_weights_as_they_are_stored(folder: Path) -> None:
    text = (folder / "attention.html").read_text(encoding="utf-8")
    (meta,) = re.findall(r'id="meta">(.*?)</script>', text)
    arm = next(
        arm for arm in json.loads(meta)["samples"][0]["arms"] if arm["cell"]["condition"] == "agent_status"
    )
    (block,) = re.findall(rf'id="{arm["block"]}">(.*?)</script>', text)
    packed = zlib.decompress(base64.b64decode(block))
    arrays, start = {}, 0
    for section in arm["sections"]:
        size = section["count"] * section["width"]
        planes = np.frombuffer(packed[start : start + size], np.uint8).reshape(section["width"], -1)
        whole = sum(plane.astype(np.uint32) << 8 * i for i, plane in enumerate(planes))
        arrays[section["name"]] = np.asarray(whole)
        start += size
    stored = captured(folder).browsable
    assert stored is not None
    halves = arrays["weights"].astype("<u2").view("<f2").astype(np.float32)
    assert np.array_equal(halves, stored.weights.transpose(1, 2, 0, 3).ravel())
    assert np.array_equal(arrays["keys"], stored.keys.transpose(1, 2, 0, 3).ravel())


def test_arms_come_as_control_then_each_bar_beside_the_placebo_of_its_placement(tmp_path: Path) -> None:
    def cell(condition: str, bar: str, placement: str) -> CellAttention:
        made = attention_data.make_cell(0, "due", "control", browsable=True)
        info = replace(made.cell, cell_id=condition, condition=condition, bar=bar, placement=placement)
        return replace(made, cell=info)

    build_page(
        write_folder(
            tmp_path,
            [
                cell("p_user", "placebo", "user"), cell("p_tail", "placebo", "tail"), cell("b_user", "s", "user"),
                cell("b_tail", "s", "tail"), cell("c", "none", "none"),
            ],
        )
    )  # fmt: skip
    (meta,) = re.findall(r'id="meta">(.*?)</script>', (tmp_path / "attention.html").read_text())
    order = [arm["cell"]["condition"] for arm in json.loads(meta)["samples"][0]["arms"]]
    assert order == ["c", "b_user", "p_user", "b_tail", "p_tail"]


def test_the_pages_parts_lie_in_the_package_and_its_scripts_cannot_end_their_element() -> None:
    for name in SCRIPTS:
        source = (ASSETS / name).read_text(encoding="utf-8")
        assert "</script" not in source.lower() and "<!--" not in source
        for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert sink not in source, f"{name} uses {sink}"


# --- what it shows -------------------------------------------------------------------------------------------


@needs_browser
def test_it_opens_from_the_file_system_without_errors_or_requests(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    path = folder / "attention.html"
    shown = visit(path)
    shown.page.locator("#detail").check()
    assert shown.requests == [path.as_uri()]
    assert shown.errors == []
    assert shown.page.locator("section.arm h2").all_inner_texts() == [
        "controlno bar",
        "agent_statusbar",
        "placeboplacebo",
    ]


@needs_browser
def test_pointing_at_a_token_shows_the_very_weights_of_the_capture(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    shown, cell = visit(folder / "attention.html"), captured(folder)
    shown.page.select_option("#layer", str(LAYER))
    shown.page.select_option("#head", str(HEAD))
    at = row_that_keeps_a_sink(cell)
    token(shown, "agent_status", at).hover()
    says(shown, "#status", f"#{at},")
    expected = kept(cell, at)
    sinks = [key for key in expected if cell.regions[cell.key_region[key]].group == "sinks"]
    rest = 1 - sum(expected[key] for key in sinks)
    wanted = sorted(
        ((k, w / rest) for k, w in expected.items() if k not in sinks), key=lambda pair: -pair[1]
    )[:8]
    listed = most_read(shown, "agent_status")
    assert [key for key, _ in listed] == [key for key, _ in wanted]
    assert [share for _, share in listed] == pytest.approx([share for _, share in wanted], rel=6e-3)
    shaded = (
        column(shown, "agent_status").locator(".t.lit").evaluate_all("spans => spans.map(span => span.key)")
    )
    assert set(shaded) <= set(expected) - set(sinks) and len(shaded) >= 5
    assert (
        f"kept weights cover {sum(expected.values()) * 100:.1f} %"
        in column(shown, "agent_status").inner_text()
    )


@needs_browser
def test_a_pinned_row_stays_and_the_tooltip_states_each_keys_weight(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    shown, cell = visit(folder / "attention.html"), captured(folder)
    shown.page.select_option("#layer", str(LAYER))
    shown.page.select_option("#head", str(HEAD))
    at = len(cell.tokens) - 30
    token(shown, "agent_status", at).click()
    status = shown.page.inner_text("#status")
    for key, weight in list(kept(cell, at).items())[:4]:
        token(shown, "agent_status", key).hover()
        tip_names(shown, key)
        assert float(shown.page.inner_text("#tip .weight b")) == pytest.approx(weight, rel=6e-4)
        assert shown.page.inner_text("#tip .region b") == cell.regions[cell.key_region[key]].name
    token(shown, "agent_status", at - 1).hover()
    tip_names(shown, at - 1)
    assert shown.page.inner_text("#status") == status, "though that token has a row of its own"
    shown.page.keyboard.press("Escape")
    token(shown, "agent_status", at - 2).hover()
    says(shown, "#status", f"#{at - 2}")


@needs_browser
def test_layer_head_and_row_decide_what_is_shown(folder: Path, visit: Callable[..., Opened]) -> None:
    shown, cell = visit(folder / "attention.html"), captured(folder)
    assert cell.browsable is not None
    row = {r.kind: r for r in cell.rows}
    seen = [most_read(shown, "agent_status")]
    for selector, value in (("#layer", "0"), ("#head", "2"), ("#layer", "3")):
        shown.page.select_option(selector, value)
        seen.append(most_read(shown, "agent_status"))
    label = shown.page.locator("#row option", has_text="value: predicts").inner_text()
    assert "Xfinity" in label
    shown.page.select_option("#row", label=label)
    seen.append(most_read(shown, "agent_status"))
    assert len({tuple(found) for found in seen}) == len(seen)
    assert "value row" in shown.page.inner_text("#status")
    expected = kept(cell, row["value"].position, 3, 2)
    assert seen[-1][0][0] == max(
        (k for k in expected if cell.key_region[k] != len(cell.regions) - 1), key=expected.get
    )
    # The mean over layers and heads is the mean of the raw weights.
    shown.page.select_option("#row", label=shown.page.locator("#row option").first.inner_text())
    shown.page.select_option("#layer", "mean")
    shown.page.select_option("#head", "mean")
    shown.page.locator("#sinks").uncheck()
    n = cell.browsable.positions.tolist().index(row["decision"].position)
    mean = np.zeros(len(cell.tokens))
    np.add.at(mean, cell.browsable.keys[n].ravel(), cell.browsable.weights[n].ravel() / (4 * 3))
    assert dict(most_read(shown, "agent_status")) == pytest.approx(
        {key: share for key, share in enumerate(mean) if share >= np.sort(mean)[-8]}, rel=6e-3
    )


@needs_browser
def test_region_sums_are_the_captures_own_where_it_has_them_and_else_lower_bounds(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    shown = visit(folder / "attention.html")
    shown.page.select_option("#layer", str(LAYER))
    shown.page.select_option("#head", str(HEAD))
    for arm in ARMS:
        table = region_table(shown, arm)
        exact = group_share(captured(folder, arm))[LAYER, HEAD, 0]
        for group in ("target_calls", "follow_up", "tools"):
            value = float(table[group].removesuffix(" %")) / 100
            assert value == pytest.approx(exact[GROUPS.index(group)], rel=6e-3)
        assert (table["bar"] == "–") == (arm == "control")
    assert table["answer"] == "–", "the answer comes after the decision: unknown, not 0"
    token(shown, "placebo", len(captured(folder, "placebo").tokens) - 30).hover()
    says(shown, "#region-note", "lower bounds")
    assert "unseen" in region_table(shown, "placebo")
    assert any(value.startswith("≥ ") for value in region_table(shown, "placebo").values())


@needs_browser
def test_the_arms_show_matching_rows_and_say_so_where_there_is_none(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    shown = visit(folder / "attention.html")
    ends = {arm: len(captured(folder, arm).tokens) for arm in ARMS}
    token(shown, "placebo", ends["placebo"] - 2).hover()
    says(shown, "#status", f"#{ends['placebo'] - 2}")
    queries = shown.page.locator(".t.query").evaluate_all("spans => spans.map(span => span.key)")
    assert queries == [ends[arm] - 2 for arm in ARMS]
    bar = next(
        k for k, r in enumerate(captured(folder).key_region) if captured(folder).regions[r].name == "bar 3"
    )
    token(shown, "agent_status", bar).hover()
    says(shown, "#status", f"#{bar},")
    assert "no matching row" in column(shown, "control").inner_text()
    assert column(shown, "control").locator(".t.lit").count() == 0


@needs_browser
def test_arrow_keys_move_the_row_and_escape_unpins(folder: Path, visit: Callable[..., Opened]) -> None:
    shown = visit(folder / "attention.html")
    at = int(re.search(r"#(\d+)", shown.page.inner_text("#status"))[1])
    for key, wanted in (("ArrowLeft", at - 1), ("ArrowLeft", at - 2), ("ArrowRight", at - 1)):
        shown.page.keyboard.press(key)
        assert f"#{wanted}" in shown.page.inner_text("#status")
    assert shown.page.get_attribute("#pin", "aria-pressed") == "true"
    shown.page.keyboard.press("Escape")
    assert shown.page.get_attribute("#pin", "aria-pressed") == "false"


@needs_browser
def test_the_address_leads_back_to_the_view(folder: Path, visit: Callable[..., Opened]) -> None:
    shown = visit(folder / "attention.html")
    shown.page.select_option("#sample", index=1)
    says(shown, "#cells", "/due|")
    shown.page.select_option("#layer", "3")
    shown.page.select_option("#head", "1")
    shown.page.locator("#sinks").uncheck()
    shown.page.select_option("#scale", "sqrt")
    token(shown, "placebo", len(captured(folder, "placebo", "due").tokens) - 20).click()

    def view(of: Opened) -> list[Any]:
        chosen = [of.page.input_value(f"#{name}") for name in ("sample", "layer", "head", "row", "scale")]
        return [
            *chosen,
            of.page.is_checked("#sinks"),
            of.page.inner_text("#status"),
            most_read(of, "placebo"),
            of.page.inner_text("#pin"),
        ]

    again = visit(folder / "attention.html", fragment="#" + shown.page.url.split("#", 1)[1])
    assert view(again) == view(shown)
    assert "placebo: prompt row" in view(again)[6] and "Pinned" in view(again)[-1]


@needs_browser
def test_a_phone_shows_one_arm_at_a_time_and_never_scrolls_sideways(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    shown = visit(folder / "attention.html", viewport={"width": 390, "height": 844}, has_touch=True)
    visible = shown.page.locator("section.arm:visible")
    assert visible.count() == 1 and "agent_status" in visible.inner_text()
    shown.page.locator("#arms button", has_text="placebo").tap()
    assert visible.count() == 1 and "placebo" in visible.locator("h2").inner_text()
    for part in shown.page.locator("aside summary").all():
        part.tap()
    assert shown.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


# --- what a model wrote stays text -----------------------------------------------------------------------------

HOSTILE = {
    "</script><script>alert(1)</script>": "</script><script>alert(1)</script>",
    "<!--<script>": "<!--<script>",
    "<img src=x onerror=alert(2)>": "<img src=x onerror=alert(2)>",
    "&lt;b&gt; &amp; \"quoted\" 'twice' `x` ${y}": "&lt;b&gt; &amp; \"quoted\" 'twice' `x` ${y}",
    "@@META@@ $& \\u003c": "@@META@@ $& \\u003c",
    "a\u2028b\u2029c": "a⟨U+2028⟩b⟨U+2029⟩c",
    "\u202egnp.exe\u2066": "⟨U+202E⟩gnp.exe⟨U+2066⟩",
    "nul\x00bell\x07": "nul␀bell␇",
    "\ud800": "⟨U+D800⟩",
    "\udc00x": "⟨U+DC00⟩x",
    "hidden\U000e0041": "hidden⟨U+E0041⟩",
    "two\n\nlines\r\n": "two⏎\n⏎\nlines␍⏎\n",
    "北京 😀 عربى": "北京 😀 عربى",
    "": "",
}  # fmt: skip


@needs_browser
def test_hostile_tokens_and_names_stay_text(tmp_path: Path, visit: Callable[..., Opened]) -> None:
    cell = attention_data.make_cell(0, "due", "agent_status", browsable=True)
    tokens = list(cell.tokens)
    tokens[-40 : -40 + len(HOSTILE)] = HOSTILE
    attack = "</script><img src=x onerror=alert(3)>\u202e"
    cell = replace(
        cell,
        tokens=tuple(tokens),
        regions=tuple(replace(region, name=f"{region.name}{attack}") for region in cell.regions),
        rows=tuple(replace(row, name=attack) for row in cell.rows),
        cell=replace(cell.cell, cell_id=f"c|{attack}", condition=attack, sample_id=attack),
    )
    path = build_page(write_folder(tmp_path, [cell]))
    assert path is not None
    (meta,) = re.findall(
        r'id="meta">(.*?)</script>', path.read_bytes().decode("ascii", errors="replace"), re.DOTALL
    )
    assert not set(meta) & set("<>&\n\ufffd"), "nothing in the data that could end or change its element"
    shown = visit(path)
    spans = shown.page.locator(".t")
    for i, text in enumerate(HOSTILE.values(), start=len(tokens) - 40):
        assert spans.nth(i).evaluate("span => span.textContent") == text
    for i in range(len(tokens) - 40, len(tokens) - 40 + len(HOSTILE) - 1):
        shown.page.evaluate(
            f"document.querySelectorAll('.t')[{i}].dispatchEvent(new MouseEvent('mouseover', {{bubbles: true}}))"
        )
        tip_names(shown, i)
    shown.page.locator("#detail").check()
    assert "</script><img src=x onerror=alert(3)>⟨U+202E⟩" in shown.page.inner_text("section.arm h2")
    assert shown.page.locator("img").count() == 0
    assert shown.page.locator("script").count() == 3, "the page's data, one arm and its script"
    assert (shown.dialogs, shown.errors) == ([], [])
    assert shown.requests == [path.as_uri()]


@needs_browser
def test_the_policy_lets_no_other_script_run_and_nothing_out(
    folder: Path, visit: Callable[..., Opened]
) -> None:
    shown = visit(folder / "attention.html")
    tried = shown.page.evaluate("""async () => {
        const found = {};
        const attempt = async (name, act) => {
            try { await act(); found[name] = "done"; } catch { found[name] = "refused"; }
        };
        await attempt("html", () => { document.body.innerHTML += "<img src=x onerror='window.ran = 1'>"; });
        await attempt("fetch", () => fetch("https://example.com/"));
        await attempt("script", () => {
            const script = document.createElement("script");
            script.append("window.ran = 1");
            document.body.append(script);
        });
        return { ...found, ran: window.ran ?? null };
    }""")
    assert (tried["html"], tried["fetch"], tried["ran"]) == ("refused", "refused", None)
    assert all(url.startswith("file:") for url in shown.requests)


# --- size and speed ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 thousand tokens, 28 layers, 12 heads, 96 rows of 32 weights, three arms: weights that deflate badly."""
    folder = tmp_path_factory.mktemp("big")
    rng = np.random.default_rng(0)
    cells = []
    for condition in ARMS:
        cell = attention_data.make_cell(0, "due", condition, layers=1, heads=1, padding=7600)
        cell = replace(
            cell,
            layers=tuple(range(28)),
            heads=tuple(range(12)),
            windows=(None,) * 28,
            mass=np.tile(cell.mass, (28, 12, 1, 1)),
            path=(),
        )
        end = len(cell.tokens)
        positions = np.arange(end - 96, end)
        shape = (96, 28, 12)
        first, gap = rng.integers(0, end - 96, (*shape, 1)), rng.integers(1, (end - 96) // 32, (*shape, 1))
        weights = np.sort(rng.gamma(0.3, 1, (*shape, 32)), axis=-1)[..., ::-1]
        weights = (0.9 * weights / weights.sum(-1, keepdims=True)).astype(np.float32)
        cells.append(
            replace(cell, browsable=Browsable(positions, (first + gap * np.arange(32)) % (end - 96), weights))
        )
    assert len(cells[0].tokens) > 7800
    path = build_page(write_folder(folder, cells))
    assert path is not None
    return path


def test_three_arms_of_a_full_capture_stay_below_20_mb(big: Path) -> None:
    assert big.stat().st_size < 20e6


@needs_browser
def test_8k_tokens_neither_freeze_the_page_nor_are_touched_more_than_needed(
    big: Path, visit: Callable[..., Opened]
) -> None:
    shown = visit(big)
    assert shown.page.locator(".t").count() > 3 * 7800
    opening = shown.working()
    assert 0 < opening < 5
    rows = shown.page.locator("section.arm.active .t.row")
    rows.nth(10).scroll_into_view_if_needed()
    before = shown.working()
    for i in (10, 12, 15):
        rows.nth(i).hover()
    pointing = (shown.working() - before) / 3
    assert 0 < pointing < 0.5, "mean of all layers and heads: the most that there is to sum and to shade"
    shown.page.select_option("#layer", "3")
    shown.page.select_option("#head", "3")
    shown.page.evaluate("""() => {
        window.touched = new Set();
        const note = (list) => { for (const entry of list) window.touched.add(entry.target); };
        const what = { subtree: true, attributes: true, attributeFilter: ["class", "style"] };
        new MutationObserver(note).observe(document.querySelector("#columns"), what);
    }""")
    before = shown.page.inner_text("#status")
    rows.nth(20).hover()
    shown.page.locator("#status", has_not_text=before).wait_for()
    # Per arm: the 32 keys shaded before, the 32 shaded now, the few faded between both rows.
    assert (
        0
        < shown.page.evaluate("[...window.touched].filter(e => e.classList.contains('t')).length")
        <= 3 * (64 + 24)
    )


def test_groups_have_the_names_and_colours_of_the_tables_and_figures() -> None:
    css = (ASSETS / "page.css").read_text(encoding="utf-8")
    script = (ASSETS / "text.js").read_text(encoding="utf-8")
    light = css[: css.index("@media")]
    for group, color in GROUP_COLORS.items():
        assert f"--g-{group}: {color.lower()};" in light
        assert f'{group}: "{NAMES[group]}"' in script
