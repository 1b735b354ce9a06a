"""The lint catches a bar for each flaw, and leaves a good one alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import lint_bars as bars
import pytest

from harness import cli
from harness.commands import lint as verb
from harness.commands.recordings import trajectories
from harness.lint import CODES, Case, lint
from harness.lint.cases import examples, reworded
from harness.lint.finding import Finding
from harness.state import AgentState
from harness.statusbar import AgentStatus

FLAWS = [
    (bars.Clock, "clock"),
    (bars.Minutes, "clock"),
    (bars.Turns, "turn-counter"),
    (bars.Now, "machine"),
    (bars.Epoch, "machine"),
    (bars.Folder, "machine"),
    (bars.Sets, "machine"),
    (bars.Dice, "not-deterministic"),
    (bars.Arrival, "order"),
    (bars.Padded, "respelling"),
    (bars.Heading, "outside-lines"),
    (bars.Attribute, "outside-lines"),
    (bars.Frames, "frame"),
    (bars.Unframed, "frame"),
    (bars.Raw, "forgeable"),
    (bars.RawTool, "forgeable"),
    (bars.Bidi, "control"),
    (bars.Leak, "secret"),
    (bars.Log, "growth"),
    (bars.Everything, "growth-with-facts"),
    (bars.CutList, "active-item-lost"),
    (bars.Shell, "shell"),
    (bars.Talker, "not-silent"),
    (bars.Fails, "raises"),
]

TEXTS = Path(__file__).parent / "recorded_bar.jsonl"


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code.name for finding in findings]


@pytest.mark.parametrize(("bar", "code"), FLAWS, ids=[bar.__name__ for bar, _ in FLAWS])
def test_a_bar_with_a_flaw_is_caught_by_name(bar: type[bars.Bar], code: str) -> None:
    assert code in codes(lint(bar(), elsewhere=code == "machine"))


def test_every_code_is_shown_by_a_bar() -> None:
    assert {code for _, code in FLAWS} == set(CODES)


def test_a_bar_without_a_flaw_is_clean() -> None:
    assert lint(bars.Bar()) == ()


def test_the_counter_bar_has_no_error_and_its_one_warning_is_that_key_values_have_no_bound() -> None:
    assert codes(lint(AgentStatus())) == ["growth-with-facts"]


def test_a_finding_shows_the_line_that_differs() -> None:
    (finding, *_) = [f for f in lint(bars.Clock(), elsewhere=False) if f.code.name == "clock"]
    assert finding.before.startswith("- Time: 2026-03-02T09:00:") and finding.after.startswith(
        "- Time: 2026-03-02T09:"
    )
    assert finding.before != finding.after and finding.more > 0


def test_a_finding_about_a_secret_does_not_show_it() -> None:
    (finding, *_) = [f for f in lint(bars.Leak(), elsewhere=False) if f.code.name == "secret"]
    assert "redacted" in finding.after and "1aB2cD3e" not in finding.after


def test_a_recorded_trajectory_brings_its_own_findings() -> None:
    """Only here does a merchant come in two spellings; the made-up ones have none."""

    def shouted(text: str) -> str:
        return text.upper() if "parser" in text else text

    class Spelt(bars.Bar):
        def lines(self, state: AgentState) -> list[str]:
            return ["Mend it" if any("PARSER" in item.content for item in state.todos.items) else "mend it"]

    quiet = examples()[1]
    loud = reworded(quiet, shouted)
    # The same list, written again in capitals.
    both = Case("a trace", (*quiet.messages, *loud.messages[1:]), quiet.tools)
    assert "respelling" not in codes(lint(Spelt(), [quiet], elsewhere=False))
    assert "respelling" in codes(lint(Spelt(), [both], elsewhere=False))


def test_the_same_bar_gives_the_same_findings() -> None:
    assert lint(bars.Sets()) == lint(bars.Sets())


# -- the verb --------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _flawed_bars_are_importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield


def test_lint_leaves_with_0_for_warnings_1_for_errors_2_for_bad_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["lint", "agent_status"]) == 0
    assert "growth-with-facts" in capsys.readouterr().out
    assert cli.main(["lint", "lint_bars.Clock"]) == 1
    assert cli.main(["lint", "lint_bars.Bar"]) == 0
    for arguments, said in (
        (["nonesuch"], "agent_status, completion"),
        (["recorded", f"file={TEXTS}"], "bar recorded: its texts were written for the transcripts"),
        (["agent_status", "says=nothing"], "expected one of"),
        (["agent_status", "colour=red"], "colour"),
        (["pathlib.Path"], "bar pathlib.Path: Path is no bar; expected a bar such as "),
        (["agent_status", "--trace", "no/such/file.json"], "no/such/file.json"),
        (["agent_status", "rendering=("], "bar agent_status, option rendering=(: expected key=value"),
        (["agent_status", "a|b"], "bar agent_status, option a|b: expected key=value"),
        (["agent_status", "=1"], "bar agent_status, option =1: expected key=value"),
        (["agent_status", "says=a,b"], "bar agent_status, option says=a,b: expected key=value"),
        (["x y"], "bar x y: there are"),
    ):
        capsys.readouterr()
        assert cli.main(["lint", *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_lint_takes_options_of_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "turn_meta", "date=second", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["bar"] == "turn_meta date=second" and told["errors"] == 1
    assert [finding["name"] for finding in told["findings"] if finding["severity"] == "error"] == ["clock"]
    assert all(finding["decision"] and finding["remedy"] for finding in told["findings"])


def test_lint_reads_a_recorded_trajectory(cases_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "loop_guard", "--trace", str(cases_dir / "tau_bench/airline_sample.json")]) == 0
    assert (
        cli.main(["lint", "lint_bars.Clock", "--trace", str(cases_dir / "tau_bench/airline_sample.json")])
        == 1
    )
    assert "clock" in capsys.readouterr().out


def test_lint_takes_one_trajectory_of_a_file_by_its_number(
    cases_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cases_dir / "tau_bench/airline_sample.json"
    assert [each.id for each in trajectories(f"{file}:2")] == ["airline_sample/002"]
    assert len(trajectories(str(file))) > 2
    assert cli.main(["lint", "loop_guard", "--trace", f"{file}:2"]) == 0
    assert cli.main(["lint", "loop_guard", "--trace", f"{file}:999"]) == 2
    assert "999: " in (said := capsys.readouterr().err) and "N is 0 to" in said and said.count("\n") == 1


def test_a_file_whose_own_name_ends_like_a_number_is_meant_whole(cases_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs:1"
    file.write_bytes((cases_dir / "tau_bench/airline_sample.json").read_bytes())
    assert len(trajectories(str(file))) > 2 and len(trajectories(f"{file}:1")) == 1


def test_what_a_bar_says_cannot_write_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    verb._show("flawed", lint(bars.Raw(), elsewhere=False))
    assert "\x1b[2K" not in capsys.readouterr().out
