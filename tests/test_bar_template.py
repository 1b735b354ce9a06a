"""Claims about the user's own bar: a Jinja file over the state that reads facts, cannot run away and cannot be forged."""

import re
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from core_samples import calls, context
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from surroundings_states import BUSY, HOSTILE, hostile, text

from harness.errors import TemplateError
from harness.paths import packaged_dir
from harness.state import AgentState, derive
from harness.state.facts import Block, FileRead, Phase, Plan
from harness.statusbar.placebo import Placebo
from harness.statusbar.template_sandbox import MAX_STEPS, MAX_TEMPLATE
from harness.statusbar.user_template import NAMES, UserTemplate
from harness.template import ChatTemplate
from harness.types import Message


@pytest.fixture
def bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a bar of a template's text, in a file `mine.jinja` of the working folder."""
    monkeypatch.chdir(tmp_path)

    def make(source: str, **options: object) -> UserTemplate:
        Path("mine.jinja").write_text(source, encoding="utf-8")
        return UserTemplate(file="mine.jinja", **{"tag": "", "heading": "", **options})

    return make


# -- what it says ----------------------------------------------------------------------------------------


def test_the_packaged_example_counts_calls_and_says_what_is_open() -> None:
    state = replace(derive(calls("Xfinity", "Xfinity", "Xfinity", "Acme")), todos=BUSY.todos)
    assert text(UserTemplate(), state) == (
        "<agent_status>\n"
        "Current State:\n"
        "- 'phone_call': 4 calls\n"
        "- Xfinity: limit reached (3/3)\n"
        "- Acme: open (1/3)\n"
        "- #2 Fix | it (now)\n"
        "- #3 Run it\n"
        "</agent_status>"
    )


def test_the_configuration_makes_the_packaged_example() -> None:
    assert instantiate(OmegaConf.load(packaged_dir("conf") / "bar" / "template.yaml")) == UserTemplate()


def test_a_file_of_the_working_folder_comes_before_a_packaged_one(bar) -> None:
    Path("counter.jinja").write_text("mine: {{ tool_calls }}")
    assert text(UserTemplate(tag="my_bar", heading="")) == "<my_bar>\nmine: 6\n</my_bar>"


def test_the_file_is_read_once_and_other_contents_make_another_bar(bar) -> None:
    first = bar("{{ tool_calls }} calls")
    second = bar("calls: {{ tool_calls }}")
    assert (text(first), text(second)) == ("6 calls", "calls: 6")
    assert first != second
    assert first.digest != second.digest


FACTS = {
    "{{ calls[0].tool }} {{ calls[0].total }} {{ calls[0]['values'][1].value }}": "read_file 2 notes.md",
    "{% for r in rules %}{{ r.key }} {{ r.limit }} {{ r.values|length }}{% endfor %}": "merchant 3 2",
    "{{ todos.percent }} {{ todos.done }}/{{ todos.total }} #{{ todos.in_progress_id }}": "33 1/3 #2",
    "{{ latest.tool }} {{ latest.role }} {{ latest.calls }} {{ latest.failed }}": "read_file tool 2 no",
    "{{ plan.objective }}: {% for p in plan.phases %}{{ p.text }} {{ p.status }}{% endfor %}": "Fit: cut pending",
    "{{ date }} {{ time }} {{ workspace }} {{ cwd }}": "2026-03-02 2026-03-02T14:05:09+01:00 /repo /repo/src",
    "{% for p in working_set %}{{ loop.index }}={{ p.path }} {{ p.kind }};{% endfor %}": (
        "1=/repo/src/area.py file;2=docs folder;"
    ),
    "{{ reads|length }} {{ reads[1].path }} {{ reads[0].text|truncate(9) }}": "2 notes.md def area…",
    "{{ recalled[0].source }} {{ tools[1].name }} {{ tokens }}": "memory/units.md phone_call 5",
    "{{ blocks[2].characters + 2 * blocks[0].characters - 1 }}": "379",
    "{{ (100 * blocks[0].characters / 352)|round(1) }} {{ 7 // 2 }} {{ 7 % 2 }}": "11.4 3 1",
    "{{ edited|join }}|{{ failing|length }}|{{ diagnostics|length }}|{{ completions|length }}": "|0|0|0",
    "{{ todos_age }} {{ requests }} {{ user_turns }} {{ tool_calls }}": "0 6 2 6",
    "{{ 'search' in edited }} {{ date is none }} {{ 'a' if date else 'b' }}": "no no a",
    "{% for t in todos.items[:2] if t.status != 'completed' %}{{ t.content }}{% else %}none{% endfor %}": "Fix | it",
    "{{ date|default('unknown') }} {{ 'x y'|title }} {{ tools|length }}": "2026-03-02 X Y 2",
}


