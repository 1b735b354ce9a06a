"""Claims about the state as a whole: incremental is batch, snapshots stay, and neither grows with the transcript."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.state import AgentState, Block, CallCount, StateBuilder, derive
from harness.state.views import History, LazySequence, Window
from harness.types import Message, ToolCall

PATHS = st.sampled_from(["a.py", "src/b.c", "docs/", "./a.py"])
TEXTS = st.sampled_from(["ok", "Error: no", "a.py:3:1: error: x", "see src/b.c and X-17", '{"error": 1}', ""])
CALLS = st.one_of(
    st.builds(lambda p: ToolCall("read_file", {"path": p}), PATHS),
    st.builds(lambda p: ToolCall("edit", {"path": p, "n": 1}), PATHS),
    st.builds(lambda p: ToolCall("bash", {"command": f"cat {p}"}), PATHS),
    st.builds(lambda t: ToolCall("todo_write", {"todos": t}), st.lists(st.text(max_size=3), max_size=3)),
    st.builds(lambda n: ToolCall("update_plan", {"plan": ["x"] * n, "title": "t"}), st.integers(0, 2)),
    st.builds(lambda m: ToolCall("phone_call", {"merchant": m}), st.sampled_from(["X-17", "Brightwell"])),
)
KNOWN = st.fixed_dictionaries(
    {},
    optional={
        "diagnostics": st.lists(
            st.builds(lambda p: {"file": p, "message": "m", "line": 2}, PATHS), max_size=2
        ),
        "recalled": st.just([{"source": "s", "text": "t"}]),
        "completions": st.just([{"agent": "a", "status": "completed", "summary": "s"}]),
        "cwd": st.sampled_from(["/a", "/b"]),
    },
)
TIMES = st.none() | st.sampled_from(["2026-03-01T10:00:00", "2026-03-02", "late"])
MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda c, t, k: Message("user", c, time=t, known=k), TEXTS, TIMES, KNOWN),
        st.builds(lambda c, calls: Message("assistant", c, tuple(calls)), TEXTS, st.lists(CALLS, max_size=2)),
        st.builds(lambda c, k: Message("tool", c, known=k), TEXTS, KNOWN),
        st.builds(lambda c: Message("system", c), TEXTS),
    ),
    max_size=14,
)


def length(text: str) -> int:
    return len(text)


def plain(value: Any) -> Any:
    """A deep copy in plain data, so that nothing of it can change."""
    if isinstance(value, AgentState):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)} | {
            "tokens": value.tokens(length)
        }
    if isinstance(value, CallCount):
        return (value.total, plain(value.by_argument))
    if hasattr(value, "items") and callable(value.items):
        return [(key, plain(each)) for key, each in value.items()]
    if isinstance(value, LazySequence | tuple):
        return [plain(each) for each in value]
    return value


@settings(max_examples=50, deadline=None)
@given(messages=MESSAGES)
def test_incremental_is_batch_and_no_snapshot_is_changed_by_what_comes_after(messages: list[Message]) -> None:
    builder = StateBuilder()
    snapshots, copies = [], []
    for message in messages:
        builder.advance(message)
        snapshots.append(builder.state())
        copies.append(plain(snapshots[-1]))
    assert [plain(state) for state in snapshots] == copies
    batch = [derive(messages[: n + 1]) for n in range(len(messages))]
    assert [plain(state) for state in batch] == copies
    assert batch == snapshots


@settings(max_examples=50, deadline=None)
@given(messages=MESSAGES)
def test_the_blocks_are_the_messages_and_the_tokens_their_texts(messages: list[Message]) -> None:
    state = derive(messages)
    assert [block.characters for block in state.blocks] == [
        len(message.content)
        + sum(
            len(json.dumps({"name": c.name, "arguments": c.arguments}, ensure_ascii=False))
            for c in message.tool_calls
        )
        for message in messages
    ]
    assert sum(block.characters for block in state.blocks) == state.tokens(length)
    assert [block.id for block in state.blocks] == list(range(len(messages)))
    assert "".join(text for text in state.texts if not text.startswith('{"name"')) == "".join(
        message.content for message in messages
    )
    assert (
        state.tokens(length) == sum(map(len, state.texts)) == derive(messages).tokens(lambda text: len(text))
    )


@given(
    puts=st.lists(
        st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3), st.booleans()), max_size=20
    )
)
def test_a_view_is_the_mapping_that_it_was_taken_of(puts: list[tuple[str, int | None, bool]]) -> None:
    history: History[int] = History()
    now: dict[str, int] = {}
    version, taken = 1, []
    for key, value, next_version in puts:
        history.put(key, value, version)
        if value is None:
            now.pop(key, None)
        else:
            now[key] = value
        assert history.now(key) == now.get(key)
        if next_version:
            taken.append((history.view(version), dict(now)))
            version += 1
    for view, expected in taken:
        assert view == expected and expected == view and dict(view) == expected
        assert len(view) == len(expected) and sorted(view) == sorted(expected)
        assert [view.get(key) for key in "abcd"] == [expected.get(key) for key in "abcd"]


def test_a_view_keeps_the_order_of_first_appearance() -> None:
    history: History[int] = History()
    for version, (key, value) in enumerate([("b", 1), ("a", 1), ("b", None), ("b", 2)]):
        history.put(key, value, version)
    assert list(history.view(3).items()) == [("b", 2), ("a", 1)]
    assert list(history.view(2)) == ["a"] and len(history.view(2)) == 1
    with pytest.raises(KeyError):
        history.view(2)["b"]


def test_a_window_behaves_like_the_tuple_that_it_was() -> None:
    items = [1, 2, 3]
    window = Window(items)
    items.append(4)
    was: object = (1, 2, 3)
    assert was == window and window == was and window != (1, 2) and window != [1, 2, 4]
    assert (window[-1], window[:2], window[5:], len(window), hash(window)) == (
        3,
        (1, 2),
        (),
        3,
        hash((1, 2, 3)),
    )
    assert list(window) == [1, 2, 3] and 4 not in window and repr(window) == "(1, 2, 3)"
    with pytest.raises(IndexError):
        window[3]


def test_arrived_is_what_came_since_the_last_request() -> None:
    calls = Message("assistant", "", (ToolCall("a", {}), ToolCall("b", {})))
    state = derive([Message("user", "x"), calls, Message("tool", "1"), Message("tool", "Error: 2")])
    assert [(latest.text, latest.failed) for latest in state.arrived] == [("1", False), ("Error: 2", True)]
    assert state.latest == state.arrived[-1] and state.requests == 1
    assert derive([Message("user", "x"), calls]).arrived == ()


def test_the_age_of_a_block_counts_requests_and_its_uses_later_calls_with_what_it_brought() -> None:
    def asks(value: str, tool: str = "get") -> Message:
        return Message("assistant", f"I look at {value}", (ToolCall(tool, {"id": value, "again": value}),))

    messages = [
        Message("system", "Orders have ids."),
        Message("user", "My order is XEWRD9, and please look."),
        asks("XEWRD9"),
        Message("tool", "It holds flight HAT030."),
        asks("HAT030"),
        Message("tool", "on time"),
        asks("XEWRD9"),
        asks("please"),
        asks("Brightwell Energy"),
        Message("tool", "done"),
        asks("Brightwell Energy"),
    ]
    blocks = derive(messages).blocks
    assert [block.uses for block in blocks] == [0, 2, 0, 1, 0, 0, 0, 0, 0, 1, 0]
    assert blocks[1] == Block(id=1, kind="user", characters=36, age=6, uses=2)
    assert [block.age for block in blocks] == [6, 6, 5, 5, 4, 4, 3, 2, 1, 1, 0]
    assert [block.kind for block in blocks][2:4] == ["assistant", "get"]
    assert derive(messages[:5]).blocks[1].uses == 1


def test_tokens_are_counted_once_per_text_and_counting_function() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    builder, totals = StateBuilder(), []
    call = ToolCall("get", {"b": "é", "a": 1})
    for message in (
        Message("user", "abc"),
        Message("assistant", "d", (call,), reasoning="never"),
        Message("tool", ""),
    ):
        builder.advance(message)
        totals.append((builder.state().tokens(count), builder.state().tokens(count)))
    written = '{"name": "get", "arguments": {"b": "é", "a": 1}}'
    assert counted == ["abc", "d", written]
    assert totals == [(3, 3), (4 + len(written),) * 2, (4 + len(written),) * 2]
    assert builder.state().tokens(lambda text: 1) == 3
    assert AgentState(texts=("ab", "c")).tokens(len) == 3 and AgentState().tokens(len) == 0


def test_a_compacted_context_begins_again_and_what_was_learnt_stays() -> None:
    messages = [
        Message("user", "Look at a.py"),
        Message("assistant", "", (ToolCall("get", {"id": "K-1234"}),)),
    ]
    builder = StateBuilder()
    for message in (*messages, Message("tool", "K-1234 is here")):
        builder.advance(message)
    before = builder.state()
    builder.compact([Message("user", "So far: K-1234."), Message("tool", "K-1234 is here", name="get")])
    after = builder.state()
    assert (before.tokens(length), len(before.blocks)) == (12 + 46 + 14, 3)
    assert (after.tokens(length), [block.kind for block in after.blocks]) == (29, ["user", "get"])
    assert (after.calls, after.working_set, after.latest) == (before.calls, before.working_set, before.latest)
    builder.advance(messages[1])
    assert [block.uses for block in builder.state().blocks] == [1, 0, 0]
    assert builder.state().blocks[0].age == 1


def _long(count: int) -> list[Message]:
    """Turns of eight messages, with ever new values, files, failures and complaints."""
    found = []
    for number in range(count // 8):
        said = {"file": f"f{number}.py", "message": "m"}
        for step, (tool, text) in enumerate((("edit", "ok"), ("read_file", "text"), ("edit", "Error: no"))):
            call = ToolCall(tool, {"path": f"f{number + step}.py"})
            found += [Message("assistant", "", (call,)), Message("tool", text, known={"diagnostics": [said]})]
        found += [Message("user", f"see g{number}.py"), Message("assistant", "fine")]
    return found


def _work(action: Callable[[], object]) -> int:
    """Python and C functions that `action` calls."""
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def test_neither_a_message_nor_a_state_costs_more_in_a_long_transcript() -> None:
    messages = _long(4016)
    builder = StateBuilder()
    work: dict[int, int] = {}
    size: dict[int, int] = {}

    def one_turn(at: int) -> None:
        for message in messages[at : at + 8]:
            builder.advance(message)
            builder.state()

    for at in range(0, len(messages), 8):
        if at not in (400, 4000):
            one_turn(at)
            continue
        work[at] = _work(lambda at=at: one_turn(at))
        builder.advance(Message("system", "note"))
        tracemalloc.start()
        state = builder.state()
        size[at] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(state.blocks) > at and state.calls
    assert work[4000] <= 1.1 * work[400], "work per turn grows"
    assert size[4000] <= size[400] + 200, f"a state takes more memory: {size}"
