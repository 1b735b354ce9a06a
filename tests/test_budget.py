"""Claims about limits: what cells cost, where a run stops, that it goes on, and that unknown is never 0."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import core_cli as cli
import pytest
from core_config import plain
from hypothesis import given
from hypothesis import strategies as some
from test_runner import LATENCY, Scripted, answer, preflight, rows, setting

from harness.budget import Limits, Meter, Price, cost_of, duration, held_seconds, most_cost, seconds_of
from harness.commands import run as command
from harness.commands.limits import missing, start_meter
from harness.compose import compose
from harness.config_checks import resolve
from harness.errors import ConfigError
from harness.preflight import Preflight
from harness.runlog import RunLog, finalize, update_manifest
from harness.runner import Alone, Tally, run_all
from harness.types import EvalRecord, ModelOutput, ModelUsage, Request, Thought

PRICE = Price(currency="USD", input_per_million=2, cached_per_million=0.5, output_per_million=10)


# -- what is written into the configuration ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("1h5s", 3605)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
    assert compose([f"max_time={text}"]).max_time == seconds


@pytest.mark.parametrize("text", ["90", "true", "0s", "-5m", "1m1h", "soon", ".inf", "''"])
def test_a_duration_without_a_unit_is_refused_and_not_guessed(text: str) -> None:
    with pytest.raises(ConfigError, match=r"max_time: .*90s, 30m, 2h or 1h30m"):
        compose([f"max_time={text}"])


@given(some.floats(min_value=0, max_value=1e6))
def test_a_duration_is_said_to_within_a_tenth(seconds: float) -> None:
    again = seconds_of(duration(seconds).replace("min", "m").replace(" ", "")) if seconds >= 0.1 else seconds
    assert again == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ({"input_per_million": 2, "currency": "USD"}, "output_per_million is missing"),
        ({"output_per_million": 2, "currency": "USD"}, "input_per_million is missing"),
        ({"cached_per_million": 2, "currency": "USD"}, "input_per_million is missing"),
        ({"per_hour": 2}, "currency is missing"),
        ({"per_hour": -1, "currency": "USD"}, "per_hour"),
        ({"per_hour": True, "currency": "USD"}, "per_hour"),
        ({"per_token": 1}, "unknown key"),
    ],
)
def test_a_price_is_whole_or_refused(price: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(plain(model__price=price))


def test_money_cannot_be_limited_where_the_price_is_unknown() -> None:
    with pytest.raises(
        ConfigError, match=r"max_spend=3: what tiny costs is not known.*model\.price"
    ) as error:
        resolve(plain(max_spend=3))
    assert "\n" not in str(error.value)


def test_limits_and_prices_make_no_other_run() -> None:
    """A run that stopped goes on under larger limits, under the same run_id."""
    limited = plain(max_time="1h", max_spend=5, model__price=PRICE.model_dump())
    assert resolve(limited).digested() == resolve(plain()).digested()


# -- what a cell costs -------------------------------------------------------------------------------------


def record(probe: str = "act", **usage: Any) -> EvalRecord:
    """A finished cell of 1,000 prompt tokens, 400 of them cached, and 50 new ones; τ is 8."""
    from test_runner import one

    made = replace(one("Hello."), probe=probe)  # type: ignore[arg-type]
    counted = ModelUsage(**{"prompt_tokens": 1000, "completion_tokens": 50, "cached_tokens": 400} | usage)
    return replace(made, output=replace(made.output, usage=counted))


def test_a_cell_costs_what_is_reckoned_by_hand() -> None:
    # 600 × 2 + 400 × 0.5 + 50 × 10 = 1,900 millionths
    assert cost_of(record(), PRICE) == pytest.approx(0.0019, rel=1e-12)
    # No price for cached tokens: 1,000 × 2 + 500
    assert cost_of(record(), PRICE.model_copy(update={"cached_per_million": None})) == pytest.approx(0.0025)
    # Nobody knows what was cached: nothing, which is the most that it can cost
    assert cost_of(record(cached_tokens=None), PRICE) == pytest.approx(0.0025)
    # The provider counts its own prompt: 600 + 1,100 more
    assert cost_of(record(reported_prompt_tokens=1100), PRICE) == pytest.approx(0.0021)


def test_choices_generate_nothing_and_thoughts_do() -> None:
    chosen = record("choose", completion_tokens=None)
    assert cost_of(chosen, PRICE) == pytest.approx(0.0014)
    thought = Thought((1, 2), False, 2, ())
    drawn = replace(
        chosen.output, thoughts=(thought,) * 4, usage=replace(chosen.output.usage, completion_tokens=8)
    )
    assert cost_of(replace(chosen, output=drawn), PRICE) == pytest.approx(0.0014 + 8 * 10 / 1e6)


def test_a_reply_that_nobody_counted_has_no_known_cost() -> None:
    assert cost_of(record(completion_tokens=None), PRICE) is None


def test_a_failed_request_counts_at_the_most_that_it_can_have_cost() -> None:
    failed = record(completion_tokens=None, cached_tokens=None)
    failed = replace(failed, output=replace(failed.output, finish_reason="error"))
    assert cost_of(failed, PRICE) == pytest.approx((1000 * 2 + 8 * 10) / 1e6)
    thinking = replace(failed, probe="choose", thinking="native")
    assert cost_of(thinking, PRICE) is None, "how many thoughts it was to draw is not in its row"


def test_a_machine_by_the_hour_costs_its_time_and_its_tokens_nothing() -> None:
    rented = Price(currency="EUR", per_hour=3.6)
    assert cost_of(record(completion_tokens=None), rented) == 0
    clock = iter([0.0, 1000.0]).__next__
    meter = Meter(Limits(price=rented), clock, earlier_seconds=500)
    assert meter.spent == pytest.approx(1.5)


def test_the_time_of_a_killed_session_is_found_in_its_rows() -> None:
    """Two sessions that ended well, one before them and one after them that did not."""
    sessions = [(100.0, 160.0), (300.0, 310.0)]
    at = [10.0, 30.0, 110.0, 159.0, 305.0, 400.0, 407.0]
    assert held_seconds(sessions, at, pace=2.0) == 60 + 10 + (20 + 2) + (7 + 2)
    assert held_seconds([], []) == 0


# -- where a run stops -------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def go(
    folder: Path,
    ready: Preflight,
    limits: Limits,
    *,
    cost: float = 1.0,
    alone: Alone | None = None,
    **meter: Any,
) -> tuple[Tally, Scripted]:
    """A run on a model that takes `cost` seconds for each cell."""
    clock = Clock()

    def script(request: Request) -> ModelOutput:
        clock.now += cost
        return answer(request)

    model = Scripted(script)
    with RunLog.open(folder, {}, {"k": 1}) as log:
        measure = Meter(limits, clock, **meter)
        for row in rows(folder):
            measure.add_earlier(row)
        tally = run_all(ready, model, log, setting(), alone=alone, progress=lambda *_: None, meter=measure)
    return tally, model


def six() -> Preflight:
    return preflight(probe__choose__series__matched__clusters=6)


def test_time_ends_a_run_between_batches_and_resuming_gives_the_undisturbed_table(tmp_path: Path) -> None:
    ready = six()
    sizes = [len(batch.cells) for batch in ready.batches]
    enough = sum(sizes[:3]) + 0.5 * sizes[3]  # no room for the fourth batch, at one second a cell
    tally, model = go(tmp_path / "cut", ready, Limits(seconds=enough))
    assert tally.stopped and tally.stopped.reason == "max_time"
    assert len(model.seen) == 3 and tally.cells == sum(sizes[:3])
    done = {row.cell_id for row in rows(tmp_path / "cut")}
    assert done == {c.request.cell_id for batch in ready.batches[:3] for c in batch.cells}, "whole clusters"
    tally, _ = go(tmp_path / "cut", ready, Limits(seconds=1000))
    assert tally.stopped is None
    go(tmp_path / "whole", ready, Limits())
    made = [finalize(tmp_path / name, ready.cell_order).read_bytes() for name in ("cut", "whole")]
    assert made[0] == made[1]


def test_the_mean_of_the_batches_so_far_decides_and_not_the_first_that_is_too_much(tmp_path: Path) -> None:
    ready = six()
    total = len(ready.cell_order)
    assert go(tmp_path / "a", ready, Limits(seconds=total))[0].stopped is None
    assert go(tmp_path / "b", ready, Limits(seconds=total - 0.5))[0].cells < total


def test_what_does_not_even_fit_one_batch_runs_nothing_when_that_is_known(tmp_path: Path) -> None:
    """From an earlier session's pace for time, and from the prices for money; the engine is asked nothing."""
    ready = six()
    first = len(ready.batches[0].cells)
    tally, model = go(tmp_path / "a", ready, Limits(seconds=first - 1), earlier_pace=1.0)
    assert not model.seen and not model.prefixes and tally.stopped
    assert f"the next batch of {first} cells needs about" in tally.stopped.said
    most = most_cost([cell.request for cell in ready.batches[0].cells], PRICE)
    tally, model = go(tmp_path / "b", ready, Limits(spend=most * 0.99, price=PRICE))
    assert not model.seen and tally.stopped and tally.stopped.reason == "max_spend"
    assert PRICE.said(most) in tally.stopped.said
    tally, model = go(tmp_path / "c", ready, Limits(spend=most, price=PRICE))
    assert len(model.seen) >= 1


