"""What a provider says of its requests is counted as its records have it, and what it does not say is unknown."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from analysis_data import BAR, BAR_TOKENS, CONTROL, PLACEBO, acted, chosen, failed, rows, tables_of
from scipy import stats

from harness.runlog.codec import canonical_json
from harness.types import ProviderFacts

ARMS = (CONTROL, PLACEBO, BAR)
Cells = list[dict[str, Any]]


def cell(
    arm: tuple[str, str, str] = CONTROL,
    cluster: int = 0,
    side: str = "due",
    facts: ProviderFacts | None = None,
    *,
    make: Any = None,
    prompt: int | None = 900,
    cached: int | None = None,
    written: int | None = None,
    reasoning: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A cell of `act` at a provider; counts are those of all its requests."""
    name, bar, placement = arm
    where = {
        "condition": name, "bar": bar, "placement": placement, "side": side, "bar_tokens": BAR_TOKENS[bar],
        "cluster": f"c{cluster}", "sample_id": f"{fields.get('scenario', 'xfinity')}/c{cluster}/{side}",
        "output.provider": canonical_json(facts or ProviderFacts(model="served-1")),
        "output.usage.reported_prompt_tokens": prompt, "output.usage.cached_tokens": cached,
        "output.usage.cache_written_tokens": written, "output.usage.reported_reasoning_tokens": reasoning,
    }  # fmt: skip
    made: dict[str, Any] = (make or (lambda **given: acted("compliant", **given)))(**(where | fields))
    return made


def draws(**fields: Any) -> dict[str, Any]:
    return chosen(0.5, **fields)


def broke_off(**fields: Any) -> dict[str, Any]:
    return failed(**({"probe": "act"} | fields))


def told(folder: Path, cells: Cells) -> dict[tuple[str, str], dict[str, Any]]:
    """(probe, condition) → row of the table; a number that is unknown is None."""
    table = tables_of(folder, cells, arms=ARMS)["provider"]
    found = [{k: None if v != v else v for k, v in row.items()} for row in table.rows()]
    return {(row["probe"], row["condition"]): row for row in found}


# -- which runs have it ----------------------------------------------------------------------------------


def test_a_run_on_an_engine_of_ours_has_no_such_table(tmp_path: Path) -> None:
    assert "provider" not in tables_of(tmp_path / "old", rows(2))
    new = [cell() | {"output.provider": None}, cell(BAR) | {"output.provider": None}]
    assert "provider" not in tables_of(tmp_path / "new", new)


def test_a_run_at_a_provider_has_its_other_tables_as_before(tmp_path: Path) -> None:
    cells = [cell(arm, c, side) for arm in ARMS for c in range(3) for side in ("due", "forbidden")]
    local = tables_of(tmp_path / "local", [each | {"output.provider": None} for each in cells], arms=ARMS)
    there = tables_of(tmp_path / "api", cells, arms=ARMS)
    assert list(there) == [*local, "provider"]
    assert {name: there[name].to_csv() for name in local} == {name: local[name].to_csv() for name in local}


# -- one cell ---------------------------------------------------------------------------------------------


def test_the_bar_stands_as_the_reference_tokenizer_and_as_the_provider_counts_it(tmp_path: Path) -> None:
    """Two clusters, in which the bar adds 50 and 60 tokens by the provider's count, and 42 by the reference tokenizer."""
    cells = [
        cell(CONTROL, 0, prompt=900), cell(BAR, 0, prompt=950),
        cell(CONTROL, 1, prompt=1900), cell(BAR, 1, prompt=1960),
        cell(BAR, 2, prompt=99_999),  # has no control
    ]  # fmt: skip
    row = told(tmp_path, cells)["act", "agent_status"]
    assert (row["bar_tokens"], row["bar_reported"], row["n_pairs"]) == (42, 55, 2)
    half = stats.t.ppf(0.975, 1) * 5  # the standard error of 50 and 60
    assert (row["bar_low"], row["bar_high"]) == pytest.approx((55 - half, 55 + half))
    control = told(tmp_path, cells)["act", "control"]
    assert (control["bar_reported"], control["n_pairs"], control["bar_tokens"]) == (None, None, 0)


def test_a_prompt_is_held_against_the_control_of_its_own_sample_probe_and_epoch(tmp_path: Path) -> None:
    cells: Cells = []
    for number, (probe, epoch, side) in enumerate(
        (p, e, s) for p in ("act", "choose") for e in (0, 1) for s in ("due", "forbidden")
    ):
        base = 1000 * (number + 1)
        for arm, more in ((CONTROL, 0), (BAR, 47)):
            cells.append(
                cell(arm, 0, side, prompt=base + more, epoch=epoch, make=draws if probe == "choose" else None)
            )
    found = told(tmp_path, cells)
    for probe in ("act", "choose"):
        row = found[probe, "agent_status"]
        assert (row["bar_reported"], row["n_pairs"]) == (47, 4)


