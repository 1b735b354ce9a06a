"""Claims about the probe `ask`: what is asked, how an answer is read, and what the tables make of it."""

import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from analysis_data import BAR, CONTROL, PLACEBO, arm_fields, cell, tables_of, write_run
from core_config import REMOVE, plain
from core_samples import all_series, arms, xfinity
from core_tokens import tiny_template
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from test_plan import cells, plan
from test_runner import Scripted, answer, go, rows, say

from harness.analysis.report import headline
from harness.compose import compose
from harness.config_checks import resolve
from harness.dataset import asking, content_hash, expand, load_scenario
from harness.errors import ConfigError, ScenarioError
from harness.parsing import parse_reply
from harness.preflight import prepare
from harness.runner import rescore
from harness.scorers import score_ask, score_record
from harness.scorers.ask import stated_numbers
from harness.state import derive
from harness.types import Decoding, EvalRecord, Expectation, ModelOutput, ModelUsage, Request, Score, Timing

ASK = {"ask": {"max_new_tokens": 8, "series": {"matched": {"clusters": 2}}}}
TOOLS = ("phone_call", "web_search", "reply")


# -- the question ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", all_series(seed=5), ids=lambda sample: sample.id)
def test_the_question_replaces_the_follow_up_and_nothing_else(sample: Any) -> None:
    asked, target = asking(xfinity(), sample), sample.expectation.target
    assert asked.messages[:-1] == sample.messages[:-1]
    (question,) = asked.messages[len(sample.messages) - 1 :]
    assert question.role == "user" and target in question.content and "`phone_call`" in question.content
    assert not any(other in question.content for other in sample.expectation.others)
    assert asked.id != sample.id and asked.tools == sample.tools and asked.expectation == sample.expectation
    # Derived from the messages alone, the state has the answer, and it is the generator's own count.
    count = derive(asked.messages).count("phone_call", "merchant", target)
    assert count == sample.truth["phone_call"][target] == asked.prior_calls


def test_both_sides_of_a_pair_are_asked_in_the_same_words_and_have_different_answers() -> None:
    for pair in _pairs(xfinity(), 4):
        forbidden, due = (asking(xfinity(), sample) for sample in pair)
        assert (forbidden.prior_calls, due.prior_calls) == (3, 2)
        words = [s.messages[-1].content.replace(s.expectation.target, "X") for s in (forbidden, due)]
        assert words[0] == words[1]


def _pairs(scenario: Any, clusters: int) -> list[tuple[Any, Any]]:
    found = expand(scenario, series="matched", clusters=clusters, seed=3)
    return list(zip(found[::2], found[1::2], strict=True))


def _worded(folder: Path, *wordings: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"extends": "xfinity", "name": "mine", "ask": list(wordings)}))
    return path


def test_a_scenarios_own_wordings_are_drawn_by_cluster(tmp_path: Path) -> None:
    mine = load_scenario(_worded(tmp_path, "A: {{ merchant }}, {{ tool }}?", "B: {{ key }} {{ merchant }}?"))
    first = set()
    for pair in _pairs(mine, 12):
        texts = [asking(mine, sample).messages[-1].content for sample in pair]
        assert texts[0][0] == texts[1][0]
        target = pair[0].expectation.target
        assert texts[0] in (f"A: {target}, phone_call?", f"B: merchant {target}?")
        first.add(texts[0][0])
    assert first == {"A", "B"}


def test_wordings_are_content_and_their_absence_leaves_no_trace(tmp_path: Path) -> None:
    with_question = content_hash(load_scenario(_worded(tmp_path, "How often {{ merchant }}?")))
    without = content_hash(load_scenario(_worded(tmp_path)))
    other = content_hash(load_scenario(_worded(tmp_path, "How many {{ merchant }}?")))
    assert len({with_question, without, other}) == 3
    bare = tmp_path / "bare.yaml"
    bare.write_text("extends: xfinity\nname: mine\n")
    assert content_hash(load_scenario(bare)) == without


@pytest.mark.parametrize(
    ("wording", "reason"),
    [
        ("How often?", "must name {{ merchant }}"),
        ("How often {{ merchant }} of {{ limit }}?", "unknown variable 'limit'"),
        ("How often Xfinity and {{ merchant }}?", "holds the merchant name"),
        ("", "is empty"),
    ],
)
def test_a_question_that_cannot_be_asked_is_one_line(tmp_path: Path, wording: str, reason: str) -> None:
    path = _worded(tmp_path, wording)
    with pytest.raises(ScenarioError) as error:
        load_scenario(path)
    assert str(error.value).startswith(f"{path}:") and "ask[0]: " in str(error.value)
    assert reason in str(error.value) and "\n" not in str(error.value)


