"""Claims about the loop guard on recorded trajectories of real agents."""

import json
from collections import Counter
from pathlib import Path

import pytest

from harness.state import argument_hash
from harness.statusbar.loop_guard import LoopGuard, blocked
from harness.traces import Trajectory, load

CHANGING, SAME = "repeats_with_changing_results", "repeats_same_wrong_answer"


@pytest.fixture(scope="module")
def airline(cases_dir: Path) -> list[Trajectory]:
    found = load(cases_dir / "tau_bench" / "airline_sample.json")
    assert len(found) == 17
    return found


@pytest.mark.parametrize(
    ("guard", "calls", "trajectories"),
    [
        (LoopGuard(reset="never"), 5, 3),
        (LoopGuard(), 4, 2),
        (LoopGuard(aware="results"), 4, 2),
        (LoopGuard(reset="never", aware="results"), 5, 3),
        (LoopGuard(repeats=4), 1, 1),
        (LoopGuard(repeats=None), 0, 0),
    ],
    ids=["arguments-never", "arguments-turn", "results-turn", "results-never", "at-four", "off"],
)
def test_so_many_calls_of_the_airline_agents_are_blocked(
    airline: list[Trajectory], guard: LoopGuard, calls: int, trajectories: int
) -> None:
    found = [
        (number, trip.message)
        for number, trajectory in enumerate(airline)
        for trip in blocked(trajectory.messages, guard)
        if trip.step == "block"
    ]
    assert (len(found), len({number for number, _ in found})) == (calls, trajectories)


def test_every_blocked_call_is_a_repeat_with_the_count_that_is_stated(airline: list[Trajectory]) -> None:
    for trajectory in airline:
        messages = trajectory.messages
        for trip in blocked(messages, LoopGuard(reset="never")):
            if trip.step != "block":
                continue
            made = [
                argument_hash(call.name, call.arguments)
                for message in messages[: trip.message]
                for call in message.tool_calls
            ]
            assert (
                messages[trip.message].role == "tool"
                and trip.tool == messages[trip.message - 1].tool_calls[0].name
            )
            assert Counter(made)[made[-1]] == trip.count >= 3


def test_blocks_stand_only_in_failed_runs(airline: list[Trajectory], cases_dir: Path) -> None:
    raw = json.loads((cases_dir / "tau_bench" / "airline_sample.json").read_text(encoding="utf-8"))
    for run, trajectory in zip(raw, airline, strict=True):
        if any(trip.step == "block" for trip in blocked(trajectory.messages, LoopGuard(reset="never"))):
            assert run["reward"] == 0.0


def test_canonical_identity_catches_a_repeat_that_raw_bytes_miss(cases_dir: Path) -> None:
    raw = json.loads((cases_dir / "tau_bench" / "airline_sample.json").read_text(encoding="utf-8"))
    differing = 0
    for run in raw:
        spellings: dict[str, set[str]] = {}
        for message in run["traj"]:
            for call in message.get("tool_calls") or ():
                name, written = call["function"]["name"], call["function"]["arguments"]
                spellings.setdefault(argument_hash(name, json.loads(written)), set()).add(written)
        differing += sum(len(each) > 1 for each in spellings.values())
    assert differing == 1


def _swe(cases_dir: Path, name: str) -> Trajectory:
    [found] = load(cases_dir / "swe_agent" / f"{name}.traj")
    return found


def test_a_guard_by_arguments_blocks_a_good_call_and_one_that_sees_results_spares_it(cases_dir: Path) -> None:
    run = _swe(cases_dir, CHANGING)
    stopped = blocked(run.messages, LoopGuard(warn=None, halt=None))
    assert [trip.count for trip in stopped] == [3, 4]
    # Each run of the script brought something new, the last blocked one as well.
    repeated = run.messages[stopped[-1].message - 1].tool_calls[0].arguments
    results = [
        run.messages[number + 1].content
        for number, message in enumerate(run.messages)
        if message.tool_calls and message.tool_calls[0].arguments == repeated
    ]
    assert len(results) == len(set(results)) == 4
    assert blocked(run.messages, LoopGuard(aware="results", warn=None, halt=None)) == []


def test_the_same_wrong_answer_over_and_over_is_blocked_by_both(cases_dir: Path) -> None:
    run = _swe(cases_dir, SAME)
    for guard in (LoopGuard(warn=None, halt=None), LoopGuard(aware="results", warn=None, halt=None)):
        stopped = blocked(run.messages, guard)
        assert [trip.count for trip in stopped] == [3, 4]
        assert len({run.messages[trip.message].content for trip in stopped}) == 1
