"""Claims about the bars of the work state: their texts, letter by letter, and who shares the formatter."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import example_states as examples
import pytest
from core_samples import calls, context, sample, words
from hydra.utils import instantiate
from omegaconf import OmegaConf

from harness.conditions import Condition, unfold
from harness.errors import ConfigError
from harness.state import AgentState, Completion, Latest, TodoList, derive
from harness.statusbar import AgentStatus, StatusBar, Tail
from harness.statusbar.base import looks_back, moment_of
from harness.statusbar.completion import CompletionEvent
from harness.statusbar.cycle_state import ACKNOWLEDGE, CycleState
from harness.statusbar.policies import Append, OnChange, Replace
from harness.statusbar.recitation import Recitation
from harness.statusbar.system_reminder import SystemReminder
from harness.statusbar.todo import Todo
from harness.statusbar.work import WorkStyle
from harness.statusbar.work_state import SHIPPED, WorkState
from harness.types import Message, ToolCall

CONF = Path(__file__).resolve().parent.parent / "conf" / "bar"
NAMES = (
    "todo",
    "todo_compaction",
    "todo_cycle",
    "work_state",
    "work_state_shipped",
    "fork_state",
    "relay",
    "cycle_state",
    "system_reminder",
    "unfinished_reminder",
    "todo_reminder",
    "recitation",
    "completion",
    "completion_untagged",
)


@cache
def configured(name: str) -> StatusBar:
    return instantiate(OmegaConf.load(CONF / f"{name}.yaml"))


def text(bar: StatusBar, state: AgentState) -> str:
    drawn = bar.draw(state, context())
    assert drawn is not None
    return drawn.text


GOLDEN = {
    "work_state": """\
<codewhale:work_state>
Checklist (33% complete)
- [x] Plan it out
- [~] Wire the thing
- [ ] Run gates

Strategy metadata
- Objective: Ship the export
- Context: Two formats exist already
- Constraint: No new dependency
- Recommended approach: One writer per format
- Verification plan: Round trip of every sample
- [x] Write
- [~] Check
- [ ] Document
</codewhale:work_state>""",
    "work_state_shipped": """\
<codewhale:work_state>
Checklist (33% settled)
- [~] #2 Wire the thing
- [x] #1 Plan it out
- [ ] #3 Run gates
</codewhale:work_state>""",
    "todo_compaction": """\
<system-reminder>
These todos are carried over; the messages before were summarised:

- #1 Completed: Plan it out
- #2 InProgress: Wire the thing
- #3 Pending: Run gates
</system-reminder>""",
    "todo_cycle": """\
### Work

Checklist (33% complete)
- [✓] Plan it out
- [~] Wire the thing
- [ ] Run gates""",
    "system_reminder": """\
<system-reminder>
The todo list was not written for a while. Where the work has moved on, write it anew; this note needs no answer.

- #1 completed: Plan it out
- #2 in_progress: Wire the thing
- #3 pending: Run gates
</system-reminder>""",
    "unfinished_reminder": """\
<system-reminder>
Items of the todo list that are not completed:

- in_progress: Wire the thing
- pending: Run gates
</system-reminder>""",
    "recitation": """\
# Todo

Goal: Ship the export

- [x] Plan it out
- [~] Wire the thing
- [ ] Run gates""",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_bar_of_the_work_says_exactly_this_of_three_steps_under_a_plan(name: str) -> None:
    assert text(configured(name), examples.PLANNED) == GOLDEN[name]


def test_the_tools_result_is_a_line_with_counts_and_the_pretty_snapshot() -> None:
    assert (
        text(configured("todo"), examples.WRITTEN)
        == """\
Todo list written (3 items, 33% complete)
{
  "items": [
    {
      "id": 1,
      "content": "Plan it out",
      "status": "completed"
    },
    {
      "id": 2,
      "content": "Wire the thing",
      "status": "in_progress"
    },
    {
      "id": 3,
      "content": "Run gates",
      "status": "pending"
    }
  ],
  "completion_pct": 33,
  "in_progress_id": 2
}"""
    )


def test_an_emptied_list_has_no_item_in_progress_and_is_at_zero_percent() -> None:
    emptied = replace(examples.WRITTEN, todos=TodoList())
    assert (
        text(Todo(), emptied)
        == """\