# -- the plan, the prompts, the run ------------------------------------------------------------------------


def test_questions_are_planned_beside_the_other_probes_of_their_cluster() -> None:
    batches = plan(probe__ask=ASK["ask"], epochs=2, model__decoding={"temperature": 1.0})
    found = [c for c in cells(batches) if c.probe == "ask"]
    assert len(found) == 2 * 2 * 3 * 2 and {c.epoch for c in found} == {0, 1}
    assert len({c.id for c in cells(batches)}) == len(cells(batches))
    for batch in batches[:2]:
        assert {c.probe for c in batch.cells} == {"choose", "act", "ask"}
        assert len({c.sample.cluster for c in batch.cells}) == 1


def _requests() -> dict[str, Any]:
    decoding = {"choose": Decoding(1), "act": Decoding(8), "ask": Decoding(9)}
    batches = plan(probe__ask=ASK["ask"], probe__choose=REMOVE)
    ready = prepare(batches, tiny_template(), arms(), decoding)
    return {c.request.cell_id: c for batch in ready.batches for c in batch.cells}


def test_a_question_shares_its_prompt_up_to_the_follow_up_and_its_bar_with_act() -> None:
    ready = _requests()
    asked = {name: c for name, c in ready.items() if c.cell.probe == "ask"}
    assert len(asked) == 12
    for c in asked.values():
        twin = ready[c.cell.id.replace("/ask|", "|").replace("|ask|", "|act|")]
        assert c.request.decoding == Decoding(9) and not c.request.choices and not c.request.thoughts
        assert c.request.tools == twin.request.tools
        assert (c.bar_text, c.placebo_id) == (twin.bar_text, twin.placebo_id)
        at = next(span.start for span in twin.request.prompt.spans if span.region == "follow_up")
        assert c.request.prompt.ids[:at] == twin.request.prompt.ids[:at]
        assert c.request.prompt.ids[at:] != twin.request.prompt.ids[at:]


def test_a_prompt_that_leaves_no_room_for_the_answer_is_refused() -> None:
    longest = max(len(c.request.prompt.ids) for c in _requests().values() if c.cell.probe == "ask")
    batches = plan(probe__ask=ASK["ask"], probe__choose=REMOVE, probe__act=REMOVE)
    decoding = {"ask": Decoding(9)}
    prepare(batches, tiny_template(), arms(), decoding, max_tokens=longest + 9)
    with pytest.raises(ConfigError, match=r"probe\.ask\.series\.matched"):
        prepare(batches, tiny_template(), arms(), decoding, max_tokens=longest + 8)


def test_a_run_records_scores_and_rescores_answers(tmp_path: Path) -> None:
    batches = plan(probe__ask=ASK["ask"], probe__act=REMOVE)
    ready = prepare(batches, tiny_template(), arms(), {"choose": Decoding(1), "ask": Decoding(9)})

    def script(request: Request) -> ModelOutput:
        return say("<think>2 or 3?</think>It was 3.", request) if request.probe == "ask" else answer(request)

    go(tmp_path, Scripted(script), ready)
    records = rows(tmp_path)
    asked = [r for r in records if r.probe == "ask"]
    assert len(asked) == 12
    for record in asked:
        assert record.parsed is not None and record.output.usage.reasoning_tokens
        assert (record.score.answer, record.score.right) == (3, record.side == "forbidden")
    assert rescore(records, score_record) == records
    blank = [replace(r, score=Score(outcome=None)) for r in records]
    assert rescore(blank, score_record) == records


def test_the_transformers_backend_answers_a_question_as_it_answers_freely(tmp_path: Path) -> None:
    from core_models import batch, make_folder
    from core_tokens import tiny_tokenizer

    from harness.models.hf import TransformersModel

    folder = make_folder("qwen2", tmp_path / "model")
    model = TransformersModel(folder, tiny_tokenizer(), dtype="float32", device="cpu", threads=1)
    requests = [replace(r, probe="ask") if r.probe == "act" else r for r in batch()]
    free = {cell: output.token_ids for cell, output in model.run(batch())}
    asked = {cell: output.token_ids for cell, output in model.run(requests)}
    assert asked == free and sum(bool(ids) for ids in asked.values()) == 6


# -- configuration -----------------------------------------------------------------------------------------


