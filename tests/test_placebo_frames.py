"""Claims about the neutral bar over any form of bar: it keeps the frames, replaces what they hold, and is as long."""

import json
import re
from dataclasses import dataclass, replace
from typing import ClassVar

import example_states as examples
import pytest
from core_samples import calls, context
from core_tokens import tiny_template
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bar_work import NAMES, configured
from test_statusbar import ALLOWED, TELLING

from harness.errors import ConfoundError
from harness.state import AgentState, TodoList, derive
from harness.statusbar import AgentStatus, BarContext, Mismatched, Placebo, StatusBar, StatusText
from harness.statusbar.base import Frame
from harness.statusbar.placebo import TEXTS, WORDS
from harness.statusbar.work import WorkStyle
from harness.statusbar.work_state import WorkState

STATES = (examples.PLANNED, examples.HOSTILE, examples.WRITTEN, examples.FINISHED)
PHRASES = {phrase.lower() for pool in (*TEXTS, *WORDS) for phrase in pool}


@dataclass(frozen=True)
class Fixed:
    """A bar that says what it is given."""

    name: ClassVar[str] = "fixed"
    said: StatusText

    def draw(self, state: AgentState, context: BarContext) -> StatusText | None:
        return self.said


def fitted(bar: StatusBar, state: AgentState, count, index: int) -> tuple[StatusText, StatusText] | None:
    """The bar and its placebo; None where the bar says nothing."""
    at = context(count=count, cluster_index=index)
    real = bar.draw(state, at)
    placebo = Placebo(bar).draw(state, at)
    assert (real is None) == (placebo is None)
    return None if real is None or placebo is None else (real, placebo)


def check(real: StatusText, placebo: StatusText, count) -> None:
    assert count(placebo.text) == count(real.text)
    assert len(placebo.text.splitlines()) == len(real.text.splitlines())
    for name in ("tag", "attributes", "heading", "frames", "note"):
        assert getattr(placebo, name) == getattr(real, name)
    for number, (line, neutral) in enumerate(zip(real.lines, placebo.lines, strict=True)):
        frame = real.frame(number)
        if frame is None or line == "".join(frame):
            assert neutral == line
            continue
        opening, closing = frame
        assert neutral.startswith(opening) and neutral.endswith(closing)
        inside = neutral[len(opening) : len(neutral) - len(closing)]
        assert {phrase.lower() for phrase in inside.split("; ")} <= PHRASES


# -- the real tokenizer --------------------------------------------------------------------------------------


@pytest.mark.weights
@pytest.mark.parametrize("name", NAMES)
def test_every_bar_of_the_work_has_a_placebo_of_its_exact_length_in_all_ten_texts(qwen, name: str) -> None:
    fits = 0
    for state in STATES:
        for index in range(len(TEXTS)):
            pair = fitted(configured(name), state, qwen.count, index)
            if pair:
                check(*pair, qwen.count)
                fits += 1
    assert fits >= len(TEXTS)


SHORT: list[tuple[str, Frame]] = [
    ("- ok", ("- ", "")),
    ("- a b", ("- ", "")),
    ("- [~] Go on", ("- ", "")),
    ("Mode: act", ("Mode: ", "")),
    ("- Mode: `plan`", ("- Mode: `", "`")),
    ('      "status": "done"', ('      "status": "', '"')),
    ('      "status": "in_progress",', ('      "status": "', '",')),
    ('  "left": 7,', ('  "left": ', ",")),
    ('  "left": 100', ('  "left": ', "")),
    ('  "active": null', ('  "active": ', "")),
    ("Nothing was read.", ("", ".")),
    ("Two files were read. The second one is long.", ("", ".")),
    ("So far. Two files.", ("So far. ", ".")),
    ("  ERROR [12:8] missing semicolon", ("  ", "")),
    ("(33%)", ("(", ")")),
]


