"""What holds for every work state: of any list, under any bounds, with any text."""

import re
import subprocess
import sys
import unicodedata
from dataclasses import replace

import example_states as examples
import pytest
from core_samples import context
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bar_work import NAMES, configured

from harness.state import AgentState, Completion, Phase, Plan, TodoList
from harness.statusbar.work import SPELLINGS, WorkStyle, foremost, work_lines
from harness.statusbar.work_state import SHIPPED, WorkState

STATUS = st.sampled_from(["pending", "in_progress", "completed"])
WORD = st.text(alphabet="abcdefg hij", min_size=1, max_size=40)
HOSTILE = st.one_of(st.text(max_size=200), st.sampled_from(examples.HOSTILE_TEXTS))


def lists(content: st.SearchStrategy[str] = WORD, most: int = 60) -> st.SearchStrategy[TodoList]:
    return st.lists(st.tuples(content, STATUS), max_size=most).map(TodoList.written)


def plans(content: st.SearchStrategy[str] = WORD) -> st.SearchStrategy[Plan]:
    phases = st.lists(st.builds(Phase, content, STATUS), max_size=4).map(tuple)
    field = st.one_of(st.just(""), content)
    return st.builds(Plan, field, field, field, field, field, phases)


STYLES = st.builds(
    WorkStyle,
    spelling=st.sampled_from([*SPELLINGS, "mixed"]),
    ids=st.booleans(),
    title=st.sampled_from(["", "Checklist"]),
    percent=st.sampled_from(["off", "rule", "floor"]),
    strategy=st.booleans(),
    unfinished=st.booleans(),
    active_first=st.booleans(),
    max_lines=st.one_of(st.none(), st.integers(1, 40)),
    max_chars=st.one_of(st.none(), st.integers(1, 2500)),
    max_item=st.integers(2, 200),
)


def said(todos: TodoList, plan: Plan, style: WorkStyle) -> list[str]:
    return [line for line, _ in work_lines(todos, plan, style)]


@settings(max_examples=150)
@given(state=st.builds(AgentState, todos=lists(HOSTILE, 20), plan=plans(HOSTILE)), style=STYLES)
def test_parent_turn_fork_and_relay_cannot_drift_apart(state: AgentState, style: WorkStyle) -> None:
    bars = [WorkState(style, reader).draw(state, context()) for reader in ("parent", "fork", "relay")]
    bodies = {bar and (bar.lines, bar.frames) for bar in bars}
    assert len(bodies) == 1
    whole = [bar.text.splitlines() for bar in bars if bar]
    assert not whole or whole[0][1:-1] == whole[1][1:-1] == whole[2][1:]


@settings(max_examples=200)
@given(todos=lists(), plan=plans(), style=STYLES)
def test_the_item_in_progress_survives_any_bound(todos: TodoList, plan: Plan, style: WorkStyle) -> None:
    style = replace(style, spelling="box", ids=True)
    active = [line for line in said(todos, plan, style) if re.match(r"- \[~\] #\d", line)]
    assert len(active) == (todos.in_progress_id is not None)
    if active:
        assert active[0].startswith(f"- [~] #{todos.in_progress_id} ")
        if style.active_first:
            items = [line for line in said(todos, plan, style) if re.match(r"- \[.\] #\d", line)]
            assert items[0] == active[0]


@settings(max_examples=200)
@given(todos=lists(), plan=plans(), style=STYLES)
def test_no_bound_is_passed_where_heading_one_item_and_the_omission_fit(
    todos: TodoList, plan: Plan, style: WorkStyle
) -> None:
    lines = said(todos, plan, style)
    if style.max_lines is not None:
        assert len(lines) <= max(style.max_lines, 3)
    if style.max_chars is not None and len(lines) > 3:
        assert len("\n".join(lines)) <= style.max_chars


@settings(max_examples=200)
@given(todos=lists(), plan=plans(), style=STYLES)
def test_what_is_left_out_is_counted(todos: TodoList, plan: Plan, style: WorkStyle) -> None:
    style = replace(style, spelling="box", ids=True, unfinished=False)
    lines = said(todos, plan, style)
    items = sum(bool(re.match(r"- \[.\] #\d", line)) for line in lines)
    told = sum(bool(re.match(r"- (\[.\] (?!#\d)|[A-Z][a-z ]+: )", line)) for line in lines)
    omission = next((line for line in lines if line.startswith("- … ")), "")
    out = re.search(r"(\d+) items?", omission)
    out_lines = re.search(r"(\d+) lines? of strategy", omission)
    assert items + int(out[1] if out else 0) == len(todos.items)
    fields = [plan.objective, plan.context, plan.constraint, plan.approach, plan.verification]
    stated = (sum(bool(f.strip()) for f in fields) + len(plan.phases)) if style.strategy else 0
    assert told + int(out_lines[1] if out_lines else 0) == stated


