"""Claims about plans: what is counted, what is estimated from pilots, what a design can find, and what is unknown."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import analysis_data as data
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as some
from scipy import stats

from harness.analysis import statistics as st
from harness.analysis.frames import load
from harness.analysis.pairs import pairs
from harness.analysis.planning import (
    Assumed,
    Effect,
    Pilot,
    Work,
    compliance_effects,
    estimate_seconds,
    expected_draw,
    read_pilot,
    sensitivity_effects,
    speed,
)
from harness.analysis.verdicts import Margins
from harness.budget import Price
from harness.commands import plan as command
from harness.commands.outlook import WIDTH
from harness.commands.pilots import find
from harness.compose import compose
from harness.errors import ConfigError, ReportError, RunLogError
from harness.runlog import read_manifest

REFERENCE = Path(__file__).resolve().parent.parent / "results" / "reference"
RATES = some.floats(min_value=1e-4, max_value=1)
TOKENS = some.integers(min_value=1, max_value=10**6)


# -- time --------------------------------------------------------------------------------------------------


@given(prompt=RATES, new=RATES, pilot=some.tuples(TOKENS, TOKENS), wanted=some.tuples(TOKENS, TOKENS))
def test_one_pilot_bounds_the_time_whatever_its_rates_are(
    prompt: float, new: float, pilot: tuple[int, int], wanted: tuple[int, int]
) -> None:
    seconds = prompt * pilot[0] + new * pilot[1]
    found = estimate_seconds([(Work(*pilot), seconds)], Work(*wanted))
    assert found is not None and found.high is not None
    truth = prompt * wanted[0] + new * wanted[1]
    assert found.low <= truth * (1 + 1e-9) and truth <= found.high * (1 + 1e-9)


@given(
    prompt=RATES,
    new=RATES,
    pilots=some.tuples(*[some.tuples(TOKENS, TOKENS)] * 3),
    wanted=some.tuples(TOKENS, TOKENS),
)
def test_several_pilots_tell_the_rates(
    prompt: float, new: float, pilots: tuple[tuple[int, int], ...], wanted: tuple[int, int]
) -> None:
    shares = [one[0] / (one[0] + one[1]) for one in pilots]
    assume(max(shares) - min(shares) > 0.1)
    seen = [(Work(*one), prompt * one[0] + new * one[1]) for one in pilots]
    truth = prompt * wanted[0] + new * wanted[1]
    found = estimate_seconds(seen, Work(*wanted))
    assert found is not None and found.expected == pytest.approx(truth, rel=1e-3)
    assert found.high is not None and found.low <= found.expected <= found.high
    rates = speed(seen)
    assert rates is not None and rates.prompt == pytest.approx(prompt, rel=0.05, abs=1e-5)


def test_a_pilot_of_the_same_work_takes_the_same_time_and_none_tells_nothing() -> None:
    found = estimate_seconds([(Work(1000, 50), 12.0)], Work(1000, 50))
    assert found is not None and (found.expected, found.low, found.high) == (12, 12, 12)
    assert estimate_seconds([], Work(1000, 50)) is None


def test_a_pilot_that_generated_nothing_says_at_least_and_not_at_most() -> None:
    found = estimate_seconds([(Work(1000, 0), 10.0)], Work(2000, 500))
    assert found is not None and (found.low, found.high, found.expected) == (20, None, None)


def test_pilots_that_contradict_each_other_give_what_lies_between_them() -> None:
    found = estimate_seconds([(Work(100, 10), 10.0), (Work(100, 10), 14.0)], Work(100, 10))
    assert found is not None and found.low == 10 and found.high == 14
    assert found.expected is not None and 10 < found.expected < 14


# -- pilots ------------------------------------------------------------------------------------------------


def pilot(folder: Path, cells: list[dict[str, Any]], **options: Any) -> Pilot:
    run = load(data.write_run(folder, cells, **options))
    return Pilot(folder, {}, 1000, Work(100, 10), 1.0, 0.0, run)


def replied(tokens: list[int], tau: int, **fields: Any) -> list[dict[str, Any]]:
    usage = {"decoding.max_new_tokens": tau}
    made = []
    for number, count in enumerate(tokens):
        place = data.arm_fields(data.CONTROL, number, "forbidden")
        made.append(
            data.acted("compliant", **(place | usage | {"output.usage.completion_tokens": count} | fields))
        )
    return made


def test_replies_are_expected_to_be_as_long_as_the_pilots_but_not_above_the_limit(tmp_path: Path) -> None:
    one = pilot(tmp_path / "a", replied([10, 20, 60], 64))
    assert expected_draw([one], "act", "matched", "control", 64) == 30
    assert expected_draw([one], "act", "matched", "control", 40) == pytest.approx(70 / 3)
    assert expected_draw([one], "act", "filler", "control", 64) == 30, "another series is better than none"
    assert expected_draw([one], "act", "matched", "placebo", 64) is None
    assert expected_draw([], "act", "matched", "control", 64) is None


def test_a_pilot_that_cut_replies_says_nothing_about_a_larger_limit(tmp_path: Path) -> None:
    cut = pilot(tmp_path / "a", replied([10, 64], 64))
    assert expected_draw([cut], "act", "matched", "control", 128) is None
    whole = pilot(tmp_path / "b", replied([10, 63], 64))
    assert expected_draw([whole], "act", "matched", "control", 128) == 36.5


def test_a_folder_that_has_computed_nothing_is_no_pilot(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no finished session"):
        read_pilot(tmp_path, {"throughput": {"cells": 0, "seconds": 0}})
    with pytest.raises(RunLogError, match=r"manifest\.json"):
        find(compose([]), [str(tmp_path)])


def runs_of(found: Sequence[Pilot]) -> list[str]:
    """Without the parts of a comparison, of which one is a latency run."""
    return [pilot.path.name for pilot in found if pilot.path.parent == REFERENCE]


def test_speed_comes_from_the_same_engine_and_machine_and_spread_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.commands import pilots

    here = read_manifest(REFERENCE / "xfinity-cpu")
    monkeypatch.setattr(pilots, "provenance", lambda: {"cpu": here["cpu"]})
    monkeypatch.setattr(pilots, "gpu_names", list)
    config = compose(["model=qwen2.5-coder-1.5b", f"results={REFERENCE.parent}"])
    found = find(config, [])
    assert runs_of(found.speed) == runs_of(found.spread)
    assert set(runs_of(found.speed)) == {"placement-cpu", "rendering-cpu", "xfinity-cpu"}
    monkeypatch.setattr(pilots, "gpu_names", lambda: ["NVIDIA H200"])
    found = find(config, [])
    assert not found.speed and len(runs_of(found.spread)) == 3, "answers are the same on any machine"
    lone = compose(["model=qwen2.5-coder-1.5b", "experiment=xfinity_latency", "model=qwen2.5-coder-1.5b",
                    f"results={REFERENCE.parent}", "scenario=xfinity_length"])  # fmt: skip
    found = find(lone, [])
    assert not found.speed and not found.spread
    named = find(lone, [str(REFERENCE / "xfinity-cpu")])
    assert len(named.speed) == len(named.spread) == 1
    assert "machine" in named.notes[0] and "measure" in named.notes[0] and "scenario" in named.notes[0]


# -- what can be found -------------------------------------------------------------------------------------


def effects(arms: Any, clusters: int, pilots: list[Pilot] | None = None, **options: Any) -> list[Effect]:
    found = [pair for pair in pairs(arms) if pair.kind == "bar - placebo"]
    given = {"assumed": Assumed(), "stated": False, "margins": Margins()} | options
    return sensitivity_effects({pair: clusters for pair in found}, pilots or [], **given)


@pytest.fixture
def arms(tmp_path: Path) -> Any:
    return load(data.write_run(tmp_path / "arms", data.rows(clusters=3))).arms


def test_the_spread_is_the_one_in_the_pilots_table() -> None:
    """Of the reference run: column `sd` of its comparisons, which another module computes."""
    folder = REFERENCE / "xfinity-cpu"
    one = read_pilot(folder, read_manifest(folder))
    assert one.run is not None
    table = pd.read_csv(folder / "tables" / "comparisons.csv")
    for effect in effects(one.run.arms, 16, [one]):
        (row,) = table[
            (table["measure"] == "sensitivity")
            & (table["condition"] == effect.condition)
            & (table["against"] == effect.against)
        ].to_dict("records")
        assert effect.sd == pytest.approx(row["sd"], abs=5e-4)
        assert effect.source == "spread from xfinity-cpu (16 clusters)"
    assert {e.sd for e in effects(one.run.arms, 16, [one], assumed=Assumed(sd=3), stated=True)} == {3}


def test_one_test_finds_what_the_report_calls_the_mde_and_two_find_less(arms: Any) -> None:
    tail = [arm for arm in arms if arm.placement in ("tail", "none")]
    (alone,) = effects(tail, 16, assumed=Assumed(sd=1.3))
    assert alone.mde == pytest.approx(st.minimum_detectable(1.3, 16), rel=5e-3) and alone.tests == 1
    two = effects(arms, 16, assumed=Assumed(sd=1.3))
    assert len(two) == 2 and all(e.tests == 2 and e.mde and alone.mde and e.mde > alone.mde for e in two)


@pytest.mark.parametrize("clusters", [8, 16, 40])
def test_the_difference_that_a_design_finds_is_found_in_80_percent_of_simulated_runs(
    arms: Any, clusters: int
) -> None:
    first = effects(arms, clusters, assumed=Assumed(sd=2.0))[0]
    assert first.mde is not None
    draws = np.random.default_rng(5).normal(first.mde, 2.0, size=(6000, clusters))
    p = stats.ttest_1samp(draws, 0, axis=1).pvalue
    assert np.mean(p < 0.05 / 2) == pytest.approx(0.80, abs=0.02)


def test_the_clusters_asked_for_do_what_they_promise(arms: Any) -> None:
    first = effects(arms, 16, assumed=Assumed(sd=1.0))[0]
    assert first.for_margin and first.for_half and first.for_equivalence
    rng = np.random.default_rng(6)
    for clusters, truth in ((first.for_margin, 0.5), (first.for_half, 0.25)):
        p = stats.ttest_1samp(rng.normal(truth, 1.0, size=(4000, clusters)), 0, axis=1).pvalue
        assert np.mean(p < 0.025) == pytest.approx(0.80, abs=0.025)
    none = rng.normal(0, 1.0, size=(4000, first.for_equivalence))
    half = stats.t.ppf(0.95, none.shape[1] - 1) * none.std(axis=1, ddof=1) / none.shape[1] ** 0.5
    assert np.mean(np.abs(none.mean(axis=1)) + half < 0.5) == pytest.approx(0.80, abs=0.025)


def test_below_eight_clusters_nothing_can_be_found(arms: Any) -> None:
    few = effects(arms, 7)[0]
    assert few.mde is None and "8 clusters" in few.note
    assert few.for_margin and few.for_margin >= 8
    assert effects(arms, 8)[0].mde is not None
    easy = effects(arms, 8, assumed=Assumed(sd=0.01))[0]
    assert (easy.for_margin, easy.for_half, easy.for_equivalence) == (8, 8, 8), "no verdict comes from fewer"


def test_compliance_is_planned_from_the_pilots_rate_or_a_stated_one(arms: Any, tmp_path: Path) -> None:
    (pair,) = [p for p in pairs(arms) if p.kind == "bar - placebo" and p.arm.placement == "tail"]
    outcomes = ["compliant"] * 6 + ["violation"] * 2
    seen = pilot(tmp_path / "p", data.replies(data.PLACEBO, "forbidden", outcomes))
    given = {"assumed": Assumed(), "margins": Margins()}
    (measured,) = compliance_effects({pair: (1,) * 12}, [seen], stated=False, **given)
    assert measured.source == "rate 0.70 from p (8 cells)" and measured.unit == "share"
    (stated,) = compliance_effects({pair: (1,) * 12}, [seen], stated=True, **given)
    assert stated.source == "rate 0.50 as stated"
    (more,) = compliance_effects({pair: (1,) * 60}, [seen], stated=True, **given)
    # From .5 to 1 in 12 clusters of one cell: 6 or more of 12 must differ (p = 2^-5), which 61 % of runs do.
    assert more.mde and stated.mde is None and "even the largest change" in stated.note
    (most,) = compliance_effects({pair: (1,) * 120}, [seen], stated=True, **given)
    assert most.mde and most.mde < more.mde
    (few,) = compliance_effects({pair: (1,) * 5}, [seen], stated=True, **given)
    assert few.mde is None and "8 clusters" in few.note


# -- money -------------------------------------------------------------------------------------------------

TOTALS = {"prompt_tokens": 1_000_000, "computed_tokens": 200_000, "new_tokens_expected": 10_000,
          "new_tokens_most": 40_000}  # fmt: skip
TIME = {"low": 1700.0, "expected": None, "high": 3500.0, "most": 7100.0, "start": 100.0}


def test_money_is_what_is_reckoned_by_hand() -> None:
    by_token = Price(currency="USD", input_per_million=2, cached_per_million=0.5, output_per_million=10)
    found = command._money(by_token, TOTALS, None)
    assert found is not None
    # Cached as the ledger says: .2 × 2 + .8 × .5 + .01 × 10; nothing cached: 2 + .1; all replies at full length: 2 + .4
    assert (found["low"], found["high"], found["most"]) == pytest.approx((0.9, 2.1, 2.4))
    rented = command._money(Price(currency="USD", per_hour=2), TOTALS, TIME)
    assert rented is not None
    assert (rented["low"], rented["high"], rented["most"]) == pytest.approx((1.0, 2.0, 4.0))


def test_money_of_which_a_part_is_unknown_is_unknown() -> None:
    assert command._money(Price(), TOTALS, TIME) is None
    hourly = command._money(Price(currency="USD", per_hour=2), TOTALS, None)
    assert hourly is not None and {hourly[key] for key in ("low", "high", "most")} == {None}
    price = Price(currency="USD", input_per_million=2, output_per_million=10)
    unread = command._money(price, TOTALS | {"prompt_tokens": None, "computed_tokens": None}, None)
    assert unread is not None and {unread[key] for key in ("low", "high", "most")} == {None}
    unheard = command._money(price, TOTALS | {"new_tokens_expected": None}, None)
    assert unheard is not None and unheard["low"] is None and unheard["most"] == pytest.approx(2.4)


# -- the command -------------------------------------------------------------------------------------------


def ask(overrides: list[str], **options: Any) -> int:
    blank = {"pilot": [], "json": None, "sd": None, "rate": None, "icc": None}
    return command.main(argparse.Namespace(overrides=overrides, **(blank | options)))


@pytest.mark.parametrize(
    "options",
    [{"sd": 0.0}, {"sd": float("nan")}, {"rate": 1.0}, {"icc": -0.1}, {"json": "/no/such/folder/x.json"}],
)
def test_assumptions_out_of_range_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--{next(iter(options))}"):
        ask(["model=qwen3-0.6b", f"results={tmp_path}"], **options)


def test_without_a_tokenizer_tokens_time_and_money_are_unknown_and_never_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILGAUGE_CACHE", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    price = [
        "model.price.currency=USD",
        "model.price.input_per_million=1",
        "model.price.output_per_million=1",
    ]
    assert ask(["model=qwen2.5-coder-0.5b", *price], json="plan.json") == 0
    found = json.loads(Path("plan.json").read_text())
    assert (found["totals"]["cells"], found["totals"]["clusters"]) == (348, 22)
    assert found["totals"]["prompt_tokens"] is None and found["totals"]["computed_tokens"] is None
    assert found["totals"]["new_tokens_most"] == 48 * 64 and found["totals"]["new_tokens_expected"] is None
    assert found["time"] is None and {found["money"][key] for key in ("low", "high", "most")} == {None}
    assert all(e["mde"] for e in found["effects"] if e["measure"] == "sensitivity")
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "is not on this machine" in told
        and "0.5 GB to fetch" in told
        and "money: unknown, since tokens or time are" in told
    )


@pytest.mark.weights
@pytest.mark.slow
def test_the_plan_counts_what_the_run_counts_and_learns_its_time(
    tiny_model: Path, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import core_cli as cli

    monkeypatch.chdir(tmp_path)
    overrides = [*cli.TINY, f"model.path={tiny_model}", f"results={tiny_run.parent.parent}"]
    assert ask(overrides, json="plan.json") == 0
    out = capsys.readouterr().out
    found = json.loads(Path("plan.json").read_text())
    manifest = read_manifest(tiny_run)
    done, totals = manifest["throughput"], found["totals"]
    assert (totals["cells"], totals["prompt_tokens"]) == (done["cells"], done["prompt_tokens"])
    assert totals["computed_tokens"] == done["computed_tokens"], "prefix sharing is predicted to the token"
    assert totals["new_tokens_expected"] == pytest.approx(done["new_tokens"])
    cells = load(tiny_run).cells
    for part in found["parts"]:
        mine = cells[
            (
                cells[["probe", "series", "condition"]] == [part[k] for k in ("probe", "series", "condition")]
            ).all(axis=1)
        ]
        assert part["prompt_tokens"] == mine["output.usage.prompt_tokens"].sum()
        assert (part["cells"], part["clusters"]) == (len(mine), mine["cluster"].nunique())
    assert found["time"]["expected"] == pytest.approx(done["seconds"])
    assert max(len(line) for line in out.splitlines() if not line.startswith("  tailgauge")) <= WIDTH
    assert f"{totals['computed_tokens']:,} of {totals['prompt_tokens']:,}" in out
