"""Claims about the difference of two environments: a copy says what the copies in the transcript do not say, and no more."""

from dataclasses import replace

import pytest
from core_samples import context, sample
from core_samples import words as words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from surroundings_states import BUSY, at, text

from harness.conditions import Condition, unfold
from harness.state import AgentState
from harness.state.facts import ActivePath, FileRead, TodoItem, TodoList
from harness.statusbar.environment_details import EnvironmentDetails, EnvironmentDifference
from harness.statusbar.placebo import Placebo
from harness.statusbar.placements import Tail
from harness.statusbar.policies import Append, OnChange, UpdatePolicy
from harness.types import Message, ToolCall

DIFFERENCE = EnvironmentDifference(window=1000)


def difference(state: AgentState, *copies: str) -> str | None:
    drawn = DIFFERENCE.draw(state, replace(context(), earlier=copies))
    return drawn.text if drawn else None


def test_nothing_is_said_when_nothing_has_changed() -> None:
    assert difference(BUSY, text(DIFFERENCE)) is None
    assert difference(replace(BUSY, requests=99), text(DIFFERENCE)) is None


def test_only_the_changed_lines_are_said() -> None:
    later = replace(
        at("2026-03-02T14:06:00"),
        reads=(FileRead("README.md", "x", 20), *BUSY.reads[:1]),
        todos=TodoList(
            (replace(BUSY.todos.items[1], status="completed"), TodoItem(4, "Tell", "in_progress"))
        ),
    )
    assert difference(later, text(DIFFERENCE)) == (
        "<environment_details>\n"
        "Changed:\n"
        "# Open Files\n"
        "- README.md\n"
        "~ off the list: notes.md\n"
        "# Current Time\n"
        "- 2026-03-02 14:06\n"
        "# Todos\n"
        "| 2 | Fix ¦ it | completed |\n"
        "| 4 | Tell | in_progress |\n"
        "~ off the list: 1\n"
        "~ off the list: 3\n"
        "</environment_details>"
    )


def test_what_only_the_copy_before_said_is_said_again_when_that_copy_is_gone() -> None:
    changed = difference(at("2026-03-02T14:06"), text(DIFFERENCE))
    assert changed is not None and "# Todos" not in changed
    again = difference(at("2026-03-02T14:06"), changed)
    assert again is not None and "# Todos" in again and "# Current Time" not in again


paths = st.sampled_from(["a.py", "b.py", "c.py", "# Todos", "off the list: a.py", "~ off the list: a.py"])
states = st.builds(
    lambda minute, opened, tasks, active: replace(
        at(f"2026-03-02T14:{minute:02d}"),
        reads=tuple(FileRead(path, "", number) for number, path in enumerate(opened)),
        working_set=tuple(ActivePath(path, "file", number) for number, path in enumerate(active)),
        todos=TodoList.written(tasks),
    ),
    st.integers(0, 2),
    st.lists(paths, max_size=4, unique=True),
    st.lists(st.tuples(st.sampled_from(["plan", "| 1 | x", "run"]), st.just("pending")), max_size=4),
    st.lists(paths, max_size=4, unique=True),
)


@given(st.lists(states, min_size=2, max_size=5))
@settings(max_examples=60)
def test_the_copies_together_say_the_whole_environment_and_no_more(history: list[AgentState]) -> None:
    copies: list[str] = []
    for state in history:
        copies.extend(filter(None, [difference(state, *copies)]))
    assert difference(history[-1], *copies) is None
    whole = EnvironmentDetails(window=1000)
    assert folded(copies) == folded([text(whole, history[-1])])


def folded(copies: list[str]) -> dict[str, set[str]]:
    """A reader's own notes: section → lines that still hold, table heads left out."""
    held: dict[str, dict[str, str]] = {}
    for line in "\n".join(copies).split("\n"):
        if line.startswith("# "):
            section = held.setdefault(line, {})
            single = line not in ("# Open Files", "# Active Files", "# Todos")
        elif line.startswith("~ off the list: "):
            section.pop(line[16:])
        elif line.startswith("- "):
            section["" if single else line[2:]] = line
        elif line.startswith("| ") and "---" not in line and "| id |" not in line:
            section[line.split(" | ")[0][2:]] = line
    return {title: set(lines.values()) for title, lines in held.items() if lines}


TRANSCRIPT = (
    Message("system", "You edit files."),
    Message("user", "Fix src/area.py", time="2026-03-02T14:05:00"),
    Message("assistant", tool_calls=(ToolCall("read_file", {"path": "src/area.py"}, id="1"),)),
    Message("tool", "side = 1", tool_call_id="1", name="read_file", time="2026-03-02T14:05:30"),
    Message("assistant", "Which side?"),
    Message("user", "The left one", time="2026-03-02T14:07:00"),
)


@pytest.mark.parametrize("policy", [Append(), OnChange()], ids=lambda policy: policy.name)
def test_over_a_transcript_each_copy_says_what_has_changed_and_the_placebo_comes_with_it(
    policy: UpdatePolicy,
) -> None:
    bar = EnvironmentDifference(window=0)
    arms = [Condition("d", each, Tail(), policy) for each in (bar, Placebo(bar))]
    real, neutral = (list(unfold(sample(TRANSCRIPT), arm, words_of))[-1].injections for arm in arms)
    assert [copy.bar.text.splitlines()[1:-1] for copy in real] == [
        [
            "# Active Files",
            "- src/area.py (file)",
            "# Current Time",
            "- 2026-03-02 14:05",
            "# Current Mode",
            "- act",
        ],
        ["Changed:", "# Open Files", "- src/area.py"],
        ["Changed:", "# Current Time", "- 2026-03-02 14:07"],
    ]
    assert [(copy.at, words_of(copy.bar.text)) for copy in neutral] == [
        (copy.at, words_of(copy.bar.text)) for copy in real
    ]


def test_what_other_transcripts_said_in_between_changes_nothing() -> None:
    """Copies gathered so far are remembered; the same copies in another order are another transcript."""
    changed = replace(BUSY, todos=TodoList((TodoItem(9, "Rest", "pending"),)))
    first, second = text(DIFFERENCE), difference(changed, text(DIFFERENCE))
    assert second is not None
    alone = difference(BUSY, first, second)
    assert difference(BUSY, second, first) != alone
    for others in range(9):
        difference(changed, *["# Current Mode"] * others)
    assert difference(BUSY, first, second) == alone is not None
