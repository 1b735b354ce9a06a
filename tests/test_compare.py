"""Comparison across runs: what is paired with what, what is refused, and that unknown stays unknown."""

import argparse
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_data import BAR, CONTROL, PLACEBO, ROBUST, cell, chosen, replies, rows, seconds, write_run
from scipy import stats

from harness.analysis import across
from harness.analysis.across import independent
from harness.analysis.across.pareto import pareto_table
from harness.analysis.across.runs import engine
from harness.analysis.frames import load
from harness.analysis.tables import build_tables
from harness.analysis.verdicts import Margins
from harness.commands import compare as command
from harness.errors import ReportError

ARMS = (CONTROL, PLACEBO, BAR)
PRICE = {"currency": "USD", "input_per_million": 2.0, "cached_per_million": 0.5, "output_per_million": 10.0}
Cells = Iterable[Mapping[str, Any]]


def a_run(folder: Path, cells: Cells, name: str = "small", **manifest: Any) -> Path:
    """A run of the model `name`; `manifest` overrides or adds keys, those of `inputs` and `config` inside them."""
    write_run(folder, cells, ARMS, manifest.pop("timings", None))
    path = folder / "manifest.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    found |= {
        "run_id": f"{name}-{folder.name}", "model": {"name": name},
        "inputs": {"scenario": "s1", "template": f"t-{name}", "weights": f"w-{name}"} | manifest.pop("inputs", {}),
        "config": {"seed": 7, "model": {"thinking": "off"}} | manifest.pop("config", {}),
    }  # fmt: skip
    path.write_text(json.dumps(found | manifest), encoding="utf-8")
    return folder


def logits(
    control: list[float], placebo: list[float], bar: list[float], noise: int = 0, first: int = 0
) -> list[dict[str, Any]]:
    """Matched `choose` pairs: one sensitivity per cluster and arm, around a level of caution of the cluster."""
    levels = np.random.default_rng(noise).normal(0, 1, len(control))
    made = []
    for (name, kind, placement), values in zip(ARMS, (control, placebo, bar), strict=True):
        for i, (value, level) in enumerate(zip(values, levels, strict=True), start=first):
            for side, sign in (("due", 0.5), ("forbidden", -0.5)):
                made.append(chosen(
                    float(level + sign * value), condition=name, bar=kind, placement=placement, cluster=f"c{i}",
                    side=side, sample_id=f"c{i}-{side}",
                ))  # fmt: skip
    return made


def acts(control: str, placebo: str, bar: str) -> list[dict[str, Any]]:
    """One forbidden and one due reply per cluster and arm. Per cluster a letter: b both kept, f the forbidden side
    alone, d the due side alone, n neither."""
    made = []
    for arm, kept in zip(ARMS, (control, placebo, bar), strict=True):
        made += replies(arm, "forbidden", ["compliant" if k in "bf" else "violation" for k in kept])
        made += replies(arm, "due", ["correct_action" if k in "bd" else "over_refusal" for k in kept])
    return made


def two(tmp_path: Path, small: Cells, large: Cells, **of_large: Any) -> tuple[across.Entry, ...]:
    paths = [a_run(tmp_path / "a", small), a_run(tmp_path / "b", large, "large", **of_large)]
    return across.load_all(paths, different_scenarios=True)


def the_row(table: Any, **where: Any) -> dict[str, Any]:
    data = table.data
    for key, value in where.items():
        data = data[data[key] == value]
    assert len(data) == 1, f"{len(data)} rows where {where}"
    return {str(k): v for k, v in data.iloc[0].items()}


def corners_of(entries: Sequence[across.Entry]) -> Any:
    return across.found_corners(across.quads(across.pairs(entries)))


def differences(entries: Sequence[across.Entry], margins: Margins | None = None) -> Any:
    return across.differences_table(corners_of(entries), margins or Margins())


def gaps(entries: Sequence[across.Entry]) -> Any:
    return across.gaps_table(corners_of(entries))


MAIN = "small with bar - large without"
WAVE = [0.3, -0.2, 0.5, 0.0, -0.4, 0.2, 0.1, -0.1, 0.4, -0.3]


def shifted(by: float, scale: float = 1.0) -> list[float]:
    return [by + scale * w for w in WAVE]


# --- what is paired ---------------------------------------------------------------------------------------------


