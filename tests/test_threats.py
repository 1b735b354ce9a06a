"""Threats to validity are found in a run's own records, with their numbers, and not where there are none."""

import json
from pathlib import Path
from typing import Any

from analysis_data import BAR, CONTROL, PLACEBO, acted, arm_fields, failed, rows, write_run

from harness.analysis import threats
from harness.analysis.comparisons import comparisons
from harness.analysis.costs import tokens
from harness.analysis.decisions import choose, rates
from harness.analysis.frames import load


def found(folder: Path, made: list[dict[str, Any]], **manifest: Any) -> dict[str, threats.Threat]:
    """Title → threat of a run made of these cells, with these entries in its manifest."""
    run_dir = write_run(folder, made)
    path = run_dir / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | manifest))
    run = load(run_dir)
    tables = {table.name: table for table in (choose(run), comparisons(run), rates(run), tokens(run))}
    return {threat.title: threat for threat in threats.audit(run, tables).threats}


def side_by_side(arm: tuple[str, str, str], outcomes: list[str]) -> list[dict[str, Any]]:
    make = {"provider_error": lambda **fields: failed(probe="act", **fields)}
    return [
        make.get(outcome, lambda outcome=outcome, **fields: acted(outcome, **fields))(
            **arm_fields(arm, i, "forbidden")
        )
        for i, outcome in enumerate(outcomes)
    ]


def test_a_clean_run_has_no_grave_threat_but_what_it_cannot_know(tmp_path: Path) -> None:
    made = [
        c for c in rows(30, arms=(CONTROL, PLACEBO, BAR), act_arms=0, curve=False) if c["probe"] == "choose"
    ]
    there = found(tmp_path, made, cells=len(made), git={"revision": "abc", "dirty": False})
    assert [title for title, threat in there.items() if threat.grave] == []
    assert "One scenario or one model" in there


def test_each_threat_comes_with_its_numbers(tmp_path: Path) -> None:
    made = [
        c for c in rows(5, arms=(CONTROL, PLACEBO, BAR), act_arms=0, curve=False) if c["probe"] == "choose"
    ]
    made[0] |= {"score.logit_act": 12.0}
    for c in made:
        c["score.choice_mass"] = 0.3
    made += side_by_side(CONTROL, ["compliant"] * 8 + ["malformed_call"] * 2)
    made += side_by_side(PLACEBO, ["truncated"] * 4 + ["compliant"] * 6)
    made += side_by_side(BAR, ["compliant"] * 7 + ["provider_error"] * 3)
    there = found(
        tmp_path, made, cells=200, git={"revision": "0123456789ab", "dirty": True}, left_out=["16,384 tokens do not fit"],
        resumed=[{"at": "x", "changed": {"packages.torch": ["1", "2"]}}],
        config={"model": {"decoding": {"temperature": 0.0}, "keep_reasoning": False}},
    )  # fmt: skip
    told = {title: threat.text for title, threat in there.items()}
    assert f"{len(made)} of 200 planned cells" in told["Incomplete run"]
    assert "5 to 7 independent episodes" in told["Few independent episodes"]
    assert "agent_status 3" in told["Lost cells"] and f"3 of {len(made)} cells" in told["Lost cells"]
    assert "placebo 4 of 10" in told["Replies cut off"] and there["Replies cut off"].grave
    assert "40 points" in told["Replies cut off"]
    assert "compliance of control 0.80 to 1.00 (2 of 10)" in told["Malformed calls"]
    assert "control 0.30" in told["Choices that the model would not make"]
    assert told["Log-odds at their bound"].startswith("1 of 30")
    assert (
        "0123456789" in told["Uncommitted code"]
        and "packages.torch" in told["Continued under other conditions"]
    )
    assert "16,384 tokens do not fit." in told["Left out before the run"]
    assert "at temperature 0" in told["One reply a point"]
    assert "Reasoning left out of the history" in told and there["Incomplete run"].grave


def test_a_bar_without_a_placebo_is_a_grave_threat(tmp_path: Path) -> None:
    made = [c for c in rows(12, arms=(CONTROL, BAR), act_arms=0, curve=False) if c["probe"] == "choose"]
    there = found(tmp_path, made)
    assert there["A bar without a placebo"].grave and "agent_status" in there["A bar without a placebo"].text


def test_a_verdict_that_lost_cells_could_turn_is_named(tmp_path: Path) -> None:
    made = [
        c for c in rows(12, arms=(CONTROL, PLACEBO, BAR), act_arms=0, curve=False) if c["probe"] == "choose"
    ]
    turned = found(tmp_path / "a", made)
    assert "Verdicts that lost cells could turn" not in turned
    lost = {
        "output.finish_reason": "error",
        "output.error": "gone",
        "score.logit_act": None,
        "score.p_act_norm": None,
    }
    hit = [
        c | lost if c["condition"] == "agent_status" and c["cluster"] in ("c01", "c02") else c for c in made
    ]
    turned = found(tmp_path / "b", hit)
    told = turned["Verdicts that lost cells could turn"]
    assert "sensitivity of agent_status against placebo" in told.text and told.grave
