"""The cells that a page carries: every kind, whole decision points, the recorded texts, and no more than fits."""

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from analysis_data import acted, chosen, failed, rows, write_run
from big_run import big_run
from report_data import SMALL, packed, report, tables_of

from harness.analysis.frames import load
from harness.analysis.page import cells, embed, sample
from harness.analysis.page.cells import POINT, STRATUM, read_index
from harness.analysis.page.texts import Texts, describe, shortened
from harness.analysis.table import Table
from harness.runlog.pieces import read_pieces, text_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = big_run(tmp_path_factory.mktemp("small"), SMALL)
    report(found)
    return found


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Table]]:
    run_dir = write_run(tmp_path_factory.mktemp("judged"), rows(9, curve=False))
    report(run_dir)
    return run_dir, tables_of(run_dir)


def test_a_small_run_is_embedded_whole_and_says_so(
    folder: Path, judged: tuple[Path, dict[str, Table]]
) -> None:
    index = read_index(folder)
    limited = sample.draw(index, most=len(index))
    assert limited.whole and limited.points == limited.all_points
    text = (judged[0] / "report.html").read_text(encoding="utf-8")
    (shown,) = re.findall(r"Shows (\d+) of \1 cells\.", text)
    assert int(shown) == len(load(judged[0]).cells)


@pytest.mark.parametrize("most", [60, 120, 240])
def test_a_draw_keeps_to_its_limit_covers_every_kind_and_prefers_whole_points(
    folder: Path, most: int
) -> None:
    index = read_index(folder)
    drawn = sample.draw(index, most)
    kinds = index.frame.groupby(list(STRATUM), observed=True).ngroups
    assert kinds == drawn.all_strata and len(drawn.cells) <= most < len(index)
    assert drawn.strata == min(kinds, most) or (most < kinds and drawn.strata == len(drawn.cells))
    assert sample.draw(index, most).cells.equals(drawn.cells)
    sizes = index.frame.groupby(list(POINT), observed=True).size()
    whole = drawn.cells.groupby(list(POINT), observed=True).size()
    share = float((whole == sizes[whole.index]).mean())
    assert share > 0.5 or most < 2 * kinds


def test_a_page_of_a_large_run_states_its_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = read_index(folder)
    made = embed.embed(index, read_pieces(folder), most=100)
    drawn = sample.draw(index, 100)
    assert f"Shows {len(drawn.cells)} of {len(index):,} cells" in made.told
    assert f"{drawn.strata} of {drawn.all_strata} kinds" in made.told and "tailgauge view" in made.told


def test_prompts_are_the_recorded_token_ids_as_text_and_shared_parts_are_kept_once(folder: Path) -> None:
    found = packed(folder / "report.html")
    pieces = read_pieces(folder)
    frame = pd.read_parquet(
        folder / "samples.parquet", columns=["cell_id", "prompt_ids", "spans", "bar_text"]
    )
    recorded = frame.set_index("cell_id")
    for cell in found["cells"][::17]:
        row = recorded.loc[cell["cell_id"]]
        assert "".join(found["texts"][n] for _, n in cell["prompt"]) == text_of(
            row["prompt_ids"].tolist(), pieces
        )
        marked = [found["texts"][n] for region, n in cell["prompt"] if region == "bar"]
        assert len(marked) == (cell["bar"] != "none")
    assert len(found["texts"]) == len(set(found["texts"]))
    whole = sum(len(found["texts"][n]) for cell in found["cells"] for _, n in cell["prompt"])
    assert sum(map(len, found["texts"])) < whole / 3


def test_long_texts_are_cut_where_they_would_burst_the_page_and_the_page_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        shortened(["abc", "x" * 40 + "y" * 60], 20)[1]
        == f"{'x' * 10}\n[… 80 characters left out here …]\n{'y' * 10}"
    )
    monkeypatch.setattr(embed, "MOST_CHARACTERS", 40_000)
    made = embed.embed(read_index(folder), read_pieces(folder), most=60)
    texts = json.loads(zlib.decompress(base64.b64decode(made.data)))["texts"]
    assert sum(map(len, texts)) < 60_000 and any("characters left out here" in text for text in texts)
    assert "is left out" in made.told


def test_a_run_without_pieces_shows_the_bar_and_says_why_not_more(
    judged: tuple[Path, dict[str, Table]],
) -> None:
    page = judged[0] / "report.html"
    assert "keeps no tokens.parquet" in page.read_text(encoding="utf-8")
    assert {cell["prompt"] for cell in packed(page)["cells"]} == {None}


def test_texts_are_decoded_once() -> None:
    texts = Texts({1: b"a", 2: "ü".encode()[:1], 3: "ü".encode()[1:]})
    assert [texts.of_ids(ids) for ids in ([1, 2, 3], (1, 2, 3), [1], [9])] == [0, 0, 1, 2]
    assert texts.texts == ["aü", "a", "⟨9⟩"]


def test_outcomes_say_how_a_cell_ended_whatever_its_probe(tmp_path: Path) -> None:
    made = [chosen(2.0, sample_id="a"), chosen(-2.0, sample_id="b"), acted("violation", sample_id="c")]
    made += [failed(probe="act", sample_id="d"), acted("compliant", sample_id="e") | {"score.outcome": None}]
    for right, sample_id in ((True, "f"), (False, "g")):
        made.append(
            acted("compliant", sample_id=sample_id)
            | {"probe": "ask", "score.outcome": None, "score.right": right}
        )
    frame = read_index(write_run(tmp_path, made)).frame.set_index("sample_id")["outcome"]
    assert frame.to_dict() == {
        "a": cells.FAVOURED, "b": cells.NOT_FAVOURED, "c": "violation", "d": "provider_error", "e": cells.UNSCORED,
        "f": cells.RIGHT, "g": cells.WRONG,
    }  # fmt: skip


def test_a_point_is_one_sample_probe_and_epoch(folder: Path) -> None:
    index = read_index(folder)
    cell = index.frame.iloc[7].to_dict()
    arms = index.point({str(key): value for key, value in cell.items()})
    assert arms["condition"].is_unique and set(arms["sample_id"]) == {cell["sample_id"]}
    assert np.array_equal(np.sort(index.frame["row"]), np.arange(len(index)))


def test_what_no_region_holds_is_the_templates_and_no_token_is_lost_or_doubled() -> None:
    row = {
        "prompt_ids": [1, 2, 3, 4, 5],
        "spans": [{"region": "bar", "start": 3, "end": 4}, {"region": "system", "start": 1, "end": 2}],
    }
    texts = Texts({i: bytes([96 + i]) for i in range(1, 6)})
    prompt = describe(row, "compliant", "good", texts)["prompt"]
    shown = [(region, texts.texts[n]) for region, n in prompt]
    assert shown == [("template", "a"), ("system", "b"), ("template", "c"), ("bar", "d"), ("template", "e")]
