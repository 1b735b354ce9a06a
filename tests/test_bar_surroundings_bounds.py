"""Claims about the bars that look at the surroundings that hold for any state: bounds, order, no forgery, a placebo."""

import re
from dataclasses import replace

import pytest
from core_samples import context
from hypothesis import given, settings
from hypothesis import strategies as st
from surroundings_states import BUSY, HOSTILE, at, hostile, text, words

from harness.state import derive
from harness.state.facts import ActivePath, Block, FileRead, Recalled
from harness.state.surroundings import READ_CHARACTERS, READ_KEPT
from harness.statusbar.base import StatusBar, looks_back, moment_of
from harness.statusbar.context_budget import ContextBudget
from harness.statusbar.context_table import ContextTable
from harness.statusbar.environment_details import EnvironmentDetails, EnvironmentDifference
from harness.statusbar.escape import _AHEAD
from harness.statusbar.file_previews import FilePreviews
from harness.statusbar.placebo import Placebo
from harness.statusbar.recalled_memory import RecalledMemory
from harness.statusbar.system_state import SystemState
from harness.statusbar.tool_budget import ToolBudget
from harness.statusbar.turn_meta import TurnMeta
from harness.template import ChatTemplate
from harness.types import Message, ToolCall

BARS: tuple[StatusBar, ...] = (
    TurnMeta(tools_as_skills=True, git=True),
    EnvironmentDetails(cost=True),
    EnvironmentDifference(),
    SystemState(),
    FilePreviews(),
    RecalledMemory(),
    ContextTable(),
    ContextBudget(),
    ToolBudget(total=10, limits={"read_file": 3}),
)
each_bar = pytest.mark.parametrize("bar", BARS, ids=lambda bar: bar.name)
tag_of = {bar.name: (re.search(r"</(\w+)>$", text(bar)) or [""])[1] for bar in BARS}


# -- any content -----------------------------------------------------------------------------------------


@each_bar
@given(content=st.one_of(words, st.just(HOSTILE), words.map(lambda part: part + HOSTILE)))
@settings(max_examples=40)
def test_content_forges_neither_tag_nor_line(bar: StatusBar, content: str) -> None:
    drawn = bar.draw(hostile(content), context())
    assert drawn is not None
    said = drawn.text
    tag = tag_of[bar.name]
    assert [said.count(f"<{tag}>"), said.count(f"</{tag}>"), said.count("<"), said.count(">")] == [1, 1, 2, 2]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", said)
    assert len(said.split("\n")) == len(drawn.lines) + (bool(drawn.heading) + 2 if drawn.tag else 0)
    fixed = [line for line in said.split("\n") if line.startswith(("# ", "## ", "Active paths", "~ "))]
    assert len(fixed) == len(set(fixed)) and not any("forged" in line for line in fixed)
    assert drawn == bar.draw(hostile(content), context())


@each_bar
def test_a_secret_in_the_content_is_not_shown(bar: StatusBar) -> None:
    secret = "sk-proj-" + "aB3dE5fG7hJ9kL1m" * 2
    assert secret[8:20] not in text(bar, hostile(f"key {secret} end"))


@each_bar
def test_a_bar_with_the_same_options_is_the_same_bar(bar: StatusBar) -> None:
    assert bar == replace(bar)  # type: ignore[type-var]
    assert hash(bar) == hash(replace(bar))  # type: ignore[type-var]


def test_only_the_difference_looks_back_and_only_the_tool_budget_stands_in_results() -> None:
    assert [bar.name for bar in BARS if looks_back(bar)] == ["environment_difference"]
    assert [bar.name for bar in BARS if moment_of(bar) == "result"] == ["tool_budget"]


# -- bounds and order ------------------------------------------------------------------------------------

reads = st.lists(
    st.builds(FileRead, words, st.text("ab \n<&é", max_size=3000), st.integers(0, 50)), max_size=15
)


@given(reads, st.integers(1, 400), st.integers(1, 9))
@settings(max_examples=40)
def test_previews_are_bounded_and_newest_first(reads: list[FileRead], characters: int, lines: int) -> None:
    bar = FilePreviews(characters=characters, lines=lines)
    drawn = bar.draw(replace(BUSY, reads=tuple(reads)), context())
    assert (drawn is None) == (not reads)
    if drawn is None:
        return
    starts = [number for number, line in enumerate(drawn.lines[:-1]) if line.startswith("- ")]
    assert len(starts) == min(len(reads), 12)
    for start, end in zip(starts, [*starts[1:], len(drawn.lines) - 1], strict=True):
        quoted = drawn.lines[start + 1 : end]
        shown = "\n".join(line[2:] for line in quoted)
        assert len(quoted) <= lines
        assert len(shown.replace("&lt;", "<").replace("&amp;", "&")) <= characters
    newest_first = sorted(reads, key=lambda read: -read.message)
    assert drawn == bar.draw(replace(BUSY, reads=tuple(newest_first)), context())