def test_models_that_met_the_same_points_are_paired_by_episode(tmp_path: Path) -> None:
    small = logits(shifted(0), shifted(0), shifted(1.0))
    large = logits(shifted(0.5), shifted(0.5), shifted(2.0), noise=1)
    found = differences(two(tmp_path, small, large))
    row = the_row(found, measure="sensitivity", kind=MAIN)
    # Episodes move both models alike, so every paired difference is one half exactly.
    assert (row["points"], row["clusters"]) == ("paired", 10)
    assert row["estimate"] == pytest.approx(0.5) and row["sd"] == pytest.approx(0, abs=1e-9)


def test_other_seeds_are_other_episodes_and_compared_as_independent(tmp_path: Path) -> None:
    a, b = shifted(1.0, 2.0), shifted(0.5, 3.0)
    small, large = logits(shifted(0), shifted(0), a), logits(b, shifted(0.5), shifted(2.0), noise=1)
    found = differences(two(tmp_path, small, large, config={"seed": 8}))
    row = the_row(found, measure="sensitivity", kind=MAIN)
    welch = stats.ttest_ind(a, b, equal_var=False)
    assert row["points"] == "unpaired" and "the seeds differ" in row["note"]
    assert row["p"] == pytest.approx(welch.pvalue)
    assert (row["low"], row["high"]) == pytest.approx(tuple(welch.confidence_interval(0.95)))
    within = the_row(found, measure="sensitivity", kind="small with bar - small without")
    assert within["points"] == "paired", "one model's own conditions share their episodes whatever the seed"


def test_points_that_only_one_model_met_are_left_out_and_counted(tmp_path: Path) -> None:
    small = logits(shifted(0), shifted(0), shifted(1.0))
    large = logits([9.0] * 4, [9.0] * 4, [9.0] * 4, first=8)
    row = the_row(across.corners_table(corners_of(two(tmp_path, small, large))), measure="sensitivity")
    assert row["clusters"] == row["clusters_large"] == 2  # c8 and c9
    assert (
        row["left_out"] == 3 * 2 * 8 + 2 * 2 * 2
    )  # eight episodes of the small model, two of the large one's corners
    assert row["small_bar"] == pytest.approx(np.mean(shifted(1.0)[8:]))


def test_the_same_id_with_another_question_is_not_the_same_point(tmp_path: Path) -> None:
    small = logits(shifted(0), shifted(0), shifted(1.0))
    large = [c | {"phrasing": "firm"} for c in small]
    row = the_row(differences(two(tmp_path, small, large)), measure="sensitivity", kind=MAIN)
    assert row["points"] == "unpaired" and "different questions" in row["note"]


def test_a_cell_that_failed_takes_its_counterparts_out_and_is_counted(tmp_path: Path) -> None:
    small, large = acts("bbbbbbbbbb", "bbbbbbbbbb", "bbbbbbbbbb"), acts("nnnnnnnnnn", "n" * 10, "n" * 10)
    gone = {"output.finish_reason": "error", "output.error": "boom", "score.outcome": "provider_error"}
    large = [c | gone if c["sample_id"] == "c3-due" and c["condition"] == "control" else c for c in large]
    row = the_row(differences(two(tmp_path, small, large)), measure="over_refusal", kind=MAIN)
    assert (row["clusters"], row["excluded"], row["excluded_against"]) == (9, 0, 1)
    # Small refuses none of ten, large all but, perhaps, the one that was lost.
    assert (row["estimate"], row["worst_low"], row["worst_high"]) == pytest.approx((-1.0, -1.0, -0.9))


# --- numbers ----------------------------------------------------------------------------------------------------


def test_the_models_table_says_what_each_runs_own_tables_say(tmp_path: Path) -> None:
    path = a_run(tmp_path / "a", rows(8, seed=3, arms=ARMS, curve=False))
    own, models = build_tables(load(path)), across.models_table(across.load_all([path]))
    for condition in ("control", "placebo", "agent_status"):
        chose = the_row(own["choose"], condition=condition)
        for measure in ("sensitivity", "bias", "delta_p", "auc_within"):
            row = the_row(models, condition=condition, measure=measure)
            keys = (measure, f"{measure}_low", f"{measure}_high")
            assert [row[k] for k in ("estimate", "low", "high")] == pytest.approx([chose[k] for k in keys])
        for measure in ("compliance", "over_refusal"):
            rate = the_row(own["rates"], condition=condition, measure=measure)
            row = the_row(models, condition=condition, measure=measure)
            assert [row[k] for k in ("estimate", "low", "high", "n")] == [
                rate[k] for k in ("rate", "low", "high", "n")
            ]


