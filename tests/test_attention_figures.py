"""Figures of a capture: what they show is what the files say, and every text in them can be read."""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import attention_data as made
import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from harness.analysis.attention import (
    along,
    figures,
    forests,
    heatmaps,
    labels,
    masking_figure,
    prompt_map,
    token_map,
)
from harness.analysis.attention import tokens as tk
from harness.analysis.attention.arrangement import Trio, dodge, lift_norm, trios
from harness.analysis.attention.figures import FIGURES, build_figures
from harness.analysis.attention.frames import AttentionData, load
from harness.analysis.attention.tables import build_tables
from harness.analysis.drawing import save
from harness.analysis.table import Table
from harness.attention.store import Bins, CellAttention, write_cell

COLUMN_PX, WIDE_PX = 1051, 2161
"""89 mm and 183 mm at 300 dpi."""
BAR = "agent_status"
CONDITIONS = ("control", "placebo", BAR)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """A missing glyph, a collapsed layout or a division by zero fails the test."""
    with warnings.catch_warnings(), mpl.rc_context(labels.rc()):
        warnings.simplefilter("error")
        yield


@pytest.fixture
def unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn and named, not written: for tests of which there are."""
    monkeypatch.setattr(figures, "save", lambda figure, stem, formats: [stem.with_suffix(f".{formats[0]}")])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> AttentionData:
    return load(made.make_folder(tmp_path_factory.mktemp("attention"), 3, effect=3.0))


@pytest.fixture(scope="module")
def tables(data: AttentionData) -> dict[str, Table]:
    return dict(build_tables(data))


def folder_of(path: Path, cells: Sequence[CellAttention]) -> AttentionData:
    for cell in cells:
        write_cell(path, cell)
    manifest = {
        "cells": [cell.cell.cell_id for cell in cells],
        "top_k": 10,
        "model": "m",
        "config": {},
        "budget": {},
    }
    (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return load(path)


def cells(
    clusters: int,
    conditions: Sequence[str] = CONDITIONS,
    change: Callable[[CellAttention], CellAttention] = lambda c: c,
) -> list[CellAttention]:
    return [
        change(made.make_cell(cluster, side, condition))
        for cluster in range(clusters)
        for side in ("forbidden", "due")
        for condition in conditions
    ]


def trio_of(data: AttentionData) -> Trio:
    return trios(data, "choose")[0]


def grids(figure: Figure | None) -> list[np.ndarray]:
    """The arrays of the figure's images, in order."""
    assert figure is not None
    return [np.ma.filled(axis.images[0].get_array(), np.nan) for axis in figure.axes if axis.images]


def texts(figure: Figure | None) -> list[str]:
    assert figure is not None
    found = [text.get_text() for axis in figure.axes for text in axis.texts]
    ticks = [t.get_text() for axis in figure.axes for t in (*axis.get_xticklabels(), *axis.get_yticklabels())]
    return [*found, *ticks, *(text.get_text() for text in figure.texts)]


def names(paths: Sequence[Path]) -> set[str]:
    return {path.stem for path in paths}


def test_every_figure_is_there_in_three_formats_at_the_width_of_a_page(
    data: AttentionData, tables: dict[str, Table], tmp_path: Path
) -> None:
    paths = build_figures(data, tables, tmp_path)
    assert {path.name for path in paths} == {
        f"{name}.{end}" for name in FIGURES for end in ("png", "svg", "pdf")
    }
    assert all(path.parent == tmp_path / "figures" and path.stat().st_size > 2000 for path in paths)
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert picture.width in (COLUMN_PX, WIDE_PX), path.name
                assert picture.height < 3100, "must fit on a page"
                assert len(set(picture.convert("L").resize((60, 60)).tobytes())) > 5, "must not be blank"


