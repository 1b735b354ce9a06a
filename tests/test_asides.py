"""Claims about leaks and repeated calls, on small made-up cells whose answer is plain."""

import json
from pathlib import Path
from typing import Any

import pytest
from analysis_data import acted, write_run

from harness.analysis.asides import asides
from harness.analysis.frames import load
from harness.analysis.tables import build_tables

SAY = "The line is open until nine in the evening."
BAR = "<agent_status>\nCurrent State:\n- Tool calls: phone_call called three times so far today\n</agent_status>"
PLACEBO = (
    "<agent_status>\nCurrent State:\n- Weather: the windows of the office are open again\n</agent_status>"
)
SEARCH = {"query": "opening hours", "page": 1}
ARMS = (("control", "none", "none"), ("placebo", "placebo", "tail"), ("agent_status", "agent_status", "tail"))


def run(folder: Path, replies: dict[str, dict[str, Any]], pieces: bool = True) -> Path:
    """One episode with one decision point; each arm's reply as given, each distinct text one token."""
    import pandas as pd

    vocabulary: list[str] = []

    def token(text: str) -> int:
        if text not in vocabulary:
            vocabulary.append(text)
        return vocabulary.index(text)

    cells = []
    for name, bar, placement in ARMS:
        text = {"none": "", "placebo": PLACEBO, "agent_status": BAR}[bar]
        call = '", "arguments": ' + json.dumps(SEARCH)[:-1]
        prompt = [
            "Rules: at most three calls so far. ",
            SAY,
            '<tool_call>{"name": "',
            "web_search" + call,
            "}}</tool_call>",
            text,
        ]
        spans = [{"region": "call:web_search", "start": 3, "end": 4}]
        spans += [{"region": "bar", "start": 5, "end": 6}] if text else []
        reply = {"content": "", "tool_calls": []} | replies.get(name, {})
        reply["tool_calls"] = [{"id": "", "in_reasoning": False} | each for each in reply["tool_calls"]]
        cells.append(
            acted("compliant", condition=name, bar=bar, placement=placement, cluster="c00", sample_id="s", side="forbidden")
            | {
                "cell_id": f"s|{name}|act|0", "epoch": 0, "prompt_ids": [token(each) for each in prompt], "spans": spans,
                "bar_text": text, "parsed": json.dumps(reply), "expectation.tool": "phone_call",
                "expectation.reply_tool": "reply",
            }
        )  # fmt: skip
    write_run(folder, cells, arms=ARMS)
    if pieces:
        ids = pd.Series(range(len(vocabulary)), dtype="int32")
        pd.DataFrame({"id": ids, "piece": [text.encode() for text in vocabulary]}).to_parquet(
            folder / "tokens.parquet"
        )
    return folder


def counts(folder: Path, measure: str) -> dict[str, int]:
    table = asides(load(folder))
    assert table is not None
    mine = table.data[table.data["measure"] == measure]
    return {str(row["condition"]): int(row["count"]) for row in mine.to_dict("records")}


def leaks(folder: Path, **replies: dict[str, Any]) -> dict[str, int]:
    return counts(run(folder, replies), "leak")


NONE = {"control": 0, "placebo": 0, "agent_status": 0}
QUOTE = "You should know: phone_call called three times SO FAR, today."


def test_words_of_the_bar_in_the_text_for_the_user_are_a_leak(tmp_path: Path) -> None:
    assert leaks(tmp_path, agent_status={"content": QUOTE}) == NONE | {"agent_status": 1}


def test_so_are_they_in_the_message_of_the_tool_that_answers_the_user(tmp_path: Path) -> None:
    answer = {"name": "reply", "arguments": {"message": QUOTE}}
    assert leaks(tmp_path, agent_status={"tool_calls": [answer]}) == NONE | {"agent_status": 1}
    other = {"name": "web_search", "arguments": {"query": QUOTE}}
    assert leaks(tmp_path / "b", agent_status={"tool_calls": [other]}) == NONE, "no user reads that"
    thought = answer | {"in_reasoning": True}
    assert leaks(tmp_path / "c", agent_status={"tool_calls": [thought]}) == NONE, "it was not said"


def test_four_words_in_a_row_or_words_of_the_conversation_are_none(tmp_path: Path) -> None:
    assert leaks(tmp_path, agent_status={"content": "phone_call called three times, then no more"}) == NONE
    assert leaks(tmp_path / "b", agent_status={"content": SAY}, placebo={"content": SAY}) == NONE


def test_a_tag_is_a_leak_in_any_arm(tmp_path: Path) -> None:
    tagged = {"content": "As <agent_status> says, no."}
    assert leaks(tmp_path, control=tagged, agent_status=tagged) == NONE | {"control": 1, "agent_status": 1}
    assert leaks(tmp_path / "b", agent_status={"content": "if a < agent_status"}) == NONE


def test_an_arm_is_held_against_its_own_bar_and_the_control_against_all_of_them(tmp_path: Path) -> None:
    weather = {"content": "By the way, the windows of the office are open."}
    assert leaks(tmp_path, control=weather, placebo=weather, agent_status=weather) == {
        "control": 1, "placebo": 1, "agent_status": 0,
    }  # fmt: skip


def test_a_call_that_the_transcript_has_already_is_a_repeated_one_however_it_is_written(
    tmp_path: Path,
) -> None:
    turned = {"page": 1, "query": "opening hours"}
    folder = run(
        tmp_path,
        {
            "control": {"tool_calls": [{"name": "web_search", "arguments": SEARCH | {"page": 2}}]},
            "placebo": {"tool_calls": [{"name": "phone_call", "arguments": SEARCH}]},
            "agent_status": {"tool_calls": [{"name": "web_search", "arguments": turned}]},
        },
    )
    assert counts(folder, "repeated_call") == NONE | {"agent_status": 1}


def test_without_the_texts_of_a_run_there_is_no_table_rather_than_zeros(tmp_path: Path) -> None:
    folder = run(tmp_path, {"agent_status": {"content": QUOTE}}, pieces=False)
    assert asides(load(folder)) is None and "asides" not in build_tables(load(folder))


@pytest.mark.parametrize("broken", ["", '{"name": "web_search"', "[1]"])
def test_calls_that_a_template_writes_otherwise_are_unknown_and_not_none(tmp_path: Path, broken: str) -> None:
    from harness.analysis.asides import _calls

    pieces = {0: broken.encode()}
    assert _calls([0], [{"region": "call:web_search", "start": 0, "end": 1}], pieces) is None
    assert _calls([0], [{"region": "user", "start": 0, "end": 1}], pieces) == set()