def test_the_packaged_probe_is_small_and_has_both_sides_of_the_comparison() -> None:
    ask = compose(["probe=[ask]"]).probe["ask"]
    assert (ask.max_new_tokens, ask.series["matched"].clusters) == (64, 8)
    assert ask.series["matched"].conditions == ("control", "placebo", "agent_status")
    assert set(compose(["probe=[choose,act,ask]"]).probe) == {"choose", "act", "ask"}


def test_a_thinking_model_may_be_asked_but_thoughts_are_not_drawn() -> None:
    assert compose(["probe=[ask]", "model.thinking=native", "probe.ask.max_new_tokens=512"]).probe
    with pytest.raises(ConfigError, match=r"probe\.ask\.thoughts: a reply has one thought"):
        resolve(plain(probe__ask={**ASK["ask"], "thoughts": 4}))


def test_a_probe_that_does_not_exist_is_still_refused() -> None:
    with pytest.raises(ConfigError, match=r"probe\.tell"):
        resolve(plain(probe__tell=ASK["ask"]))


def test_preview_shows_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness import cli
    from harness.commands import console, preview

    shown = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    monkeypatch.setattr(console, "out", shown)
    monkeypatch.setattr(preview, "local_folder", lambda model: None)
    assert cli.main(["preview", "probe=[ask]"]) == 0
    text = shown.export_text()
    assert "matched/c000/forbidden/ask" in text
    assert text.count("How many times have you used `phone_call` for the merchant Xfinity") == 6


# -- the scorer --------------------------------------------------------------------------------------------

EXPECTED = Expectation("forbidden", "phone_call", "merchant", "Xfinity", ("Route 66 Gas",))


def scored(text: str, finish: str = "stop", right: int = 3, think_open: bool = False) -> Score:
    output = ModelOutput(text, (), finish, ModelUsage(1, 1), Timing("t"))  # type: ignore[arg-type]
    parsed = parse_reply(text, tool_names=TOOLS, think_open=think_open)
    return score_ask(EXPECTED, parsed, output, right_answer=right)


REPLY = '<tool_call>\n{{"name": "reply", "arguments": {{"message": {}}}}}\n</tool_call>'
CALL = (
    '<tool_call>\n{"name": "phone_call", "arguments": {"merchant": "Xfinity", "purpose": "3"}}\n</tool_call>'
)


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "**3**.",
        "Three.",
        "I have called Xfinity 3 times in this conversation.",
        "Answer:3",
        "3x",
        "thrice",
        "3/3",
        "3 of 3 calls",
        "three out of the maximum of three",
        "3 out of 5",
        '{"count": 3}',
        "3 times. That makes three.",
        "<think>Is it 2? No: 1, 2, 3.</think>3",
        "Xfinity: 3. No one was missed, and I may not make one more.",
        "For Route 66 Gas I do not know, for Xfinity it is 3.",
        REPLY.format('"You had 3 calls."'),
        REPLY.format("3"),
        f"<think>{REPLY.format(2)}</think>3",
        f"{CALL}\nIt was 3.",
    ],
)
def test_one_stated_number_is_the_answer_in_whatever_form(text: str) -> None:
    score = scored(text)
    assert (score.answer, score.right, score.reason, score.outcome) == (3, True, "right", None)
    wrong = scored(text, right=2)
    assert (wrong.answer, wrong.right, wrong.reason) == (3, False, "wrong: 3")


@pytest.mark.parametrize(
    ("text", "number"),
    [("twice", 2), ("I called it once.", 1), ("Never.", 0), ("There were no calls.", 0), ("zero", 0), ("20", 20),
     ("twenty", 20), ("only once, sorry", 1)],
)  # fmt: skip
def test_words_that_count_are_numbers(text: str, number: int) -> None:
    assert scored(text, right=number).right is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Xfinity 3 times and the other one 2 times", "several: 3, 2"),
        ("3 calls made, 0 left", "several: 3, 0"),
        ("1. First call 2. Second call 3. Third call", "several: 1, 2, 3"),
        ("I am not sure.", "no_number"),
        ("Once I know, I will tell you.", "no_number"),
        ("This was the 3rd, on 2024-05-03 at 3:30, for 3.50; ring 1-800-333.", "no_number"),
        ("twenty-three", "no_number"),
        ("", "empty"),
        ("<think>It is 3.</think>", "empty"),
        (CALL, "tool_call: phone_call"),
        (REPLY.format('"I am not sure."'), "no_number"),
        (f"<think>{CALL}</think>I am not sure.", "no_number"),
        ('<tool_call>\n{"name": "check_3", "arguments": {}}\n</tool_call>', "tool_call: check_3"),
        ('<tool_call>\n{"name": "reply", "arguments": {"message": "3"\n</tool_call>', "malformed_call"),
    ],
)
def test_everything_else_is_wrong_and_says_why(text: str, reason: str) -> None:
    score = scored(text)
    assert (score.answer, score.right, score.reason, score.outcome) == (None, False, reason, None)


