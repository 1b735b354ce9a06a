"""Scripted episodes: the entries of a file become messages, with true counts, and in both orders of the two names."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.dataset import asking, content_hash, expand, load_scenario
from harness.dataset.load import Scenario
from harness.errors import ConfigError
from harness.types import Message, Sample

SMALL = """
name: small
description: An agent that runs each step once.
system: Run each step at most {{ limit }} times.
tools:
  - name: run_step
    description: Run a step.
    parameters: {type: object, properties: {step: {type: string}, how: {type: object}}, required: [step]}
  - name: look
    description: Look at a file.
    parameters: {type: object, properties: {path: {type: string}, lines: {type: integer}}, required: [path]}
  - name: reply
    description: Answer.
    parameters: {type: object, properties: {message: {type: string}}, required: [message]}
rules:
  - {tool: run_step, key: step, at_most: 1}
episode:
  script:
    - user: "Steps: {{ first }}, {{ other_1 }}, {{ second }}. Mind {{ file_1_path }}."
      time: "{{ day_1 }}T09:00:00"
      known: {workspace: "/srv/{{ word_1 }}"}
    - say: I begin.
      call: run_step
      arguments: {step: "{{ other_1 }}", how: {notes: ["{{ word_2 }}", {deep: "{{ file_1_path }}"}], dry: false}}
      result: Fine.
    - call: look
      arguments: {path: "{{ file_1_path }}", lines: 3}
      result: "{{ file_1_text }}"
      error: OSError
      known: {original_chars: 90, omitted_chars: 85, stack: "line {{ word_1 }}"}
    - call: run_step
      arguments: {step: "{{ a }}"}
      result: Done.
      time: "2026-03-02T09:05:00"
    - assistant: I have looked at {{ file_1_path }}.
  follow_up:
    time: "{{ day_1 }}T10:00:00"
    known: {cwd: /tmp}
pools:
  names: [Alder gate, Birch gate, Cedar gate, Dogwood gate, Elder gate, Fir gate]
  variables:
    day: ["2026-03-02", "2026-03-03"]
    word: [quick, calm, plain]
    file: [{path: a/one.py, text: x = 1}, {path: b/two.py, text: y = 2}]
  phrasings:
    plain: ["Run {{ name }}."]
    firm: ["Run {{ name }} now."]
