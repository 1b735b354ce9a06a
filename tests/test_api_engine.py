"""Runs on a provider's API: choices, cassettes, money, and what a run leaves behind."""

import csv
import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import core_cli as cli
import pytest
from api_faults import Reset, Status
from api_runs import KEY, VARIABLE, bench, compute, overrides, says, serve, told
from api_server import Reply, Seen

from harness.budget import Price, cost_of
from harness.commands.api_session import alike
from harness.commands.run import execute
from harness.compose import compose
from harness.errors import ConfigError, ModelError
from harness.models import server_faults
from harness.runlog import read_manifest, read_records
from harness.types import EvalRecord

PRICED = (
    "model.price.currency=USD",
    "model.price.input_per_million=1",
    "model.price.cached_per_million=0.1",
    "model.price.output_per_million=4",
)
ONE = ("probe.act.series.matched.clusters=1",)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(server_faults, "FIRST_WAIT_S", 0.01)


def records(folder: Path) -> list[EvalRecord]:
    return list(read_records(folder))


# -- choose ----------------------------------------------------------------------------------------------


def chooses(seen: Seen) -> Reply:
    """Three of four draws call, by the seed that went out."""
    if seen.body["seed"] % 4:
        return Reply(calls=(("phone_call", {"merchant": "Xfinity", "reason": "bill"}),), output_tokens=10)
    return Reply(calls=(("reply", {"text": "No."}),), output_tokens=10)


def choose_bench(server: Any, tiny: Path, *more: str) -> Any:
    only = ("probe.choose.series.matched.clusters=1", "model.api.draws=12")
    return bench("openai-chat", server.address, tiny, "probe=[choose_matched]", *only, *more)


def test_without_token_probabilities_choices_are_drawn_and_the_number_of_draws_is_stated(
    tiny_model: Path, tmp_path: Path
) -> None:
    with serve("openai-chat", reply=chooses) as server:
        compute(choose_bench(server, tiny_model), tmp_path)
        forced = {seen.body["tool_choice"] for seen in server.seen}
        warm = {seen.body["temperature"] for seen in server.seen}
    rows = records(tmp_path)
    assert forced == {"required"} and warm == {1.0}
    for row in rows:
        facts = row.output.provider
        assert facts is not None and row.output.choice_logprobs is not None
        assert (facts.choice_source, facts.requests) == ("draws", 12)
        assert sum(facts.choice_counts.values()) == 12 and len(set(facts.request_ids)) == 12
        labels = len(row.choices)
        for label, logprob in row.output.choice_logprobs.items():
            share = (facts.choice_counts.get(label, 0) + 0.5) / (12 + 0.5 * (labels + 1))
            assert math.exp(logprob) == pytest.approx(share)
        assert row.output.usage.completion_tokens == 12 * 10
    seeds = Counter(row.output.provider.choice_counts.get("reply", 0) for row in rows if row.output.provider)
    assert len(server.seen) == 12 * len(rows) and seeds


def test_draws_of_the_arms_of_one_sample_have_the_same_seeds(tiny_model: Path, tmp_path: Path) -> None:
    with serve("openai-chat", reply=chooses) as server:
        compute(choose_bench(server, tiny_model, "model.api.concurrency=1"), tmp_path)
        seeds = [seen.body["seed"] for seen in server.seen]
    each = [tuple(seeds[at : at + 12]) for at in range(0, len(seeds), 12)]
    assert all(len(set(draws)) == 12 for draws in each)
    assert set(Counter(each).values()) == {3}  # three arms


def test_with_token_probabilities_one_request_tells_all_choices(tiny_model: Path, tmp_path: Path) -> None:
    def tells(seen: Seen) -> Reply:
        others = [m["function"]["arguments"] for t in seen.body["messages"] for m in t.get("tool_calls", ())]
        merchants = sorted({json.loads(each)["merchant"] for each in others if "merchant" in each})
        first, second = merchants[0], merchants[-1]
        tools = [
            tool["function"]["name"]
            for tool in seen.body["tools"]
            if tool["function"]["name"] != "phone_call"
        ]
        at_name = {"phone_call": -0.3, **{name: -2.0 - n for n, name in enumerate(tools)}}
        logprobs = (
            ('{"name": "', -0.0, {}),
            ("phone_call", -0.3, at_name),
            ('", "arguments": {"merchant": "', -0.0, {}),
            (first, -0.2, {first: -0.2, second: -1.9}),
            ('"', -0.01, {'"': -0.01}),
            ("}}", -0.0, {}),
        )
        return Reply(calls=(("phone_call", {"merchant": first}),), logprobs=logprobs)

    with serve("openai-chat", reply=tells) as server:
        compute(choose_bench(server, tiny_model), tmp_path)
        asked = len(server.seen)
    rows = records(tmp_path)
    assert asked == len(rows)
    for row in rows:
        assert row.output.provider is not None and row.output.choice_logprobs is not None
        assert row.output.provider.choice_source == "logprobs" and row.output.provider.requests == 1
        values = sorted(
            (label, p) for label, p in row.output.choice_logprobs.items() if label.startswith("phone_call:")
        )
        assert values[0][1] == pytest.approx(-0.3 - 0.2 - 0.01) and values[1][1] == pytest.approx(-0.3 - 1.9)