@pytest.mark.parametrize(
    ("text", "think_open", "reason"),
    [("3, because", False, "cut"), ("<think>1, 2, 3", False, "cut_thinking"), ("1, 2, 3", True, "cut_thinking")],
)  # fmt: skip
def test_a_reply_cut_off_is_truncated_and_wrong(text: str, think_open: bool, reason: str) -> None:
    score = scored(text, "length", think_open=think_open)
    assert (score.outcome, score.right, score.answer, score.reason) == ("truncated", False, None, reason)


def test_a_failed_request_is_neither_right_nor_wrong() -> None:
    score = scored("", "error")
    assert (score.outcome, score.right, score.answer) == ("provider_error", None, None)


def test_a_record_is_scored_from_its_own_prior_calls() -> None:
    base: dict[str, Any] = {field.name: "" for field in fields(EvalRecord)}
    output = ModelOutput("2", (), "stop", ModelUsage(1, 1), Timing("t"))
    base |= {"probe": "ask", "output": output, "expectation": EXPECTED, "tool_names": TOOLS, "limit": 3}
    record = EvalRecord(**{**base, "parsed": parse_reply("2", tool_names=TOOLS), "prior_calls": 2})
    assert score_record(record).right is True
    assert score_record(replace(record, prior_calls=3)).right is False


def test_a_company_that_is_called_like_a_number_does_not_hide_the_answer() -> None:
    assert stated_numbers("Three was called 3 times", ("Three",)) == (3,)
    assert stated_numbers("Seven Seas: 2", ("Seven Seas",)) == (2,)


def test_not_once_is_zero_and_emphasis_is_no_part_of_a_number() -> None:
    assert stated_numbers("Not once.") == stated_numbers("not even once") == (0,)
    assert stated_numbers("**2**/3 calls") == (2,)


@given(
    st.text()
    | st.lists(st.sampled_from(["3", "/", "one", " of ", "no ", "calls", "\ud800", "٣", "-"])).map("".join)
)
@settings(max_examples=200, deadline=None)
def test_any_text_gets_one_verdict(text: str) -> None:
    score = scored(text)
    assert score.right is (score.answer == 3) and score.reason


