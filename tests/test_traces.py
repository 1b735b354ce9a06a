"""Claims about trajectories: what recorded runs become, and that a bad file ends in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from conversations import Counter
from core_samples import words
from test_placements import PLACEMENTS

from harness.conditions import Condition, unfold
from harness.delivery import requests
from harness.dialects import anthropic, openai
from harness.errors import TailgaugeError
from harness.state import derive
from harness.statusbar.placements import has_place
from harness.statusbar.policies import Append, Replace
from harness.traces import TraceError, Trajectory, load, oddities, samples
from harness.traces.files import MAX_BYTES

AIRLINE_CALLS = [14, 3, 5, 1, 1, 16, 2, 6, 5, 23, 4, 20, 1, 1, 1, 0, 18]
AIRLINE_ERRORS = [6, 0, 0, 0, 0, 3, 0, 1, 0, 5, 0, 1, 0, 0, 0, 0, 3]


def call_count(trajectory: Trajectory) -> int:
    return sum(len(message.tool_calls) for message in trajectory.messages)


def written(folder: Path, value: object, name: str = "run.json") -> Path:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def call(name: str = "t", arguments: object = "{}", id: str = "x") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [call()]},
    {"role": "tool", "tool_call_id": "x", "content": "R"},
]


# -- recorded runs -------------------------------------------------------------------------------------


def test_seventeen_airline_runs_have_their_published_counts(cases_dir: Path) -> None:
    runs = load(cases_dir / "tau_bench" / "airline_sample.json")
    assert [call_count(run) for run in runs] == AIRLINE_CALLS
    errors = [sum(m.role == "tool" and m.content.startswith("Error") for m in run.messages) for run in runs]
    assert errors == AIRLINE_ERRORS
    assert [run.id for run in runs[:2]] == ["airline_sample/000", "airline_sample/001"]
    assert {run.format for run in runs} == {"openai"} and {run.source for run in runs} == {
        "airline_sample.json"
    }
    assert runs[0].facts["reward"] == 0.0 and runs[0].facts["task_id"] == 13
    assert all(openai.illegal(run.messages) is None is anthropic.illegal(run.messages) for run in runs)


def test_both_dialects_of_one_case_are_one_trajectory(cases_dir: Path) -> None:
    (one,) = load(cases_dir / "openai" / "xfinity.json")
    (other,) = load(cases_dir / "anthropic" / "xfinity.json")
    assert (one.messages, one.tools, one.facts) == (other.messages, other.tools, other.facts)
    assert (one.format, other.format) == ("openai", "anthropic")
    merchants = [c.arguments.get("merchant") for m in one.messages for c in m.tool_calls]
    assert merchants.count("Xfinity") == 3


def test_native_calls_of_a_swe_agent_run_are_its_conversation(cases_dir: Path) -> None:
    (run,) = load(cases_dir / "swe_agent" / "function_calling.traj")
    assert len(run.messages) == 24 and call_count(run) == 11 and run.format == "swe_agent"
    assert run.facts["exit_status"] == "submitted" and run.facts["steps"] == 11
    first = run.messages[2].tool_calls[0]
    assert (first.name, first.arguments, first.id) == ("create", {"filename": "reproduce.py"}, "call00001")
    assert (run.messages[3].tool_call_id, run.messages[3].name) == ("call00001", "create")
    assert run.messages[3].known == {"cwd": "/testbed"}


@pytest.mark.parametrize(
    ("name", "steps"), [("repeats_with_changing_results", 16), ("repeats_same_wrong_answer", 14)]
)
def test_commands_written_as_text_become_calls_with_their_observations(
    cases_dir: Path, name: str, steps: int
) -> None:
    (run,) = load(cases_dir / "swe_agent" / f"{name}.traj")
    assert call_count(run) == steps and len(run.messages) == 2 + 2 * steps
    assert [message.role for message in run.messages[:4]] == ["system", "user", "assistant", "tool"]
    commands = [c.arguments["command"] for m in run.messages for c in m.tool_calls]
    repeats = max(commands, key=commands.count)
    assert commands.count(repeats) == 4
    results = {m.content for c, m in zip(commands, run.messages[3::2], strict=True) if c == repeats}
    assert len(results) == (1 if name == "repeats_same_wrong_answer" else 4)
    assert openai.illegal(run.messages) is None is anthropic.illegal(run.messages)


def test_a_trajectory_of_t_requests_is_t_samples_and_t_prompts_per_condition(cases_dir: Path) -> None:
    paths = [
        cases_dir / "tau_bench" / "airline_sample.json",
        cases_dir / "swe_agent" / "function_calling.traj",
    ]
    for run in [load(paths[0])[3], *load(paths[1])]:
        points = samples(run)
        asked = [message for message in run.messages[1:] if message.role == "assistant"]
        assert len(points) == len(requests(run.messages)) == len(asked) + 1  # and the one after the end
        assert len({point.id for point in points}) == len(points)
        assert {(p.cluster, p.series, p.expectation, p.rules) for p in points} == {
            (run.id, "trace", None, ())
        }
        assert [len(p.messages) for p in points] == requests(run.messages)
        for placement in PLACEMENTS:
            for policy in (Replace(), Append()):
                condition = Condition("c", Counter(), placement, policy)
                if not has_place(placement, points[0].messages):
                    continue
                delivered = list(unfold(points[-1], condition, words))
                assert [len(one.base) for one in delivered] == requests(run.messages)


# -- forms ---------------------------------------------------------------------------------------------

LINES = "\n".join(json.dumps({"messages": TALK}) for _ in range(2)) + "\n\n"


@pytest.mark.parametrize(
    ("value", "runs"),
    [
        (TALK, 1),
        ({"messages": TALK}, 1),
        ([{"traj": TALK, "reward": 1.0}, {"messages": TALK}], 2),
        ([TALK, TALK], 2),
        (LINES, 2),
        (LINES.splitlines()[0], 1),
        ("\n".join(json.dumps(message) for message in TALK), 1),
        ("\ufeff" + json.dumps(TALK), 1),
        ({"trajectory": [{"thought": "Hm.", "action": "ls\n", "observation": "a"}], "history": TALK[:1]}, 1),
    ],
    ids=["bare", "object", "list", "list of bare", "lines", "one line", "lines of messages", "byte order mark", "steps"],
)  # fmt: skip
def test_a_format_is_recognised_by_what_is_in_the_file(tmp_path: Path, value: object, runs: int) -> None:
    found = load(written(tmp_path, value, "odd name.json"))
    assert [run.id for run in found] == [f"odd_name/{number:03d}" for number in range(runs)]
    assert all([m.role for m in run.messages] == ["user", "assistant", "tool"] for run in found)
    assert all(
        run.messages[1].tool_calls[0].id == run.messages[2].tool_call_id == "call00001" for run in found
    )


def test_times_and_errors_are_taken_where_the_record_states_them(tmp_path: Path) -> None:
    talk = [
        {**TALK[0], "timestamp": "2026-03-02T10:00:00Z"},
        {**TALK[1], "timestamp": 0},
        {**TALK[2], "error": {"type": "timeout"}},
    ]
    user, asked, result = load(written(tmp_path, talk))[0].messages
    assert (user.time, asked.time, result.time) == ("2026-03-02T10:00:00Z", "1970-01-01T00:00:00+00:00", None)
    assert (user.error, result.error) == (None, "timeout")
    for stated in ({"error": True}, {"is_error": True}, {"status": "error"}):
        assert load(written(tmp_path, [*TALK[:2], {**TALK[2], **stated}]))[0].messages[-1].error == "error"
    for stated in (
        {"error": False},
        {"is_error": False},
        {"is_error": "no"},
        {"status": "success"},
        {"error": ""},
    ):
        assert load(written(tmp_path, [*TALK[:2], {**TALK[2], **stated}]))[0].messages[-1].error is None
    failed = [{"type": "tool_result", "tool_use_id": "x", "content": "no", "is_error": True}]
    asked_there = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "x", "name": "t", "input": {}}],
    }
    there = [TALK[0], asked_there, {"role": "user", "content": failed}]
    assert load(written(tmp_path, there))[0].messages[-1].error == "error"


def test_what_the_framework_knew_is_taken_where_the_record_states_it(tmp_path: Path) -> None:
    cwd, cut, notes = {"cwd": "/w"}, {"original_chars": 900}, {"recalled": [{"source": "a", "text": "b"}]}
    talk = [{**TALK[0], "known": notes}, {**TALK[1], "known": cwd}, {**TALK[2], "known": cut}]
    one = load(written(tmp_path, talk))[0].messages
    blocks = [
        {"type": "tool_result", "tool_use_id": "x", "content": "R", "known": cut},
        {"type": "text", "text": "More"},
    ]
    used = [{"type": "tool_use", "id": "x", "name": "t", "input": {}}]
    there = [
        {**talk[0], "timestamp": 0},
        {"role": "assistant", "content": used, "known": cwd, "timestamp": 1},
        {"role": "user", "content": blocks, "known": notes, "timestamp": 2},
    ]
    other = load(written(tmp_path, there))[0].messages
    assert [m.known for m in one] == [notes, cwd, cut]
    assert [m.known for m in other] == [notes, cwd, cut, notes]
    assert [m.time and m.time[18:19] for m in other] == ["0", "1", "2", "2"], (
        "each block has its message's time"
    )
    assert derive(one).recalled[0].text == "b" and derive(one).cwd == "/w"
    for entries in (
        [{**TALK[0], "known": 3}],
        [TALK[0], {"role": "user", "content": [{**blocks[0], "known": [1]}]}],
    ):
        with pytest.raises(TraceError, match=r"known is .*; expected an object such as \{cwd: /work\}"):
            load(written(tmp_path, entries))


def test_odd_conversations_are_read_and_said_to_be_odd(tmp_path: Path) -> None:
    def told(talk: list[dict[str, Any]]) -> list[str]:
        return [odd.sentence for odd in oddities(load(written(tmp_path, talk))[0].messages)]

    asked, result, said = TALK[1], TALK[2], {"role": "assistant", "content": "Well."}
    assert told(TALK) == told([*TALK, said]) == told([*TALK[:2]]) == []
    two = {**asked, "tool_calls": [call(id="x"), call(id="y")]}
    assert told([TALK[0], two, result, {**result, "tool_call_id": "y"}, said]) == []
    assert told([TALK[0], two, {**result, "tool_call_id": "y"}, said]) == [
        "a call that is never answered (message 2)"
    ]
    assert told([TALK[0], asked, TALK[0], asked, TALK[0], asked]) == [
        "a call that is never answered, 2 times (first: message 2)"
    ]
    lost = {**result, "tool_call_id": "other"}
    assert told([TALK[0], lost, said, lost, lost]) == [
        "a tool result without its call before it, 3 times (first: message 2)"
    ]
    assert told([TALK[0], said, said, TALK[0], said, said, said]) == [
        "two assistant messages in a row, 3 times (first: message 3)"
    ]
    late = [TALK[0], asked, said, result]
    assert told(late) == ["two assistant messages in a row (message 3)"], "it has its answer, if late"
    assert told([*late, asked, TALK[0], lost]) == [
        "a tool result without its call before it (message 7)",
        "a call that is never answered (message 5)",
        "two assistant messages in a row (message 3)",
    ]


def test_ids_that_come_twice_or_not_at_all_still_find_their_calls(tmp_path: Path) -> None:
    same = [*TALK, *TALK]
    without = [{key: value for key, value in message.items() if key != "tool_call_id"} for message in same]
    for talk in (same, without):
        messages = load(written(tmp_path, talk))[0].messages
        assert [m.tool_call_id for m in messages if m.role == "tool"] == ["call00001", "call00002"]
        assert anthropic.illegal(messages) is None
    dropped = [*TALK[:2], *TALK]  # the first call never got a result
    assert load(written(tmp_path, dropped))[0].messages[-1].tool_call_id == "call00002"
    lost = [TALK[0], {**TALK[2], "tool_call_id": "other"}]
    assert "without its call" in str(openai.illegal(load(written(tmp_path, lost))[0].messages))


def test_what_no_tokenizer_takes_and_no_json_has_is_replaced(tmp_path: Path) -> None:
    path = written(
        tmp_path, '[{"traj": [{"role": "user", "content": "a\\ud800b\\ud83d\\ude42"}], "reward": NaN}]'
    )
    (run,) = load(path)
    assert run.messages[0].content == "a\ufffdb🙂" and run.facts["reward"] is None


def test_a_step_without_an_action_is_a_plain_exchange(tmp_path: Path) -> None:
    steps = [
        {"thought": "", "action": "", "response": "I give up.", "observation": "Your output has no command."}
    ]
    (run,) = load(written(tmp_path, {"trajectory": steps, "history": TALK[:1]}))
    assert [(m.role, m.content) for m in run.messages[1:]] == [
        ("assistant", "I give up."), ("user", "Your output has no command."),
    ]  # fmt: skip


def test_the_line_break_after_a_command_is_no_part_of_it(tmp_path: Path) -> None:
    steps = [{"thought": "Hm.\n", "action": action, "observation": "a\n"} for action in ("ls\n", "ls")]
    (run,) = load(written(tmp_path, {"trajectory": steps, "history": TALK[:1]}))
    assert [c.arguments for m in run.messages for c in m.tool_calls] == [{"command": "ls"}] * 2
    assert [m.content for m in run.messages[1:3]] == ["Hm.", "a\n"]


# -- bad files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("[]", "holds an empty list"),
        ('{"messages": []}', "holds no message"),
        ("3", "holds one int"),
        ('"text"', "holds one str"),
        ('{"a": 1}', "the whole is an object with the keys 'a'; expected OpenAI or Anthropic"),
        ("[1, 2]", "[0] is 1; expected OpenAI or Anthropic"),
        (json.dumps({"messages": TALK})[:-20], "line 1, column "),
        ('[\n{"role": "user",\n"content": "cut o', "line 3, column 12: Unterminated string"),
        ('{"messages": [}\n', "line 1, column 15: Expecting value; the file is no JSON"),
        (LINES.strip() + "\n{", "line 3, column 2: Expecting property name"),
        ('[{"role": "robot", "content": ""}]', "messages[0].role is a text; expected system, user"),
        ('[{"role": "user", "content": 3}]', "messages[0].content is 3; expected a text"),
        ('[{"role": "user", "content": [{"text": "a"}]}]', "messages[0].content[0].type is nothing; expected a name"),
        ('[{"role": "assistant", "tool_calls": {}}]', "messages[0].tool_calls is an empty object; expected a list"),
        ('[{"role": "assistant", "tool_calls": [{"function": {}}]}]', "function.name is nothing; expected a name"),
        ('[{"role": "user", "content": "a", "timestamp": "noon"}]', "timestamp is a text; expected an ISO 8601 time"),
        ('[{"traj": 3}]', "[0].traj is 3; expected a list of messages"),
        ('[{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}]', "[0].tools[0].name is nothing"),
        ('{"trajectory": [3], "history": []}', "trajectory[0] is 3; expected a step"),
        ('{"trajectory": [], "history": []}', "holds no message"),
        ("9" * 5000, "cannot be read as JSON: Exceeds the limit"),
        ('[{"role": "user", "content": "a", "x": ' + "[" * 200 + "]" * 200 + "}]", "nested more than 100 levels"),
    ],
)  # fmt: skip
def test_a_malformed_file_ends_in_one_line_that_names_file_and_place(
    tmp_path: Path, text: str, said: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as refused:
        load(path)
    line = str(refused.value)
    assert (
        line.startswith(f"{path}: ")
        and said in line
        and "\n" not in line
        and len(line) < len(str(path)) + 420
    )
    assert isinstance(refused.value, TailgaugeError)


def test_a_file_that_is_not_there_or_no_text_ends_in_one_line(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "none.json", "there is no such file"),
        (tmp_path, "there is no such file"),
    ):
        with pytest.raises(TraceError, match=said):
            load(path)
    (tmp_path / "zip").write_bytes(b"PK\x03\x04\xff\xfe")
    with pytest.raises(TraceError, match=r"is not UTF-8 text \(byte 4\)"):
        load(tmp_path / "zip")


@pytest.mark.parametrize("opening", ["[", '{"messages":', '[{"role":"user","content":"a","x":'])
def test_hostile_nesting_ends_in_one_line(tmp_path: Path, opening: str) -> None:
    path = written(tmp_path, opening * (8_000_000 // len(opening)))
    with pytest.raises(TraceError, match="is nested too deeply to be read"):
        load(path)


def test_a_file_beyond_the_limit_is_not_read_at_all(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(TraceError, match="has 64 MiB, more than 64; split it into smaller files"):
        load(path)