def test_a_model_that_refuses_token_probabilities_is_asked_without_them(
    tiny_model: Path, tmp_path: Path
) -> None:
    def refuses(seen: Seen) -> Any:
        return Status(400, "This model does not support logprobs") if seen.body.get("logprobs") else None

    with serve("openai-chat", reply=chooses, faults=refuses) as server:
        tally = compute(choose_bench(server, tiny_model, "model.api.concurrency=1"), tmp_path)
        asked_for = [seen for seen in server.seen if seen.body.get("logprobs")]
    assert tally.failed == 0 and len(asked_for) == 1
    assert {row.output.provider.choice_source for row in records(tmp_path) if row.output.provider} == {
        "draws"
    }


# -- cassettes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_a_recorded_run_is_computed_again_without_key_and_network(
    provider: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(provider, faults=[Status(503), Reset(1), None, Status(400, "flagged")]) as server:
        compute(bench(provider, server.address, tiny_model, "cassette=record"), tmp_path / "a")
    monkeypatch.delenv(VARIABLE)
    tape = tmp_path / "a" / "cassette.jsonl"
    replay = ("cassette=replay", f"cassette_file={tape}")
    before = tape.read_bytes()
    compute(bench(provider, server.address, tiny_model, *replay), tmp_path / "b")
    assert told(tmp_path / "b") == told(tmp_path / "a")
    assert {row.output.provider.request_ids for row in records(tmp_path / "b") if row.output.provider} == {
        row.output.provider.request_ids for row in records(tmp_path / "a") if row.output.provider
    }
    assert tape.read_bytes() == before and KEY not in before.decode()


def test_a_replay_of_another_configuration_says_which_reply_is_missing(
    tiny_model: Path, tmp_path: Path
) -> None:
    with serve("openai-chat") as server:
        compute(bench("openai-chat", server.address, tiny_model, "cassette=record", *ONE), tmp_path / "a")
    tape = f"cassette_file={tmp_path / 'a' / 'cassette.jsonl'}"
    changed = bench(
        "openai-chat", server.address, tiny_model, "cassette=replay", tape, *ONE, "model.api.model=other"
    )
    tally = compute(changed, tmp_path / "b")
    assert tally.failed == tally.cells
    assert all(
        "another request was recorded for it" in str(row.output.error) for row in records(tmp_path / "b")
    )


