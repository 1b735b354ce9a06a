"""The scenarios `work`, `forged` and its twin: true to their rule, balanced, and with something to say for every bar."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from harness.compose import build_arms, compose
from harness.conditions import Condition, apply
from harness.dataset import Scenario, expand, load_scenario
from harness.prompt import Arm, render_arms
from harness.sandbox import render
from harness.state import derive
from harness.statusbar import Placebo
from harness.statusbar.truncation import GAP, Truncation, cut
from harness.types import Message, Sample

BARS = sorted(path.stem for path in (Path(__file__).parent.parent / "conf" / "bar").glob("*.yaml"))
EXCEPTIONS = {
    "recorded": "its texts are in a file that somebody, or a model, has to write for each episode first",
    "corrupted": "one call of each step cannot be off by a few percent; experiment=corruption has 20 of them",
}
"""Bars without an arm of their own on this scenario, with the reason; the aim is that there are none."""


@cache
def scenario(name: str) -> Scenario:
    return load_scenario(name)


@cache
def samples(name: str, clusters: int) -> tuple[Sample, ...]:
    return tuple(expand(scenario(name), series="matched", clusters=clusters, seed=7))


@cache
def arms_of(experiment: str) -> tuple[Condition, ...]:
    return build_arms(compose([f"experiment={experiment}"]).condition)


def words(text: str) -> int:
    return len(text.split())


def texts(message: Message) -> str:
    return message.content + "".join(str(call.arguments) for call in message.tool_calls)


# -- every bar can be measured -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rendered(qwen) -> list[Mapping[str, Arm]]:
    """Both sides of two clusters under all arms at once, each proved against its control."""
    return [render_arms(qwen, sample, arms_of("work_all")) for sample in samples("work", 2)]


@pytest.mark.weights
@pytest.mark.parametrize("name", [name for name in BARS if name not in EXCEPTIONS])
def test_every_bar_stands_in_its_arm_and_its_placebo_has_its_length(rendered, name: str) -> None:
    bar = instantiate(OmegaConf.load(Path(__file__).parent.parent / "conf" / "bar" / f"{name}.yaml"))
    arm = next(each for each in arms_of("work_all") if each.name == name)
    assert arm.bar == bar, "the arm shows the bar as conf/bar has it"
    placebo = next(each for each in arms_of("work_all") if each.stands_in_for(arm))
    for prompts in rendered:
        shown, neutral = prompts[arm.name], prompts[placebo.name]
        assert shown.bar_text and shown.prompt.bar_tokens > 0
        assert neutral.prompt.bar_tokens == shown.prompt.bar_tokens
        assert neutral.bar_text != shown.bar_text


def test_an_exception_is_a_bar_that_no_arm_shows() -> None:
    assert set(EXCEPTIONS) <= set(BARS)
    assert not set(EXCEPTIONS) & {arm.name for arm in arms_of("work_all")}


@pytest.mark.weights
@pytest.mark.parametrize("experiment", ["work_forged", "work_lines", "work_spellings"])
def test_the_arms_of_the_smaller_experiments_differ_by_the_bar_alone(qwen, experiment: str) -> None:
    name = compose([f"experiment={experiment}"]).scenario.file
    for sample in samples(name, 1):
        prompts = render_arms(qwen, sample, arms_of(experiment))
        shown = [
            prompts[arm.name].bar_text for arm in arms_of(experiment) if not isinstance(arm.bar, Placebo)
        ]
        assert len(set(shown)) == len(shown)
        assert {len(prompt.bar_text) > 0 for name, prompt in prompts.items() if name != "control"} == {True}


@pytest.mark.weights
def test_a_prompt_has_about_two_thousand_tokens_on_either_side(qwen) -> None:
    for sample in samples("work", 4):
        assert 1_500 < len(qwen.encode(qwen.text(sample.messages, sample.tools)).ids) < 2_500


# -- true to its rule ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["work", "forged", "forged_none"])
def test_the_list_that_was_written_last_is_true(name: str) -> None:
    """Completed are the steps that were run, and no others; the due one is pending."""
    for sample in samples(name, 16):
        state = derive(sample.messages, sample.tools)
        statuses = {item.content: item.status for item in state.todos.items}
        assert {step for step, status in statuses.items() if status == "completed"} == set(
            sample.truth["run_step"]
        )
        a, b = sample.expectation.target, sample.expectation.others[0]
        if sample.expectation.side == "due":
            a, b = b, a
        assert (statuses[a], statuses[b]) == ("completed", "pending")
        assert Counter(statuses.values()) == {"completed": 3, "pending": 2, "in_progress": 1}
        assert state.calls["run_step"].by_key("step") == sample.truth["run_step"]


def test_the_two_steps_are_spoken_of_alike_but_for_the_run() -> None:
    """Named in the same number of messages, `run_step` aside, and by no sentence after the list was written last."""
    for sample in samples("work", 16):
        pair = (sample.expectation.target, *sample.expectation.others)
        named = dict.fromkeys(pair, 0)
        written = max(
            i for i, m in enumerate(sample.messages) if any(c.name == "todo_write" for c in m.tool_calls)
        )
        for number, message in enumerate(sample.messages[:-1]):
            if any(call.name == "run_step" for call in message.tool_calls):
                continue
            for step in pair:
                named[step] += step in texts(message)
                assert step not in texts(message) or number <= written
        assert named[pair[0]] == named[pair[1]] == 5


def test_place_in_the_list_is_crossed_with_phrasing_over_eight_clusters() -> None:
    cells: Counter[tuple[bool, str]] = Counter()
    for sample in samples("work", 8)[::2]:
        items = [item.content for item in derive(sample.messages).todos.items]
        a, b = sample.expectation.target, sample.expectation.others[0]
        assert {items.index(a), items.index(b)} == {1, 3}
        cells[items.index(a) < items.index(b), sample.phrasing] += 1
    assert len(cells) == 8 and set(cells.values()) == {1}


def test_place_in_the_list_does_not_tell_when_a_step_was_run() -> None:
    """Second or fourth in the list, first or second to be run: over sixteen clusters each of the four occurs."""
    cells: Counter[tuple[bool, bool]] = Counter()
    for sample in samples("work", 16)[::2]:
        items = [item.content for item in derive(sample.messages).todos.items]
        a, b = sample.expectation.target, sample.expectation.others[0]
        runs = [c.arguments["step"] for m in sample.messages for c in m.tool_calls if c.name == "run_step"]
        assert len(runs) == 3 and runs.index(a) < 2
        cells[items.index(a) < items.index(b), runs.index(a) == 0] += 1
    assert len(cells) == 4 and min(cells.values()) >= 2


def test_the_counter_bar_names_the_steps_that_were_run_and_no_others() -> None:
    """As scenarios/README.md says: an open step stands in no line of it."""
    bar = next(each for each in arms_of("work") if each.name == "agent_status")
    for sample in samples("work", 4):
        said = apply(sample, bar, words).bar
        assert said is not None
        named = {item.content for item in derive(sample.messages).todos.items if item.content in said.text}
        assert named == set(sample.truth["run_step"])


@pytest.mark.parametrize("entry", scenario("work").spec.pools.variables["log"], ids=lambda log: log["path"])
def test_a_log_that_was_cut_is_as_the_cutter_leaves_it(entry: Mapping[str, str]) -> None:
    """Any original with these ends and this length, cut to this length, gives this text and these counts."""
    original, omitted, text = int(entry["original"]), int(entry["omitted"]), entry["text"]
    head, tail = text.split(GAP)
    assert original - omitted == len(head) + len(tail)
    again = cut(Message("tool", head + "x" * omitted + tail), len(text))
    assert again.content == text
    assert again.known == {"original_chars": original, "omitted_chars": omitted}


def test_what_was_cut_from_the_log_is_said_by_the_bar_alone() -> None:
    arm = next(each for each in arms_of("work_all") if each.name == "truncation")
    assert isinstance(arm.bar, Truncation)
    for sample in samples("work", 8):
        (log,) = (m for m in sample.messages if "original_chars" in m.known)
        known = log.known
        line = f"(Original: {known['original_chars']} chars, omitted: {known['omitted_chars']} chars.)"
        assert [copy.bar.text for copy in apply(sample, arm, words).injections] == [line]
        assert not any(str(count) in texts(m) for count in known.values() for m in sample.messages)


def test_clusters_are_drawn_apart() -> None:
    """Sixteen clusters: no pair of steps twice, and no two transcripts alike."""
    forbidden = samples("work", 16)[::2]
    assert len({frozenset((s.expectation.target, *s.expectation.others)) for s in forbidden}) == 16
    for kind in ("read_file", "edit_file", "run_tests", "check_job"):
        seen = {
            str(c.arguments) for s in forbidden for m in s.messages for c in m.tool_calls if c.name == kind
        }
        assert len(seen) >= 6, kind
    pools = scenario("work").spec.pools
    assert len(pools.merchants) >= 16 and len(pools.variables["file"]) >= 12


# -- the compacted lives, and the forged block ---------------------------------------------------------


def test_the_records_are_gone_at_the_very_request_that_decides() -> None:
    """The boundary lies at the length of the transcript: it is written out up to the request before."""
    arm = next(each for each in arms_of("work") if each.name == "control_boundary")
    for sample in samples("work", 2):
        assert arm.boundary is not None and arm.boundary.messages == len(sample.messages)
        system, rest = apply(sample, arm, words).messages
        assert system == sample.messages[0] and rest.content.endswith(sample.messages[-1].content)
        step = sample.expectation.others[0]
        assert step not in rest.content


def test_the_forged_block_has_the_bars_form_and_says_the_opposite() -> None:
    bar = next(each for each in arms_of("work_forged") if each.name == "work_state")
    swap = {"[x]": "[ ]", "[ ]": "[x]"}
    for sample in samples("forged", 16):
        true = apply(sample, bar, words).bar
        assert true is not None and not isinstance(bar.bar, Placebo)
        block = next(m.content for m in sample.messages if "<codewhale:work_state>" in m.content)
        block = block[block.index("<codewhale:work_state>") :]
        lines = true.text.split("\n\n")[0].splitlines()
        pair = (sample.expectation.target, *sample.expectation.others)
        opposite = [
            line.replace(line[2:5], swap[line[2:5]]) if line.endswith(pair) else line for line in lines
        ]
        assert block.splitlines() == [*opposite, "</codewhale:work_state>"]


def block_of(sample: Sample) -> tuple[int, list[str]]:
    """The block in the file: the number of its message, and its lines."""
    ((number, text),) = (
        (number, m.content)
        for number, m in enumerate(sample.messages)
        if "<codewhale:work_state>" in m.content or "<release:step_titles>" in m.content
    )
    return number, text.split("\n\n")[-1].splitlines()


def test_the_twin_has_the_forgery_s_titles_in_its_order_and_claims_nothing() -> None:
    """A forged block against one with as many lines, at the same message, that no mark and no percent stands in."""
    shapes = set()
    for name in ("forged", "forged_none"):
        for sample in samples(name, 16):
            number, lines = block_of(sample)
            titles = [item.content for item in derive(sample.messages).todos.items]
            assert [line.endswith(title) for line, title in zip(lines[2:-1], titles, strict=True)] == [
                True
            ] * 6
            marked = [line for line in lines if "[" in line or "%" in line]
            assert len(marked) == (7 if name == "forged" else 0)
            shapes.add((len(sample.messages), number, len(lines)))
    assert len(shapes) == 1


@pytest.mark.weights
def test_the_twins_are_about_equally_long(qwen) -> None:
    """Over the same titles the two texts of the file differ by two tokens at most."""
    base = scenario("forged").spec.episode.script
    assert base == scenario("forged_none").spec.episode.script
    values = {"first": "Warm edge caches", "second": "Tag container images", "a": "Warm edge caches"}
    values |= {f"other_{number}": "Bump protocol version" for number in range(1, 5)}
    values |= {"memory_3_text": "x", "memory_4_text": "y"}
    sizes = [
        qwen.count(render(base[-2].result, {**values, "block_1": block}, where=""))
        for block in (
            *scenario("forged").spec.pools.variables["block"],
            *scenario("forged_none").spec.pools.variables["block"],
        )
    ]
    assert abs(sizes[0] - sizes[1]) <= 2, sizes
