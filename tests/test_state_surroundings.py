"""Claims about paths, files, complaints, time and what the framework knew beside the text."""

from typing import Any

import pytest

from harness.state import ActivePath, AgentState, Completion, Diagnostic, Recalled, derive
from harness.state.surroundings import READ_KEPT
from harness.types import Message, ToolCall


def did(name: str, arguments: dict[str, Any], result: str = "ok", **known: Any) -> list[Message]:
    """A call and its result."""
    return [
        Message("assistant", "", (ToolCall(name, arguments),)),
        Message("tool", result, name=name, known=known),
    ]


def touched(*messages: Message) -> dict[str, int]:
    return {active.path: active.touches for active in derive(messages).working_set}


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Look at src/app/main.py and README.md, please.", ["README.md", "src/app/main.py"]),
        ("In `./lib/x.ts` (see docs/) at a/b.c:12:5.", ["a/b.c", "docs", "lib/x.ts"]),
        ("<src/a.py> --file=src/b.py 'c/d.c e.txt'", ["c/d.c", "e.txt", "src/a.py", "src/b.py"]),
        ("/etc/hosts ~/x.txt ../up/y C:/z.ini", ["../up/y", "/etc/hosts", "C:/z.ini", "~/x.txt"]),
        ("src/harness/state src/Makefile node/@types/x.d.ts", ["node/@types/x.d.ts", "src/Makefile", "src/harness/state"]),
        ("https://a.com/b.py www.a.org/c.py?x=d/e.py me@a.py git@a.com:b/c.git", []),
        ("v1.2.3 1.2.3/4 2026/03/02 02/03/2026 3.11/3.12 24/7 v2.0/", []),
        ("and/or TCP/IP e.g. etc. self.state os.path np.array </tool_call> ... / // .", []),
        ("nothing", []),
        ("x" * 300 + ".py", []),
        (" " * 2000 + "late.py", []),
    ],
)  # fmt: skip
def test_paths_are_told_from_what_only_looks_like_them(text: str, paths: list[str]) -> None:
    assert sorted(touched(Message("user", text))) == paths
    assert sorted(touched(Message("assistant", text))) == paths


def test_results_and_system_prompts_touch_nothing() -> None:
    assert touched(Message("system", "See a/b.py"), Message("tool", "c/d.py"), Message("user", "e.py")) == {
        "e.py": 1
    }


def test_each_message_and_each_call_touches_a_path_once() -> None:
    messages = [
        Message("user", "Is a.py like b.py? a.py is older."),
        *did("read_file", {"path": "a.py"}),
        *did("bash", {"command": "diff a.py ./b.py | head"}),
        *did("read_files", {"paths": ["a.py", "c.py"], "title": "and/or", "url": "https://x.y/z.py"}),
    ]
    assert touched(*messages) == {"a.py": 4, "b.py": 2, "c.py": 1, "and/or": 1}


def test_arguments_that_are_named_for_a_path_may_have_any_form_and_contents_name_none() -> None:
    state = derive(
        did("write_file", {"file_path": "Makefile", "content": "import a.py\nopen('b/c.py')"})
        + did("list", {"directory": "src/"})
        + did("open", {"path": "My notes/to do.txt"})
        + did("apply_patch", {"input": "*** Begin Patch\n*** Update File: src/a.py\n+x/y.py"})
    )
    assert {active.path: active.kind for active in state.working_set} == {
        "Makefile": "file",
        "src": "folder",
        "My notes/to do.txt": "file",
        "src/a.py": "file",
    }


def test_the_sixteen_most_touched_are_kept_most_first_then_by_path() -> None:
    messages = [Message("user", f"f{n:02d}.py") for n in range(30)]
    messages += [Message("user", "f29.py"), Message("user", "f07.py f29.py")]
    working = derive(messages).working_set
    assert working[:3] == (
        ActivePath("f29.py", "file", 3),
        ActivePath("f07.py", "file", 2),
        ActivePath("f00.py", "file", 1),
    )
    assert [active.path for active in working[2:]] == [f"f{n:02d}.py" for n in range(15) if n != 7]


