"""A record and its line in the log are the same thing."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from runlog_records import RECORDS, child, make_record

from harness.errors import RunLogError
from harness.runlog import record_from_json, record_to_json
from harness.types import EvalRecord, ParsedReply, ToolCall


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(RECORDS)
def test_every_record_survives_the_way_to_json_and_back(record: EvalRecord) -> None:
    line = record_to_json(record)
    assert "\n" not in line and line.isascii()
    again = record_from_json(line)
    assert again == record
    assert repr(again) == repr(record)  # -0.0, and tuples that stay tuples
    assert record_to_json(again) == line


def test_half_a_surrogate_pair_from_a_provider_survives() -> None:
    record = make_record(1)
    record = replace(record, output=replace(record.output, text="bad \ud83d end"))
    assert record_from_json(record_to_json(record)) == record


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_lacks_is_refused_with_its_key(number: float) -> None:
    record = make_record(1)
    with pytest.raises(RunLogError, match=r"score\.p_act cannot be written"):
        record_to_json(replace(record, score=replace(record.score, p_act=number)))
    call = ToolCall("reply", {"deep": [1, {"x": number}]})
    parsed = ParsedReply(None, "", (call,), "ok")
    with pytest.raises(RunLogError, match=r"parsed\.tool_calls\[0\]\.arguments\.deep\[1\]\.x"):
        record_to_json(replace(record, parsed=parsed))


def test_an_object_in_a_call_is_refused_with_its_key() -> None:
    parsed = ParsedReply(None, "", (ToolCall("reply", {"when": object()}),), "ok")
    with pytest.raises(RunLogError, match=r"parsed\.tool_calls\[0\]\.arguments\.when"):
        record_to_json(replace(make_record(1), parsed=parsed))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (("score", "outcome"), "obeyed", r"score\.outcome: expected one of violation.*found 'obeyed'"),
        (("output", "usage", "prompt_tokens"), 1.5, r"output\.usage\.prompt_tokens: expected int, found 1.5"),
        (("epoch",), True, "epoch: expected int, found True"),
        (("prompt_ids",), [1, "2"], "prompt_ids: expected a list of int"),
        (("spans",), [{"region": "a", "start": 0}], "spans: end: the key is missing|spans.end"),
        (("score", "colour"), 1, r"score\.colour: unknown key"),
        (("decoding",), [], "decoding: expected a mapping"),
    ],
)
def test_a_row_that_is_no_record_is_refused_with_its_key(
    key: tuple[str, ...], value: object, said: str
) -> None:
    plain = json.loads(record_to_json(make_record(1)))
    place = plain
    for part in key[:-1]:
        place = place[part]
    place[key[-1]] = value
    with pytest.raises(RunLogError, match=said):
        record_from_json(json.dumps(plain))


def test_a_missing_key_is_named_unless_it_has_a_default() -> None:
    plain = json.loads(record_to_json(make_record(1)))
    del plain["expectation"]["reply_tool"]
    assert record_from_json(json.dumps(plain)) == make_record(1)
    del plain["cluster"]
    with pytest.raises(RunLogError, match="cluster: the key is missing"):
        record_from_json(json.dumps(plain))


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "null", '{"cell_id": NaN}', '{"cell_id": 1e999}', "[" * 100_000]
)
def test_a_line_that_is_no_row_is_one_clear_error(line: str) -> None:
    with pytest.raises(RunLogError, match="the row is not"):
        record_from_json(line)


def test_the_room_is_light_to_import() -> None:
    heavy = "{'pyarrow', 'pandas', 'datasets', 'torch', 'transformers'}"
    process = child(f"import sys, harness.runlog; print({heavy} & set(sys.modules))")
    out, err = process.communicate(timeout=60)
    assert out.strip() == "set()", err
