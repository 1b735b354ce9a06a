"""Series over length: every number against small runs counted by hand, and the slopes' own error rates."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_data import (
    BAR,
    CONTROL,
    PLACEBO,
    acted,
    chosen,
    point_fields,
    rows,
    seconds,
    sweep,
    tables_of,
    write_run,
)

from harness.analysis import statistics as st
from harness.analysis.report import build, headline
from harness.analysis.slopes import cluster_slopes

XS = (0, 1000, 4000)


def row(tables: dict[str, Any], name: str, **where: Any) -> dict[str, Any]:
    """The only row of a table with these values."""
    data = tables[name].data
    for key, value in where.items():
        data = data[data[key] == value]
    assert len(data) == 1, f"{len(data)} rows of {name} with {where}"
    return dict(data.iloc[0])


def pair(series: str, cluster: int, x: int, sensitivity: float, arm: Any = CONTROL) -> list[dict[str, Any]]:
    """Both sides of a `choose` point with this sensitivity and no bias."""
    return [
        chosen(sign * sensitivity / 2, **point_fields(series, arm, cluster, x, side))
        for side, sign in (("due", 1), ("forbidden", -1))
    ]


def thought(tokens: int | None, *fields: Any, cut: bool = False) -> dict[str, Any]:
    """An `act` cell with so many thinking tokens."""
    counted = {"output.usage.reasoning_tokens": tokens, "output.usage.reasoning_censored": cut}
    return acted("truncated" if cut else "compliant", **point_fields(*fields)) | counted


def test_every_length_has_its_own_sensitivity_thinking_and_rates(tmp_path: Path) -> None:
    cells = pair("filler", 0, 0, 1.0) + pair("filler", 1, 0, 2.0) + pair("filler", 0, 1000, 0.5)
    cells += [thought(n, "filler", CONTROL, c, 1000, "forbidden") for c, n in enumerate((10, 20))]
    cells.append(thought(30, "filler", CONTROL, 2, 1000, "forbidden", cut=True))
    tables = tables_of(tmp_path, cells)
    short = row(tables, "length", probe="choose", x=0)
    assert (short["sensitivity"], short["clusters"], short["n"]) == (1.5, 2, 4)
    assert short["context"] == pytest.approx(801.5) and pd.isna(short["compliance"])
    assert row(tables, "length", probe="choose", x=1000)["sensitivity"] == 0.5
    act = row(tables, "length", probe="act", x=1000)
    # The reply that was cut at 30 tokens counts as the limit, 64.
    assert act["thinking"] == pytest.approx((10 + 20 + 64) / 3) and act["tau"] == 64
    assert act["censored_share"] == pytest.approx(1 / 3) and act["compliance"] == pytest.approx(2 / 3)
    assert pd.isna(act["sensitivity"]) and pd.isna(act["over_refusal"])


def test_the_limit_of_thinking_is_one_for_all_lengths(tmp_path: Path) -> None:
    cells = [thought(50, "filler", CONTROL, c, x, "due") for c in range(2) for x in XS]
    for cell in cells:
        cell["decoding.max_new_tokens"] = 40 if cell["filler_tokens"] == 4000 else 64
    tables = tables_of(tmp_path, cells)
    data = tables["length"].data
    assert list(data["tau"]) == [40.0] * 3 and list(data["thinking"]) == [40.0] * 3
    assert list(data["censored_share"]) == [1.0] * 3 and data["cut_share"].isna().all()


def test_after_drawn_thoughts_the_thinking_of_a_length_is_the_tokens_of_a_thought(tmp_path: Path) -> None:
    cells = [cell for c in range(2) for x in XS for cell in pair("filler", c, x, 1.0)]
    for cell in cells:
        tokens, long = 10 + cell["filler_tokens"] // 100, cell["filler_tokens"] == 4000
        one = {
            "token_ids": [1], "cut": False, "reasoning_tokens": tokens, "logprobs": [-1.0], "censored": False,
        }  # fmt: skip
        # Two were closed by rule at the longest; the limit cut only one of them.
        cell["output.thoughts"] = [one] * 2 + [one | {"cut": long}, one | {"cut": long, "censored": long}]
    tables = tables_of(tmp_path, cells)
    data = tables["length"].data
    assert list(data["thinking"]) == [10, 20, (3 * 50 + 64) / 4]
    assert list(data["censored_share"]) == [0, 0, 0.25] and list(data["tau"]) == [64] * 3
    assert list(data["cut_share"]) == [0, 0, 0.5]
    assert "| censored | closed by rule |" in tables["length"].to_markdown()
    assert row(tables, "slopes", measure="thinking")["clusters"] == 2


def test_a_slope_is_per_thousand_tokens_of_the_controls_context(tmp_path: Path) -> None:
    cells = [
        cell for arm in (CONTROL, BAR) for c in range(3) for x in XS
        for cell in pair("filler", c, x, 1.0 + c - 0.25 * x / 1000, arm)
    ]  # fmt: skip
    tables = tables_of(tmp_path, cells)
    found = row(tables, "slopes", measure="sensitivity", kind="bar")
    # Context does not hold the bar's own 42 tokens, and grows by exactly the filler here.
    assert found["slope"] == pytest.approx(-0.25) and found["unit"] == "logits per 1,000 tokens of context"
    assert (found["from"], found["to"]) == (pytest.approx(0.803), pytest.approx(4.803))
    assert row(tables, "slopes", measure="sensitivity", kind="bar - control")["slope"] == 0.0


def test_clusters_that_are_all_alike_get_no_interval(tmp_path: Path) -> None:
    cells = [cell for c in range(3) for x in XS for cell in pair("filler", c, x, 1.0)]
    found = row(tables_of(tmp_path, cells), "slopes", measure="sensitivity")
    assert found["slope"] == 0.0 and pd.isna(found["low"]) and "too few clusters" in found["note"]
    more = [cell for c in range(8) for x in XS for cell in pair("filler", c, x, 1.0)]
    assert "no interval" in row(tables_of(tmp_path, more), "slopes", measure="sensitivity")["note"]


def test_a_slope_over_moved_limits_is_per_prior_call(tmp_path: Path) -> None:
    tilt = (-0.1, -0.2, -0.6)
    cells = [cell for c in range(3) for n in (1, 2, 5, 20) for cell in pair("moved_limit", c, n, tilt[c] * n)]
    found = row(tables_of(tmp_path, cells), "slopes", measure="sensitivity")
    assert found["slope"] == pytest.approx(-0.3) and found["unit"] == "logits per prior call"
    half = 4.302653 * np.std(tilt, ddof=1) / math.sqrt(3)
    assert (found["low"], found["high"]) == (pytest.approx(-0.3 - half), pytest.approx(-0.3 + half))
    assert (found["points"], found["clusters"], found["p"]) == (4, 3, 0.25)


def test_a_cluster_with_a_missing_point_is_left_out_and_counted(tmp_path: Path) -> None:
    cells = [cell for c in range(4) for x in XS for cell in pair("filler", c, x, c * x / 1000)]
    cells = [c for c in cells if c["sample_id"] != "filler/c03/x1000/due"]  # one side never measured
    broken = next(c for c in cells if c["sample_id"] == "filler/c00/x4000/due")
    broken |= {"output.finish_reason": "error", "output.error": "503", "score.logit_act": None}
    found = row(tables_of(tmp_path, cells), "slopes", measure="sensitivity")
    assert (found["clusters"], found["excluded"], found["slope"]) == (2, 2, pytest.approx(1.5))


def test_a_lost_repeat_on_one_side_does_not_tilt_the_point(tmp_path: Path) -> None:
    def at(x: int, epoch: int, side: str, tokens: int) -> dict[str, Any]:
        made = thought(tokens, "filler", CONTROL, 0, x, side) | {"epoch": epoch}
        return made | {"cell_id": f"{made['cell_id']}{epoch}"}

    cells = [
        at(x, e, side, n) for x in (0, 1000) for e in (0, 1) for side, n in (("due", 10), ("forbidden", 30))
    ]
    cells = [c for c in cells if not (c["filler_tokens"] and c["side"] == "due" and c["epoch"])]
    assert row(tables_of(tmp_path, cells), "slopes", measure="thinking")["slope"] == 0.0


def test_a_point_with_one_side_unknown_is_no_point(tmp_path: Path) -> None:
    cells = [
        thought(20 + c + x // 1000, "filler", CONTROL, c, x, side)
        for c in range(3) for x in XS for side in ("due", "forbidden")
    ]  # fmt: skip
    lost = next(c for c in cells if c["sample_id"] == "filler/c01/x1000/due")
    lost["output.usage.reasoning_tokens"] = None
    found = row(tables_of(tmp_path, cells), "slopes", measure="thinking")
    assert (found["clusters"], found["excluded"], found["slope"]) == (2, 1, pytest.approx(1.0))


def test_a_cluster_that_lacks_a_whole_length_is_left_out_too(tmp_path: Path) -> None:
    cells = [cell for c in range(3) for x in XS for cell in pair("filler", c, x, c * x / 1000)]
    cells = [c for c in cells if not c["sample_id"].startswith("filler/c02/x4000")]
    found = row(tables_of(tmp_path, cells), "slopes", measure="sensitivity")
    assert (found["clusters"], found["excluded"], found["slope"]) == (2, 1, pytest.approx(0.5))


def test_equal_slopes_at_different_levels_differ_by_nothing_at_all(tmp_path: Path) -> None:
    levels = {"control": 0.1, "agent_status": 0.7}
    cells = [
        cell for arm in (CONTROL, BAR) for c in range(8) for x in (0, 700, 1900, 3300)
        for cell in pair("filler", c, x, levels[arm[0]] + 0.3 * c + 0.013 * (c + 1) * x / 1000, arm)
    ]  # fmt: skip
    found = row(tables_of(tmp_path, cells), "slopes", measure="sensitivity", kind="bar - control")
    assert (found["slope"], found["p"]) == (0.0, 1.0)  # rounding errors have signs, and p would test those


def test_one_length_has_no_slope(tmp_path: Path) -> None:
    table = tables_of(tmp_path, sweep("filler", (1000,), clusters=3))["slopes"]
    assert table.data.empty and "two lengths" in table.to_markdown()


def test_slopes_of_bar_and_placebo_are_paired_by_cluster(tmp_path: Path) -> None:
    tilts = {"placebo": (0.5, -1.0, 2.0, 0.0), "agent_status": (0.7, -0.9, 2.3, 0.0)}
    cells = [
        cell for arm in (PLACEBO, BAR) for c in range(4) for x in XS
        for cell in pair("filler", c, x, tilts[arm[0]][c] * x / 1000, arm)
    ]  # fmt: skip
    cells = [c for c in cells if not (c["condition"] == "placebo" and c["sample_id"] == "filler/c03/x0/due")]
    found = row(tables_of(tmp_path, cells), "slopes", measure="sensitivity", kind="bar - placebo")
    assert (found["condition"], found["against"]) == ("agent_status", "placebo")
    assert (found["clusters"], found["excluded"]) == (3, 1)
    assert found["slope"] == pytest.approx(0.2) and found["high"] - found["low"] < 0.6  # unpaired: above 5


def test_seconds_against_length_only_where_requests_were_timed_one_at_a_time(tmp_path: Path) -> None:
    cells = sweep("filler", XS, clusters=3)
    batched = tables_of(tmp_path / "a", cells)
    names = ("first_token", "first_answer_token", "total")
    assert batched["length"].data[list(names)].isna().all().all()
    assert not set(batched["slopes"].data["measure"]) & set(names) and batched["latency"].data.empty
    for table in ("length", "slopes", "latency"):
        grid = batched[table].to_markdown().partition("| --- |")[2]
        assert "second" not in grid and "first" not in grid
    timed = tables_of(tmp_path / "b", cells, timings=seconds(cells))
    at = row(timed, "length", probe="act", condition="control", x=4000)
    assert at["first_token"] == pytest.approx(4.803) and at["cache_state"] == "cold"
    found = row(timed, "slopes", measure="first_token", kind="bar")
    assert found["slope"] == pytest.approx(1.0) and found["unit"] == "seconds per 1,000 tokens of context"


def test_matched_pairs_and_curves_are_in_no_length_table(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, rows(3))
    assert tables["length"].data.empty and tables["slopes"].data.empty


@pytest.mark.parametrize("truth", [0.0, -0.4])
def test_slopes_cover_the_truth_and_raise_false_alarms_as_often_as_they_state(truth: float) -> None:
    """300 runs of two arms, 8 clusters, 5 lengths: the same path from points to interval and p as a run's."""
    runs, clusters, x = 300, 8, np.array([0.8, 1.8, 4.8, 8.8, 16.8])
    rng = np.random.default_rng(31)
    tilt = truth + 0.2 * rng.normal(size=(runs, clusters, 2, 1))
    noise = 0.5 * rng.normal(size=(runs, clusters, 2, x.size))
    value = rng.normal(size=(runs, clusters, 1, 1)) + tilt * x + noise
    cluster = np.arange(runs * clusters * 2).repeat(x.size)
    points = pd.DataFrame({"cluster": cluster, "at": np.tile(x, runs * clusters * 2), "value": value.ravel()})
    slopes = cluster_slopes(points).to_numpy().reshape(runs, clusters, 2)
    assert slopes.mean() == pytest.approx(truth, abs=4 * 0.21 / math.sqrt(runs * clusters * 2))
    found = [st.t_interval(run) for run in slopes[:, :, 0]]
    covered = np.mean([f.low <= truth <= f.high for f in found])  # type: ignore[operator]
    assert abs(covered - 0.95) <= 2 * math.sqrt(0.95 * 0.05 / runs)
    p = np.array([st.sign_flip_p(d) for d in slopes[:, :, 0] - slopes[:, :, 1]])
    assert abs(np.mean(p <= 0.05) - 0.05) <= 0.012 + 2 * math.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize(("series", "xs"), [("filler", XS), ("moved_limit", (1, 3, 8))])