def test_episodes_of_two_scenarios_are_two_clusters_also_under_one_name(tmp_path: Path) -> None:
    cells = [
        cell(arm, 0, prompt=prompt, scenario=scenario)
        for scenario, more in (("one", 50), ("two", 60))
        for arm, prompt in ((CONTROL, 900), (BAR, 900 + more))
    ]
    row = told(tmp_path, cells)["act", "agent_status"]
    assert row["bar_reported"] == 55 and row["bar_low"] == pytest.approx(55 - stats.t.ppf(0.975, 1) * 5)


def test_counts_of_several_draws_are_per_request(tmp_path: Path) -> None:
    drawn = ProviderFacts(model="m", requests=8, tries=11, choice_source="draws")
    cells = [
        cell(
            arm, 0, facts=drawn, make=draws, prompt=8 * base, cached=8 * 300, reasoning=8 * 20, written=8 * 5
        )
        for arm, base in ((CONTROL, 900), (BAR, 950))
    ]
    row = told(tmp_path, cells)["choose", "agent_status"]
    assert (row["prompt_tokens"], row["bar_reported"], row["reasoning"], row["cache_written"]) == (
        950,
        50,
        20,
        5,
    )
    assert row["cached_share"] == pytest.approx(300 / 950)
    assert (row["requests"], row["tries_more"], row["choices_by"]) == (8, 3, "8 draws")


def test_where_the_choices_come_from_is_said_the_most_frequent_first(tmp_path: Path) -> None:
    facts = [
        ProviderFacts(model="b", choice_source="logprobs"),
        ProviderFacts(model="a", choice_source="draws", requests=4),
        ProviderFacts(model="a", choice_source="draws", requests=4),
    ]
    cells = [cell(CONTROL, i, facts=each, make=draws) for i, each in enumerate(facts)]
    found = told(tmp_path, [*cells, cell(CONTROL, 9)])
    row = found["choose", "control"]
    assert (row["choices_by"], row["served"]) == ("4 draws, logprobs", "a, b")
    assert found["act", "control"]["choices_by"] is None


def test_a_failed_cell_is_counted_with_its_tries_and_is_in_no_mean(tmp_path: Path) -> None:
    lost = ProviderFacts(requests=0, tries=7, broken=2)
    cells = [
        cell(CONTROL, 0, prompt=900, cached=450, facts=ProviderFacts(model="m", tries=2)),
        cell(CONTROL, 1, prompt=None, facts=lost, make=broke_off),
        # Two of its draws were answered before it failed.
        cell(CONTROL, 2, prompt=9998, facts=ProviderFacts(requests=2, tries=3), make=broke_off),
    ]
    row = told(tmp_path, cells)["act", "control"]
    assert (row["n"], row["failed"], row["requests"], row["tries_more"], row["broken"]) == (3, 2, 3, 9, 2)
    assert (row["prompt_tokens"], row["cached_share"], row["served"]) == (900, 0.5, "m")


def test_what_a_provider_does_not_say_is_unknown_and_never_0(tmp_path: Path) -> None:
    silent = [cell(arm, c, prompt=None, facts=ProviderFacts()) for arm in ARMS for c in range(2)]
    row = told(tmp_path / "silent", silent)["act", "agent_status"]
    for key in ("prompt_tokens", "bar_reported", "cached_share", "cache_written", "reasoning", "served"):
        assert row[key] is None, key
    assert (row["n"], row["n_reasoning"], row["bar_tokens"]) == (2, 0, 42)
    # One of two cells was told: the mean is its own, and the share is of its prompt alone.
    half = [cell(CONTROL, 0, prompt=1000, cached=0, reasoning=0, written=0), cell(CONTROL, 1, prompt=500)]
    row = told(tmp_path / "half", half)["act", "control"]
    assert (row["cached_share"], row["reasoning"], row["cache_written"], row["n_reasoning"]) == (0, 0, 0, 1)
    assert row["prompt_tokens"] == 750


def test_the_report_shows_both_counts_of_the_bar_and_leaves_no_gap_for_what_is_unknown(
    tmp_path: Path,
) -> None:
    cells = [
        cell(arm, c, prompt=900 + BAR_TOKENS[arm[1]] + 7 * (arm is BAR), facts=ProviderFacts(model="x|<b>"))
        for arm in ARMS
        for c in range(3)
    ]
    shown = tables_of(tmp_path, cells, arms=ARMS)["provider"].to_markdown()
    headers, _, *body = [line for line in shown.splitlines() if line.startswith("|")]
    assert "bar, reference" in headers and "bar, provider" in headers and "choices by" not in headers
    assert "| 42.0 | 49.0 [49.0, 49.0] |" in body[2] and "x\\|&lt;b>" in body[2]
    assert "Unknown in every row: cached share, cache-written, thinking tokens." in shown