@pytest.mark.weights
@pytest.mark.parametrize(("line", "frame"), SHORT, ids=[line.strip() for line, _ in SHORT])
def test_a_line_of_a_few_tokens_has_its_placebo_in_at_least_eight_texts(
    qwen, line: str, frame: Frame
) -> None:
    """Alone and last, between two others, inside a tag and without one."""
    for lines in ((line,), ("{", line, "}")):
        frames = (frame,) if len(lines) == 1 else (None, frame, None)
        for tag in ("", "note"):
            bar = Fixed(StatusText(tag, lines, heading="", frames=frames))
            fits = 0
            for index in range(len(TEXTS)):
                try:
                    pair = fitted(bar, examples.EMPTY, qwen.count, index)
                except ConfoundError:
                    continue
                assert pair
                check(*pair, qwen.count)
                fits += 1
            assert fits >= 8, (lines, tag)


@pytest.mark.weights
def test_a_line_longer_than_all_phrases_together_takes_them_again(qwen) -> None:
    bar = Fixed(StatusText("note", ("- " + "a line of a file that was read, " * 120,)))
    for index in (0, 5):
        pair = fitted(bar, examples.EMPTY, qwen.count, index)
        assert pair
        check(*pair, qwen.count)


@pytest.mark.weights
def test_a_sentence_stays_a_sentence(qwen) -> None:
    said = "The tool was called three times so far, and for one of the two the maximum is reached."
    bar = Fixed(StatusText("note", (said,), frames=(("", "."),)))
    for index in range(len(TEXTS)):
        pair = fitted(bar, examples.EMPTY, qwen.count, index)
        assert pair and re.fullmatch(r"[A-Z][^:.]*\.", pair[1].lines[0])


@pytest.mark.weights
def test_a_snapshot_in_json_keeps_its_braces_and_strings(qwen) -> None:
    for index in range(len(TEXTS)):
        pair = fitted(configured("todo"), examples.WRITTEN, qwen.count, index)
        assert pair
        body = "\n".join(
            line for line in pair[1].lines[1:] if "completion_pct" not in line and "in_progress" not in line
        )
        parsed = json.loads(re.sub(r",\n}", "\n}", body))
        assert [item["id"] for item in parsed["items"]] == [1, 2, 3]
        values = [value for item in parsed["items"] for value in (item["content"], item["status"])]
        assert {phrase for value in values for phrase in value.split("; ")} <= PHRASES


@pytest.mark.weights
def test_the_placebos_of_recorded_runs_stand_as_they_were(qwen) -> None:
    """Computed by the release that knew no frames, in its first text and its fifth."""
    state = derive(
        [
            *calls("Acme Fiber", "Acme Fiber", "Acme Fiber", "Bolt"),
            *calls("x", tool="web_search", key="query"),
        ]
    )
    drawn = [fitted(AgentStatus(), state, qwen.count, index) for index in (0, 4)]
    assert [pair and pair[1].lines for pair in drawn] == [
        (
            "- Desk: customer care, day shift; Language: English; Channel: web chat; the chat window is open; "
            "the agent is signed in; the notes panel is visible",
            "- the profile page has loaded; Theme: light; Layout: standard; sound is on; "
            "the screen is shared with nobody; Region: east; the clock hangs on the wall",
        ),
        (
            "- System: customer desk; Release: stable; the service page is reachable; backups run at night; "
            "Storage: fine; Network: fine; the browser is up to date",
            "- the status page is green; Encryption: on; cookies are accepted; Memory: fine; "
            "updates install at the weekend; Access: regular; the login screen uses the new logo",
        ),
    ]


# -- any tokenizer -------------------------------------------------------------------------------------------


def pieces(size: int):
    pattern = re.compile(rf"\w{{1,{size}}}|\W")
    return lambda text: len(pattern.findall(text))