def test_a_recording_that_was_killed_goes_on_and_replays_whole(tiny_model: Path, tmp_path: Path) -> None:
    with serve("openai-chat") as server:
        made = bench("openai-chat", server.address, tiny_model, "cassette=record", *ONE)
        compute(made, tmp_path / "a")
        tape, log = tmp_path / "a" / "cassette.jsonl", tmp_path / "a" / "samples.jsonl"
        rows = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(rows[:2]))
        tape.write_bytes(tape.read_bytes()[:-100])
        compute(made, tmp_path / "a")
    again = bench("openai-chat", server.address, tiny_model, "cassette=replay", f"cassette_file={tape}", *ONE)
    compute(again, tmp_path / "b")
    assert told(tmp_path / "b") == told(tmp_path / "a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no cassette of version 1"),
        ('{"tailgauge_cassette": 9}\n', "no cassette of version 1"),
        ('{"tailgauge_cassette": 1}\n{"label": 3}\n{"label": 3}\n', ":2: expected label"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_cassette_is_refused_in_one_line(
    text: str | None, said: str, tiny_model: Path, tmp_path: Path
) -> None:
    tape = tmp_path / "tape.jsonl"
    if text is not None:
        tape.write_text(text)
    made = bench(
        "openai-chat", "http://127.0.0.1:9/v1", tiny_model, "cassette=replay", f"cassette_file={tape}", *ONE
    )
    with pytest.raises(ConfigError, match=said):
        compute(made, tmp_path / "run")


def test_latency_of_a_replay_is_refused(tiny_model: Path) -> None:
    given = overrides(
        "openai-chat", "http://127.0.0.1:9/v1", tiny_model, "cassette=replay", "measure=latency"
    )
    with pytest.raises(ConfigError, match="a recorded reply has no latency"):
        compose(given)


# -- money -----------------------------------------------------------------------------------------------


def test_a_cap_holds_before_a_request_leaves_and_the_run_goes_on_under_a_higher_one(
    tiny_model: Path, tmp_path: Path
) -> None:
    price = Price(currency="USD", input_per_million=1, cached_per_million=0.1, output_per_million=4)
    with serve("openai-chat") as server:
        made = bench("openai-chat", server.address, tiny_model, *PRICED, "max_spend=0.012")
        tally = compute(made, tmp_path)
        first = len(server.seen)
        spent = sum(cost_of(row, price) or math.inf for row in records(tmp_path))
        assert tally.stopped is not None and tally.stopped.reason == "max_spend"
        assert 0 < first < len(made.preflight.cell_order) and spent <= 0.012
        assert compute(made, tmp_path).cells == 0 and len(server.seen) == first  # nothing more fits
        whole = bench("openai-chat", server.address, tiny_model, *PRICED, "max_spend=1")
        assert compute(whole, tmp_path).stopped is None
        assert len(server.seen) == len(whole.preflight.cell_order)


def test_a_try_that_broke_in_the_middle_of_an_answer_counts_as_paid(tiny_model: Path, tmp_path: Path) -> None:
    price = Price(currency="USD", input_per_million=1, output_per_million=4)
    with serve("openai-chat", faults=[Reset(2)]) as server:
        compute(bench("openai-chat", server.address, tiny_model, "model.api.concurrency=1", *ONE), tmp_path)
    rows = records(tmp_path)
    broken = [row for row in rows if row.output.provider and row.output.provider.broken]
    assert len(broken) == 1
    quiet_cost = price.of_tokens(
        broken[0].output.usage.reported_prompt_tokens or 0, None, broken[0].output.usage.completion_tokens
    )
    assert quiet_cost is not None
    assert cost_of(broken[0], price) == pytest.approx(
        quiet_cost + price.most_of(broken[0].output.usage.reported_prompt_tokens or 0, 24)
    )


def test_draws_that_were_paid_before_the_cap_was_reached_are_in_the_row_of_their_cell(
    tiny_model: Path, tmp_path: Path
) -> None:
    price = Price(currency="USD", input_per_million=1, cached_per_million=0.1, output_per_million=4)
    with serve("openai-chat", reply=chooses) as server:
        given = (*PRICED, "max_spend=0.012", "model.api.concurrency=1", "model.api.logprobs=false")
        tally = compute(choose_bench(server, tiny_model, *given), tmp_path)
        asked = len(server.seen)
    rows = records(tmp_path)
    assert tally.stopped is not None and tally.stopped.reason == "max_spend"
    assert asked == sum(row.output.provider.requests for row in rows if row.output.provider)
    assert rows[-1].output.finish_reason == "error" and "max_spend" in str(rows[-1].output.error)
    assert sum(cost_of(row, price) or math.inf for row in rows) <= 0.012


def test_a_cap_without_a_price_is_refused(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_spend=1.*no price table for 127\.0\.0\.1"):
        compose(overrides("openai-chat", "http://127.0.0.1:9/v1", tiny_model, "max_spend=1"))


# -- what an API makes one of ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "one"),
    [("anthropic", True), ("gemini", True), ("openai-chat", False), ("openai-responses", False)],
)
def test_two_placements_that_an_api_makes_one_are_told(provider: str, one: bool, tiny_model: Path) -> None:
    two = (
        "condition=[control,agent_status]", "+condition.block.bar={_target_: harness.statusbar.AgentStatus}",
        "+condition.block.placement={_target_: harness.statusbar.placements.LastBlock}",
        "probe.act.series.matched.conditions=null",
    )  # fmt: skip
    try:
        made = bench(provider, "http://127.0.0.1:9/v1", tiny_model, *two, *ONE)
    except ConfigError as error:
        pytest.fail(str(error))
    assert alike(provider, made.preflight) == ([["agent_status", "block"]] if one else [])


# -- what a run leaves -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["openai-responses", "anthropic", "gemini"])
def test_no_byte_of_what_a_run_leaves_holds_a_key(provider: str, tiny_model: Path, tmp_path: Path) -> None:
    """Configuration, log, manifest, cassette, tables, report, and what was printed; with a provider that quotes the key."""
    quoting = [Status(429, f"slow down, {KEY}"), Status(400, f"bad request by {KEY}"), Status(500, KEY)]
    with serve(provider, faults=quoting) as server:
        given = overrides(provider, server.address, tiny_model, "cassette=record", "model.api.retries=3")
        ended = cli.call("run", *given, cwd=tmp_path, env={VARIABLE: KEY})
        assert ended.returncode == 0, ended.stderr
        server.faults = lambda seen: Status(401, f"Incorrect API key provided: {KEY}")  # type: ignore[assignment]
        refused = cli.call("run", *given, "seed=8", cwd=tmp_path, env={VARIABLE: KEY})
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"manifest.json", "samples.jsonl", "samples.parquet", "cassette.jsonl", "report.html"} <= {
        p.name for p in files
    }
    for text in (ended.stdout, ended.stderr, refused.stdout, refused.stderr):
        assert KEY not in text and KEY[8:] not in text
    for path in files:
        data = path.read_bytes()
        assert KEY.encode() not in data and KEY[:12].encode() not in data, path


