"""What a script states beside its texts has a shape: what a bar would pass over without a word is refused in one line."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from test_dataset_files import refused
from test_scripted import PLAIN
from test_scripted_mistakes import written

from harness.dataset import expand, load_scenario
from harness.dataset.schema import KNOWN
from harness.dataset.script_shapes import SEVERITIES, STATUSES, known_problems, list_problems
from harness.state import StateBuilder, derive
from harness.state.facts import TodoStatus
from harness.state.results import complaints
from harness.types import Message, ToolCall

USER, RESULT = 0, 2
"""Entries of the script that the two kinds of `known` stand beside."""
COMPLAINT = {"file": "a/one.py", "severity": "error", "line": 3, "column": 9, "message": "too long"}
DONE = {"agent": "scout", "status": "completed", "summary": "Nothing new."}


def scenario(folder: Path, entry: int, known: Mapping[str, Any]) -> Path:
    data = copy.deepcopy(PLAIN)
    data["episode"]["script"][entry]["known"] = dict(known)
    return written(folder, data)


def without(entry: Mapping[str, Any], name: str, **more: Any) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != name} | more


FACTS: dict[str, tuple[int, dict[str, Any], str, str]] = {
    "a misspelt fact": (RESULT, {"diagnostic": [COMPLAINT]}, "", "did you mean 'diagnostics'?"),
    "diagnostics that are no list": (RESULT, {"diagnostics": COMPLAINT}, ".diagnostics", "expected a list of mappings"),
    "a diagnostic that is text": (RESULT, {"diagnostics": ["too long"]}, ".diagnostics[0]", "with file, message, line"),
    "a line in words": (
        RESULT, {"diagnostics": [COMPLAINT, COMPLAINT | {"line": "three"}]}, ".diagnostics[1].line",
        "expected a whole number from 1, not 'three'",
    ),
    "line 0": (RESULT, {"diagnostics": [COMPLAINT | {"line": 0}]}, ".diagnostics[0].line", "a whole number from 1, not 0"),
    "a line that is true": (RESULT, {"diagnostics": [COMPLAINT | {"line": True}]}, ".diagnostics[0].line", "not True"),
    "a severity that nobody knows": (
        RESULT, {"diagnostics": [COMPLAINT | {"severity": "dreadful"}]}, ".diagnostics[0].severity",
        "expected one of: error, warning",
    ),
    "a misspelt key of a diagnostic": (
        RESULT, {"diagnostics": [without(COMPLAINT, "severity", severty="error")]}, ".diagnostics[0].severty",
        "unknown key; did you mean 'severity'? it may hold: file, message",
    ),
    "a diagnostic without a file": (
        RESULT, {"diagnostics": [without(COMPLAINT, "file")]}, ".diagnostics[0]", "'file' is missing"
    ),
    "a message that is a number": (
        RESULT, {"diagnostics": [COMPLAINT | {"message": 7}]}, ".diagnostics[0].message", "expected text, not 7"
    ),
    "diagnostics of a user": (USER, {"diagnostics": [COMPLAINT]}, ".diagnostics", "beside the result of a call alone"),
    "recalled by a result": (
        RESULT, {"recalled": [{"source": "x", "text": "y"}]}, ".recalled", "is read beside a user message alone"
    ),
    "recalled without a text": (USER, {"recalled": [{"source": "x"}]}, ".recalled[0]", "'text' is missing"),
    "recalled under another name": (
        USER, {"recalled": [{"source": "x", "text": "y", "score": 1}]}, ".recalled[0].score", "may hold: text, source"
    ),
    "recalled in no time": (USER, {"recalled_seconds": "quick"}, ".recalled_seconds", "a number of seconds, not 'quick'"),
    "a completion without an agent": (
        USER, {"completions": [without(DONE, "agent")]}, ".completions[0]", "'agent' is missing"
    ),
    "a completion without a status": (
        RESULT, {"completions": [without(DONE, "status")]}, ".completions[0]", "'status' is missing"
    ),
    "one count of two": (RESULT, {"original_chars": 90}, "", "state both or none"),
    "a count in words": (
        RESULT, {"original_chars": "many", "omitted_chars": 85}, ".original_chars", "a whole number from 1, not 'many'"
    ),
    "nothing left out": (RESULT, {"original_chars": 5, "omitted_chars": 0}, ".omitted_chars", "from 1, not 0"),
    "more left out than there was": (
        RESULT, {"original_chars": 5, "omitted_chars": 9}, ".omitted_chars", "9 characters cannot be left out of 5"
    ),
    "more left than the text has": (
        RESULT, {"original_chars": 9240, "omitted_chars": 8870}, ".omitted_chars",
        "9240 - 8870 leaves 370 characters, and the result has 5",
    ),
    "a stack that is a list": (RESULT, {"stack": ["a", "b"]}, ".stack", "expected text, not ['a', 'b']"),
    "no folder": (USER, {"cwd": ""}, ".cwd", "expected text, not ''"),
    "wrong for one draw of three": (
        RESULT, {"diagnostics": [COMPLAINT | {"severity": "{{ 'error' if word_1 != 'plain' else 'odd' }}"}]},
        ".diagnostics[0].severity", "not 'odd'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "known", "key", "reason"), FACTS.values(), ids=FACTS.keys())
def test_a_fact_that_would_be_passed_over_is_refused(
    tmp_path: Path, entry: int, known: dict[str, Any], key: str, reason: str
) -> None:
    line = refused(scenario(tmp_path, entry, known))
    assert f": episode.script[{entry}].known{key}: " in line and reason in line


def test_facts_of_a_follow_up_are_those_of_a_user_message(tmp_path: Path) -> None:
    data = copy.deepcopy(PLAIN)
    data["episode"]["follow_up"]["known"] = {"completions": [without(DONE, "status")]}
    assert "episode.follow_up.known.completions[0]: 'status' is missing" in refused(written(tmp_path, data))
    data["episode"]["follow_up"]["known"] = {"advice": "Look twice."}
    assert "episode.follow_up.known.advice: is read beside the result of a call" in refused(
        written(tmp_path, data)
    )


def test_every_fact_that_a_file_may_state_has_a_shape() -> None:
    for name in KNOWN:
        holder = "user" if name.startswith("recalled") else "result"
        assert list(known_problems({name: object()}, (), holder)), name
    for severity in SEVERITIES:
        assert complaints(f"a.py:1: {severity}: odd"), "what tools print is what a file may state"
    assert set(STATUSES) == set(get_args(TodoStatus))


def test_a_template_may_give_the_digits_of_a_number(tmp_path: Path) -> None:
    known = {
        "original_chars": "9{{ '1' if first == a else '1' }}0",
        "omitted_chars": "905",
        "diagnostics": [COMPLAINT | {"line": "{{ '12' }}"}],
    }
    sample = expand(load_scenario(scenario(tmp_path, RESULT, known)), series="matched", clusters=1, seed=7)[0]
    read = next(m.known for m in sample.messages if m.name == "look")
    assert (read["original_chars"], read["omitted_chars"], read["diagnostics"][0]["line"]) == (910, 905, 12)


# -- todo list and plan ---------------------------------------------------------------------------------

TOOL = {
    "name": "todo_write",
    "description": "Keep a list.",
    "parameters": {
        "type": "object",
        "properties": {
            "todos": {"type": "array"},
            "phases": {"type": "array"},
            "goal": {"type": "string"},
            "id": {"type": "integer"},
            "status": {"type": "string"},
            "mood": {"type": "string"},
        },
    },
}
ITEM = {"content": "Paint the {{ first }}", "status": "pending"}
CALLS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "a status that nobody knows": (
        "todo_write", {"todos": [ITEM, ITEM | {"status": "complted"}]}, ".todos[1].status",
        "'complted' is no status; did you mean 'completed'? expected one of: pending, in_progress, completed",
    ),
    "a status that is a number": ("todo_write", {"todos": [ITEM | {"status": 3}]}, ".todos[0].status", "3 is no status"),
    "a misspelt status": ("todo_write", {"todos": [without(ITEM, "status", stauts="x")]}, ".todos[0]", "has no 'status'"),
    "a misspelt text": ("todo_write", {"todos": [without(ITEM, "content", contnet="x")]}, ".todos[0]", "has no text"),
    "an empty text": ("todo_write", {"todos": [ITEM | {"content": " "}]}, ".todos[0].content", "has no text"),
    "an item that is a number": ("todo_write", {"todos": [7]}, ".todos[0]", "expected an item with text and status, not 7"),
    "no list": ("todo_write", {"mood": "calm"}, "", "none is given; expected one of: todos, items"),
    "a wrong status in one order alone": (
        "todo_write", {"todos": [ITEM | {"status": "{{ 'done' if first == a else 'undone' }}"}]}, ".todos[0].status",
        "'undone' is no status",
    ),
    "a phase with a wrong status": (
        "set_plan", {"goal": "x", "phases": [{"text": "y", "status": "later"}]}, ".phases[0].status", "'later' is no status"
    ),
    "a phase without a text": ("set_plan", {"phases": [{"status": "done"}]}, ".phases[0]", "under one of: content, text"),
    "a plan of nothing": ("set_plan", {"mood": "calm"}, "", "states no plan; expected one of: objective"),
    "an update of nothing": ("todo_update", {"status": "done"}, "", "names no item"),
    "an update of item 0": ("todo_update", {"id": 0, "status": "done"}, ".id", "a whole number from 1, not 0"),
    "an update without a status": ("todo_update", {"id": 1}, "", "gives no 'status'"),
    "an added item without a text": ("todo_add", {"status": "done"}, "", "the item has no text"),
}  # fmt: skip


def with_call(folder: Path, tool: str, arguments: Mapping[str, Any]) -> Path:
    data = copy.deepcopy(PLAIN)
    data["tools"].insert(1, TOOL | {"name": tool})
    data["episode"]["script"].append({"call": tool, "arguments": dict(arguments), "result": "Saved."})
    return written(folder, data)


@pytest.mark.parametrize(("tool", "arguments", "key", "reason"), CALLS.values(), ids=CALLS.keys())
def test_a_list_that_could_not_be_read_is_refused(
    tmp_path: Path, tool: str, arguments: dict[str, Any], key: str, reason: str
) -> None:
    line = refused(with_call(tmp_path, tool, arguments))
    assert f": episode.script[5].arguments{key}: " in line and reason in line


def test_what_is_let_through_is_read_item_by_item(tmp_path: Path) -> None:
    """Every spelling that the state knows, and items that are text alone."""
    todos = [
        {"content": "one", "status": "[x]"},
        {"title": "two", "status": "In Progress"},
        "three",
        {"step": "four", "status": "{{ 'done' if first == a else 'Completed' }}", "priority": "high"},
    ]
    path = with_call(tmp_path, "todo_write", {"todos": todos})
    sample = expand(load_scenario(path), series="matched", clusters=1, seed=7)[0]
    items = derive(sample.messages, sample.tools).todos.items
    assert [(item.content, item.status) for item in items] == [
        ("one", "completed"), ("two", "in_progress"), ("three", "pending"), ("four", "completed"),
    ]  # fmt: skip


def test_a_list_that_is_a_text_of_json_is_held_to_the_same() -> None:
    good, bad = '[{"content": "x", "status": "done"}]', '[{"content": "x", "status": "donee"}]'
    assert list(list_problems("todo_write", {"todos": good}, ("arguments",))) == []
    ((path, reason),) = list_problems("todo_write", {"todos": bad}, ("arguments",))
    assert path == ("arguments", "todos") and reason.startswith("item 1: 'donee' is no status")
    builder = StateBuilder()
    builder.advance(Message("assistant", tool_calls=(ToolCall("todo_write", {"todos": good}, "1"),)))
    builder.advance(Message("tool", "Saved.", tool_call_id="1", name="todo_write"))
    assert builder.state().todos.items[0].status == "completed"