Todo list written (0 items, 0% complete)
{
  "items": [],
  "completion_pct": 0,
  "in_progress_id": null
}"""
    )


def test_a_bounded_snapshot_keeps_the_item_in_progress_and_counts_the_others() -> None:
    state = replace(examples.ALL_BUT_ONE, latest=examples.WRITTEN.latest)
    drawn = text(Todo(max_items=2), state)
    assert '"content": "Tag the release"' in drawn and drawn.count('"id"') == 2
    assert '  "items_not_shown": 198,\n' in drawn


def test_the_list_comes_back_only_from_the_tool_that_wrote_it_and_did_not_fail() -> None:
    latest = examples.WRITTEN.latest
    assert latest is not None
    other = replace(examples.WRITTEN, latest=replace(latest, call=ToolCall("read_file", {"path": "a"})))
    failed = replace(examples.WRITTEN, latest=replace(latest, failed=True))
    spoken = replace(examples.WRITTEN, latest=Latest("user", "go on", 5))
    for state in (other, failed, spoken, examples.THREE_STEPS):
        assert Todo().draw(state, context()) is None
    assert moment_of(Todo()) == "result" == moment_of(configured("todo_reminder"))
    assert moment_of(Todo(life="cycle")) == "request" == moment_of(SystemReminder())


def test_the_seed_of_a_cycle_names_mode_and_workspace_before_the_work() -> None:
    assert (
        text(configured("cycle_state"), examples.THREE_STEPS)
        == """\
[CYCLE STATE — kept by the runtime across the restart, not typed by the user]

- Mode: `agent`
- Workspace: `/home/dev/tool`

### Work

Checklist (33% complete)
- [✓] Plan it out
- [~] Wire the thing
- [ ] Run gates"""
    )
    odd = text(CycleState(), replace(examples.THREE_STEPS, workspace="/w` - Mode: `plan"))
    assert odd.splitlines()[3] == "- Workspace: `/w' - Mode: 'plan`"
    nothing_known = text(CycleState(mode=""), examples.PLANNED)
    assert nothing_known.splitlines()[1:4] == ["", "### Work", ""]
    assert "\n" not in ACKNOWLEDGE and ACKNOWLEDGE.count(".") == 1


def test_a_finished_sub_agent_is_told_in_an_internal_tag_or_as_the_same_text_without_it() -> None:
    tagged = text(configured("completion"), examples.FINISHED)
    assert (
        tagged
        == """\