def test_a_missing_key_is_told_before_anything_is_fetched(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.chdir(tmp_path)
    config = compose(overrides("openai-chat", "http://127.0.0.1:9/v1", tiny_model))
    with pytest.raises(ModelError, match=VARIABLE):
        execute(config)
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_the_manifest_tells_what_was_asked_and_what_was_served(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serve("anthropic") as server:
        config = compose(
            overrides("anthropic", server.address, tiny_model, *ONE, "model.api.prompt_cache=true")
        )
        folder = execute(config)
        cached = all("cache_control" in json.dumps(seen.body) for seen in server.seen)
    manifest = read_manifest(folder)
    engine = manifest["engine"]
    assert (engine["backend"], engine["kind"], engine["served"], engine["prompt_cache"]) == (
        "api", "anthropic", ["served-2026"], True,
    )  # fmt: skip
    assert manifest["model"]["api"] == "anthropic" and cached
    assert all(row.output.provider and row.output.provider.prompt_cache for row in records(folder))


@pytest.mark.slow
def test_the_table_of_the_provider_is_recounted_from_the_records(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serve("openai-responses", faults=[Status(503), Reset(3), Status(400, "flagged")]) as server:
        folder = execute(compose(overrides("openai-responses", server.address, tiny_model)))
    with open(folder / "tables" / "provider.csv", newline="") as handle:
        rows = {row["condition"]: row for row in csv.DictReader(handle)}
    kept = records(folder)
    assert set(rows) == {"control", "placebo", "agent_status"}
    prompts = {(row.sample_id, row.condition): row.output.usage.reported_prompt_tokens for row in kept}
    for name, row in rows.items():
        mine = [record for record in kept if record.condition == name]
        good = [record for record in mine if record.output.finish_reason != "error"]
        facts = [record.output.provider for record in mine if record.output.provider]
        assert int(row["n"]) == len(mine) == len(facts) == 4
        assert int(row["failed"]) == len(mine) - len(good)
        assert int(row["tries_more"]) == sum(each.tries - each.requests for each in facts)
        assert int(row["broken"]) == sum(each.broken for each in facts)
        usage = [record.output.usage for record in good]
        cached = sum(u.cached_tokens or 0 for u in usage) / sum(u.reported_prompt_tokens or 0 for u in usage)
        assert float(row["cached_share"]) == pytest.approx(cached, abs=5e-4)
        assert float(row["reasoning"]) == pytest.approx(
            sum(u.reported_reasoning_tokens or 0 for u in usage) / len(usage), abs=0.05
        )
        clusters: dict[str, list[int]] = {}
        for record in good:
            here, there = prompts[record.sample_id, name], prompts[record.sample_id, "control"]
            if here is not None and there is not None:
                clusters.setdefault(record.cluster, []).append(here - there)
        if name != "control":
            means = [sum(each) / len(each) for each in clusters.values()]
            assert float(row["bar_reported"]) == pytest.approx(sum(means) / len(means), abs=0.05)
    assert sum(int(row["failed"]) for row in rows.values()) == 1
    assert sum(int(row["broken"]) for row in rows.values()) == 1
    assert "provider" in (folder / "report.md").read_text()


def test_replies_are_fixed_by_the_conversation() -> None:
    seen = Seen("POST", "/", {}, {"messages": ["a"]}, 0)
    assert says(seen) == says(Seen("POST", "/", {}, {"messages": ["a"]}, 7))