def test_differences_within_the_small_model_are_those_of_its_own_report(tmp_path: Path) -> None:
    entries = two(tmp_path, *(rows(8, seed=seed, arms=ARMS, curve=False) for seed in (3, 4)))
    own = build_tables(entries[0].run)["comparisons"]
    found = differences(entries)
    for measure in ("sensitivity", "bias", "delta_p", "compliance", "over_refusal"):
        for kind, mine in (("bar - control", "small with bar - small without"),
                           ("bar - placebo", "small with bar - small with placebo")):  # fmt: skip
            want = the_row(own, measure=measure, kind=kind, condition="agent_status")
            row = the_row(found, measure=measure, kind=mine)
            for key in ("estimate", "low", "high", "p", "clusters", "equivalence_low", "verdict"):
                assert row[key] == pytest.approx(want[key]), (measure, kind, key)


def test_balanced_accuracy_is_half_compliance_and_half_due_calls_made(tmp_path: Path) -> None:
    cells = acts("bfdn" * 2, "n" * 8, "bbbf" * 2)
    models = across.models_table(across.load_all([a_run(tmp_path / "a", cells)]))
    estimates = {c: the_row(models, condition=c, measure="balanced_accuracy")["estimate"]
                 for c in ("control", "placebo", "agent_status")}  # fmt: skip
    assert estimates == {"control": 0.5, "placebo": 0.0, "agent_status": 0.875}


def test_a_model_that_always_calls_has_a_balanced_accuracy_of_one_half(tmp_path: Path) -> None:
    models = across.models_table(across.load_all([a_run(tmp_path / "a", acts("d" * 8, "f" * 8, "b" * 8))]))
    assert the_row(models, condition="control", measure="balanced_accuracy")["estimate"] == 0.5
    assert the_row(models, condition="placebo", measure="balanced_accuracy")["estimate"] == 0.5