@settings(max_examples=100)
@given(todos=lists())
def test_ids_count_from_one_and_the_percent_follows_its_rule(todos: TodoList) -> None:
    style = WorkStyle(ids=True, max_lines=None, max_chars=None)
    head, *items = said(todos, Plan(), style) or [""]
    assert [int(line.split("#")[1].split()[0]) for line in items] == [*range(1, len(items) + 1)]
    done, n = sum("[x]" in line[:6] for line in items), len(items)
    percent = int(re.findall(r"\d+", head)[0]) if items else 0
    assert n == 0 or percent * n <= 100 * done + n // 2 < (percent + 1) * n
    assert sum("[~]" in line[:6] for line in items) <= 1


@settings(max_examples=50)
@given(todos=lists(), most=st.integers(0, 10))
def test_the_foremost_items_are_those_in_progress_then_pending_ones(todos: TodoList, most: int) -> None:
    kept = foremost(todos.items, most)
    assert len(kept) == min(most, len(todos.items)) and [i.id for i in kept] == sorted(i.id for i in kept)
    left = [item for item in todos.items if item not in kept]
    rank = ["in_progress", "pending", "completed"].index
    assert not kept or not left or max(rank(i.status) for i in kept) <= min(rank(i.status) for i in left)


# -- safety ------------------------------------------------------------------------------------------------

TAGS = re.compile(r"</?[a-z]")
MARKERS = ("[CYCLE STATE", "## ", "### ", "# Todo", "{", "}", "Strategy metadata", "Checklist")


@settings(max_examples=60)
@given(texts=st.lists(HOSTILE, min_size=1, max_size=4), name=st.sampled_from(NAMES))
def test_no_content_closes_a_tag_begins_a_line_or_hides(texts: list[str], name: str) -> None:
    items = [(text, "in_progress" if number == 0 else "pending") for number, text in enumerate(texts)]
    plain = [(f"item {number}", status) for number, (_, status) in enumerate(items)]

    def state(items: list[tuple[str, str]], text: str) -> AgentState:
        return replace(
            examples.WRITTEN,
            todos=TodoList.written(items),  # type: ignore[arg-type]
            plan=Plan(objective=text or "-", phases=(Phase(text),)),
            workspace=f"/w{text}",
            completions=(Completion(text, text, text),),
        )

    drawn = configured(name).draw(state(items, texts[0]), context())
    model = configured(name).draw(state(plain, "plain"), context())
    assert drawn is not None and model is not None
    assert len(TAGS.findall(drawn.text)) == len(TAGS.findall(model.text))
    lines, expected = drawn.text.split("\n"), model.text.split("\n")
    assert drawn.text.splitlines() == lines
    assert not {unicodedata.category(char) for char in drawn.text.replace("\n", "")} & {
        "Cc",
        "Cs",
        "Zl",
        "Zp",
    }
    for marker in MARKERS:
        assert sum(line.lstrip().startswith(marker) for line in lines) == sum(
            line.lstrip().startswith(marker) for line in expected
        )


def test_no_secret_of_a_todo_is_shown() -> None:
    secret = "sk-ant-api03-" + "Jt5nQw8ZxYc2" * 8
    state = replace(
        examples.WRITTEN,
        todos=TodoList.written([(f"Use {secret} for the upload", "in_progress")]),
        plan=Plan(objective=f"Log in with {secret}"),
        completions=(Completion("a", "completed", f"The key is {secret}"),),
    )
    for name in NAMES:
        drawn = configured(name).draw(state, context())
        assert drawn is not None and secret[:24] not in drawn.text, name


SCRIPT = """
import sys; sys.path[:0] = {path!r}
from hashlib import sha256
from test_bar_work import NAMES, configured
import example_states as e
from core_samples import context
states = (e.PLANNED, e.ALL_BUT_ONE, e.HOSTILE, e.WRITTEN, e.FINISHED)
print(sha256(repr([configured(n).draw(s, context()) for n in NAMES for s in states]).encode()).hexdigest())
"""


@pytest.mark.slow
def test_another_process_with_other_hashes_and_another_place_draws_the_same_bytes() -> None:
    def digest(seed: str, zone: str) -> str:
        script = SCRIPT.format(path=sys.path)
        env = {"PYTHONHASHSEED": seed, "TZ": zone, "LANG": "C", "PATH": "", "PYTHONUTF8": "1"}
        return subprocess.run(
            [sys.executable, "-c", script], env=env, cwd="/", capture_output=True, text=True, check=True
        ).stdout

    assert digest("1", "Asia/Tokyo") == digest("2", "America/Lima") != ""


def test_the_released_form_of_199_of_200_reads_100_percent_and_begins_with_what_is_left() -> None:
    drawn = WorkState(style=SHIPPED).draw(examples.ALL_BUT_ONE, context())
    assert drawn is not None and len(drawn.lines) == 24
    assert drawn.lines[:3] == (
        "Checklist (100% settled)",
        "- [~] #200 Tag the release",
        "- [x] #1 Port module 1",
    )
    assert drawn.lines[-1] == "- … 178 items not shown"
