"""The published form of a run holds everything but its times, and is the same for the same rows."""

import json
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runlog_records import CONFIG, RECORDS, make_record, timeless

from harness.errors import RunLogError
from harness.runlog import (
    RunLog,
    finalize,
    load_dataset,
    read_records,
    record_to_json,
    records_from_parquet,
    samples_dataset,
    write_records,
)
from harness.types import CallLimit, EvalRecord, Expectation, Message, Sample, Timing, ToolCall, ToolSpec


def log_of(folder: Path, records: list[EvalRecord]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "samples.jsonl").write_text("".join(record_to_json(record) + "\n" for record in records))
    return folder


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(RECORDS, max_size=4, unique_by=lambda record: record.cell_id))
def test_parquet_gives_every_record_back_but_for_its_time(records: list[EvalRecord]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = log_of(Path(name), records)
        again = records_from_parquet(finalize(folder))
        expected = sorted(records, key=lambda record: (record.batch, record.cell_id))
        assert again == [timeless(record) for record in expected]


def test_the_same_rows_give_the_same_bytes_in_whatever_order_they_were_written(tmp_path: Path) -> None:
    records = [make_record(number, batch=number // 7, tokens=50) for number in range(1100)]
    order = [record.cell_id for record in reversed(records)]
    one = finalize(log_of(tmp_path / "one", records), order)
    later = Timing(started_at="2027-05-05T00:00:00+00:00", total=9.0)
    shuffled = [replace(r, output=replace(r.output, timing=later)) for r in records]
    random.Random(1).shuffle(shuffled)
    failed_first = [make_record(3, batch=0, outcome="provider_error"), *shuffled]
    two = finalize(log_of(tmp_path / "two", failed_first), order)
    assert one.read_bytes() == two.read_bytes()
    cells = pq.read_table(one, columns=["cell_id", "batch"]).to_pylist()
    assert [row["batch"] for row in cells] == sorted(row["batch"] for row in cells)
    assert [row["cell_id"] for row in cells[:7]] == [f"cell-{number:04d}" for number in range(6, -1, -1)]


def test_columns_keep_their_types_without_values_and_hold_no_time(tmp_path: Path) -> None:
    empty = pq.read_schema(finalize(log_of(tmp_path / "empty", [])))
    full = pq.read_schema(finalize(log_of(tmp_path / "full", [make_record(1)])))
    assert empty.equals(full, check_metadata=True)
    types = {field.name: field.type for field in full}
    assert types["prompt_ids"] == pa.list_(pa.int32()) and types["output.token_ids"] == pa.list_(pa.int32())
    assert types["spans"] == pa.list_(
        pa.struct([("region", pa.string()), ("start", pa.int64()), ("end", pa.int64())])
    )
    assert types["placebo_id"] == pa.int64() and types["score.logit_act"] == pa.float64()
    assert types["output.usage.cached_tokens"] == pa.int64() and types["score.claimed"] == pa.bool_()
    for name in ("choices", "parsed", "output.choice_logprobs", "score.outcome", "output.error"):
        assert types[name] == pa.string(), name
    assert types["tool_names"] == types["expectation.others"] == pa.list_(pa.string())
    assert not [name for name in types if "timing" in name or "started" in name or "first_token" in name]


def test_times_live_in_a_table_of_their_own(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [make_record(1), make_record(0)])
    finalize(folder, measure="latency", cache_state="cold")
    table = pq.read_table(folder / "timings.parquet")
    assert table.column_names == [
        "cell_id", "measure", "cache_state", "started_at", "total", "first_token", "first_answer_token",
    ]  # fmt: skip
    first, second = table.to_pylist()
    assert (first["cell_id"], first["measure"], first["cache_state"]) == ("cell-0000", "latency", "cold")
    assert second["total"] == 1 / 7 and second["first_token"] is None
    assert table.schema.field("first_token").type == pa.float64()


def test_the_cache_state_is_each_timings_own_where_it_knows_it(tmp_path: Path) -> None:
    timed, plain = make_record(0), make_record(1)
    timing = replace(timed.output.timing, cache="natural")
    timed = replace(timed, output=replace(timed.output, timing=timing))
    folder = log_of(tmp_path, [timed, plain])
    assert next(iter(read_records(folder))).output.timing.cache == "natural"
    finalize(folder, measure="latency", cache_state="cold")
    table = pq.read_table(folder / "timings.parquet")
    assert table["cache_state"].to_pylist() == ["natural", "cold"]
    assert "cache" not in table.column_names


def test_a_published_run_without_its_log_can_be_read_and_rescored(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [make_record(0), make_record(1)])
    finalize(folder)
    published, times = (folder / "samples.parquet").read_bytes(), (folder / "timings.parquet").read_bytes()
    (folder / "samples.jsonl").unlink()
    assert list(read_records(folder)) == [timeless(make_record(0)), timeless(make_record(1))]
    write_records(folder, read_records(folder))
    finalize(folder)
    assert (folder / "samples.parquet").read_bytes() == published
    assert (folder / "timings.parquet").read_bytes() == times


def test_half_a_surrogate_pair_does_not_cost_the_table(tmp_path: Path) -> None:
    record = make_record(0)
    record = replace(record, output=replace(record.output, text="é \ud83d x"), bar_text="\U0001f600 fine")
    again = records_from_parquet(finalize(log_of(tmp_path, [record])))[0]
    assert again.output.text == "é \ufffd x" and again.bar_text == "\U0001f600 fine"


def test_a_cell_outside_the_plan_is_refused_by_name(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [make_record(0), make_record(1)])
    with pytest.raises(RunLogError, match=r"cell cell-0001 is not in the run's plan"):
        finalize(folder, ["cell-0000"])


def test_a_number_too_large_for_its_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match="column seed cannot be written as int64"):
        finalize(log_of(tmp_path, [replace(make_record(0), seed=2**64)]))
    assert not (tmp_path / "samples.parquet").exists()


def test_a_broken_parquet_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "samples.parquet"
    path.write_bytes(b"PAR1 no")
    with pytest.raises(RunLogError, match=r"samples\.parquet: cannot be read as parquet"):
        records_from_parquet(path)
    with pytest.raises(RunLogError, match=r"samples\.parquet: cannot be read"):
        records_from_parquet(tmp_path / "none" / "samples.parquet")
    table = pq.read_table(finalize(log_of(tmp_path, [make_record(0)])))
    pq.write_table(table.drop_columns(["cluster"]), path)
    with pytest.raises(RunLogError, match=r"samples\.parquet: row 1: .*cluster: the key is missing"):
        records_from_parquet(path)


def test_records_load_as_a_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    with RunLog.open(tmp_path / "run", {}, CONFIG) as log:
        log.append(make_record(0))
        log.append(make_record(1))
    dataset = load_dataset(tmp_path / "run")
    assert isinstance(dataset, datasets.Dataset) and len(dataset) == 2
    assert dataset[1]["cell_id"] == "cell-0001" and dataset[1]["prompt_ids"] == list(range(1, 9))
    assert dataset[0]["spans"][1] == {"region": "bar", "start": 3, "end": 8}
    assert dataset.filter(lambda row: row["side"] == "due", load_from_cache_file=False).num_rows == 1


def test_samples_load_as_a_dataset() -> None:
    pytest.importorskip("datasets")
    call = ToolCall("phone_call", {"merchant": "Xfinity"}, id="1")
    sample = Sample(
        id="s",
        scenario="xfinity",
        cluster="c",
        series="matched",
        messages=(Message("user", "hi"), Message("assistant", tool_calls=(call,))),
        tools=(ToolSpec("phone_call", "calls", {"type": "object"}),),
        rules=(CallLimit("phone_call", "merchant", 3),),
        expectation=Expectation("due", "phone_call", "merchant", "Xfinity"),
        prior_calls=1,
        limit=3,
        phrasing="mild",
        seed=1,
        truth={"phone_call": {"Xfinity": 1}},
    )
    dataset = samples_dataset([sample, sample])
    row = dataset[0]
    assert (
        len(dataset) == 2
        and json.loads(row["expectation"])["side"] == "due"
        and row["truth"] == '{"phone_call":{"Xfinity":1}}'
    )
    assert row["messages"][1]["tool_calls"][0]["arguments"] == '{"merchant":"Xfinity"}'
    assert row["rules"] == [{"tool": "phone_call", "key": "merchant", "limit": 3}]
    assert len(samples_dataset([])) == 0