COUNTERS = {
    "pieces of 2": pieces(2),
    "pieces of 5": pieces(5),
    "bpe of 500": tiny_template(vocabulary=500).count,
    "blocks of 3": lambda text: -(-len(text) // 3),
}
CONTENT = st.text(alphabet="abcdef gh-.", min_size=1, max_size=60)
WORK = st.lists(
    st.tuples(CONTENT, st.sampled_from(["pending", "in_progress", "completed"])), min_size=1, max_size=30
)


@settings(max_examples=60)
@given(
    work=WORK,
    name=st.sampled_from(["work_state", "todo", "todo_compaction"]),
    index=st.integers(0, 9),
    by=st.sampled_from([*COUNTERS]),
)
def test_under_any_tokenizer_the_placebo_is_exact_or_refused(work, name: str, index: int, by: str) -> None:
    state = replace(examples.WRITTEN, todos=TodoList.written(work))
    try:
        pair = fitted(configured(name), state, COUNTERS[by], index)
    except ConfoundError as error:
        assert "no placebo line of exactly" in str(error)
        return
    assert pair
    check(*pair, COUNTERS[by])


@settings(max_examples=30)
@given(work=WORK, index=st.integers(0, 9))
def test_what_was_fitted_before_changes_no_placebo(work, index: int) -> None:
    bar, count = configured("work_state_shipped"), COUNTERS["pieces of 5"]
    state, at = (
        replace(examples.EMPTY, todos=TodoList.written(work)),
        context(count=count, cluster_index=index),
    )
    used = Placebo(bar)
    for other in (examples.PLANNED, examples.HOSTILE, state):
        used.draw(other, at)
    assert used.draw(state, at) == Placebo(bar).draw(state, at)


@pytest.mark.weights
def test_a_further_state_of_a_long_list_costs_few_tokenizations(qwen) -> None:
    """The phrases are known by then: what is left is each line of the new state, and the block as a whole."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return qwen.count(text)

    states = [
        AgentState(
            todos=TodoList.written(
                [(f"Port module {n}", "completed" if n < done else "pending") for n in range(22)]
            )
        )
        for done in (3, 4, 5)
    ]
    bar, at = WorkState(style=WorkStyle(strategy=False)), context(count=count)
    placebo = Placebo(bar)
    costs = []
    for state in states:
        assert placebo.draw(state, at) is not None
        costs.append(len(counted))
        counted.clear()
    assert costs[0] < 400 and costs[1] <= 40 and costs[2] <= 40


# -- the words -------------------------------------------------------------------------------------------------


def test_the_single_words_tell_nothing_either_and_each_text_has_its_own() -> None:
    pools = [*TEXTS, *WORDS]
    assert len(WORDS) == len(TEXTS)
    everything = [phrase for pool in pools for phrase in pool]
    assert len(set(everything)) == len(everything)
    work = re.compile(
        r"\b(todo\w*|task\w*|item\w*|pending|done|complet\w*|finish\w*|progress\w*|plan\w*|step\w*|next)\b"
    )
    for phrase in (phrase for words in WORDS for phrase in words):
        assert not work.search(phrase) and not re.search(r"[\d\"\\:;]", phrase)
        assert not [hit for hit in TELLING.findall(phrase) if hit not in ALLOWED]


# -- mismatched --------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(work=WORK, index=st.integers(0, 300))
def test_a_mismatched_list_has_the_same_form_and_none_of_the_work_at_hand(work, index: int) -> None:
    texts = [f"{content} z{number}" for number, (content, _) in enumerate(work)]
    todos = TodoList.written([(text, status) for text, (_, status) in zip(texts, work, strict=True)])
    state, bar = (
        replace(examples.PLANNED, todos=todos),
        WorkState(style=WorkStyle(ids=True, max_chars=None, max_lines=None)),
    )
    at = context(cluster_index=index)
    real, other = bar.draw(state, at), Mismatched(bar).draw(state, at)
    assert real and other and real.frames == other.frames and real.lines[0] == other.lines[0]
    marks = [[line[:9] for line in drawn.lines if re.match(r"- \[.\] #", line)] for drawn in (real, other)]
    assert marks[0] == marks[1]
    told = [line.split(" ", 4)[-1] for line in other.lines if re.match(r"- \[.\] #", line)]
    assert len(set(told)) == len(told) and not any(text.strip() in other.text for text in texts)
    assert examples.PLAN.objective not in other.text and "- Objective: " in other.text