@pytest.mark.parametrize("seed", [7, 8])
def test_the_share_of_the_gap_that_is_closed_is_gained_over_gap(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(5)
    base = rng.normal(0, 0.3, 10)
    bar, large = base + 1 + rng.normal(0, 0.2, 10), base + 2 + rng.normal(0, 0.2, 10)
    small = logits(list(base), list(base), list(bar))
    entries = two(tmp_path, small, logits(list(large), list(large), list(large)), config={"seed": seed})
    row = the_row(gaps(entries), measure="sensitivity", of="bar - control")
    assert row["closed"] == pytest.approx((bar.mean() - base.mean()) / (large.mean() - base.mean()))
    assert row["closed_low"] < row["closed"] < row["closed_high"]
    if seed == 7:  # Fieller's set is the set of all shares that a paired t test does not refute
        for end in ("closed_low", "closed_high"):
            assert stats.ttest_1samp((bar - base) - row[end] * (large - base), 0).pvalue == pytest.approx(
                0.05
            )


def test_a_gap_that_may_be_none_has_no_share_that_is_closed(tmp_path: Path) -> None:
    small = logits(shifted(0), shifted(0), shifted(1.0))
    entries = two(tmp_path, small, logits(shifted(0.05, -1), shifted(0), shifted(0)))
    row = the_row(gaps(entries), measure="sensitivity", of="bar - control")
    assert pd.isna(row["closed"]) and row["note"] == "undefined: the gap's interval includes 0"


def test_the_placebo_is_told_apart_from_the_bars_content(tmp_path: Path) -> None:
    noisy = [0.1 * w for w in WAVE]
    small = logits(shifted(0), shifted(1.0), [1.0 + a + b for a, b in zip(WAVE, noisy, strict=True)])
    large = logits([2 + a - b for a, b in zip(WAVE, reversed(noisy), strict=True)], shifted(2), shifted(2))
    gap = gaps(two(tmp_path, small, large))
    assert the_row(gap, measure="sensitivity", of="bar - control")["closed"] == pytest.approx(0.5, abs=0.05)
    assert the_row(gap, measure="sensitivity", of="bar - placebo")["closed"] == pytest.approx(0.0, abs=0.05)


def test_fiellers_interval_covers_the_true_share_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    hits = {"paired": 0, "unpaired": 0}
    for _ in range(1000):
        base = rng.normal(0, 1, 12)
        bar, large = base + rng.normal(1, 0.6, 12), base + rng.normal(2, 0.8, 12)
        other = rng.normal(2, 1.2, 15)
        for name, moments in (
            ("paired", independent.paired_moments(bar - base, large - base)),
            ("unpaired", independent.unpaired_moments(bar - base, base, other)),
        ):
            assert moments is not None
            found = independent.fieller(moments)
            unbounded = found.low is None or found.high is None
            hits[name] += unbounded or found.low <= 0.5 <= found.high
    assert 0.935 <= hits["paired"] / 1000 <= 0.965  # two simulation errors are 1.4 points
    assert (
        0.935 <= hits["unpaired"] / 1000 <= 0.985
    )  # the smaller group's degrees of freedom, on the safe side


def test_the_spread_of_an_unpaired_share_is_that_of_gained_minus_share_times_gap() -> None:
    rng = np.random.default_rng(2)
    base, other = rng.normal(0, 1, 9), rng.normal(2, 1, 14)
    gain = 1 - 0.8 * base + rng.normal(0, 0.1, 9)
    m = independent.unpaired_moments(gain, base, other)
    assert m is not None
    for share in (0.0, 0.7, 1.5):
        spread = np.var(gain + share * base, ddof=1) / 9 + share**2 * np.var(other, ddof=1) / 14
        assert m.var_top - 2 * share * m.cov + share**2 * m.var_bottom == pytest.approx(spread)


def test_unpaired_shares_keep_an_interval_where_no_episode_deviates() -> None:
    found = independent.share_difference([1.0] * 8, [0.0] * 8, (8, 8))
    assert (
        found.value == 1.0
        and found.low is not None
        and 0.4 < found.low < 0.7
        and found.high == pytest.approx(1.0)
    )
    assert independent.welch_p([1.0] * 8, [0.0] * 8) == pytest.approx(2 / math.comb(16, 8))
    assert independent.welch_p([1.0] * 8, [1.0] * 8) == 1.0


def test_corners_at_full_overlap_are_the_rows_of_the_models_table(tmp_path: Path) -> None:
    tables = across.compare(
        two(tmp_path, acts("bfdnbfdn", "nnbb" * 2, "bbbn" * 2), acts("bd" * 4, "b" * 8, "b" * 8))
    ).tables
    for measure in ("balanced_accuracy", "compliance", "over_refusal"):
        corner = the_row(tables["corners"], measure=measure)
        for name, model, condition in (
            ("small_bar", "small", "agent_status"),
            ("large_without", "large", "control"),
        ):
            own = the_row(tables["models"], model=model, condition=condition, measure=measure)
            keys = (name, f"{name}_low", f"{name}_high")
            assert [corner[k] for k in keys] == pytest.approx([own[k] for k in ("estimate", "low", "high")])


def thinking(cells: list[dict[str, Any]], tokens: int, limit: int) -> list[dict[str, Any]]:
    """Replies that thought as long, cut at the limit."""
    return [c | {"output.usage.reasoning_tokens": min(tokens, limit), "decoding.max_new_tokens": limit,
                 "output.usage.reasoning_censored": tokens > limit} for c in cells]  # fmt: skip


def test_thinking_is_compared_at_the_smaller_of_two_limits(tmp_path: Path) -> None:
    cells = acts("b" * 8, "b" * 8, "b" * 8)
    entries = two(tmp_path, thinking(cells, 50, 100), thinking(cells, 900, 1000))
    tables = across.compare(entries).tables
    row = the_row(tables["differences"], measure="thinking", kind=MAIN)
    assert row["estimate"] == pytest.approx(50 / 100)
    assert (
        the_row(tables["models"], model="large", condition="control", measure="thinking")["estimate"] == 900
    )
    assert any(
        "different limits of new tokens" in n and "small 100; large 1000" in n for n in tables["models"].notes
    )


# --- verdicts ---------------------------------------------------------------------------------------------------


def test_verdict_words_follow_the_direction_that_is_good(tmp_path: Path) -> None:
    usage = {"control": 100, "placebo": 100, "agent_status": 160}
    small = [c | {"output.usage.prompt_tokens": usage[c["condition"]], "output.usage.completion_tokens": 30 + i % 3}
             for i, c in enumerate(acts("n" * 10, "n" * 10, "b" * 10))]  # fmt: skip
    large = [c | {"output.usage.prompt_tokens": 100, "output.usage.completion_tokens": 30 + i % 2}
             for i, c in enumerate(acts("n" * 10, "n" * 10, "n" * 10))]  # fmt: skip
    found = differences(two(tmp_path, small, large))
    words = {m: the_row(found, measure=m, kind=MAIN)["verdict"]
             for m in ("balanced_accuracy", "compliance", "over_refusal", "prompt", "output")}  # fmt: skip
    assert words == {"balanced_accuracy": "better", "compliance": "better", "over_refusal": "better",
                     "prompt": "worse", "output": "equivalent"}  # fmt: skip
    assert set(found.data["label"]) == {"exploratory"}


def test_few_episodes_get_no_verdict(tmp_path: Path) -> None:
    entries = two(tmp_path, acts("n" * 5, "n" * 5, "b" * 5), acts("n" * 5, "n" * 5, "n" * 5))
    row = the_row(differences(entries), measure="compliance", kind=MAIN)
    assert row["verdict"] == "inconclusive" and row["more_clusters"] == 3


def test_margins_must_agree_or_be_named(tmp_path: Path) -> None:
    entries = two(tmp_path, acts("b", "b", "b"), acts("b", "b", "b"),
                  margins={"logit": 1.0, "share": 0.2, "ratio": 1.5})  # fmt: skip
    with pytest.raises(ReportError, match=r"large: states other margins .* --margins-of"):
        across.compare(entries)
    held = across.margins_for(entries, "large")
    row = the_row(differences(entries, held), measure="compliance", kind=MAIN)
    assert (row["margin_low"], row["margin_high"]) == (-0.2, 0.2)


# --- seconds and money -------------------------------------------------------------------------------------------


def timed(name: str, cells: list[dict[str, Any]], slower: float = 1.0, state: str = "cold") -> dict[str, Any]:
    times = [t | {key: t[key] * slower for key in ("total", "first_token", "first_answer_token")}
             for t in seconds(cells, state)]  # fmt: skip
    return {"name": name, "timings": times, "measure": "latency"}


def test_a_latency_run_joins_its_models_row_and_no_other(tmp_path: Path) -> None:
    cells = acts("bbbbbbbb", "bbbbbbbb", "bbbbbbbb")
    short = [c for c in cells if c["cluster"] in ("c0", "c1", "c2")]
    paths = [a_run(tmp_path / "a", cells), a_run(tmp_path / "b", cells, "large"),
             a_run(tmp_path / "c", short, **timed("small", short)),
             a_run(tmp_path / "d", short, **timed("small", short, state="warm"))]  # fmt: skip
    entries = across.load_all(paths)
    assert [(e.name, len(e.timed)) for e in entries] == [("small", 2), ("large", 0)]
    models = across.models_table(entries)
    cold = the_row(models, model="small", condition="control", measure="total", cache_state="cold")
    assert cold["n"] == 6 and cold["clusters"] == 3 and cold["estimate"] == pytest.approx(0.8 + 0.02 * 60)
    assert models.data[(models.data["model"] == "large") & (models.data["unit"] == "s")].empty, (
        "a batched run has none"
    )
    assert any("seconds are unknown: large" in note for note in models.notes)
    # The decisions still come from all eight episodes of the run that was not timed.
    assert the_row(models, model="small", condition="control", measure="compliance")["n"] == 8


def test_a_latency_run_of_other_weights_is_another_model(tmp_path: Path) -> None:
    cells = acts("bb", "bb", "bb")
    paths = [a_run(tmp_path / "a", cells),
             a_run(tmp_path / "b", cells, inputs={"weights": "other"}, **timed("small", cells))]  # fmt: skip
    assert [(e.name, len(e.timed)) for e in across.load_all(paths)] == [("small-a", 0), ("small-b", 1)]


def test_seconds_are_compared_as_a_paired_ratio_in_one_cache_state(tmp_path: Path) -> None:
    cells = acts("b" * 9, "b" * 9, "b" * 9)
    paths = [a_run(tmp_path / "a", cells, **timed("small", cells)),
             a_run(tmp_path / "b", cells, **timed("large", cells, slower=2.0))]  # fmt: skip
    row = the_row(differences(across.load_all(paths)), measure="total", kind=MAIN)
    assert (row["unit"], row["cache_state"], row["points"]) == ("ratio", "cold", "paired")
    assert row["estimate"] == pytest.approx(0.5) and row["verdict"] == "better"
    cold_and_warm = [a_run(tmp_path / "c", cells, **timed("small", cells)),
                     a_run(tmp_path / "d", cells, **timed("large", cells, state="warm"))]  # fmt: skip
    found = differences(across.load_all(cold_and_warm)).data
    assert found[found["measure"] == "total"].empty, "a cold and a warm prompt are not the same question"
    again = [*cold_and_warm, a_run(tmp_path / "e", cells, **timed("small", cells, state="warm"))]
    assert the_row(differences(across.load_all(again)), measure="total", kind=MAIN)["cache_state"] == "warm"


def priced(cached: float | None, output: float | None = 30.0) -> list[dict[str, Any]]:
    return [c | {"output.usage.prompt_tokens": 1000, "output.usage.cached_tokens": cached,
                 "output.usage.completion_tokens": output} for c in acts("b" * 3, "b" * 3, "b" * 3)]  # fmt: skip


def cost_of(path: Path) -> list[float]:
    data = across.models_table(across.load_all([path])).data
    return list(data[(data["measure"] == "cost") & (data["condition"] == "control")]["estimate"])


def test_cost_is_what_the_stated_price_makes_of_the_tokens(tmp_path: Path) -> None:
    # 1,000 replies: 400 × 2 + 600 × 0.5 + 30 × 10 = 1400 per million tokens, so 1.40 USD.
    assert cost_of(a_run(tmp_path / "a", priced(600.0), price=PRICE)) == [pytest.approx(1.4)]
    in_config = {"seed": 7, "model": {"thinking": "off", "price": PRICE}}
    assert cost_of(a_run(tmp_path / "b", priced(600.0), config=in_config)) == [pytest.approx(1.4)]
    # Cached tokens that nobody counted are billed in full: 1000 × 2 + 300.
    assert cost_of(a_run(tmp_path / "c", priced(None), price=PRICE)) == [pytest.approx(2.3)]


def test_unknown_cost_is_no_number_and_free_is_zero(tmp_path: Path) -> None:
    assert cost_of(a_run(tmp_path / "a", priced(0.0))) == []
    assert cost_of(a_run(tmp_path / "b", priced(0.0, output=None), price=PRICE)) == []
    free = PRICE | {"input_per_million": 0.0, "cached_per_million": 0.0, "output_per_million": 0.0}
    assert cost_of(a_run(tmp_path / "c", priced(0.0), price=free)) == [0.0]
    models = across.models_table(across.load_all([tmp_path / "a"]))
    assert "No run states a price, so cost is unknown." in models.notes


def test_an_hourly_price_needs_seconds_of_a_reply_alone(tmp_path: Path) -> None:
    cells = acts("bbb", "bbb", "bbb")
    hourly = {"currency": "EUR", "per_hour": 3.6}
    assert cost_of(a_run(tmp_path / "a", cells, price=hourly)) == [], "a batch's hour belongs to no reply"
    alone = a_run(tmp_path / "b", cells, price=hourly, **timed("small", cells))
    assert cost_of(alone) == [pytest.approx(1000 * 3.6 * (0.8 + 1.2) / 3600)]


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ({"currency": "USD", "input_per_million": -1, "output_per_million": 1}, "price.input_per_million"),
        ({"input_per_million": 1.0, "output_per_million": 1.0}, "currency"),
        ({"currency": "USD", "input": 1.0}, "price.input"),
    ],
)
def test_a_price_that_is_none_is_refused_with_file_and_key(tmp_path: Path, price: Any, said: str) -> None:
    path = a_run(tmp_path / "a", priced(0.0), price=price)
    with pytest.raises(ReportError, match=said) as refused:
        across.load_all([path])
    assert "manifest.json" in str(refused.value) and "\n" not in str(refused.value)


