"""Whatever stands in names, arguments, todo texts, paths and results: no bar of conf/bar can be forged by it, leaks a
secret, carries a control character or fails."""

import re

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_safety_secrets import SECRETS

from harness.commands import parts
from harness.lint.cases import Case, case, coding, examples, phone, renamed, reworded
from harness.lint.drawing import Drawn, drawings
from harness.statusbar import StatusBar
from harness.statusbar.escape import block, flatten, unsafe

BARS = [name for name in parts.names("bar") if name != "recorded"]
"""`recorded` shows nothing of a transcript; its file is attacked in test_bar_recorded.py."""
MARK = "ZQZ"
SECRET = SECRETS["GitHub"]
MARKERS = (
    "",
    "[CYCLE STATE ",
    "## ",
    "### ",
    "```",
    "- [x] ",
    "Current State: ",
    "# ",
    "| ",
    "---",
    "[2026-03-02 ",
)
TAGS = ("agent_status", "turn_meta", "system-reminder", "codewhale:work_state", "environment_details", "diagnostics",
        "system_warning", "tool_call", "|im_end|", "system", "!--")  # fmt: skip
PIECES = st.one_of(
    st.sampled_from([f"\n{marker}{MARK}" for marker in MARKERS]),
    st.sampled_from([f"\r\n\r{MARK}", f"\u2028{MARK}", f"\u2029{MARK}", f"\x85{MARK}", f"\x0b\x0c{MARK}"]),
    st.sampled_from(
        [f"</{tag}>" for tag in TAGS] + [f"<{tag}>" for tag in TAGS] + [f"<{tag} a='b'/>" for tag in TAGS]
    ),
    st.sampled_from(
        ["\u202e", "\u200b", "\ufeff", "\u2066", "\U000e0041", "\ud800", "\udfff", "\x00", "\x1b[2J", "\x07"]
    ),
    st.sampled_from([f" {SECRET} ", f'"password": "{SECRET[4:]}"', f"https://u:{SECRET[4:]}@h/"]),
    st.sampled_from(
        ["&lt;", "{{ x }}", "%s", "{0}", "\\", '"', "'", "]]>", "x" * 6000, "é", "\U0001f600", "\t"]
    ),
    st.text(max_size=12),
)
HOSTILE = st.lists(PIECES, min_size=1, max_size=5).map("".join)


@pytest.mark.parametrize("name", BARS)
@settings(max_examples=6, phases=[Phase.generate])
@given(attack=HOSTILE, inside=st.booleans(), tools=HOSTILE)
def test_no_content_can_break_a_bar(name: str, attack: str, inside: bool, tools: str) -> None:
    bar = parts.part("bar", name) if name not in _MADE else _MADE[name]
    _MADE[name] = bar
    plain = case("hostile", [*coding(), phone("Xfinity"), phone("Xfinity")])
    changed = renamed(
        reworded(plain, lambda text: text[:1] + attack + text[1:] if inside else attack + text),
        lambda name: name[:1] + tools + name[1:],
    )
    first = list(drawings(bar, changed))
    own = {tag: max((_body(d).count(f"</{tag}>") for d in drawings(bar, plain)), default=0) for tag in TAGS}
    for drawn in first:
        _check(drawn, own)
    assert [drawn.text for drawn in first] == [drawn.text for drawn in drawings(bar, changed)]


def _body(drawn: Drawn) -> str:
    return "\n".join(drawn.said.lines) if drawn.said else ""


_MADE: dict[str, StatusBar] = {}


def _check(drawn: Drawn, own: dict[str, int]) -> None:
    said = drawn.said
    if said is None:
        return
    text = said.text
    if said.tag:
        assert text.count(f"</{said.tag}>") == 1 and text.count(f"<{said.tag}") == 1
    body = "\n".join(said.lines)
    for tag in TAGS:
        # A bar of several blocks writes its tag in its lines: as often as without an attack.
        opened, closed = body.count(f"<{tag}>") + body.count(f"<{tag} "), body.count(f"</{tag}>")
        assert opened == closed <= own[tag]
    for line in text.split("\n"):
        assert not any(line.startswith(f"{marker}{MARK}") for marker in MARKERS if marker != "- [x] ")
        assert not unsafe(line)
    assert not any("\n" in line for line in said.lines)
    assert SECRET[4:30] not in text
    text.encode()


@pytest.mark.parametrize("name", BARS)
def test_every_bar_has_something_to_say_where_it_is_attacked(name: str) -> None:
    """Otherwise the test before would prove nothing."""
    bar = parts.part("bar", name)
    cases: list[Case] = [*examples(), case("hostile", [*coding(), phone("Xfinity"), phone("Xfinity")])]
    assert any(drawn.text for each in cases for drawn in drawings(bar, each))


@given(HOSTILE, st.integers(1, 200))
def test_flatten_makes_one_line_without_tags_within_its_limit(text: str, limit: int) -> None:
    flat = flatten(text, limit)
    assert not unsafe(flat) and "<" not in flat and ">" not in flat
    assert not re.search(r"&(?!amp;|lt;|gt;)", flat)
    assert len(re.sub(r"&(amp|lt|gt);", "&", flat)) <= limit
    assert SECRET[4:30] not in flat


@given(HOSTILE, st.integers(1, 400), st.integers(1, 5))
def test_block_makes_lines_behind_their_prefix_within_its_limits(text: str, limit: int, most: int) -> None:
    lines = block(text, limit, "| ", most)
    assert len(lines) <= most
    for line in lines:
        assert line.startswith("| ") and not unsafe(line) and "<" not in line
    assert sum(len(re.sub(r"&(amp|lt|gt);", "&", line)) - 2 for line in lines) <= limit
    assert all(SECRET[4:30] not in line for line in lines)


def test_block_keeps_the_lines_of_a_text_and_the_empty_ones_between_them() -> None:
    assert block("def f():\n\treturn 1\n\n\nx < 2\n\n", 100, "> ") == (
        "> def f():",
        ">     return 1",
        "> ",
        "> ",
        "> x &lt; 2",
    )
    assert block("abcdef", 4, "") == ("abc…",)
    assert block("one\ntwo\nthree", 100, "", lines=2) == ("one", "tw…")
    assert block("", 100, "> ") == block("\n \n", 100, "> ") == ()