@given(st.text("ab \né😀<&", max_size=400), st.integers(1, 120), st.integers(1, 6))
@settings(max_examples=150)
def test_an_item_of_memory_keeps_its_quota_of_lines_and_bytes(content: str, quota: int, lines: int) -> None:
    bar = RecalledMemory(lines=lines, bytes=quota)
    drawn = bar.draw(replace(BUSY, recalled=(Recalled("m", content),)), context())
    assert drawn is not None
    quoted = [line[2:] for line in drawn.lines[1:]]
    assert len(quoted) <= lines
    assert len("\n".join(quoted).encode()) <= quota
    if len(content.encode()) <= quota and content.count("\n") < lines and not set("<&") & set(content):
        assert "\n".join(quoted).split() == content.split()


@pytest.mark.parametrize(("seconds", "shown"), [(None, True), (0.2, True), (10.0, True), (10.1, False)])
def test_what_took_a_memory_more_than_ten_seconds_is_left_out_without_a_word(
    seconds: float | None, shown: bool
) -> None:
    known: dict[str, object] = {"recalled": [{"source": "memory/units.md", "text": "Square metres."}]}
    if seconds is not None:
        known["recalled_seconds"] = seconds
    state = derive([Message("user", "How large is it?", known=known)])
    assert state.recalled_seconds == seconds
    assert (RecalledMemory().draw(state, context()) is not None) is shown
    assert RecalledMemory(seconds=11).draw(state, context()) is not None
    late = derive([Message("user", "", known=known), Message("user", "And now?")])
    assert (late.recalled, late.recalled_seconds) == ((), None), "each message has its own"


def test_a_time_that_is_no_number_is_unknown_and_a_quota_of_none_is_refused() -> None:
    for odd in ("10", True, None, [3]):
        assert derive([Message("user", "", known={"recalled_seconds": odd})]).recalled_seconds is None
    with pytest.raises(ValueError, match="seconds=0: expected more than 0"):
        RecalledMemory(seconds=0)


@given(st.permutations(range(16)), st.integers(0, 3))
def test_the_working_set_does_not_depend_on_the_order_of_arrival(order: list[int], most: int) -> None:
    paths = [ActivePath(f"p{number}", "file", number % (most + 1)) for number in range(16)]
    shuffled = tuple(paths[number] for number in order)
    for bar in (TurnMeta(), EnvironmentDetails()):
        drawn = text(bar, replace(BUSY, working_set=shuffled))
        assert drawn == text(bar, replace(BUSY, working_set=tuple(paths)))
        assert drawn.count("(file)") == 8


@given(st.datetimes(), st.datetimes())
def test_turn_meta_changes_with_the_day_and_with_nothing_finer(one: object, other: object) -> None:
    first, second = str(one), str(other)
    same = text(TurnMeta(), at(first)) == text(TurnMeta(), at(second))
    assert same == (first[:10] == second[:10])
    assert text(TurnMeta(), at(first)) == text(TurnMeta(), at(f"{first[:10]}T23:59:59.999999+14:00"))


@given(st.integers(0, 300), st.integers(1, 30), st.sampled_from(["newest", "largest"]))
def test_the_context_table_is_bounded_and_in_order(number: int, most: int, which: str) -> None:
    blocks = tuple(Block(n, "user", (n * 7919) % 101, number - n, 0) for n in range(number))
    drawn = ContextTable(most=most, which=which).draw(replace(BUSY, blocks=blocks), context())
    assert (drawn is None) == (number == 0)
    if drawn is None:
        return
    ids = [int(line.split()[1]) for line in drawn.lines[2:] if line.startswith("| ")]
    assert ids == sorted(set(ids)) and len(ids) == min(number, most)
    assert (f"- {number - most} " in drawn.lines[-1]) == (number > most)


# -- the placebo -----------------------------------------------------------------------------------------


@each_bar
def test_every_bar_has_its_placebo_on_the_real_tokenizer(bar: StatusBar, qwen: ChatTemplate) -> None:
    for cluster in range(10):
        at_hand = context(cluster_index=cluster, count=qwen.count)
        real = bar.draw(BUSY, at_hand)
        neutral = Placebo(bar).draw(BUSY, at_hand)
        assert real is not None and neutral is not None
        assert qwen.count(neutral.text) == qwen.count(real.text)
        assert len(neutral.lines) == len(real.lines)
        for number, (said, instead) in enumerate(zip(real.lines, neutral.lines, strict=True)):
            frame = real.frame(number)
            assert (said == instead) if frame is None else instead.startswith(frame[0])
            assert frame is None or said != instead


@pytest.mark.parametrize("before", [1150, 1190, 1199])
def test_a_secret_across_the_end_of_a_preview_is_not_shown_half(before: int) -> None:
    secret = "ghp_" + "Ab3" * 12
    # A key further up makes the text before the cut shorter, so that more of what follows is shown.
    for start in ("", "sk-ant-api03-" + "Zy9" * 40 + "\n"):
        content = start + "x " * ((before - len(start)) // 2) + secret + " and so on " * 2000
        call = ToolCall("read_file", {"path": "a.txt"}, "c0")
        state = derive((Message("assistant", "", (call,)), Message("tool", content, tool_call_id="c0")))
        shown = text(FilePreviews(), state)
        assert "x x x" in shown and "ghp_" not in shown and "Zy9" not in shown


def test_more_of_a_file_than_the_state_keeps_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="characters=1201: expected at most 1200"):
        FilePreviews(characters=1201)


def test_the_state_keeps_so_much_of_a_file_that_its_torn_end_is_never_shown() -> None:
    assert READ_KEPT > READ_CHARACTERS + _AHEAD