def test_the_most_that_a_batch_costs_is_reckoned_by_hand() -> None:
    requests = [cell.request for cell in preflight().batches[0].cells]
    prompts = sum(len(request.prompt.ids) for request in requests)
    replies = sum(request.probe == "act" for request in requests)
    assert replies and most_cost(requests, PRICE) == pytest.approx((prompts * 2 + replies * 8 * 10) / 1e6)


def test_spend_counts_earlier_sessions(tmp_path: Path) -> None:
    ready = six()
    go(tmp_path / "whole", ready, Limits())
    whole = sum(cost_of(row, PRICE) or 0 for row in rows(tmp_path / "whole"))
    first, _ = go(tmp_path / "cut", ready, Limits(spend=whole / 2, price=PRICE))
    again, model = go(tmp_path / "cut", ready, Limits(spend=whole / 2, price=PRICE))
    assert 0 < first.cells < len(ready.cell_order) and first.stopped
    assert not model.seen and again.stopped and again.stopped.reason == "max_spend"
    spent = sum(cost_of(row, PRICE) or 0 for row in rows(tmp_path / "cut"))
    assert PRICE.said(spent) in again.stopped.said and spent <= whole / 2
    assert go(tmp_path / "cut", ready, Limits(spend=whole * 1.5, price=PRICE))[0].stopped is None