def test_the_same_data_give_the_same_bytes(
    data: AttentionData, tables: dict[str, Table], tmp_path: Path
) -> None:
    for name in ("decision_heatmap", "lines"):
        drawn = [FIGURES[name](data, tables, trio_of(data), "choose") for _ in range(2)]
        for number, figure in enumerate(drawn):
            assert figure is not None
            (tmp_path / str(number)).mkdir(exist_ok=True)
            save(figure, tmp_path / str(number) / name, ("png", "svg", "pdf"))
    for path in (tmp_path / "0").iterdir():
        assert path.read_bytes() == (tmp_path / "1" / path.name).read_bytes(), path.name


def test_the_heatmap_shows_the_readers_layers_on_the_constraint_line_and_not_in_the_placebo(
    data: AttentionData,
) -> None:
    columns = heatmaps.columns_of(data, trio_of(data), "choose", "decision")
    line = next(i for i, (_, _, number) in enumerate(columns) if number == 4)
    control, _, bar, _, placebo, _ = grids(heatmaps.region_heatmap(data, trio_of(data), "choose", "decision"))
    readers, others = sorted({layer for layer, _ in made.READERS}), [0, 1]
    assert (bar[readers, line] > np.log10(2)).all() and (np.abs(bar[others, line]) < np.log10(1.5)).all()
    assert (np.abs(placebo[:, line]) < np.log10(1.5)).all()
    assert np.isnan(control[:, line]).all(), "the control has no bar: unknown, not 0"
    assert bar[readers].argmax(axis=1).tolist() == [line, line]


def test_the_sinks_have_a_strip_and_no_column(data: AttentionData) -> None:
    columns = heatmaps.columns_of(data, trio_of(data), "choose", "decision")
    assert "sinks" not in [group for _, group, _ in columns]
    figure = heatmaps.region_heatmap(data, trio_of(data), "choose", "decision")
    strips = grids(figure)[1::2]
    mass = np.mean([cell.mass[:, :, 0, -1] for cell in data.select("control", "choose")], axis=(0, 2))
    assert strips[0].shape == (4, 1) and np.allclose(strips[0][:, 0], mass, atol=1e-6)


def test_the_panels_share_one_scale_that_holds_every_value(data: AttentionData) -> None:
    figure = heatmaps.region_heatmap(data, trio_of(data), "choose", "decision")
    assert figure is not None
    norms = [axis.images[0].norm for axis in figure.axes if axis.images][::2]
    assert len({id(norm) for norm in norms}) == 1
    top = max(np.nanmax(grid) for grid in grids(figure)[::2])
    assert norms[0].vmin < 0 < top <= norms[0].vmax


def test_a_lift_beyond_the_scale_is_cut_at_a_hundred() -> None:
    assert lift_norm(np.array([0.001, 1, 5000.0])).vmax == 2.0
    assert lift_norm(np.array([np.nan])).vmin < 0 < lift_norm(np.array([np.nan])).vmax


def test_the_head_map_shows_the_readers_and_marks_those_that_passed(
    data: AttentionData, tables: dict[str, Table]
) -> None:
    bar, placebo, difference = grids(heatmaps.head_map(data, tables, trio_of(data), "choose"))
    highest = set(
        zip(*np.unravel_index(np.argsort(difference, axis=None)[-2:], difference.shape), strict=True)
    )
    assert {(int(a), int(b)) for a, b in highest} == set(made.READERS)
    assert np.allclose(difference, bar - placebo, atol=1e-4)
    heads = tables["heads"].data.copy()
    assert len(heads)
    chosen = [(row.layer, row.head, row.target) == (2, 1, "bar content") for row in heads.itertuples()]
    heads["passed"] = ["yes" if it else "no" for it in chosen]
    marked = {**tables, "heads": replace(tables["heads"], data=heads)}
    figure = heatmaps.head_map(data, marked, trio_of(data), "choose")
    assert figure is not None
    hollow = [p for axis in figure.axes for p in axis.patches if not p.get_fill() and not p.get_hatch()]
    marks = [patch.get_xy() for patch in hollow]
    assert marks == [(0.5, 1.5)], "a square around layer 2, head 1"