def test_reads_are_the_newest_first_one_per_path_and_cut() -> None:
    messages: list[Message] = []
    for number in range(15):
        messages += did("read_file", {"path": f"f{number}.py"}, f"text {number}" + "x" * 20_000)
    messages += did("view", {"path": "f3.py"}, "new text")
    reads = derive(messages).reads
    assert [read.path for read in reads] == ["f3.py", *(f"f{n}.py" for n in range(14, 3, -1))]
    assert (reads[0].text, reads[0].message) == ("new text", 31)
    assert len(reads[1].text) == READ_KEPT and messages[reads[1].message].content.startswith(reads[1].text)


@pytest.mark.parametrize(
    ("name", "arguments", "read", "edited"),
    [
        ("readFile", {"path": "a.py"}, ["a.py"], []),
        ("bash", {"command": "cat a.py"}, ["a.py"], []),
        ("editor", {"command": "view", "path": "a.py"}, ["a.py"], []),
        ("str_replace_based_edit_tool", {"command": "view", "path": "a.py"}, ["a.py"], []),
        ("str_replace_based_edit_tool", {"command": "str_replace", "path": "a.py"}, [], ["a.py"]),
        ("MultiEdit", {"file_path": "a.py"}, [], ["a.py"]),
        ("bash", {"command": "python a.py"}, [], []),
        ("thread_list", {"path": "a.py"}, [], []),
        ("create_ticket", {"title": "no path"}, [], []),
        ("todo_write", {"todos": ["fix a.py"], "file": "a.py"}, [], []),
    ],
)
def test_what_a_call_does_is_told_by_its_name_or_its_command(
    name: str, arguments: dict[str, Any], read: list[str], edited: list[str]
) -> None:
    state = derive(did(name, arguments, "text"))
    assert ([each.path for each in state.reads], list(state.edited)) == (read, edited)


def test_a_call_that_failed_has_read_and_edited_nothing() -> None:
    state = derive(
        did("read_file", {"path": "a.py"}, "Error: no") + did("edit", {"path": "a.py"}, "Error: no")
    )
    assert (state.reads, list(state.edited)) == ((), [])


def test_edits_are_those_since_the_last_request() -> None:
    both = Message("assistant", "", (ToolCall("edit", {"path": "b.py"}), ToolCall("edit", {"path": "a.py"})))
    messages = [both, Message("tool"), Message("tool")]
    assert derive(messages).edited == ("b.py", "a.py")
    assert derive([*messages, Message("user", "well?")]).edited == ("b.py", "a.py")
    assert derive([*messages, Message("assistant", "done")]).edited == ()


SAID = {"file": "a.py", "severity": "warning", "line": 3, "column": 7, "message": "unused"}


def files(messages: list[Message]) -> dict[str, list[str]]:
    return {file: [d.message for d in each] for file, each in derive(messages).diagnostics.items()}