def test_different_currencies_are_not_compared(tmp_path: Path) -> None:
    paths = [a_run(tmp_path / "a", priced(0.0), price=PRICE),
             a_run(tmp_path / "b", priced(0.0), "large", price=PRICE | {"currency": "EUR"})]  # fmt: skip
    tables = across.compare(across.load_all(paths)).tables
    assert not (tables["differences"].data["measure"] == "cost").any()
    assert any("different currencies" in note for note in tables["pareto"].notes)


# --- the front --------------------------------------------------------------------------------------------------


def with_cost(cells: list[dict[str, Any]], tokens: Mapping[str, float]) -> list[dict[str, Any]]:
    return [c | {"output.usage.prompt_tokens": tokens[c["condition"]], "output.usage.cached_tokens": 0.0,
                 "output.usage.completion_tokens": 10.0} for c in cells]  # fmt: skip


def test_the_front_holds_what_no_other_point_beats(tmp_path: Path) -> None:
    small = with_cost(
        acts("bbnnnnnn", "bnnnnnnn", "bbbbnnnn"), {"control": 100, "placebo": 150, "agent_status": 150}
    )
    large = with_cost(
        acts("bbbbnnnn", "bbbbbbbb", "nnnnnnnn"), {"control": 150, "placebo": 900, "agent_status": 950}
    )
    entries = across.load_all([a_run(tmp_path / "a", small, price=PRICE),
                               a_run(tmp_path / "b", large, "large", price=PRICE)])  # fmt: skip
    points = pareto_table(across.models_table(entries)).data
    front = {(r["model"], r["condition"]) for r in points.to_dict("records") if r["on_front"] == "yes"}
    # Equal points do not beat each other: both half-right arms at 150 tokens stay.
    assert front == {
        ("small", "control"),
        ("small", "agent_status"),
        ("large", "control"),
        ("large", "placebo"),
    }