# -- all of it --------------------------------------------------------------------------------------------


def many(seed: int) -> Cells:
    """A run of both probes with everything that a provider may say or leave out."""
    chance = random.Random(seed)

    def count(most: int) -> int | None:
        return chance.choice([None, 0, chance.randrange(most)])

    cells: Cells = []
    for arm in ARMS:
        for c in range(5):
            for side in ("due", "forbidden"):
                for make in (None, draws, broke_off):
                    if make is broke_off and chance.random() < 0.6:
                        continue
                    requests = 1 if make is None else chance.randrange(1 if make is draws else 0, 5)
                    tries = requests + chance.randrange(3) + (requests == 0)
                    facts = ProviderFacts(
                        model=chance.choice([None, "m-1", "m-2"]), refused=chance.randrange(requests + 1),
                        requests=requests, tries=tries, broken=chance.randrange(tries - requests + 1),
                        choice_source=chance.choice(["draws", "logprobs"]) if make is draws else None,
                    )  # fmt: skip
                    prompt = chance.choice([None, *(chance.randrange(800, 1000) for _ in range(5))])
                    known = prompt if requests else None
                    cells.append(
                        cell(
                            arm, c, side, facts, make=make, epoch=int(make is broke_off),
                            prompt=known and known * requests, cached=count(700) if requests else None,
                            written=count(100) if requests else None, reasoning=count(400) if requests else None,
                        ) | {"facts": facts}
                    )  # fmt: skip
    return cells


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def each(cell: dict[str, Any], name: str) -> float | None:
    count = cell[f"output.usage.{name}"]
    return None if count is None or not cell["facts"].requests else count / cell["facts"].requests


def recounted(cells: Cells, probe: str, condition: str) -> dict[str, Any]:
    """A row of the table with loops over the records."""
    mine = [c for c in cells if (c["probe"], c["condition"]) == (probe, condition)]
    good = [c for c in mine if c["output.finish_reason"] != "error"]
    facts = [c["facts"] for c in mine]
    prompts = {
        (c["condition"], c["sample_id"], c["epoch"]): each(c, "reported_prompt_tokens")
        for c in cells
        if c["probe"] == probe
    }
    clusters: dict[str, list[float]] = {}
    for c in mine if condition != "control" else ():
        here = each(c, "reported_prompt_tokens")
        there = prompts.get(("control", c["sample_id"], c["epoch"]))
        if here is not None and there is not None:
            clusters.setdefault(c["cluster"], []).append(here - there)
    both = [
        (cached, prompt)
        for c in good
        if (cached := each(c, "cached_tokens")) is not None
        and (prompt := each(c, "reported_prompt_tokens")) is not None
    ]
    counts = {
        name: [count for c in good if (count := each(c, name)) is not None]
        for name in ("reported_prompt_tokens", "cache_written_tokens", "reported_reasoning_tokens")
    }
    thought = counts["reported_reasoning_tokens"]
    return {
        "n": len(mine), "failed": len(mine) - len(good), "refused": sum(f.refused for f in facts),
        "requests": sum(f.requests for f in facts), "tries_more": sum(f.tries - f.requests for f in facts),
        "broken": sum(f.broken for f in facts), "prompt_tokens": mean(counts["reported_prompt_tokens"]),
        "bar_tokens": mean([c["bar_tokens"] for c in good]),
        "n_pairs": sum(map(len, clusters.values())) or None,
        "bar_reported": mean([sum(d) / len(d) for d in clusters.values()]),
        "cached_share": sum(c for c, _ in both) / sum(p for _, p in both) if both else None,
        "cache_written": mean(counts["cache_written_tokens"]),
        "n_reasoning": len(thought), "reasoning": mean(thought),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_every_figure_is_recounted_from_the_records(tmp_path: Path, seed: int) -> None:
    cells = many(seed)
    found = told(tmp_path, [{k: v for k, v in c.items() if k != "facts"} for c in cells])
    assert set(found) == {(probe, arm[0]) for probe in ("act", "choose") for arm in ARMS}
    for (probe, condition), row in found.items():
        for key, value in recounted(cells, probe, condition).items():
            assert row[key] == (None if value is None else pytest.approx(value)), (probe, condition, key)
        served = Counter(
            c["facts"].model
            for c in cells
            if (c["probe"], c["condition"]) == (probe, condition)
            and c["facts"].model
            and c["output.finish_reason"] != "error"
        )
        assert sorted((row["served"] or "").split(", ")) == sorted(served)