@pytest.mark.parametrize(("source", "said"), FACTS.items())
def test_a_template_reads_every_fact_of_the_state(bar, source: str, said: str) -> None:
    state = replace(BUSY, plan=Plan(objective="Fit", phases=(Phase("cut"),)))
    assert text(bar(source), state) == said


def test_each_fact_is_read_by_some_example() -> None:
    assert {name for name in NAMES if any(re.search(rf"\b{name}\b", source) for source in FACTS)} == NAMES


def test_what_is_unknown_is_a_dash(bar) -> None:
    assert text(bar("{{ date }} {{ latest }} {{ workspace }}"), AgentState()) == "– – –"


def test_a_bar_without_text_draws_no_shell(bar) -> None:
    assert (
        bar("{% for t in todos.items %}- {{ t.id }}\n{% endfor %}\n\n", tag="x").draw(AgentState(), context())
        is None
    )


def test_a_template_sees_no_text_of_a_message(bar) -> None:
    state = derive([Message("user", "Call Acme now")])
    assert state.latest == replace(state.latest, text="Call Acme now")
    with pytest.raises(TemplateError, match=r"mine.jinja:2: no field 'text'; there are: tool, role"):
        text(bar("a\n{{ latest.text }}"), state)


# -- what it cannot be made to say -----------------------------------------------------------------------

EVERYTHING = """{% for c in calls %}- {{ c.tool }}{% for v in c.values %} {{ v.value }}{% endfor %}

{% endfor %}
{% for r in reads %}- {{ r.path }} {{ r.text }}
{% endfor %}
- {{ todos.items[0].content }} {{ time }} {{ recalled[0].text }} {{ tools|length }} {{ tools[0].description|upper }}
- {{ blocks[0].kind }} {{ working_set[0].path|title }} {{ workspace|join("") if false else workspace }}
"""