def test_a_panel_without_numbers_is_left_out_by_name_and_tokens_stand_in(tmp_path: Path) -> None:
    cells = with_cost(
        acts("bn" * 4, "bn" * 4, "bb" * 4), {"control": 100, "placebo": 150, "agent_status": 150}
    )
    poor = with_cost(acts("n" * 8, "n" * 8, "n" * 8), {"control": 100, "placebo": 150, "agent_status": 150})
    entries = across.load_all([a_run(tmp_path / "a", cells), a_run(tmp_path / "b", poor, "large")])
    table = pareto_table(across.models_table(entries))
    assert set(table.data["x_measure"]) == {"prompt"}
    assert [n.split(":")[0] for n in table.notes[:2]] == [
        "Left out, accuracy against cost", "Left out, accuracy against seconds",
    ]  # fmt: skip
    # Tokens are no currency between models: each has a front of its own.
    assert {m for m, f in zip(table.data["model"], table.data["on_front"], strict=True) if f == "yes"} == {
        "small", "large",
    }  # fmt: skip


def test_forced_choices_stand_in_where_no_model_replied_freely(tmp_path: Path) -> None:
    cells = logits(shifted(0), shifted(0), shifted(1.0))
    models = across.models_table(across.load_all([a_run(tmp_path / "a", cells)]))
    assert set(pareto_table(models).data["y_measure"]) == {"auc_within"}