<subagent_completion visibility="internal">
Finished in the background:
- reviewer (completed): Two findings, both in parser.py
- tester (failed)
</subagent_completion>"""
    )
    assert (
        tagged.splitlines()[1:-1] == text(configured("completion_untagged"), examples.FINISHED).splitlines()
    )


def test_of_many_finished_sub_agents_the_newest_are_told_and_the_others_counted() -> None:
    many = AgentState(completions=tuple(Completion(f"a{n}", "completed", "") for n in range(10)))
    assert text(CompletionEvent(max_events=2), many).splitlines()[2:-1] == [
        "- … 8 earlier not shown",
        "- a8 (completed)",
        "- a9 (completed)",
    ]


def test_a_reminder_takes_another_bar_in_and_leaves_its_tag_out() -> None:
    state = AgentState(calls=derive(calls("Acme", "Acme")).calls)
    inner = text(AgentStatus(), state).splitlines()
    assert text(SystemReminder(of=AgentStatus(), lead="Note."), state).splitlines() == [
        "<system-reminder>",
        "Note.",
        *inner[1:-1],
        "</system-reminder>",
    ]
    assert SystemReminder(of=AgentStatus()).draw(examples.EMPTY, context()) is None
    assert not looks_back(SystemReminder(of=AgentStatus()))


def test_a_plan_alone_is_shown_without_a_checklist() -> None:
    assert text(WorkState(), examples.ONLY_PLAN).splitlines()[1:-1] == [
        "Strategy metadata",
        "- Objective: Ship the export",
        "- [~] Write",
    ]
    assert WorkState(style=SHIPPED).draw(examples.ONLY_PLAN, context()) is None


@pytest.mark.parametrize("name", NAMES)
def test_where_there_is_nothing_to_say_nothing_is_said(name: str) -> None:
    assert configured(name).draw(examples.EMPTY, context()) is None


# -- styles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("style", "lines"),
    [
        (
            {"spelling": "snake"},
            ["- completed: Plan it out", "- in_progress: Wire the thing", "- pending: Run gates"],
        ),
        (
            {"spelling": "words"},
            ["- Completed: Plan it out", "- In progress: Wire the thing", "- Pending: Run gates"],
        ),
        (
            {"spelling": "mixed", "ids": True},
            ["- #1 Completed: Plan it out", "- [~] #2 Wire the thing", "- #3 Pending: Run gates"],
        ),
        ({"unfinished": True}, ["- [~] Wire the thing", "- [ ] Run gates"]),
        (
            {"advice": "Go on with the item in progress."},
            [
                "- [x] Plan it out",
                "- [~] Wire the thing",
                "- [ ] Run gates",
                "Go on with the item in progress.",
            ],
        ),
    ],
)
def test_a_style_changes_the_form_and_not_the_facts(style: dict[str, object], lines: list[str]) -> None:
    drawn = text(WorkState(style=WorkStyle(**style)), examples.THREE_STEPS)  # type: ignore[arg-type]
    assert drawn.splitlines()[2:-1] == lines


def test_the_percent_misleads_by_its_own_rule_and_need_not() -> None:
    heads = [
        text(WorkState(style=WorkStyle(percent=percent)), examples.ALL_BUT_ONE).splitlines()[1]
        for percent in ("rule", "floor", "off")
    ]
    assert heads == ["Checklist (100% complete)", "Checklist (99% complete)", "Checklist"]


def test_an_option_that_does_not_exist_is_refused_with_those_that_do() -> None:
    for make, expected in (
        (lambda: WorkStyle(spelling="loud"), "box, tick, snake, camel, words, mixed"),  # type: ignore[arg-type]
        (lambda: WorkStyle(percent="yes"), "off, rule or floor"),  # type: ignore[arg-type]
        (lambda: WorkStyle(max_lines=0), "max_lines"),
        (lambda: WorkState(reader="boss"), "parent, fork, relay"),  # type: ignore[arg-type]
        (lambda: Todo(life="ninth"), "tool_result, compaction, cycle"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=expected):
            make()


# -- drawn for the human, and in the request ----------------------------------------------------------------


def written(number: int, *items: tuple[str, str]) -> list[Message]:
    todos = [{"content": content, "status": status} for content, status in items]
    call = ToolCall("todo_write", {"todos": todos}, id=f"todo{number}")
    return [
        Message("assistant", tool_calls=(call,)),
        Message("tool", "ok", tool_call_id=call.id, name=call.name),
    ]


TRANSCRIPT = [
    Message("user", "Go."),
    *written(1, ("Plan it out", "in_progress"), ("Wire the thing", "pending")),
    *calls("Acme"),
    *written(2, ("Plan it out", "completed"), ("Wire the thing", "in_progress")),
]


@pytest.mark.parametrize("bar", [WorkState(), Todo(), SystemReminder(), Recitation(), CycleState()], ids=str)
@pytest.mark.parametrize("policy", [Replace(), Append(), OnChange()], ids=str)
def test_what_is_drawn_at_a_request_stands_in_what_the_model_gets(bar: StatusBar, policy: object) -> None:
    delivered = unfold(sample(TRANSCRIPT), Condition("on", bar, Tail(), policy), words)  # type: ignore[arg-type]
    drawn = [each for each in delivered if each.drawn is not None]
    assert len(drawn) >= 2
    for each in drawn:
        assert each.drawn is not None
        assert any(each.drawn.text in message.content for message in each.messages)


def test_between_two_writings_the_tools_list_is_not_sent_again() -> None:
    delivered = unfold(sample(TRANSCRIPT), Condition("on", Todo(), Tail(), Append()), words)
    assert [len(each.injections) for each in delivered] == [0, 1, 1, 2]