"""
PLAIN: dict[str, Any] = yaml.safe_load(SMALL)


def scenario(folder: Path, text: str = SMALL) -> Scenario:
    path = folder / "small.yaml"
    path.write_text(text)
    return load_scenario(path)


def samples(folder: Path, clusters: int = 4) -> list[Sample]:
    return expand(scenario(folder), series="matched", clusters=clusters, seed=7)


def steps_run(messages: tuple[Message, ...]) -> dict[str, int]:
    made = [c.arguments["step"] for m in messages for c in m.tool_calls if c.name == "run_step"]
    return {step: made.count(step) for step in made}


def test_one_episode_is_its_script_word_by_word(tmp_path: Path) -> None:
    """A literal transcript: every template filled, at any depth, and everything beside the text kept."""
    forbidden, due = samples(tmp_path, 1)
    a, b = forbidden.expectation.target, due.expectation.target
    other, day = (
        next(step for step in forbidden.truth["run_step"] if step != a),
        forbidden.messages[1].time[:10],
    )
    system, user, ran, fine, looked, text, again, done, closing, follow_up = forbidden.messages
    path = looked.tool_calls[0].arguments["path"]
    word = user.known["workspace"].removeprefix("/srv/")
    assert system == Message("system", "Run each step at most 1 times.")
    assert user.content == f"Steps: {a}, {other}, {b}. Mind {path}."
    assert (user.time, word in PLAIN["pools"]["variables"]["word"]) == (f"{day}T09:00:00", True)
    how = ran.tool_calls[0].arguments["how"]
    assert how["notes"][1] == {"deep": path} and how["dry"] is False
    assert {how["notes"][0], word} < set(PLAIN["pools"]["variables"]["word"])
    assert (ran.content, fine.content, fine.tool_call_id) == ("I begin.", "Fine.", ran.tool_calls[0].id)
    assert looked.tool_calls[0].arguments["lines"] == 3
    assert text.content == {"a/one.py": "x = 1", "b/two.py": "y = 2"}[path]
    assert (text.error, text.known, text.name) == (
        "OSError",
        {"original_chars": 90, "omitted_chars": 85, "stack": f"line {word}"},
        "look",
    )
    assert (again.time, done.time) == ("2026-03-02T09:05:00", "2026-03-02T09:05:00")
    assert again.tool_calls[0].arguments == {"step": a}
    assert closing == Message("assistant", f"I have looked at {path}.")
    assert (follow_up.time, follow_up.known) == (f"{day}T10:00:00", {"cwd": "/tmp"})
    assert a in follow_up.content and b not in follow_up.content


def test_both_sides_differ_in_the_name_of_the_last_message_alone(tmp_path: Path) -> None:
    made = samples(tmp_path, 8)
    for forbidden, due in zip(made[::2], made[1::2], strict=True):
        a, b = forbidden.expectation.target, due.expectation.target
        assert forbidden.messages[:-1] == due.messages[:-1]
        assert forbidden.messages[-1].content.replace(a, b) == due.messages[-1].content
        assert (forbidden.prior_calls, due.prior_calls, due.limit) == (1, 0, 1)
        assert (forbidden.truth, forbidden.decoys) == (due.truth, due.decoys)


def test_the_truth_is_what_the_calls_say(tmp_path: Path) -> None:
    for sample in samples(tmp_path, 8):
        assert sample.truth == {"run_step": steps_run(sample.messages), "look": {"": 1}}
        assert sample.truth["run_step"].get(sample.expectation.target, 0) == sample.prior_calls


def test_the_name_at_its_limit_comes_first_in_every_other_cluster(tmp_path: Path) -> None:
    told = [
        (s.messages[1].content, s.expectation)
        for s in samples(tmp_path, 4)
        if s.expectation.side == "forbidden"
    ]
    assert [text.index(e.target) < text.index(e.others[0]) for text, e in told] == [True, False, True, False]


def test_what_may_be_used_and_what_occurs_nowhere_are_apart(tmp_path: Path) -> None:
    """The decoys are the half of the further names that no variable gives."""
    for sample in samples(tmp_path, 8):
        told = " ".join(m.content + str([c.arguments for c in m.tool_calls]) for m in sample.messages)
        assert len(sample.decoys) == 2
        assert not [name for name in sample.decoys if name in told]


def test_draws_do_not_move_when_more_clusters_are_asked_for(tmp_path: Path) -> None:
    assert samples(tmp_path, 2) == samples(tmp_path, 6)[:4]


def test_ids_of_calls_do_not_count_and_occur_once(tmp_path: Path) -> None:
    ids = [call.id for message in samples(tmp_path, 1)[0].messages for call in message.tool_calls]
    assert len(set(ids)) == 3 and all(len(each) == 9 for each in ids)
    assert ids != sorted(ids) or int(ids[1], 16) - int(ids[0], 16) != 1


def test_names_and_merchants_are_one_pool_spelt_two_ways(tmp_path: Path) -> None:
    other = scenario(tmp_path, SMALL.replace("names: [Alder", "merchants: [Alder"))
    assert content_hash(other) == content_hash(scenario(tmp_path))


def test_every_key_of_a_script_counts_in_the_content(tmp_path: Path) -> None:
    hashes = {content_hash(scenario(tmp_path))}
    for old, new in (("cwd: /tmp", "cwd: /srv"), ("result: Done.", "result: Gone."), ("quick", "swift")):
        hashes.add(content_hash(scenario(tmp_path, SMALL.replace(old, new))))
    assert len(hashes) == 4


@pytest.mark.parametrize("series", ["prior_calls", "moved_limit"])
def test_a_series_that_makes_its_own_calls_is_refused_in_one_line(tmp_path: Path, series: str) -> None:
    with pytest.raises(ConfigError, match="scripted") as caught:
        expand(scenario(tmp_path), series=series, clusters=1, seed=7)
    assert "\n" not in str(caught.value) and "take series matched or filler" in str(caught.value)


def test_small_talk_comes_before_the_script(tmp_path: Path) -> None:
    data = copy.deepcopy(PLAIN)
    data["pools"]["fillers"] = [{"user": "Do owls sleep by day?", "assistant": "Most of them do."}]
    made = expand(
        scenario(tmp_path, yaml.safe_dump(data, sort_keys=False)),
        series="filler",
        clusters=1,
        seed=7,
        filler_tokens=(0, 5),
        count_tokens=lambda text: len(text.split()),
    )
    assert [m.content for m in made[2].messages[1:3]] == ["Do owls sleep by day?", "Most of them do."]
    assert made[2].messages[3].content.startswith("Steps: ")


def test_the_question_keeps_what_stands_beside_the_follow_up(tmp_path: Path) -> None:
    each = scenario(tmp_path)
    asked = asking(each, samples(tmp_path, 1)[1])
    assert asked.messages[-1].content.startswith("How many times have you used `run_step` for the step ")
    assert (asked.messages[-1].known, asked.prior_calls) == ({"cwd": "/tmp"}, 0)
    worded = scenario(tmp_path, SMALL + "ask: ['How often was {{ name }} run? One number, please.']\n")
    sample = expand(worded, series="matched", clusters=1, seed=7)[0]
    assert (
        asking(worded, sample).messages[-1].content
        == f"How often was {sample.expectation.target} run? One number, please."
    )


def test_a_scenario_on_top_adds_entries_and_replaces_single_variables(tmp_path: Path) -> None:
    scenario(tmp_path)
    top = tmp_path / "top.yaml"
    top.write_text(
        "extends: small.yaml\nname: top\n"
        "episode:\n  script+:\n    - assistant: One thing more, {{ word_1 }} and {{ sky_1 }}.\n"
        "pools:\n  variables:\n    word: [loud]\n    sky: [grey]\n"
    )
    # `word_2` of the base's script is gone with its pool.
    with pytest.raises(
        Exception, match=r"small\.yaml:\d+: episode\.script\[1\]\.arguments\.how\.notes\[0\]: .*'word_2'"
    ):
        load_scenario(top)
    top.write_text(top.read_text().replace("[loud]", "[loud, soft]"))
    made = expand(load_scenario(top), series="matched", clusters=1, seed=7)[0]
    assert made.messages[-2].content in ("One thing more, loud and grey.", "One thing more, soft and grey.")
    top.write_text(top.read_text().replace("{{ sky_1 }}", "{{ sky_2 }}"))
    with pytest.raises(
        Exception, match=r"top\.yaml:5: episode\.script\+\[0\]\.assistant: unknown variable 'sky_2'"
    ):
        load_scenario(top)