def test_a_series_over_length_has_a_figure_of_its_own(
    tmp_path: Path, series: str, xs: tuple[int, ...]
) -> None:
    cells = sweep(series, xs, clusters=3)
    names = {p.name for p in build(write_run(tmp_path, cells, timings=seconds(cells))).figures}
    assert {n for n in names if "length" in n} == {f"length_{series}.png", f"length_{series}.svg"}
    tall = (tmp_path / "figures" / f"length_{series}.svg").read_text(encoding="utf-8")
    choose = [c for c in cells if c["probe"] == "choose"]
    build(write_run(tmp_path / "b", choose))
    short = (tmp_path / "b" / "figures" / f"length_{series}.svg").read_text(encoding="utf-8")
    panels = [text.count('<g id="axes_') for text in (tall, short)]
    assert panels == [3, 1]  # only what was measured gets a panel


def test_the_headline_tells_what_length_does_and_what_the_bar_changes_in_it(tmp_path: Path) -> None:
    cells = sweep("filler", (0, 1000, 8000), slope={"agent_status": -0.5})
    text = headline(write_run(tmp_path, cells))
    line = next(s for s in text if s.startswith("Sensitivity over 810 to 8,810 tokens of context"))
    assert "with control (undecided, p" in line and "with agent_status (falls, p = 0.0078)" in line
    assert "logits per 1,000 tokens of context" in line and "the slope is lower with the bar" in line
    thinking = next(s for s in text if s.startswith("Thinking over"))
    assert "rises, p = 0.0078" in thinking and "undecided whether length matters" in thinking
    assert "no matched pairs" in text[0]


def test_the_headline_of_matched_pairs_says_nothing_of_length(tmp_path: Path) -> None:
    text = " ".join(headline(write_run(tmp_path, rows(3))))
    assert "tokens of context" not in text and "no matched pairs" not in text
