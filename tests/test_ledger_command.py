"""`tailgauge ledger` as a user meets it: files, the same bytes again, and mistakes told in one line."""

import csv
import json
from argparse import Namespace
from pathlib import Path

import pytest

from harness.commands import ledger
from harness.errors import TailgaugeError
from harness.template import ChatTemplate

FILES = (
    "cost.png", "cost.svg", "crossover.csv", "ledger.csv", "manifest.json", "money.csv", "totals.csv", "totals.md",
)  # fmt: skip


def run(*overrides: str, trace: str | None = None) -> int:
    return ledger.main(Namespace(overrides=list(overrides), trace=trace))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qwen: ChatTemplate) -> None:
    """Runs in an empty folder, with the tokenizer that the session has loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ledger, "load_tokenizer", lambda folder: qwen.tokenizer)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_a_ledger_leaves_its_files_and_the_same_bytes_when_it_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("requests=12") == 0
    shown = capsys.readouterr().out
    folder = only(tmp_path / "results" / "ledger")
    assert sorted(path.name for path in folder.iterdir()) == list(FILES)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run("requests=12") == 0
    assert {path.name: path.read_bytes() for path in only(tmp_path / "results" / "ledger").iterdir()} == first
    assert "boundary_without_bar" in shown and str(folder.name) in shown
    rows = read(folder / "ledger.csv")
    assert len(rows) == 12 * 9
    assert {row["bar_tokens"] for row in rows if row["condition"] == "never"} == {"0"}
    manifest = json.loads(first["manifest.json"])
    assert manifest["trajectory"] == {"kind": "made_up", "requests": 12}
    assert manifest["cache"] == {"block": 16, "blocks": None, "keeps_replies": False}
    assert manifest["tokenizer"]["template"] and len(manifest["tokenizer"]["sha256"]) == 64


def test_other_settings_have_another_folder_and_the_results_folder_does_not_count(tmp_path: Path) -> None:
    run("requests=3", "policies=[replace,append]")
    run("requests=3", "policies=[replace,append]", "cached_weight=0.5")
    run("requests=3", "policies=[replace,append]", "results=elsewhere")
    names = {path.name for path in (tmp_path / "results" / "ledger").iterdir()}
    assert len(names) == 2
    assert only(tmp_path / "elsewhere" / "ledger").name in names


def test_the_scenarios_first_sample_is_billed_where_nothing_is_given(tmp_path: Path) -> None:
    run("policies=[append]", "name=first")
    manifest = json.loads((tmp_path / "results" / "ledger" / "first" / "manifest.json").read_text())
    assert manifest["trajectory"]["kind"] == "scenario" and manifest["requests"] > 2


def test_an_unknown_price_stays_empty_and_the_models_own_price_stands_first(tmp_path: Path) -> None:
    run(
        "requests=3", "policies=[replace]", "name=m", "prices={nobody: {as_of: '2026-01-01'}}",
        "model.price={currency: EUR, input_per_million: 1, output_per_million: 2}",
    )  # fmt: skip
    rows = read(tmp_path / "results" / "ledger" / "m" / "money.csv")
    by_price = {
        name: [row for row in rows if row["price"] == name]
        for name in dict.fromkeys(r["price"] for r in rows)
    }
    assert (
        next(iter(by_price)) == "qwen2.5-coder-0.5b"
        and by_price["qwen2.5-coder-0.5b"][0]["currency"] == "EUR"
    )
    assert {row["input_cost"] for row in by_price["nobody"]} == {""}
    assert all(float(row["cost"]) > 0 for row in by_price["qwen2.5-coder-0.5b"])
    assert "–" in (tmp_path / "results" / "ledger" / "m" / "totals.md").read_text(encoding="utf-8")


def test_options_of_a_policy_and_the_block_are_the_configurations(tmp_path: Path) -> None:
    run("requests=8", "policies=[every_n]", "options.every_n.n=2", "block=128", "name=o")
    rows = read(tmp_path / "results" / "ledger" / "o" / "ledger.csv")
    assert sum(int(row["put_in"]) for row in rows if row["condition"] == "every_n") == 4
    assert {int(row["cached_tokens"]) % 128 for row in rows} == {0}


def test_a_policy_whose_bar_never_comes_before_the_model_is_called_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("requests=3", "policies=[boundary]")
    assert "boundary: the bar had something to say at 2 requests and never came before the model" in " ".join(
        capsys.readouterr().err.split()
    )


def test_long_results_are_cut_as_in_a_run_or_the_setting_is_refused(tmp_path: Path) -> None:
    run("requests=8", "policies=[append]", "name=whole")
    run("requests=8", "policies=[append]", "scenario.cut_results=60", "name=cut")
    whole, cut = (
        [int(row["prompt_tokens"]) for row in read(tmp_path / "results" / "ledger" / name / "ledger.csv")]
        for name in ("whole", "cut")
    )
    assert sum(cut) < sum(whole) and cut[0] == whole[0]
    manifests = [
        json.loads((tmp_path / "results" / "ledger" / name / "manifest.json").read_text())["config"][
            "scenario"
        ]
        for name in ("whole", "cut")
    ]
    assert manifests == [{"file": "xfinity"}, {"cut_results": 60, "file": "xfinity"}]
    with pytest.raises(TailgaugeError, match=r"cut_results=9000: no tool result of made_up_8 is longer"):
        run("requests=8", "scenario.cut_results=9000", "name=none")


def test_names_with_signs_of_their_own_break_no_file(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    given = Path(ledger.__file__).parents[2] / "conf" / "ledger.yaml"
    named = given.read_text(encoding="utf-8").replace("cached_at_a_tenth:", "'=1+2 | <b>$x$':")
    (tmp_path / "conf" / "ledger.yaml").write_text(named, encoding="utf-8")
    assert run("requests=3", "policies=[replace,append]", "name=odd") == 0
    folder = tmp_path / "results" / "ledger" / "odd"
    assert read(folder / "money.csv")[0]["price"].startswith("'=1+2"), "no formula for a spreadsheet"
    assert "<b>" not in (folder / "totals.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["policies=[replace,nothing]"], ["policy nothing", "on_change"]),
        (["policies=[replace,replace]"], ["policies", "twice"]),
        (["options.append.n=2", "policies=[replace]"], ["options.append"]),
        (["options.every_n.m=2", "policies=[every_n]"], ["every_n.policy.m", "there are n"]),
        (["bar=nothing"], ["bar/nothing"]),
        (["cached_weight=2"], ["cached_weight"]),
        (["block=0"], ["block"]),
        (["requests=0"], ["requests"]),
        (["blok=32"], ["blok", "unknown key"]),
        (["prices={x: {currency: USD, input_per_million: 1, output_per_million: 1}}"], ["prices.x.as_of"]),
        (
            ["prices={x: {as_of: today, input_per_million: 1, output_per_million: 1}}"],
            ["prices.x", "currency"],
        ),
        (["name=../x"], ["../x"]),
    ],
)
def test_a_mistake_is_told_in_one_line(overrides: list[str], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(TailgaugeError) as told:
        run(*overrides)
    assert all(word in str(told.value) for word in words) and "\n" not in str(told.value)
    assert not (tmp_path / "results").exists(), "nothing is half-written"


# -- recorded trajectories --------------------------------------------------------------------------------


def test_a_recorded_trajectory_is_billed_request_by_request(cases_dir: Path, tmp_path: Path) -> None:
    trace = cases_dir / "tau_bench" / "airline_sample.json"
    run("policies=[append]", "name=t", trace=f"{trace}:2")
    manifest = json.loads((tmp_path / "results" / "ledger" / "t" / "manifest.json").read_text())
    assert manifest["trajectory"]["number"] == 2 and len(manifest["trajectory"]["sha256"]) == 64
    assert str(cases_dir) not in json.dumps(manifest)
    rows = read(tmp_path / "results" / "ledger" / "t" / "ledger.csv")
    assert len(rows) == 2 * manifest["requests"] > 4
    assert manifest["rendered"].startswith("by pieces")


def test_an_odd_trajectory_is_billed_and_said_to_be_odd_in_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    asked, said = {"role": "assistant", "tool_calls": [call]}, {"role": "assistant", "content": "Well."}
    lost = {"role": "tool", "tool_call_id": "other", "content": "R"}
    odd = [{"role": "user", "content": "Hi"}, asked, lost, said, said, {"role": "user", "content": "And?"}]
    even = [*odd[:2], {**lost, "tool_call_id": "x"}, said, odd[-1]]
    for name, talk in (("odd", odd), ("even", even)):
        (tmp_path / f"{name}.json").write_text(json.dumps(talk))
        assert run("policies=[append]", f"name={name}", trace=f"{name}.json") == 0
        assert (tmp_path / "results" / "ledger" / name / "ledger.csv").is_file()
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("--trace")]
        assert lines == ([] if name == "even" else [
            "--trace odd.json: a tool result without its call before it (message 3); it is billed as it stands",
            "--trace odd.json: a call that is never answered (message 2); it is billed as it stands",
            "--trace odd.json: two assistant messages in a row (message 5); it is billed as it stands",
        ])  # fmt: skip


@pytest.mark.parametrize("number", ["17", "99999999999999999999"])
def test_a_number_that_the_file_does_not_hold_is_refused(cases_dir: Path, number: str) -> None:
    trace = cases_dir / "tau_bench" / "airline_sample.json"
    with pytest.raises(TailgaugeError, match=r"holds 17 trajectories; give .*:0 to :16"):
        run(trace=f"{trace}:{number}")


def test_a_file_that_is_not_there_and_a_length_beside_a_trace_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TailgaugeError, match="no such file"):
        run(trace="nowhere.json:3")
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(TailgaugeError, match="requests"):
        run("requests=3", trace="a.json")