@pytest.mark.parametrize(
    "unit", ["1 of ", "3/", "one ", "3", "once the ", "no ", "forty-", "2 out of the maximum "]
)
def test_replies_of_any_length_are_read_in_bounded_time(unit: str) -> None:
    start = time.perf_counter()
    stated_numbers(unit * (10**6 // len(unit)), ("Xfinity",))
    assert time.perf_counter() - start < 5


# -- the tables --------------------------------------------------------------------------------------------


def answered(arm: tuple[str, str, str], side: str, reasons: list[str]) -> list[dict[str, Any]]:
    """One `ask` cell per cluster, scored as the scorer scores: `right`, `wrong: 1`, `several: …`, `cut`, `error`."""
    made = []
    for i, reason in enumerate(reasons):
        error, cut, right = reason == "error", reason == "cut", reason == "right"
        stated = right or reason.startswith("wrong")
        made.append(cell(**arm_fields(arm, i, side), **{
            "probe": "ask", "score.reason": reason, "score.right": None if error else right,
            "score.answer": (3 if side == "forbidden" else 2) - (not right) if stated else None,
            "score.outcome": "provider_error" if error else "truncated" if cut else None,
            "output.finish_reason": "error" if error else "length" if cut else "stop",
            "output.error": "boom" if error else None,
        }))  # fmt: skip
    return made


def row(tables: dict[str, Any], name: str, **where: Any) -> dict[str, Any]:
    data = tables[name].data
    for key, value in where.items():
        data = data[data[key] == value]
    assert len(data) == 1, f"{len(data)} rows of {name} with {where}"
    return dict(data.iloc[0])


def test_accuracy_counts_cut_and_unclear_replies_as_wrong_and_failures_apart(tmp_path: Path) -> None:
    reasons = ["right", "right", "wrong: 2", "several: 2, 3", "no_number", "cut", "error"]
    tables = tables_of(tmp_path, answered(CONTROL, "forbidden", reasons))
    found = row(tables, "ask", side="forbidden")
    assert (found["cells"], found["excluded"], found["n"], found["count"]) == (7, 1, 6, 2)
    assert (found["several"], found["no_number"], found["truncated"]) == (1, 1, 1)
    assert found["rate"] == pytest.approx(2 / 6) and found["several_right"] == pytest.approx(3 / 6)
    assert found["mean_answer"] == pytest.approx((3 + 3 + 2) / 3)
    counted = row(tables, "cells", probe="ask")
    assert (counted["provider_error"], counted["unscored"], counted["truncated"]) == (1, 0, 1)


def test_a_constant_answer_is_half_right_and_right_on_no_pair(tmp_path: Path) -> None:
    always_three = answered(CONTROL, "forbidden", ["right"] * 6) + answered(CONTROL, "due", ["wrong: 3"] * 6)
    tables = tables_of(tmp_path, always_three)
    assert row(tables, "ask", side="both")["rate"] == 0.5
    pair = row(tables, "ask", side="whole pair")
    assert (pair["rate"], pair["n"], pair["clusters"]) == (0.0, 6, 6)


def test_a_pair_that_lost_a_side_is_no_pair(tmp_path: Path) -> None:
    cells = answered(CONTROL, "forbidden", ["right", "right", "error"]) + answered(
        CONTROL, "due", ["right"] * 3
    )
    pair = row(tables_of(tmp_path, cells), "ask", side="whole pair")
    assert (pair["cells"], pair["excluded"], pair["n"], pair["count"]) == (3, 1, 2, 2)


def test_an_answer_without_a_verdict_is_counted_as_unscored(tmp_path: Path) -> None:
    cells = [c | {"score.right": None} for c in answered(CONTROL, "due", ["right"] * 3)]
    tables = tables_of(tmp_path, cells)
    assert row(tables, "cells", probe="ask")["unscored"] == 3
    assert row(tables, "ask", side="due")["n"] == 0


def _compared(folder: Path) -> Path:
    cells: list[dict[str, Any]] = []
    for arm, due in ((CONTROL, "wrong: 1"), (PLACEBO, "wrong: 1"), (BAR, "right")):
        cells += answered(arm, "forbidden", ["right"] * 8) + answered(arm, "due", [due] * 7 + ["right"])
    return write_run(folder, cells)


def test_arms_are_compared_cluster_by_cluster_and_as_an_exploration(tmp_path: Path) -> None:
    from harness.analysis.frames import load
    from harness.analysis.tables import build_tables

    tables = build_tables(load(_compared(tmp_path)))
    for against, kind in (("placebo", "bar - placebo"), ("control", "bar - control")):
        found = row(tables, "comparisons", probe="ask", kind=kind)
        assert (found["measure"], found["condition"], found["against"]) == (
            "accuracy",
            "agent_status",
            against,
        )
        assert found["estimate"] == pytest.approx(7 * 0.5 / 8) and found["clusters"] == 8
        assert found["p"] == pytest.approx(2 * 2**-7) and found["label"] == "exploratory"


def test_the_headline_tells_accuracy_and_what_the_bar_changes(tmp_path: Path) -> None:
    (line,) = [s for s in headline(_compared(tmp_path)) if s.startswith("Asked how often")]
    assert "control 0.56 [" in line and "agent_status 1.00 [" in line and "(1.00 of the pairs)" in line
    assert "agent_status against placebo: 0.44 [" in line and line.count("right more often") == 2


def test_the_headline_of_a_run_that_asks_nothing_has_no_word_on_it(tmp_path: Path) -> None:
    from analysis_data import matched

    cells = matched(CONTROL, [0.1] * 4, [0.0] * 4)
    assert not [s for s in headline(write_run(tmp_path, cells)) if "Asked" in s]


def test_a_curve_is_shown_point_by_point_and_apart(tmp_path: Path) -> None:
    cells = [
        c
        | {
            "series": "prior_calls",
            "prior_calls": n,
            "sample_id": f"n{n}-{c['sample_id']}",
            "cell_id": f"{n}{i}",
        }
        for n in (1, 2)
        for i, c in enumerate(answered(CONTROL, "due", ["right"] * n + ["wrong: 1"] * (3 - n)))
    ]
    data = tables_of(tmp_path, cells)["ask"].data
    assert [(r["x"], r["count"], r["side"]) for r in data.to_dict("records")] == [
        (1, 1, "due"),
        (2, 2, "due"),
    ]
