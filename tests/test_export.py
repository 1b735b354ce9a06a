"""Claims about exports that need no tracker: messages read back from token ids, flat facts, errors in one line."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from core_samples import all_series, arms, calls, sample
from core_tokens import CHATML, THINKER, tiny_template
from export_data import REFERENCE, awkward, real_run, write_run
from runlog_records import make_record

from harness import cli
from harness.conditions import apply
from harness.export.base import ExportError, facts
from harness.export.messages import PromptMessage, prompt_messages
from harness.prompt import render_arms
from harness.runlog import read_pieces, read_records
from harness.template import ChatTemplate
from harness.types import EvalRecord, Message, Sample


def recorded(template: ChatTemplate, each: Sample, condition: int) -> tuple[EvalRecord, dict[int, bytes]]:
    """A record of one arm's prompt, and the pieces that its folder would hold."""
    arm = arms()[condition]
    prompt = render_arms(template, each, [arm])[arm.name].prompt
    pieces = {i: template.decode([i]).encode() for i in set(prompt.ids)}
    names = tuple(tool.name for tool in each.tools)
    record = replace(make_record(0), prompt_ids=prompt.ids, spans=prompt.spans, tool_names=names)
    return record, pieces


def plain(messages: list[PromptMessage]) -> list[tuple[object, ...]]:
    return [(m.role, m.content, [(c.name, dict(c.arguments)) for c in m.calls]) for m in messages]


def expected(messages: tuple[Message, ...]) -> list[tuple[object, ...]]:
    return [(m.role, m.content, [(c.name, dict(c.arguments)) for c in m.tool_calls]) for m in messages]


@pytest.mark.parametrize("condition", range(6), ids=lambda i: arms()[i].name)
def test_a_prompts_messages_come_back_as_they_were_with_the_bar_in_its_place(condition: int) -> None:
    template = tiny_template(CHATML)
    for each in all_series(seed=3)[::5]:
        record, pieces = recorded(template, each, condition)
        told = apply(each, arms()[condition], template.count)
        assert plain(prompt_messages(record, pieces)) == expected(told.messages)


def test_a_tool_result_answers_the_call_before_it() -> None:
    template = tiny_template(CHATML)
    each = sample(
        [Message("system", "S."), Message("user", "Go."), *calls("A", "B", "A"), Message("user", "More?")]
    )
    found = prompt_messages(*recorded(template, each, 0))
    made = [call.id for message in found for call in message.calls]
    assert len(set(made)) == 3
    assert [message.answers for message in found if message.role == "tool"] == made


def test_reasoning_that_the_history_keeps_comes_back() -> None:
    template = tiny_template(THINKER)
    turns = [replace(m, reasoning="Ask first.") if m.role == "assistant" else m for m in calls("Xfinity")]
    each = sample([Message("system", "S."), *turns])
    record, pieces = recorded(template, each, 0)
    assert [m.reasoning for m in prompt_messages(record, pieces) if m.role == "assistant"] == ["Ask first."]


def test_a_bar_inside_the_follow_ups_message_is_not_a_message_of_its_own() -> None:
    run = REFERENCE / "xfinity-cpu"
    pieces = read_pieces(run)
    record = next(r for r in read_records(run) if r.condition == "agent_status_before")
    last = prompt_messages(record, pieces)[-1]
    assert last.regions == ("bar", "follow_up")
    assert last.content.startswith(record.bar_text + "\n\n")


def test_every_prompt_of_a_real_run_holds_the_recorded_bar_and_calls() -> None:
    run = REFERENCE / "xfinity-vllm-cpu"
    pieces = read_pieces(run)
    for record in read_records(run):
        messages = prompt_messages(record, pieces)
        bars = [message for message in messages if "bar" in message.regions]
        assert len(bars) == (record.bar != "none")
        assert all(record.bar_text in message.content for message in bars)
        assert [message.regions == ("bar",) for message in bars] == [record.placement == "tail"] * len(bars)
        made = [
            call for message in messages for call in message.calls if call.name == record.expectation.tool
        ]
        assert not [call for call in made if call.unread is not None]
        called = [call for call in made if call.arguments.get(record.expectation.key) == record.target]
        assert len(called) == record.prior_calls


def test_a_call_whose_arguments_cannot_be_read_keeps_its_text() -> None:
    record, pieces = recorded(tiny_template(CHATML), sample([*calls("Xfinity"), Message("user", "More?")]), 0)
    broken = {i: piece.replace(b'"', b"'") for i, piece in pieces.items()}
    call = next(c for m in prompt_messages(record, broken) for c in m.calls)
    assert call.arguments == {} and call.unread and "Xfinity" in call.unread


# -- facts -------------------------------------------------------------------------------------------------


def test_facts_hold_every_comparison_with_its_interval_and_no_unknown_number() -> None:
    run = REFERENCE / "xfinity-cpu"
    known = facts(run)
    csv = (run / "tables" / "comparisons.csv").read_text(encoding="utf-8").splitlines()
    estimates = [
        name for name in known.metrics if name.startswith("comparisons/") and name.endswith("/estimate")
    ]
    assert len(estimates) >= len(csv) - 1
    name = "comparisons/choose.sensitivity/agent_status-vs-placebo.tail"
    assert [round(known.metrics[f"{name}/{key}"], 3) for key in ("estimate", "low", "high")] == [
        0.869,
        0.197,
        1.541,
    ]
    assert all(value == value and abs(value) < float("inf") for value in known.metrics.values())
    assert known.metrics["rates/compliance/control.none/rate"] == 5 / 8
    assert known.metrics["cells/choose.matched.control/cells"] == 32
    assert known.tags["tailgauge.model"] == "qwen2.5-coder-1.5b"
    assert known.params["model.decoding.temperature"] == "0.0"


def test_no_secret_is_among_the_facts(tmp_path: Path) -> None:
    known = facts(write_run(tmp_path / "run", awkward()))
    assert "sk-abcdef" not in json.dumps([dict(known.params), dict(known.tags)])
    assert known.params["model.api_key"] == "***"


# -- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "module"), [("inspect", "inspect_ai"), ("mlflow", "mlflow"), ("trackio", "trackio")]
)
def test_a_missing_client_is_one_line_that_says_what_to_install(
    to: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["export", str(tmp_path), "--to", to]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and f"pip install 'tailgauge[{to}]'" in lines[0]


def test_an_option_of_another_target_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(tmp_path), "--to", "trackio", "--uri", "sqlite:///x.db"]) == 2
    assert "--uri belongs to --to mlflow" in capsys.readouterr().err


def test_a_configured_tracker_is_missed_before_the_run_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.export import mlflow, trackio

    for module, tracker in (("mlflow", mlflow.Tracker), ("trackio", trackio.Tracker)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ExportError, match="pip install"):
            tracker()


def test_real_run_copies_leave_the_published_one_alone(tmp_path: Path) -> None:
    copy = real_run("xfinity-latency-cpu", tmp_path / "run")
    assert facts(copy).artifacts and not (copy / "attention").exists()