def test_a_new_edit_of_a_file_clears_what_was_wrong_in_it() -> None:
    first = did("edit", {"path": "a.py"}, diagnostics=[SAID, {**SAID, "message": "more"}])
    assert files(first) == {"a.py": ["unused", "more"]}
    assert derive(first).diagnostics["a.py"][0] == Diagnostic("a.py", "warning", 3, 7, "unused")
    assert files(first + did("edit", {"path": "b.py"})) == {"a.py": ["unused", "more"]}
    assert files(first + did("edit", {"path": "a.py"}, "Error: no")) == {"a.py": ["unused", "more"]}
    assert files(first + did("edit", {"path": "./a.py"})) == {}
    assert len(derive(first + did("edit", {"path": "a.py"})).diagnostics) == 0
    assert files(first + did("edit", {"path": "a.py"}, diagnostics=[SAID])) == {"a.py": ["unused"]}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("src/a.c:3:7: error: missing ;", Diagnostic("src/a.c", "error", 3, 7, "missing ;")),
        ("src/a.c:3:7: fatal error: x.h", Diagnostic("src/a.c", "fatal error", 3, 7, "x.h")),
        ("a.py:12: error: Bad type  [arg-type]", Diagnostic("a.py", "error", 12, 1, "Bad type  [arg-type]")),
        ("./a.py:3:5: E501 Line too long", Diagnostic("a.py", "error", 3, 5, "E501 Line too long")),
        ("a.py:3:5: F401 [*] `os` unused", Diagnostic("a.py", "error", 3, 5, "F401 `os` unused")),
        ("a.ts(12,8): error TS2304: No name.", Diagnostic("a.ts", "error", 12, 8, "No name.")),
        ("a.ts:1:2 - error TS1: No", Diagnostic("a.ts", "error", 1, 2, "No")),
        ("a.go:4:2: WARNING: x", Diagnostic("a.go", "warning", 4, 2, "x")),
        ("a.py:0:0: note: y", Diagnostic("a.py", "note", 1, 1, "y")),
        ("a.py:12: def error(): pass", None),
        ("a.py:12:x1 note", None),
        ("12:30:01: error: clock", None),
        ("error: no file", None),
        ("https://a.b:80: error: x", None),
    ],
)
def test_lines_of_compilers_and_linters_are_read(line: str, found: Diagnostic | None) -> None:
    state = derive(did("bash", {"command": "make"}, f"begin\n{line}\nend"))
    assert dict(state.diagnostics) == ({found.file: (found,)} if found else {})
    assert not derive(did("web_search", {"query": "make"}, line)).diagnostics, (
        "only tools that build or check"
    )
    assert not derive(did("read_file", {"path": "log.txt"}, line)).diagnostics
    assert not derive([Message("user", line), Message("tool", line)]).diagnostics


@pytest.mark.parametrize(
    "known",
    [
        {"diagnostics": None},
        {"diagnostics": "a.py"},
        {"diagnostics": [None, 3, {"file": 3, "message": "x"}, {"file": "a.py"}]},
        {"recalled": 4, "completions": [{"agent": 1}], "workspace": 3, "cwd": None},
        {"recalled": [{"text": None}, "x"]},
    ],
)
def test_what_is_known_in_another_form_is_left_out(known: dict[str, Any]) -> None:
    state = derive([Message("user", "go", known=known), *did("edit", {"path": "a.py"}, **known)])
    assert (dict(state.diagnostics), state.recalled, list(state.completions)) == ({}, (), [])
    assert (state.workspace, state.cwd) == ("", "")


def test_positions_that_are_no_numbers_from_one_are_one() -> None:
    said = {"file": "a.py", "line": 0, "column": "7", "message": "x"}
    assert derive(did("edit", {}, diagnostics=[said])).diagnostics["a.py"] == (
        Diagnostic("a.py", "error", 1, 1, "x"),
    )


def test_date_and_time_are_those_of_the_newest_message_that_states_them() -> None:
    def at(*times: str | None) -> tuple[str | None, str | None]:
        state = derive([Message("user", "x", time=time) for time in times])
        return state.date, state.time

    assert at() == at(None) == at("yesterday") == (None, None)
    assert at("2026-03-02T23:59:59-08:00", None, "soon") == ("2026-03-02", "2026-03-02T23:59:59-08:00")
    assert at("2026-03-02T10:00:00Z", "2026-03-01") == ("2026-03-01", "2026-03-01")


def test_a_memory_speaks_for_the_newest_user_message_and_a_completion_until_the_next_request() -> None:
    known = {
        "recalled": [{"source": "n.md", "text": "a"}, {"text": "b"}],
        "completions": [{"agent": "scout", "status": "failed", "summary": "s"}, {"agent": "b"}],
        "workspace": "/w",
        "cwd": "/w/x",
    }
    asked = [Message("user", "x", known=known)]
    state: AgentState = derive(asked)
    assert state.recalled == (Recalled("n.md", "a"), Recalled("", "b"))
    assert state.completions == (Completion("scout", "failed", "s"), Completion("b", "", ""))
    answered = derive([*asked, Message("assistant", "y"), Message("tool", "z")])
    assert (answered.recalled, list(answered.completions)) == (state.recalled, [])
    assert (answered.workspace, answered.cwd) == ("/w", "/w/x")
    assert derive([*asked, Message("user", "more")]).recalled == ()
