"""Claims about the bars that look at the surroundings: what each says, and when it says nothing."""

from dataclasses import replace

import pytest
from core_samples import context
from surroundings_states import BUSY, TIME, at, text

from harness.state import AgentState, derive
from harness.state.facts import ActivePath, Block, CallCount, FileRead, Latest, Recalled, TodoList
from harness.statusbar.context_budget import ContextBudget
from harness.statusbar.context_table import ContextTable
from harness.statusbar.environment_details import EnvironmentDetails, EnvironmentDifference
from harness.statusbar.file_previews import FilePreviews
from harness.statusbar.recalled_memory import RecalledMemory
from harness.statusbar.system_state import SystemState
from harness.statusbar.tool_budget import ToolBudget
from harness.statusbar.turn_meta import TurnMeta
from harness.types import CallLimit, Message, ToolCall

# -- turn_meta -------------------------------------------------------------------------------------------


def test_turn_meta_says_the_day_and_the_working_set() -> None:
    assert text(TurnMeta()) == (
        "<turn_meta>\n"
        "Current date: 2026-03-02\n"
        "## Repo Working Set\n"
        "Workspace: /repo\n"
        "Active paths:\n"
        "- src/area.py (file)\n"
        "- docs (folder)\n"
        "Look with a tool where you are unsure, and keep changes to these paths.\n"
        "</turn_meta>"
    )


def test_turn_meta_says_how_the_request_was_routed_and_what_the_repository_holds_when_told() -> None:
    bar = TurnMeta(
        model="small",
        effort="low",
        permissions="ask before writing",
        workspace="/work",
        key_files=("README.md", "pyproject.toml"),
        top_folders=("src", "docs"),
        skills=("review", "release"),
        matching=False,
        advice="",
    )
    assert text(bar) == (
        "<turn_meta>\n"
        "Current date: 2026-03-02\n"
        "Model: small\n"
        "Effort: low\n"
        "Permissions: ask before writing\n"
        "## Repo Working Set\n"
        "Workspace: /work\n"
        "Key files: README.md, pyproject.toml\n"
        "Top folders: src, docs\n"
        "Active paths:\n"
        "- /repo/src/area.py (file)\n"
        "- docs (folder)\n"
        "Skills: review, release\n"
        "</turn_meta>"
    )


def test_turn_meta_is_the_same_within_a_day_and_another_on_the_next() -> None:
    morning, evening, next_day = (
        text(TurnMeta(), at(when))
        for when in ("2026-03-02T00:00", "2026-03-02T23:59:59Z", "2026-03-03T00:00")
    )
    assert morning == evening != next_day


@pytest.mark.parametrize(
    ("date", "line"),
    [
        ("day", "Current date: 2026-03-02"),
        ("minute", "Current time: 2026-03-02 14:05"),
        ("second", "Current time: 2026-03-02 14:05:09"),
    ],
)
def test_the_date_is_as_fine_as_wanted(date: str, line: str) -> None:
    assert text(TurnMeta(date=date)).splitlines()[1] == line


def test_without_a_date_the_block_begins_with_the_working_set() -> None:
    assert text(TurnMeta(date="none")).splitlines()[1] == "## Repo Working Set"