# --- what is refused, and what is written -----------------------------------------------------------------------


def test_runs_of_different_scenarios_are_refused_in_one_line(tmp_path: Path) -> None:
    cells = acts("bb", "bb", "bb")
    paths = [a_run(tmp_path / "a", cells), a_run(tmp_path / "b", cells, "large", inputs={"scenario": "s2"})]
    with pytest.raises(ReportError, match=r"another scenario .* --different-scenarios"):
        across.load_all(paths)
    found = differences(across.load_all(paths, different_scenarios=True))
    assert set(found.data[found.data["kind"] == MAIN]["points"]) == {"unpaired"}


def test_a_run_named_twice_is_refused_and_a_model_twice_is_told_apart(tmp_path: Path) -> None:
    cells = acts("bb", "bb", "bb")
    paths = [a_run(tmp_path / "a", cells), a_run(tmp_path / "b", cells)]
    assert [e.name for e in across.load_all(paths)] == ["small-a", "small-b"]
    with pytest.raises(ReportError, match="name each run once"):
        across.load_all([paths[0], paths[0]])
    with pytest.raises(ReportError, match="no run given"):
        across.load_all([])


def test_small_and_large_are_the_order_given_or_named(tmp_path: Path) -> None:
    cells = acts("bb", "bb", "bb")
    entries = across.load_all(
        [a_run(tmp_path / f, cells, n) for f, n in (("a", "x"), ("b", "y"), ("c", "z"))]
    )
    assert [(s.name, b.name) for s, b in across.pairs(entries)] == [("x", "y"), ("x", "z"), ("y", "z")]
    assert [(s.name, b.name) for s, b in across.pairs(entries, large=["x"])] == [("y", "x"), ("z", "x")]
    assert [(s.name, b.name) for s, b in across.pairs(entries, ["c"], ["y-b"])] == [("z", "y")]
    with pytest.raises(ReportError, match=r"q: no such model .* x, y, z"):
        across.pairs(entries, small=["q"])


def arguments(runs: list[Path], **given: Any) -> argparse.Namespace:
    defaults = {"small": [], "large": [], "out": None, "different_scenarios": False, "margins_of": None}
    return argparse.Namespace(runs=[str(run) for run in runs], **(defaults | given))