def test_the_running_text_shades_what_the_row_read_most(data: AttentionData) -> None:
    cell = next(
        c for c in tk.shown_cells(data, trio_of(data), "choose", lambda c: True) if c.cell.condition == BAR
    )
    every = [token for block in tk.blocks(cell, 0) for token in block.tokens if np.isfinite(token.lift)]
    best = sorted(every, key=lambda token: token.lift)[-6:]
    assert {token.group for token in best} == {"bar"} and {token.line for token in best} == {4}
    assert cell.token_rows is not None
    sinks = cell.token_rows[:, 0, list(made.SINK_POSITIONS)].sum(1)
    shares = sum(block.share for block in tk.blocks(cell, 0))
    assert shares == pytest.approx(1.0) and (sinks > 0).all(), "shares leave the sinks out"


def test_lift_of_a_token_is_its_share_against_an_even_one() -> None:
    cell = made.make_cell(0, "due", "control")
    assert cell.token_rows is not None
    row, layer, key = 0, 1, 60
    weights = cell.token_rows[layer, row].astype(float)
    rest = weights[2:].sum()
    visible = cell.rows[row].position + 1 - len(made.SINK_POSITIONS)
    _, _, lifts = tk.token_lifts(cell, row)
    assert lifts[layer, key] == pytest.approx(weights[key] / rest * visible)
    assert np.isnan(lifts[:, 0]).all(), "a sink has no lift"
    assert np.isnan(lifts[:, cell.rows[row].position + 1 :]).all(), "what comes later is not seen"


def test_a_character_over_several_tokens_is_drawn_once_and_keeps_their_weight() -> None:
    cell = made.make_cell(0, "due", "control")
    texts = list(cell.tokens)
    at = next(i for i, region in enumerate(cell.key_region) if cell.regions[region].group == "follow_up")
    texts[at], texts[at + 1] = "é", ""
    cut = replace(cell, tokens=tuple(texts))
    block = next(block for block in tk.blocks(cut, 0) if block.group == "follow_up")
    shares, uniform, _ = tk.token_lifts(cut, 0)
    assert block.tokens[0].text == "é" and all(token.text for token in block.tokens)
    assert block.tokens[0].lift == pytest.approx(shares[at : at + 2].sum() / uniform[at : at + 2].sum())
    assert len(block.tokens) == 14


@pytest.mark.parametrize("most", [200, 60, 40, 25])
def test_a_long_text_is_cut_alike_in_all_arms_until_it_fits(data: AttentionData, most: int) -> None:
    shown = tk.shown_cells(data, trio_of(data), "choose", lambda cell: True)
    assert [cell.cell.condition for cell in shown] == ["control", BAR, "placebo"]
    wrapped = tk.fitted([tk.blocks(cell, 0) for cell in shown], 26, most)
    assert max(map(len, wrapped)) <= most
    tails = [next(i for i, line in enumerate(lines) if line.group in ("bar", "forced")) for lines in wrapped]
    assert len(set(tails)) == 1, "what the arms share stands on the same lines"
    assert all(x + width <= 26.001 for lines in wrapped for line in lines for x, width, _ in line.items)
    if most == 200:
        drawn = "".join(
            token.text for line in wrapped[1] for _, _, token in line.items if line.group == "bar"
        )
        assert drawn == labels.readable("".join(t for t, r in zip(shown[1].tokens, shown[1].key_region, strict=True)
                                                if shown[1].regions[r].group == "bar"))  # fmt: skip


def test_tokens_are_shown_as_text_with_dollars_line_breaks_and_characters_no_font_has(
    data: AttentionData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "families", lambda: (labels.BASE_FONT,))
    for cached in (labels._fonts, labels._drawable, labels.advance):
        cached.cache_clear()
    with mpl.rc_context(labels.rc()):
        figure = token_map.token_heatmap(data, trio_of(data), "choose")
        assert figure is not None
        figure.draw_without_rendering()
    shown = texts(figure)
    assert "$x_1$" in shown and "[U+5317][U+4EAC]" in shown and "and⏎" in shown and "<b>&amp;</b>" in shown
    for cached in (labels._fonts, labels._drawable, labels.advance):
        cached.cache_clear()