def test_a_run_whose_spend_is_unknown_does_not_go_on(tmp_path: Path) -> None:
    ready = six()
    clock = Clock()

    def uncounted(request: Request) -> ModelOutput:
        output = answer(request)
        return replace(output, usage=replace(output.usage, completion_tokens=None))

    with RunLog.open(tmp_path, {}, {"k": 1}) as log:
        meter = Meter(Limits(spend=1000, price=PRICE), clock)
        tally = run_all(
            ready, Scripted(uncounted), log, setting(), alone=None, progress=lambda *_: None, meter=meter
        )
    assert tally.stopped and tally.stopped.reason == "spend_unknown" and "taken for 0" in tally.stopped.said
    assert meter.spent is None
    assert tally.cells == len(ready.batches[0].cells), "it went as far as was known, and no further"
    again, model = go(tmp_path, ready, Limits(spend=1000, price=PRICE))
    assert not model.seen and again.stopped and again.stopped.reason == "spend_unknown"
    assert go(tmp_path, ready, Limits(seconds=1e9))[0].stopped is None, "without max_spend it goes on"


def test_a_latency_run_stops_between_clusters_so_that_arms_stay_balanced(tmp_path: Path) -> None:
    """Its batches are single cells; a limit that falls anywhere leaves every arm with the same samples."""
    ready = preflight(**LATENCY)
    total = len(ready.cell_order)
    stopped_at = set()
    for limit in range(2, total):
        folder = tmp_path / str(limit)
        tally, _ = go(folder, ready, Limits(seconds=limit), alone=Alone(warmups=0))
        assert tally.stopped
        samples: dict[str, set[str]] = {}
        for row in rows(folder):
            samples.setdefault(row.condition, set()).add(row.sample_id)
        assert len(samples) in (0, 3) and len({frozenset(each) for each in samples.values()}) <= 1
        stopped_at.add(tally.cells)
    assert len(stopped_at) > 1, "some of these limits fall inside the run"


def test_what_is_missing_is_told_per_probe_and_series() -> None:
    ready = six()
    finished = {c.request.cell_id for batch in ready.batches[:3] for c in batch.cells}
    left = missing(ready, finished)
    assert left == [{"probe": "choose", "series": "matched", "cells": 18, "clusters": 3}]
    assert {part["probe"] for part in missing(ready, set())} == {"choose", "act"}
    assert missing(ready, set(ready.cell_order)) == []