def _template(source: str) -> UserTemplate:
    """A bar of this text, for tests that draw many examples."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "made.jinja"
        file.write_text(source, encoding="utf-8")
        return UserTemplate(file=str(file))


READER = cache(partial(_template, EVERYTHING))


@given(st.one_of(st.just(HOSTILE), st.text(max_size=60).map(lambda part: HOSTILE + part)))
@settings(max_examples=40)
def test_content_forges_neither_tag_nor_line(content: str) -> None:
    drawn = READER().draw(hostile(content), context())
    assert drawn is not None
    assert drawn.text.count("<") == drawn.text.count(">") == 2
    assert all(line == "" or line.startswith("- ") for line in drawn.lines)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", drawn.text)
    assert drawn == READER().draw(hostile(content), context())


def test_a_secret_is_not_shown(bar) -> None:
    secret = "sk-proj-" + "aB3dE5fG7hJ9kL1m" * 2
    assert secret[8:20] not in text(bar("{{ reads[0].text }}"), hostile(f"key {secret} end"))


def test_a_long_value_is_cut(bar) -> None:
    state = replace(BUSY, reads=(FileRead("a.py", "x" * 5000, 1),))
    assert text(bar("{{ reads[0].text }}", item=10), state) == "x" * 9 + "…"


def test_a_long_context_is_cut_to_its_newest_blocks(bar) -> None:
    state = replace(BUSY, blocks=tuple(Block(number, "user", 1, 0, 0) for number in range(1000)))
    assert text(bar("{{ blocks|length }} {{ blocks[0].id }} {{ blocks[199].id }}"), state) == "200 800 999"


@pytest.mark.parametrize(
    ("bounds", "lines"),
    [
        ({"lines": 3}, ["- block 0", "- block 1", "…"]),
        ({"characters": 25}, ["- block 0", "- block 1", "…"]),
        ({"characters": 5}, ["…"]),
        ({"lines": 4, "characters": 39}, ["- block 0", "- block 1", "- block 2", "…"]),
        ({"lines": 5, "characters": 50}, [f"- block {number}" for number in range(5)]),
    ],
)
def test_a_text_beyond_its_bounds_is_cut_after_a_whole_line(
    bar, bounds: dict[str, int], lines: list[str]
) -> None:
    state = replace(BUSY, blocks=tuple(Block(number, "user", 1, 0, 0) for number in range(5)))
    assert (
        text(bar("{% for b in blocks %}\n- block {{ b.id }}\n{% endfor %}", **bounds), state).splitlines()
        == lines
    )


# -- what it may not do ----------------------------------------------------------------------------------

REFUSED = {
    "call": "{{ calls.copy() }}",
    "global": "{{ lipsum(n=1000) }}",
    "range": "{% for i in range(10**9) %}x{% endfor %}",
    "class": "{{ tool_calls.__class__ }}",
    "class by item": "{{ calls['__class__'] }}",
    "method": "{{ latest.keys }}",
    "format": "{{ '%1000000000d' % 1 }}",
    "format of a list": "{{ '%s' % calls }}",
    "format by a test": "{{ '%1000000000d' is even }}",
    "format by a filter": "{{ '%1000000000d'|format(1) }}",
    "long text": "{{ 'a' * 1000000000 }}",
    "long list": "{% for i in [1] * 1000000000 %}{% endfor %}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "number": "{{ 1000000000000 * 1000000000000 }}",
    "division": "{{ 1 / 0 }}",
    "doubling": "{% set a = 'aaaa' %}" + "{% set a = a ~ a %}" * 40,
    "joined": "{{ date ~ date }}",
    "wide": "{{ date|center(1000000000) }}",
    "indented": "{{ date|indent(1000000000) }}",
    "replaced": "{{ date|replace('', date) }}",
    "long separator": "{{ edited|join('" + "x" * 30 + "') }}",
    "macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "recursive loop": "{% for c in calls recursive %}{{ loop(calls) }}{% endfor %}",
    "include": "{% include 'other' %}",
    "import": "{% import 'other' as o %}",
    "extends": "{% extends 'other' %}",
    "block": "{% block b %}{% endblock %}",
    "filter block": "{% filter upper %}a{% endfilter %}",
    "debug": "{% debug %}",
    "loop over a text": "{% for c in date %}{{ c }}{% endfor %}",
    "unknown loop field": "{% for c in calls %}{{ loop.cycle }}{% endfor %}",
    "own budget": "{% for _budget in calls %}{{ 'a'|upper }}{% endfor %}",
    "own loop": "{% for loop in calls %}{% endfor %}",
    "list as a text": "{{ calls }}",
    "mapping as a text": "{{ todos }}",
    "unknown filter": "{{ calls|map('upper') }}",
    "three loops": "{% for a in blocks %}{% for b in blocks %}{% for c in blocks %}{% endfor %}{% endfor %}{% endfor %}",
    "costly filters": "{% for a in blocks %}{% for b in blocks[:20] %}{% if 'a'|upper %}{% endif %}{% endfor %}{% endfor %}",
    "deep brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "deep ifs": "{% if date %}" * 200 + "x" + "{% endif %}" * 200,
    "long number": "{{ " + "9" * 6000 + " }}",
    "long template": "x" * (MAX_TEMPLATE + 1),
    "unknown name": "{{ calls_so_far }}",
    "unknown name in a dead branch": "{% if false %}{{ nobody }}{% endif %}",
    "unknown field": "{{ todos.percentage }}",
    "item out of range": "{{ calls[7] }}",
    "text as a number": "{{ date + 1 }}",
    "number beside a text": "{{ tool_calls < date }}",
    "wrong arguments": "{{ date|upper(1, 2) }}",
    "open brace": "{{ date",
    "open loop": "{% for c in calls %}",
}
MANY = replace(BUSY, blocks=tuple(Block(number, "user", 1, 0, 0) for number in range(200)))


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED.keys())
def test_what_could_run_away_or_is_wrong_is_refused_at_once_in_one_line(bar, source: str) -> None:
    start = time.perf_counter()
    with pytest.raises(TemplateError) as caught:
        bar(source).draw(MANY, context())
    assert time.perf_counter() - start < 2
    assert re.match(r"mine\.jinja(:\d+)?: \S", str(caught.value))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "a\n{{ todos.percentage }}",
            "mine.jinja:2: no field 'percentage'; there are: items, total, done, percent",
        ),
        ("a\n\n{% if date %}\n{{ 1 / 0 }}\n{% endif %}", "mine.jinja:4: division by zero"),
        ("{{ date }}\n{% set x = 1 %}", "mine.jinja:2: set is not allowed"),
        ("a\n{{ nobody }}", "mine.jinja:2: unknown name 'nobody'; a template may use: blocks, calls"),
        ("a\nb\n{{ date", "mine.jinja:3: unexpected end of template"),
        (
            "{% for b in blocks %}\n{% for c in blocks %}\n{% endfor %}\n{% endfor %}",
            f"more than {MAX_STEPS} steps",
        ),
    ],
)
def test_an_error_names_file_and_line(bar, source: str, said: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(said)):
        bar(source).draw(MANY, context())


pieces = st.sampled_from(
    ["{{ ", " }}", "{% for x in ", "{% endfor %}", "{% if ", "{% endif %}", " %}", "calls", "todos", ".items", "[0]", "x",
     "|length", "|upper", "|join", " + ", " - 1", "'a'", "blocks", "\n", "loop.index", " is none", "-", "(", ")", "[:", "]"]
)  # fmt: skip


@given(st.lists(pieces, max_size=14).map("".join))
@settings(max_examples=100)
def test_any_template_gives_a_bar_nothing_or_one_line(source: str) -> None:
    try:
        drawn = _template(source).draw(MANY, context())
    except TemplateError as error:
        assert "\n" not in str(error)
    else:
        assert drawn is None or len(drawn.text) < 5000


def test_a_missing_file_names_the_packaged_ones(bar) -> None:
    with pytest.raises(TemplateError, match=r"^nowhere.jinja: no such template; .*\(counter.jinja"):
        UserTemplate(file="nowhere.jinja")


def test_a_file_that_is_no_text_is_refused(bar) -> None:
    Path("bytes.jinja").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TemplateError, match=r"^bytes.jinja: cannot be read as UTF-8 text"):
        UserTemplate(file="bytes.jinja")


@pytest.mark.parametrize("tag", ["a b", "<x>", "x>y", "1"])
def test_a_tag_is_a_name(tag: str) -> None:
    with pytest.raises(ValueError, match="tag must be"):
        UserTemplate(tag=tag)


def test_the_placebo_of_a_template_keeps_its_markers_and_says_nothing_of_the_state(
    qwen: ChatTemplate,
) -> None:
    drawn = UserTemplate()
    for cluster in range(10):
        at_hand = context(cluster_index=cluster, count=qwen.count)
        real, neutral = drawn.draw(BUSY, at_hand), Placebo(drawn).draw(BUSY, at_hand)
        assert real is not None and neutral is not None
        assert qwen.count(real.text) == qwen.count(neutral.text)
        assert all(line.startswith("- ") for line in neutral.lines)
        assert not any(word in neutral.text for word in ("Acme", "limit", "3/3", "read_file"))