def test_eight_of_sixteen_paths_are_shown_most_touched_first_then_by_name() -> None:
    paths = tuple(ActivePath(f"p{number:02d}", "file", number // 2) for number in range(16))
    shown = [
        line for line in text(TurnMeta(), replace(BUSY, working_set=paths)).splitlines() if line[:2] == "- "
    ]
    assert [line[2:5] for line in shown] == ["p14", "p15", "p12", "p13", "p10", "p11", "p08", "p09"]


def test_six_skills_at_most_are_named_and_only_those_that_the_message_touches_unless_all_are_wanted() -> None:
    skills = ("code-review", "release_notes", "a", "b", "c", "d", "e")
    every = TurnMeta(skills=skills, matching=False)
    assert text(every).splitlines()[-2] == "Skills: code-review, release_notes, a, b, c, d"
    asked = replace(BUSY, arrived=(Latest("user", "Please write the Release notes", 5),))
    assert text(TurnMeta(skills=skills), asked).splitlines()[-2] == "Skills: release_notes"
    assert "Skills" not in text(TurnMeta(skills=skills))
    assert (
        text(TurnMeta(tools_as_skills=True, matching=False)).splitlines()[-2]
        == "Skills: read_file, phone_call"
    )


def test_a_line_about_git_stands_only_in_the_request_in_which_it_was_stated() -> None:
    stated = replace(BUSY, arrived=(Latest("user", "Go on", 5, known={"git": "main, 2 files changed"}),))
    assert "Git: main, 2 files changed" in text(TurnMeta(git=True), stated)
    assert "Git" not in text(TurnMeta(git=True))
    assert "Git" not in text(TurnMeta(), stated)


# -- environment_details ---------------------------------------------------------------------------------

WHOLE = (
    "<environment_details>\n"
    "# Open Files\n"
    "- src/area.py\n"
    "- notes.md\n"
    "# Active Files\n"
    "- /repo/src/area.py (file)\n"
    "- docs (folder)\n"
    "# Current Time\n"
    "- 2026-03-02 14:05\n"
    "# Context Window\n"
    "- 5 of 1000 tokens used (0%)\n"
    "# Current Mode\n"
    "- act\n"
    "# Todos\n"
    "| id | task | status |\n"
    "| --- | --- | --- |\n"
    "| 1 | Read the code | completed |\n"
    "| 2 | Fix ¦ it | in_progress |\n"
    "| 3 | Run it | pending |\n"
    "</environment_details>"
)


@pytest.mark.parametrize("bar", [EnvironmentDetails(window=1000), EnvironmentDifference(window=1000)])
def test_the_first_copy_says_the_whole_environment(bar: EnvironmentDetails) -> None:
    assert text(bar) == WHOLE


def test_the_cost_is_said_only_where_the_framework_states_one() -> None:
    stated = replace(BUSY, arrived=(Latest("tool", "", 5, known={"cost": 0.25}),))
    assert "# Current Cost\n- 0.25\n" in text(EnvironmentDetails(cost=True), stated)
    assert "Cost" not in text(EnvironmentDetails(cost=True))


def test_the_item_in_progress_stays_in_a_table_that_is_cut() -> None:
    todos = TodoList.written([(f"t{n}", "in_progress" if n == 8 else "pending") for n in range(1, 11)])
    table = text(EnvironmentDetails(todos=3), replace(BUSY, todos=todos)).split("# Todos\n")[1]
    assert table.splitlines()[2:-1] == [
        "| 1 | t1 | pending |",
        "| 2 | t2 | pending |",
        "| 8 | t8 | in_progress |",
        "- 7 more not listed",
    ]


# -- system_state ----------------------------------------------------------------------------------------


def test_system_state_says_five_facts() -> None:
    assert text(SystemState()) == (
        "<system_state>\n"
        "Current State:\n"
        "- Time: 2026-03-02 14:05:09\n"
        "- Working directory: /repo/src\n"
        "- Operating system: Linux\n"
        "- Shell: /bin/bash\n"
        "- Python version: 3.11\n"
        "</system_state>"
    )


def test_system_state_knows_nothing_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    untold = replace(BUSY, time=None, date=None, cwd="")
    here = text(SystemState(), untold)
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/other")
    monkeypatch.setattr("platform.system", lambda: "Plan9")
    assert text(SystemState(), untold) == here
    assert "- Working directory: /workspace" in here
    assert "Time" not in here


# -- file_previews and recalled_memory -------------------------------------------------------------------


def test_file_previews_stand_behind_bars_newest_first_with_one_line_of_advice() -> None:
    assert text(FilePreviews()) == (
        "<file_previews>\n"
        "Files read so far:\n"
        "- src/area.py\n"
        "| def area(side):\n"
        "|     return {\n"
        "|         'm2': side ** 2,\n"
        "|     }\n"
        "|\n"
        "| print(area(3))\n"
        "- notes.md\n"
        "| Sides are in metres.\n"
        "These are reminders: read a file again before you state what is in it.\n"
        "</file_previews>"
    )


def test_twelve_previews_of_twelve_hundred_characters_each() -> None:
    reads = tuple(FileRead(f"f{number}", "a " * 2000, number) for number in range(20))
    lines = text(FilePreviews(), replace(BUSY, reads=reads)).splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        f"- f{number}" for number in range(19, 7, -1)
    ]
    assert {len(line) for line in lines if line.startswith("| ")} <= {1201, 1202}


def test_recalled_memory_names_the_source_of_each_item() -> None:
    assert text(RecalledMemory(advice="They may be out of date.")) == (
        "<recalled_memory>\n"
        "Recalled for this message:\n"
        "- memory/units.md\n"
        "| Areas are in square metres.\n"
        "| Never in feet.\n"
        "They may be out of date.\n"
        "</recalled_memory>"
    )


def test_five_items_of_thirty_lines() -> None:
    recalled = tuple(Recalled(f"m{number}", "a line\n" * 40) for number in range(9))
    lines = text(RecalledMemory(), replace(BUSY, recalled=recalled)).splitlines()
    assert [line for line in lines if line.startswith("- ")] == [f"- m{number}" for number in range(5)]
    assert sum(line.startswith("| ") for line in lines) == 5 * 30


# -- context_table, context_budget, tool_budget ----------------------------------------------------------


def test_the_context_table_lists_blocks_with_size_age_and_use() -> None:
    assert text(ContextTable(advice="Old blocks without use can be dropped.")) == (
        "<context_table>\n"
        "Context blocks:\n"
        "| block | kind | characters | age | uses |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| 0 | user | 40 | 5 | 0 |\n"
        "| 1 | assistant | 12 | 4 | 0 |\n"
        "| 2 | read_file | 300 | 0 | 1 |\n"
        "Old blocks without use can be dropped.\n"
        "</context_table>"
    )


def test_a_block_is_as_large_as_its_content_and_its_calls() -> None:
    call = ToolCall("read_file", {"path": "src/área.py", "lines": [1, 20]}, id="call00001")
    state = derive([
        Message("user", "Read it."),
        Message("assistant", "", tool_calls=(call,), reasoning="Not counted."),
        Message("tool", "def area(side):", tool_call_id="call00001", name="read_file"),
        Message("assistant", "Both.", tool_calls=(call, call)),
    ])  # fmt: skip
    # {"name": "read_file", "arguments": {"path": "src/área.py", "lines": [1, 20]}} has 77 characters.
    for _ in range(2):
        assert text(ContextTable(), state).splitlines()[4:-1] == [
            "| 0 | user | 8 | 2 | 0 |",
            "| 1 | assistant | 77 | 1 | 0 |",
            "| 2 | read_file | 15 | 1 | 2 |",
            "| 3 | assistant | 159 | 0 | 0 |",
        ]
    assert [line.split()[1] for line in text(ContextTable(most=2, which="largest"), state).splitlines()[4:6]] == [
        "1", "3",
    ]  # fmt: skip


@pytest.mark.parametrize(("which", "ids"), [("newest", [8, 9]), ("largest", [3, 9])])
def test_a_long_context_is_cut_to_some_blocks_and_the_rest_is_counted(which: str, ids: list[int]) -> None:
    sizes = [5, 1, 2, 90, 3, 1, 1, 1, 1, 40]
    blocks = tuple(Block(number, "user", size, 9 - number, 0) for number, size in enumerate(sizes))
    lines = text(ContextTable(most=2, which=which), replace(BUSY, blocks=blocks)).splitlines()
    assert [int(line.split()[1]) for line in lines[4:6]] == ids
    assert lines[6] == f"- 8 {'older' if which == 'newest' else 'smaller'} blocks not listed"


def test_the_context_budget_is_one_line_in_its_tag() -> None:
    assert (
        text(ContextBudget(window=100)) == "<system_warning>Token usage: 5/100; 95 remaining</system_warning>"
    )


def test_the_context_budget_rounds_up_waits_for_its_share_and_never_goes_below_nothing() -> None:
    assert "Token usage: 10/100; 90 remaining" in text(ContextBudget(window=100, step=10))
    assert ContextBudget(window=100, from_percent=6).draw(BUSY, context()) is None
    assert "Token usage: 5/8; 3 remaining" in text(ContextBudget(window=8, from_percent=60))
    assert "Token usage: 5/3; 0 remaining" in text(ContextBudget(window=3))


def test_the_context_budget_counts_the_transcript_with_the_given_tokenizer() -> None:
    state = derive([Message("user", "one two"), Message("assistant", "three")])
    assert "Token usage: 3/9; 6 remaining" in text(ContextBudget(window=9), state)
    assert "Token usage: 12/99; 87 remaining" in text(ContextBudget(window=99), state, count=len)


def test_the_tool_budget_says_what_is_left_over_all_per_tool_and_per_rule() -> None:
    bar = ToolBudget(total=10, limits={"read_file": 2, "search": 5})
    assert text(bar, rules=[CallLimit("phone_call", "merchant", 3), CallLimit("search", "query", 2)]) == (
        "<tool_budget>\n"
        "Tool budget:\n"
        "- all tools: 6 used, 4 remaining\n"
        "- 'read_file': 2 used, 0 remaining\n"
        "- 'search': 0 used, 5 remaining\n"
        "- 'phone_call' with merchant Acme: 3 used, 0 remaining\n"
        "- 'phone_call' with merchant Bolt: 1 used, 2 remaining\n"
        "- 'search' for each query: 0 used, 2 remaining\n"
        "</tool_budget>"
    )


def test_the_values_of_a_rule_are_bounded() -> None:
    counts = {f"m{number:02d}": 1 for number in range(20)}
    state = replace(BUSY, calls={"phone_call": CallCount(20, {"merchant": counts})})
    assert text(ToolBudget(shown=1), state).splitlines()[2:-1] == [
        "- 'phone_call' with merchant m00: 1 used, 2 remaining",
        "- 19 more values of merchant not listed",
    ]


def test_the_tool_budget_is_drawn_for_results_alone() -> None:
    asked = replace(BUSY, latest=Latest("user", "Go on", 13))
    assert ToolBudget(total=10).draw(asked, context()) is None


# -- nothing to say --------------------------------------------------------------------------------------

EMPTY = [TurnMeta(), EnvironmentDetails(), EnvironmentDifference(), FilePreviews(), RecalledMemory()]
EMPTY += [ContextTable(), ContextBudget(), ToolBudget(total=3), SystemState()]


@pytest.mark.parametrize("bar", EMPTY, ids=lambda bar: bar.name)
def test_a_bar_without_content_draws_no_shell(bar: TurnMeta) -> None:
    assert bar.draw(AgentState(), context()) is None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: TurnMeta(date="hour"), "date must be one of second, minute, day, none"),
        (lambda: TurnMeta(skills="review"), "skills must be a list of texts"),
        (lambda: TurnMeta(shown=0), "shown must be a whole number from 1"),
        (lambda: ContextTable(which="oldest"), "which must be one of newest, largest"),
        (lambda: ContextBudget(from_percent=101), "from_percent must be from 0 to 100"),
        (lambda: ToolBudget(limits={"search": 0}), "limits.search must be a whole number from 1"),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(make: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()  # type: ignore[operator]


def test_a_real_transcript_fills_the_bars() -> None:
    messages = [
        Message("system", "You edit files."),
        Message("user", "Fix src/area.py please", time=TIME, known={"workspace": "/repo", "cwd": "/repo"}),
        Message("assistant", tool_calls=(ToolCall("read_file", {"path": "src/area.py"}, id="1"),)),
        Message("tool", "side = 1", tool_call_id="1", name="read_file"),
    ]
    state = derive(messages)
    assert "- src/area.py (file)" in text(TurnMeta(), state)
    assert "- src/area.py\n| side = 1\n" in text(FilePreviews(), state)
    assert "- Working directory: /repo\n" in text(SystemState(), state)
    assert text(ContextTable(), state).splitlines()[-2].endswith("| read_file | 8 | 0 | 0 |")