def test_sessions_of_the_manifest_and_rows_of_failed_requests_are_counted(tmp_path: Path) -> None:
    config = resolve(plain(max_time="1h", max_spend=5, model__price={"per_hour": 36, "currency": "EUR"}))
    with RunLog.open(tmp_path, {}, {"k": 1}) as log:
        moment = "2026-11-30T12:00:{:02d}+00:00".format
        update_manifest(
            tmp_path,
            sessions=[{"started": moment(0), "ended": moment(50), "seconds": 40.0, "cells": 20}],
        )
        cell = record()
        timing = replace(cell.output.timing, started_at=moment(10))
        log.append(replace(cell, output=replace(cell.output, timing=timing)))
        meter = start_meter(config, log)
        assert meter is not None and meter.pace == 2.0
        assert meter.spent == pytest.approx(0.5, abs=0.01), "50 s at 36 an hour"
        # A failed try that was made again: two rows, both of which may have been billed.
        bad = replace(cell.output, finish_reason="error", timing=timing)
        log.append(replace(cell, cell_id="other", output=bad))
        log.append(replace(cell, cell_id="other", output=replace(cell.output, timing=timing)))
        by_token = config.model_copy(update={"model": config.model.model_copy(update={"price": PRICE})})
        meter = start_meter(by_token, log)
        assert meter is not None and meter.spent == pytest.approx(
            2 * 0.0019 + (1000 * 2 - 400 * 1.5 + 80) / 1e6
        )
    assert start_meter(resolve(plain()), log) is None


# -- the command -------------------------------------------------------------------------------------------


def test_a_run_that_stopped_ends_no_sweep_and_gives_the_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def execute(config: Any) -> Path:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        stopped = {} if made else {"stopped": {"reason": "max_time"}}
        (folder / "manifest.json").write_text(json.dumps(stopped))
        made.append(folder)
        return folder

    monkeypatch.setattr(command, "execute", execute)
    assert command.execute_all([["seed=1", "max_time=5s"], ["seed=2", "max_time=5s"]]) == command.STOPPED == 3
    assert len(made) == 2
    assert command.execute_all([["seed=3"]]) == 0


def test_nothing_is_started_for_a_run_in_which_nothing_fits(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def load_model(*_: Any) -> Any:
        raise AssertionError("the engine was started")

    monkeypatch.setattr(command, "load_model", load_model)
    price = [
        "model.price.currency=USD",
        "model.price.input_per_million=1",
        "model.price.output_per_million=0",
    ]
    overrides = ["model=local", f"model.path={tiny_model}", *cli.LEAST, *price, "max_spend=0.0001"]
    assert command.execute_all([overrides]) == 3
    told = capsys.readouterr()
    assert "stopped: max_spend=0.0001 USD: 0 USD spent, and the next batch of 4 cells needs about" in told.err
    assert "0 of 4 cells are done; missing: act/matched 4 cells of 1 cluster." in told.err
    folder = tmp_path / told.out.splitlines()[-1]
    stopped = json.loads((folder / "manifest.json").read_text())["stopped"]
    assert (stopped["reason"], stopped["done"], stopped["cells"]) == ("max_spend", 0, 4)
    assert not (folder / "tables").exists()


@pytest.mark.weights
@pytest.mark.slow
def test_the_command_stops_at_a_limit_tells_what_is_missing_and_goes_on_to_the_undisturbed_tables(
    tiny_model: Path, tiny_run: Path, tmp_path: Path
) -> None:
    price = [
        "model.price.currency=USD",
        "model.price.input_per_million=1",
        "model.price.output_per_million=0",
    ]
    overrides = [*cli.TINY, f"model.path={tiny_model}", *price]
    ended = cli.call("run", *overrides, "max_spend=0.045", cwd=tmp_path)
    assert ended.returncode == 3, ended.stderr[-2000:]
    last = ended.stderr.rstrip().splitlines()[-1]
    assert (
        last.startswith("stopped: max_spend=0.045 USD: ")
        and "cells are done; missing: choose/matched" in last
    )
    assert last.endswith("The same command with a larger max_spend goes on from here")
    folder = cli.printed_folder(ended, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    stopped = manifest["stopped"]
    done = len(cli.rows(folder / "samples.jsonl"))
    assert (stopped["reason"], stopped["done"], stopped["cells"]) == ("max_spend", done, 78)
    assert 0 < done < 78 and sum(part["cells"] for part in stopped["missing"]) == 78 - done
    assert manifest["price"]["input_per_million"] == 1
    assert (folder / "samples.parquet").is_file() and (folder / "tables" / "comparisons.csv").is_file()
    assert (folder / "figures" / "both_sides.png").is_file()
    ended = cli.done("run", *overrides, "max_spend=1", cwd=tmp_path)
    assert cli.printed_folder(ended, tmp_path) == folder and folder.name == tiny_run.name
    got, wanted = cli.lasting(folder), cli.lasting(tiny_run)
    assert got.keys() == wanted.keys() and [name for name in wanted if got[name] != wanted[name]] == []
    assert "stopped" not in json.loads((folder / "manifest.json").read_text())