def digests(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file()}  # fmt: skip


def test_the_verb_writes_the_same_bytes_each_time_and_leaves_the_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = rows(3, seed=3, arms=ARMS, curve=False)
    paths = [
        a_run(tmp_path / "runs" / "a", cells),
        a_run(tmp_path / "runs" / "b", rows(3, arms=ARMS, curve=False), "large"),
    ]
    before = digests(tmp_path / "runs")
    assert command.main(arguments(paths)) == 0
    told = capsys.readouterr().out
    folder = tmp_path / told.splitlines()[-1]
    assert folder.parent == tmp_path / "results" / "compare" and folder.name.startswith("small+large-"[:11])
    assert command.main(arguments(paths, out=str(tmp_path / "again"))) == 0
    assert digests(folder) == digests(tmp_path / "again")
    names = set(digests(folder))
    tables = {
        f"{n}.{s}"
        for n in ("runs", "models", "corners", "differences", "gap", "pareto")
        for s in ("csv", "md")
    }
    assert names == tables | {"tables.md"} | {
        f"figures/{n}.{s}" for n in ("pareto", "corners") for s in ("png", "svg")
    }
    assert digests(tmp_path / "runs") == before
    assert "small with agent_status against large without a bar" in told and "exploratory" in told


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    path = a_run(tmp_path / "a", acts("bb", "bb", "bb"))
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ReportError, match="cannot be written"):
        command.main(arguments([path], out=str(tmp_path / "file")))


def test_a_name_is_never_read_as_markup_or_formula(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = r"[bold]m[/x] | $\frac{"
    cells = acts("bb", "bb", "bb") + logits([0.0, 1.0], [0.0, 1.0], [0.0, 1.0])
    paths = [a_run(tmp_path / "a", cells, name), a_run(tmp_path / "b", cells, "large")]
    assert command.main(arguments(paths, out=str(tmp_path / "out"))) == 0
    assert "[bold]m[/x] | $" in capsys.readouterr().out
    assert (tmp_path / "out" / "figures" / "corners.png").is_file()
    assert r"[bold]m[/x] \| $" in (tmp_path / "out" / "models.md").read_text(encoding="utf-8")


def test_names_that_a_model_brings_stay_inside_the_results_folder(tmp_path: Path) -> None:
    path = a_run(tmp_path / "a", acts("bb", "bb", "bb"), "../../etc/{x} | y")
    assert "/" not in across.folder_name(across.load_all([path]))


@pytest.mark.parametrize("name", sorted(ROBUST))
def test_every_odd_run_compares_without_a_crash(tmp_path: Path, name: str) -> None:
    plain = rows(2, arms=ARMS, curve=False)
    entries = across.load_all([a_run(tmp_path / "a", ROBUST[name]), a_run(tmp_path / "b", plain, "large")])
    comparison = across.compare(entries)
    assert comparison.headline and all(t.to_markdown() and t.to_csv() for t in comparison.tables.values())
    pareto = across.pareto_figure(comparison.tables["pareto"])
    for figure in (pareto, *across.corner_figures(comparison.tables["corners"]).values()):
        if figure is not None:
            figure.draw_without_rendering()
    turned = across.found_corners(across.quads(across.pairs(entries[::-1])))
    assert across.corners_table(turned).to_csv() and across.gaps_table(turned).to_csv()


def test_engines_are_named_when_seconds_come_from_different_ones(tmp_path: Path) -> None:
    cells = acts("bb", "bb", "bb")
    cpu = {"engine": {"engine": "transformers", "device": "cpu", "dtype": "float32"},
           "cpu": {"model": "EPYC", "count": 2}}  # fmt: skip
    gpu = {"engine": {"backend": "vllm", "device": "cuda", "gpu": "H200", "dtype": "bfloat16"}}
    entries = across.load_all([a_run(tmp_path / "a", cells, **cpu, **timed("small", cells)),
                               a_run(tmp_path / "b", cells, **gpu, **timed("large", cells))])  # fmt: skip
    assert engine(entries[0].run) == "transformers, cpu, float32, EPYC × 2"
    assert any("different engines or machines" in note for note in across.models_table(entries).notes)


def test_a_run_without_cells_says_so(tmp_path: Path) -> None:
    path = a_run(tmp_path / "a", [cell(series="prior_calls")])
    table = across.models_table(across.load_all([path]))
    assert "Not measured (n = 0)" in table.to_markdown()
