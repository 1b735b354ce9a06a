"""A scripted scenario with a mistake is refused in one line: file, line, key, reason."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_dataset_files import _drop as drop
from test_dataset_files import _set as put
from test_dataset_files import refused
from test_scripted import PLAIN, SMALL

Change = Callable[[dict[str, Any]], None]
SCRIPT = ("episode", "script")
RUN = (*SCRIPT, 3)
XFINITY: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent.parent / "scenarios" / "xfinity.yaml").read_text()
)


def add(*path: str | int, entry: object) -> Change:
    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for part in path:
            at = at[part]
        at.append(entry)

    return change


AGAIN = {"call": "run_step", "arguments": {"step": "{{ a }}"}, "result": "Done."}
TOO_FAR = {"call": "run_step", "arguments": {"step": "{{ b }}"}, "result": "Done."}
ENDLESS: list[Any] = []
for _ in range(9):
    ENDLESS = [ENDLESS]
MISTAKES: dict[str, tuple[Change, str, str]] = {
    "nothing said": (put(*SCRIPT, 4, to={}), "episode.script[4]", "none of user, assistant and call"),
    "two things": (put(*SCRIPT, 4, "user", to="x"), "episode.script[4]", "user and assistant of user, assistant"),
    "result of no call": (put(*SCRIPT, 0, "result", to="x"), "episode.script[0]", "'result' belongs to a call"),
    "call without result": (drop(*RUN, "result"), "episode.script[3]", "needs its `result`"),
    "known of the assistant": (put(*SCRIPT, 4, "known", to={"cwd": "/"}), "episode.script[4]", "'known' belongs"),
    "unknown key": (put(*RUN, "role", to="x"), "episode.script[3].role", "unknown key"),
    "unknown tool": (put(*RUN, "call", to="walk"), "episode.script[3].call", "unknown tool 'walk'"),
    "unknown argument": (put(*RUN, "arguments", "pace", to="x"), "episode.script[3].arguments.pace", "no parameter"),
    "missing argument": (put(*SCRIPT, 2, "arguments", to={}), "episode.script[2].arguments", "'path' of 'look'"),
    "text for number": (
        put(*SCRIPT, 2, "arguments", "lines", to="3"), "episode.script[2].arguments.lines", "type integer, not '3'"
    ),
    "truth for number": (
        put(*SCRIPT, 2, "arguments", "lines", to=True), "episode.script[2].arguments.lines", "type integer, not True"
    ),
    "unknown variable": (put(*RUN, "result", to="{{ wrod_1 }}"), "episode.script[3].result", "did you mean 'word_1'"),
    "beyond the pool": (put(*RUN, "result", to="{{ day_3 }}"), "episode.script[3].result", "unknown variable 'day_3'"),
    "unknown variable deep inside": (
        put(*SCRIPT, 1, "arguments", "how", "notes", 1, "deep", to="{{ x }}"),
        "episode.script[1].arguments.how.notes[1].deep", "unknown variable 'x'",
    ),
    "loop": (put(*RUN, "say", to="{% for i in a %}x{% endfor %}"), "episode.script[3].say", "a loop"),
    "renders to nothing": (
        put(*RUN, "say", to="{{ 'x' if first == a else '' }}"), "episode.script[3].say", "renders to nothing"
    ),
    "no time": (put(*SCRIPT, 0, "time", to="{{ day_1 }} at nine"), "episode.script[0].time", "no ISO 8601 time"),
    "date alone": (put(*SCRIPT, 0, "time", to="{{ day_1 }}"), "episode.script[0].time", "no ISO 8601 time"),
    "one bad day of many": (
        put("pools", "variables", "day", 1, to="2026-02-30"), "episode.script[0].time", "'2026-02-30T09:00:00'"
    ),
    "unknown fact": (put(*SCRIPT, 0, "known", to={"mood": "x"}), "episode.script[0].known", "'mood' is nothing"),
    "fact that is no JSON": (
        put(*SCRIPT, 0, "known", to={"cwd": float("nan")}), "episode.script[0].known", "not JSON"
    ),
    "endless nesting": (put(*RUN, "arguments", "how", to={"x": ENDLESS}), "episode.script[3].arguments", "nested deeper"),
    "chat marker": (put(*SCRIPT, 1, "arguments", "how", to={"x": "<|im_end|>"}), "episode.script[1].arguments", "markers"),
    "never at the limit": (put(*RUN, "arguments", "step", to="{{ other_2 }}"), "episode.script", "0 times for {{ a }}"),
    "both at the limit": (add(*SCRIPT, entry=TOO_FAR), "episode.script", "1 times for {{ b }}; it must end at 0"),
    "beyond the limit": (add(*SCRIPT, entry=AGAIN), "episode.script[5].arguments.step", "2 times for one name"),
    "at the limit in one order alone": (
        put(*RUN, "arguments", "step", to="{{ first }}"), "episode.script", "0 times for {{ a }}"
    ),
    "a name that is none": (put(*RUN, "arguments", "step", to="Oak gate"), "episode.script[3].arguments.step", "none of"),
    "a name in a text": (put(*RUN, "result", to="The Alder gate is done."), "episode.script[3].result", "'Alder gate'"),
    "a name in a variable": (
        put("pools", "variables", "file", 0, "text", to="birch gate"), "pools.variables.file[0].text", "'Birch gate'"
    ),
    "variable with a digit": (put("pools", "variables", "day2", to=["x"]), "pools.variables.day2", "small letters"),
    "variable of the script": (put("pools", "variables", "other", to=["x"]), "pools.variables.other", "another name"),
    "no entries": (put("pools", "variables", "word", to=[]), "pools.variables.word", "at least 1"),
    "entries unlike each other": (
        put("pools", "variables", "file", 1, to={"path": "x"}), "pools.variables.file[1]", "before it: path, text"
    ),
    "entry twice": (put("pools", "variables", "word", 2, to="quick"), "pools.variables.word[2]", "repeats"),
    "number as a variable": (put("pools", "variables", "word", 2, to=7), "pools.variables.word[2]", "expected text"),
    "braces in a variable": (put("pools", "variables", "word", 2, to="{{ a }}"), "pools.variables.word[2]", "as it stands"),
    "call order beside a script": (put("episode", "call", to={"how": "x"}), "episode.call", "beside `episode.script`"),
    "pool that is not drawn from": (put("pools", "closings", to=["x"]), "pools.closings", "draws nothing from it"),
    "follow-up without the name": (
        put("pools", "phrasings", "plain", 0, to="Go on."), "pools.phrasings.plain[0]", "{{ name }}"
    ),
    "another word for the name": (
        put("pools", "phrasings", "plain", 0, to="Run {{ merchant }}."), "pools.phrasings.plain[0]", "may use: name"
    ),
    "few names": (put("pools", "names", to=["A", "B"]), "pools.names", "at least 4"),
    "a part of a name": (put("pools", "names", 2, to="Alder gate two"), "pools.names[2]", "is part of"),
    "two pools of names": (put("pools", "merchants", to=["A"]), "pools.names", "'merchants' is stated as well"),
}  # fmt: skip


def written(folder: Path, data: object) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False, width=1000))
    return path


@pytest.mark.parametrize(("change", "key", "reason"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_refused_with_file_line_key_and_reason(
    tmp_path: Path, change: Change, key: str, reason: str
) -> None:
    data = copy.deepcopy(PLAIN)
    change(data)
    line = refused(written(tmp_path, data))
    place, _, rest = line.removeprefix(f"{tmp_path / 'small.yaml'}:").partition(": ")
    assert int(place) >= 1
    assert rest.startswith(f"{key}: ")
    assert reason in rest


def test_the_line_is_the_one_of_the_mistake(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.replace("result: Done.", "result: '{{ done }}'"))
    number = next(n for n, line in enumerate(SMALL.splitlines(), 1) if "result: Done." in line)
    assert refused(path).startswith(f"{path}:{number}: episode.script[3].result: unknown variable 'done'")


@pytest.mark.parametrize("pool", ["cases", "results", "closings"])
def test_a_scenario_without_a_script_still_needs_its_pools(tmp_path: Path, pool: str) -> None:
    data = copy.deepcopy(XFINITY)
    del data["pools"][pool]
    line = refused(written(tmp_path, data))
    assert f": pools.{pool}: is missing or empty" in line


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [("variables", {"word": ["x"]}, "pools.variables"), ("follow_up", {"time": "x"}, "episode.follow_up")],
)
def test_what_belongs_to_a_script_is_refused_without_one(
    tmp_path: Path, key: str, value: object, path: str
) -> None:
    data = copy.deepcopy(XFINITY)
    data["pools" if key == "variables" else "episode"][key] = value
    assert f": {path}: belongs to `episode.script`" in refused(written(tmp_path, data))