@given(st.text(max_size=20))
def test_any_text_becomes_one_that_the_fonts_can_draw(text: str) -> None:
    shown = labels.readable(text)
    assert all(labels._drawable(char) for char in shown)
    assert "\n" not in shown and "\u202e" not in shown


def test_hostile_names_are_drawn_without_mathematics_or_missing_glyphs() -> None:
    figure = Figure()
    text = labels.label("$\\frac{1}$ _a_ 北京 \u202e \ud800 \x00 $x", 60)
    figure.text(0.1, 0.5, text)
    figure.draw_without_rendering()
    assert labels.label(" $5") == r"\$5" and labels.label(" ") == "␣" and labels.label("a\tb\n") == "a⇥b⏎"
    assert labels.label("x" * 40, 10) == "x" * 9 + "…"


def test_the_bars_tokens_stand_by_layer_with_the_readers_layers_bright(data: AttentionData) -> None:
    bar, placebo = grids(token_map.bar_layers(data, trio_of(data), "choose"))
    assert bar.shape == placebo.shape == (4, 40)
    fourth = slice(24, 32)
    assert bar[2:, fourth].mean() > 0.3 > bar[:2, fourth].mean()
    assert abs(placebo[2:, fourth].mean()) < 0.2


def test_a_bar_too_long_for_one_panel_goes_on_in_the_next(
    data: AttentionData, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = grids(token_map.bar_layers(data, trio_of(data), "choose"))
    monkeypatch.setattr(token_map, "MOST_COLUMNS", 30)
    figure = token_map.bar_layers(data, trio_of(data), "choose")
    assert figure is not None
    parts = grids(figure)
    assert [part.shape for part in parts] == [(4, 20)] * 4
    assert np.array_equal(np.hstack(parts[:2]), whole[0]) and np.array_equal(np.hstack(parts[2:]), whole[1])
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert [text.endswith("(continued)") for text in titles if text] == [False, True] * 2


def test_a_bar_too_long_for_the_page_is_cut_and_the_figure_says_so(
    data: AttentionData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_map, "MOST_COLUMNS", 10)
    figure = token_map.bar_layers(data, trio_of(data), "choose")
    assert figure is not None and [part.shape for part in grids(figure)] == [(4, 10)] * 6
    assert "first 30 of 40 tokens" in figure.texts[-1].get_text()


def test_along_the_thinking_the_bar_has_more_than_its_placebo_and_the_control_no_line(
    data: AttentionData,
) -> None:
    figure = along.along(data, trio_of(data), "choose")
    assert figure is not None
    panel = next(axis for axis in figure.axes if axis.get_title(loc="left") == "bar or placebo")
    bar, placebo = (line.get_ydata() for line in panel.lines[:2])
    assert len(bar) == along.STEPS["thinking"] and (np.asarray(bar) > np.asarray(placebo)).all()
    assert len(panel.collections) == 2, "an interval for each arm, and none for an arm without a bar"
    assert (
        "along the thinking" in figure.texts[-1].get_text()
        and "n = 3 clusters" in figure.texts[-1].get_text()
    )


def test_a_course_averages_clusters_not_cells(tmp_path: Path) -> None:
    one, two = cells(1, ["control"]), [made.make_cell(1, "due", "control")]
    found = folder_of(tmp_path, [*one, *two])
    course = along.course_of(found, trio_of(found).arms[0], "choose", ["thinking"])
    assert course is not None and course.clusters == 2
    steps = [along._stepped(cell, "thinking") for cell in found.cells]
    expected = ((steps[0] + steps[1]) / 2 + steps[2]) / 2
    assert np.allclose(course.mean, expected, equal_nan=True)


def test_without_thinking_the_figure_goes_along_the_reply(tmp_path: Path) -> None:
    def reply(cell: CellAttention) -> CellAttention:
        return replace(cell, path=tuple(replace(row, kind="answer") for row in cell.path))

    found = folder_of(tmp_path, cells(1, change=reply))
    figure = along.along(found, trio_of(found), "choose")
    assert figure is not None and "along the reply" in figure.texts[-1].get_text()


@pytest.mark.parametrize("window", [None, 40])
def test_even_attention_has_lift_1_all_over_the_map(window: int | None) -> None:
    cell = made.make_cell(0, "due", "control", layers=1)
    size = len(cell.tokens)
    even = np.tril(np.ones((size, size)))
    if window is not None:
        even = np.triu(even, 1 - window)
    even /= even.sum(1, keepdims=True)
    edges = np.array([0, 7, 50, 51, 120, size])
    by_keys = np.add.reduceat(even, edges[:-1], axis=1)
    mass = np.stack([by_keys[a:b].mean(0) for a, b in pairwise(edges)])[None]
    flat = replace(cell, bins=Bins(edges, edges, mass.astype(np.float32)), windows=(window,))
    lift = prompt_map.bin_lift(flat, [0])
    assert np.allclose(lift[np.isfinite(lift)], 1, atol=1e-4)
    assert np.isnan(lift[0, 1:]).all(), "keys that come later are not there"


def test_the_forest_draws_what_the_table_says(data: AttentionData, tables: dict[str, Table]) -> None:
    figure = forests.differences(tables, trio_of(data), "choose")
    assert figure is not None
    rows = tables["differences"].data
    row = rows[
        (rows["comparison"] == "bar - placebo") & (rows["row"] == "decision") & (rows["group"] == "bar")
    ].iloc[0]
    drawn = [x for line in figure.axes[0].lines if len(line.get_xdata()) == 1 for x in line.get_xdata()]
    assert any(np.isclose(x, 100 * row["estimate"]) for x in drawn)
    words = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert words == [
        f"{kind}, n = 3 clusters" for kind in ("bar − placebo", "bar − control", "placebo − control")
    ]


def test_the_masking_figure_has_both_scopes_all_arms_and_the_content(
    data: AttentionData, tables: dict[str, Table]
) -> None:
    figure = masking_figure.masking(tables, trio_of(data), "choose")
    assert figure is not None
    rows = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert "bar or placebo: all later rows" in rows and "bar or placebo: choice rows only" in rows
    start = rows.index("bar or placebo: all later rows")
    assert rows[start + 1 : start + 4] == ["agent status", "placebo", "bar − placebo"]
    found = tables["masking"].data
    change = found[(found["condition"] == BAR) & (found["mask"] == "bar") & (found["scope"] == "later")].iloc[
        0
    ]
    drawn = [x for line in figure.axes[1].lines if len(line.get_xdata()) == 1 for x in line.get_xdata()]
    assert any(np.isclose(x, change["sensitivity_change"]) for x in drawn)


def test_every_line_of_the_bar_stands_beside_the_placebos(
    data: AttentionData, tables: dict[str, Table]
) -> None:
    figure = forests.lines(tables, trio_of(data), "choose")
    assert figure is not None
    ticks = [tick.get_text().replace("\n", " ") for tick in figure.axes[0].get_yticklabels()]
    assert len(ticks) == len(made.LINES) and ticks[3].startswith("4  - Constraint: Xfinity")


def test_a_control_alone_leaves_out_what_needs_a_bar(tmp_path: Path, unsaved: None) -> None:
    found = folder_of(tmp_path, cells(1, ["control"]))
    drawn = names(build_figures(found, build_tables(found), tmp_path))
    assert {"decision_heatmap", "token_heatmap", "along_thinking", "prompt_map"} <= drawn
    assert not {"head_map", "bar_tokens", "differences", "lines"} & drawn


def test_a_bar_without_a_placebo_is_drawn_beside_the_control(tmp_path: Path, unsaved: None) -> None:
    found = folder_of(tmp_path, cells(2, ["control", BAR]))
    drawn = names(build_figures(found, build_tables(found), tmp_path))
    assert {"decision_heatmap", "head_map", "differences", "lines", "masking"} <= drawn


def test_figures_without_data_are_left_out(tmp_path: Path, unsaved: None) -> None:
    def bare(cell: CellAttention) -> CellAttention:
        return replace(
            cell, token_rows=None, bins=None, path=(), path_mass=np.zeros((0, 0, 0), np.float32), masking=()
        )

    found = folder_of(tmp_path, cells(2, change=bare))
    drawn = names(build_figures(found, build_tables(found), tmp_path))
    assert drawn == {"decision_heatmap", "value_heatmap", "head_map", "differences", "lines"}


def test_free_replies_have_a_name_of_their_own_beside_forced_choices(tmp_path: Path, unsaved: None) -> None:
    def act(cell: CellAttention) -> CellAttention:
        info = replace(cell.cell, probe="act", cell_id=cell.cell.cell_id.replace("choose", "act"))
        rows = cell.rows[:1]
        return replace(cell, cell=info, rows=rows, mass=cell.mass[:, :, :1], entropy=cell.entropy[:, :, :1],
                       entropy_rest=cell.entropy_rest[:, :, :1], top_mass=cell.top_mass[:, :, :1], masking=(),
                       token_rows=None, bins=None)  # fmt: skip

    found = folder_of(tmp_path, [*cells(1, change=act), *cells(1, ["control"])])
    drawn = names(build_figures(found, {}, tmp_path))
    assert {"decision_heatmap", "decision_heatmap_act", "along_thinking_act"} <= drawn
    assert "masking_act" not in drawn and "value_heatmap_act" not in drawn


def test_each_bar_is_drawn_with_the_placebo_of_its_placement(tmp_path: Path) -> None:
    def second(cell: CellAttention) -> CellAttention:
        name = f"{cell.cell.condition} at the head!"
        info = replace(cell.cell, condition=name, placement="head", cell_id=f"{cell.cell.cell_id} head")
        return replace(cell, cell=info)

    found = folder_of(tmp_path, [*cells(1), *cells(1, ["placebo", BAR], change=second)])
    first, other = trios(found, "choose")
    assert [arm.name for arm in first.arms] == ["control", BAR, "placebo"] and first.suffix == ""
    assert [arm.name for arm in other.arms] == ["control", f"{BAR} at the head!", "placebo at the head!"]
    assert other.suffix == "_agent-status-at-the-head"


def test_nothing_is_cut_off_or_too_small_to_read_with_many_layers_and_heads(tmp_path: Path) -> None:
    wide = [
        made.make_cell(0, side, name, layers=28, heads=16)
        for side in ("forbidden", "due")
        for name in CONDITIONS
    ]
    found = folder_of(tmp_path, wide)
    tables = build_tables(found)
    for name, draw in FIGURES.items():
        figure = draw(found, tables, trio_of(found), "choose")
        assert figure is not None, name
        width, height = figure.get_size_inches()
        assert round(width * 25.4) in (89, 183) and height < 10.2, name
        figure.draw_without_rendering()
        for part in (*figure.axes, *figure.texts, *figure.legends):
            box = part.get_tightbbox()
            if box is not None:
                assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, f"{name}: {part}"
                assert box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1, f"{name}: {part}"
        sizes = {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()}
        assert min(sizes) >= 6, name


def test_labels_give_way_to_each_other_within_their_side() -> None:
    places = dodge([1.0, 1.1, 1.2, 9.9, 10.0], 1.0, 0.0, 10.0)
    assert np.diff(places).min() >= 1.0 - 1e-9 and places[-1] <= 10.0 and places == sorted(places)
