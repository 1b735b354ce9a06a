"""A scenario file with a mistake is refused in one line: file, line, key, reason."""

import copy
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.dataset import content_hash, expand, load_scenario, scenario_names
from harness.errors import ScenarioError
from harness.safeyaml import MAX_BYTES, dotted, parse_yaml

XFINITY = Path(__file__).parent.parent / "scenarios" / "xfinity.yaml"
PLAIN: dict[str, Any] = yaml.safe_load(XFINITY.read_text())


def write(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False, width=1000))
    return path


def refused(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(path))
    return line


def test_the_shipped_scenario_loads_by_name_and_by_path() -> None:
    assert "xfinity" in scenario_names()
    assert content_hash(load_scenario("xfinity")) == content_hash(load_scenario(XFINITY))
    assert load_scenario(XFINITY).rules[0].limit == 3


def test_comments_and_layout_do_not_change_the_content_hash_but_a_word_does(tmp_path: Path) -> None:
    original = content_hash(load_scenario(XFINITY))
    assert content_hash(load_scenario(write(tmp_path, PLAIN))) == original
    changed = copy.deepcopy(PLAIN)
    changed["system"] += " Be kind."
    assert content_hash(load_scenario(write(tmp_path, changed))) != original


def test_a_scenario_in_the_working_folder_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scenarios").mkdir()
    changed = copy.deepcopy(PLAIN)
    changed["description"] = "mine"
    (tmp_path / "scenarios" / "xfinity.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    assert load_scenario("xfinity").spec.description == "mine"


@pytest.mark.parametrize("name", ["xfinty", "nothing-like-it", "", "a\0b", "..", "x y"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ScenarioError, match=r"xfinity|neither"):
        load_scenario(name)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'xfinity'"):
        load_scenario("xfinty")


def _set(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = to

    return change


def _drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for part in path[:-1]:
            at = at[part]
        del at[path[-1]]

    return change


M = ("pools", "merchants", 5)
MISTAKES: dict[str, tuple[Callable[[dict[str, Any]], None], str, str]] = {
    "unknown key": (_set("colour", to="red"), "colour", "unknown key"),
    "unknown inner key": (_set("rules", 0, "per_day", to=1), "rules[0].per_day", "unknown key"),
    "missing key": (_drop("system"), "system", "missing"),
    "missing inner key": (_drop("pools", "cases", 2, "topic"), "pools.cases[2].topic", "missing"),
    "list for mapping": (_set("rules", 0, to=[1]), "rules[0]", "expected a mapping"),
    "text for list": (_set("pools", "closings", to="x"), "pools.closings", "expected a list"),
    "number for text": (_set(*M, to=7), "pools.merchants[5]", "expected text, not 7"),
    "rule of unknown tool": (_set("rules", 0, "tool", to="fax"), "rules[0].tool", "unknown tool 'fax'"),
    "rule of unknown key": (_set("rules", 0, "key", to="shop"), "rules[0].key", "no parameter 'shop'"),
    "key not first": (_set("rules", 0, "key", to="purpose"), "rules[0].key", "first parameter"),
    "limit zero": (_set("rules", 0, "at_most", to=0), "rules[0].at_most", "greater than or equal to 1"),
    "limit negative": (_set("rules", 0, "at_most", to=-2), "rules[0].at_most", "greater than or equal to 1"),
    "limit true": (_set("rules", 0, "at_most", to=True), "rules[0].at_most", "whole number"),
    "limit text": (_set("rules", 0, "at_most", to="3"), "rules[0].at_most", "whole number"),
    "limit huge": (_set("rules", 0, "at_most", to=10**6), "rules[0].at_most", "less than or equal"),
    "limit beyond the pool": (_set("rules", 0, "at_most", to=15), "pools.results", "up to 31"),
    "limited reply": (_set("rules", 0, "tool", to="reply"), "rules[0].tool", "answers the customer"),
    "no reply tool": (_set("reply_tool", to="answer"), "reply_tool", "unknown tool 'answer'"),
    "tool twice": (_set("tools", 1, "name", to="reply"), "tools[3].name", "twice"),
    "tool name": (_set("tools", 1, "name", to="web search"), "tools[1].name", "no tool name"),
    "schema": (_set("tools", 1, "parameters", to={"type": "array"}), "tools[1].parameters", "JSON schema"),
    "required": (
        _set("tools", 1, "parameters", "required", to=[["query"]]),
        "tools[1].parameters",
        "list of names",
    ),
    "path as merchant": (_set(*M, to="../../x"), "pools.merchants[5]", "'../../x' holds"),
    "dots as merchant": (_set(*M, to="A..B"), "pools.merchants[5]", "no '..'"),
    "line feed in merchant": (_set(*M, to="Acme\nInc"), "pools.merchants[5]", r"'\n'"),
    "control in merchant": (_set(*M, to="Acme\x1b"), "pools.merchants[5]", r"'\x1b'"),
    "bidi in merchant": (_set(*M, to="Acme\u202e"), "pools.merchants[5]", r"'\u202e'"),
    "angle in merchant": (_set(*M, to="<Acme>"), "pools.merchants[5]", "'<'"),
    "quote in merchant": (_set(*M, to='Ac"me'), "pools.merchants[5]", "holds '\"'"),
    "backslash in merchant": (_set(*M, to="Ac\\me"), "pools.merchants[5]", "holds"),
    "braces in merchant": (_set(*M, to="{{ x }}"), "pools.merchants[5]", "holds '{'"),
    "long merchant": (_set(*M, to="x" * 61), "pools.merchants[5]", "61 characters"),
    "empty merchant": (_set(*M, to=""), "pools.merchants[5]", "1 to 60"),
    "ligature in merchant": (_set(*M, to="\ufb01rm"), "pools.merchants[5]", "NFKC"),
    "merchant twice": (_set(*M, to="Xfinity"), "pools.merchants[5]", "repeats entry 0"),
    "case variant": (_set(*M, to="xFINITY"), "pools.merchants[5]", "repeats entry 0"),
    "prefix": (_set(*M, to="Xfinity Plus"), "pools.merchants[5]", "'Xfinity' is part of"),
    "merchant in a text": (
        _set("pools", "results", 2, "text", to="They asked xfinity."),
        "pools.results[2].text",
        "holds the merchant",
    ),
    "flagship unknown": (_set("flagship", "other", to="Acme"), "flagship.other", "not in pools.merchants"),
    "flagship twice": (_set("flagship", "other", to="Xfinity"), "flagship.other", "must differ"),
    "looping template": (
        _set("pools", "closings", 1, to="{% for i in range(10**9) %}x{% endfor %}"),
        "pools.closings[1]",
        "a loop",
    ),
    "huge template": (
        _set("pools", "closings", 1, to="{{ 'a' * 10**9 }}"),
        "pools.closings[1]",
        "arithmetic",
    ),
    "unknown variable": (
        _set("pools", "closings", 1, to="{{ shop }}"),
        "pools.closings[1]",
        "unknown variable",
    ),
    "broken template": (_set("pools", "purposes", 1, to="{{ topic"), "pools.purposes[1]", "template line 1"),
    "braces in plain text": (
        _set("tools", 1, "description", to="Search {{ query }}."),
        "tools[1].description",
        "taken as it stands",
    ),
    "variable in system": (_set("system", to="You are {{ name }}."), "system", "may use: limit"),
    "empty rendering": (
        _set("pools", "closings", 1, to="{% if false %}x{% endif %}"),
        "pools.closings[1]",
        "nothing",
    ),
    "phrasing without name": (
        _set("pools", "phrasings", "mild", 1, to="Call them again."),
        "pools.phrasings.mild[1]",
        "{{ merchant }}",
    ),
    "phrasing label": (
        _set("pools", "phrasings", "Very Mild", to=["x"]),
        "pools.phrasings.Very Mild",
        "lower-case",
    ),
    "opening without names": (
        _set("pools", "cases", 1, "opening", to="{{ first }} is bad."),
        "pools.cases[1].opening",
        "{{ second }}",
    ),
    "text twice": (_set("pools", "purposes", 1, to="ask about {{ topic }}"), "pools.purposes[1]", "repeats"),
    "empty text": (_set("pools", "closings", 1, to="  "), "pools.closings[1]", "empty"),
    "chat marker": (_set("system", to="<|im_end|>"), "system", "markers"),
    "few merchants": (_set("pools", "merchants", to=["A", "B"]), "pools.merchants", "at least 4"),
    "argument missing": (
        _set("episode", "call", to={}),
        "episode.call",
        "'purpose' of 'phone_call' is missing",
    ),
    "argument unknown": (
        _set("episode", "call", "tone", to="x"),
        "episode.call.tone",
        "takes no such argument",
    ),
    "aside unknown": (_set("episode", "aside", "tool", to="fax"), "episode.aside.tool", "unknown tool"),
    "aside with rule": (
        _set("episode", "aside", "tool", to="phone_call"),
        "episode.aside.tool",
        "has a rule",
    ),
    "too many asides": (_set("episode", "aside", "count", to=13), "episode.aside.count", "asks for 13"),
    "no purposes": (_set("pools", "purposes", to=[]), "pools.purposes", "this pool is empty"),
    "name": (_set("name", to="../x"), "name", "lower-case"),
}


@pytest.mark.parametrize(("change", "key", "reason"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_refused_with_file_line_key_and_reason(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], key: str, reason: str
) -> None:
    data = copy.deepcopy(PLAIN)
    change(data)
    line = refused(write(tmp_path, data))
    place, _, rest = line.removeprefix(f"{tmp_path / 'mine.yaml'}:").partition(": ")
    assert int(place) >= 1
    assert rest.startswith(f"{key}: ")
    assert reason in rest


def test_the_line_is_the_one_of_the_mistake(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(XFINITY.read_text().replace("- Calder Water", "- Calder/Water"))
    number = XFINITY.read_text().splitlines().index("    - Calder Water") + 1
    assert refused(path).startswith(f"{path}:{number}: pools.merchants[6]: ")


LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
BAD_YAML: dict[str, tuple[bytes, int, str]] = {
    "billion laughs": (LAUGHS.encode(), 7, "aliases expand"),
    "long scalar repeated": (
        b"a: &a " + b"x" * 50_000 + b"\nb: [" + b"*a, " * 30 + b"*a]\n",
        2,
        "aliases expand",
    ),
    "self reference": (b"a: &a [*a]\n", 1, "no finished anchor"),
    "duplicate key": (b"name: x\nother: y\nname: z\n", 3, "'name' occurs twice"),
    "inner duplicate": (b"pools:\n  closings: []\n  closings: []\n", 3, "'pools.closings' occurs twice"),
    "too deep": (b"a: " + b"[" * 100_000, 1, "nested deeper"),
    "deep block": (b"".join(b" " * i + b"a:\n" for i in range(200)), 31, "nested deeper"),
    "not utf-8": (b"name: x\nother: \xff\xfe\n", 2, "not UTF-8"),
    "tab": (b"name: x\npools:\n\tclosings: []\n", 3, "tab"),
    "control character": (b"name: x\nother: a\x00b\n", 2, "U+0000"),
    "syntax": (b"name: x\nother: [a, b\nmore: y\n", 3, "not valid YAML"),
    "python object": (b"name: !!python/object/apply:os.system [ls]\n", 1, "not allowed"),
    "python name": (b"name: !!python/name:os.system\n", 1, "not allowed|not a valid"),
    "set": (b"name: !!set {a, b}\n", 1, "not allowed"),
    "number as key": (b"1: x\n", 1, "cannot be a key"),
    "yes as key": (b"yes: x\n", 1, "cannot be a key"),
    "list as key": (b"? [a]\n: x\n", 1, "cannot be a key"),
    "merge key": (b"a: {b: c}\n<<: {d: e}\n", 2, "cannot be a key"),
    "two documents": (b"a: b\n---\nc: d\n", 2, "second document"),
    "impossible date": (b"a: 2001-99-99\n", 1, "not a valid timestamp"),
    "endless number": (b"a: " + b"9" * 5000 + b"\n", 1, "not a valid int"),
    "empty": (b"# nothing\n", 1, "empty"),
    "list": (b"- a\n", 1, "expected a mapping"),
    "too large": (b"#" * (MAX_BYTES + 1), 0, "larger than"),
}


@pytest.mark.parametrize(("raw", "number", "reason"), BAD_YAML.values(), ids=BAD_YAML.keys())
def test_bad_yaml_is_refused_at_once_with_its_line(
    tmp_path: Path, raw: bytes, number: int, reason: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(raw)
    start = time.perf_counter()
    line = refused(path)
    assert time.perf_counter() - start < 5
    assert any(part in line for part in reason.split("|"))
    if number:
        assert line.startswith(f"{path}:{number}: ")


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none.yaml")
    assert "no such file" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "no such file" in refused(tmp_path / "pipe.yaml")


def test_small_aliases_are_allowed_and_lines_point_to_keys() -> None:
    document = parse_yaml("a: &a [x, y]\nb: *a\nc:\n  - d: 1\n", "f.yaml")
    assert document.data == {"a": ["x", "y"], "b": ["x", "y"], "c": [{"d": 1}]}
    assert document.where(("c", 0, "d")) == "f.yaml:4: c[0].d"
    assert document.where(("c", 0, "missing")) == "f.yaml:4: c[0].missing"
    assert dotted(("a", 3, "b")) == "a[3].b"


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_another_scenario_with_another_limit_expands(tmp_path: Path, limit: int) -> None:
    data = copy.deepcopy(PLAIN)
    data["rules"][0]["at_most"] = limit
    del data["flagship"], data["episode"]["aside"], data["pools"]["fillers"]
    for sample in expand(load_scenario(write(tmp_path, data)), series="matched", clusters=8, seed=1):
        made = sum(len(m.tool_calls) for m in sample.messages)
        assert made == 2 * limit - 1
        assert sample.prior_calls == limit - (sample.expectation.side == "due")
