"""The preview shows any bar on any sample with its bill, on the terminal and as one page, and nobody writes into it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness import cli
from harness.commands import console, preview
from harness.commands.preview_page import page
from harness.commands.preview_view import Bill, Run, Shown, View, regions, view
from harness.conditions import Condition
from harness.lint.cases import Case, case, coding, service
from harness.prompt import BAR, STALE_BAR
from harness.statusbar import AgentStatus, Placebo, Tail
from harness.statusbar.policies import Append, Never
from harness.template import ChatTemplate
from harness.types import Message, Sample

CONTROL = Condition("control")
TAIL = Condition("agent_status", AgentStatus(), Tail())
KEPT = Condition("kept", AgentStatus(), Tail(), Append())
SECRET = "ghp_" + "1aB2cD3eF4gH5iJ6kL7mN8oP9qR0sT1uV2wX"


def sample_of(given: Case) -> Sample:
    return Sample(
        given.name, "s", "c0", "trace", given.messages, given.tools, given.rules, None, 0, 0, "", 0, {}
    )


SERVICE = sample_of(case("service", service()))


def test_the_runs_are_the_prompt_and_the_bill_adds_up(qwen: ChatTemplate) -> None:
    shown = view(SERVICE, [CONTROL, TAIL, KEPT], qwen, 16)
    control, tail, kept = shown.arms
    for arm in shown.arms:
        assert arm.bill is not None
        assert sum(run.size for run in arm.runs) == arm.bill.prompt == sum(regions(arm.runs).values())
        assert arm.bill.cached is not None and arm.bill.cached % 16 == 0
        assert arm.bill.billed == arm.bill.prompt - arm.bill.cached
    assert control.bill and tail.bill and kept.bill
    assert "".join(run.text for run in control.runs) == qwen.text(SERVICE.messages, SERVICE.tools)
    assert control.bill.added == 0 and control.bill.over_control == 0 and control.bill.copies == 0
    assert tail.bill.added == tail.bill.prompt - control.bill.prompt > tail.bill.newest > 0
    assert tail.bill.over_control == (tail.bill.billed or 0) - (control.bill.billed or 0) > 0
    assert kept.bill.copies == kept.bill.stale + 1 > 1
    assert sum(run.region == STALE_BAR for run in kept.runs) == kept.bill.stale


def test_the_bar_is_one_run_that_holds_its_text_and_nothing_else(qwen: ChatTemplate) -> None:
    for arm in view(SERVICE, [TAIL, KEPT], qwen, 16).arms:
        (bar,) = [run for run in arm.runs if run.region == BAR]
        assert bar.text.startswith("<agent_status>") and bar.text.endswith("</agent_status>")


def test_without_a_tokenizer_messages_and_words_are_shown_and_the_bill_stays_unknown() -> None:
    control, kept = view(SERVICE, [CONTROL, KEPT], None, 16).arms
    assert control.bill and kept.bill
    assert (kept.bill.added, kept.bill.cached, kept.bill.billed, kept.bill.over_control) == (None,) * 4
    assert preview.figures(kept.bill)[3:] == ["–"] * 4
    assert sum(run.region == STALE_BAR for run in kept.runs) == kept.bill.stale > 0
    assert sum(run.region == BAR for run in kept.runs) == 1


def test_an_arm_that_cannot_be_made_says_why_and_the_others_are_shown(qwen: ChatTemplate) -> None:
    never = Condition("never", AgentStatus(), Tail(), Never())
    control, refused = view(SERVICE, [CONTROL, never], qwen, 16, lenient=True).arms
    assert control.runs and not refused.runs and "no bar is drawn" in refused.refused
    with pytest.raises(Exception, match="no bar is drawn"):
        view(SERVICE, [CONTROL, never], qwen, 16)


def test_secrets_of_a_transcript_are_not_shown(qwen: ChatTemplate) -> None:
    leaking = replace(SERVICE, messages=(*SERVICE.messages[:-1], Message("user", f"My token is {SECRET}")))
    for template in (qwen, None):
        text = page([view(leaking, [CONTROL, TAIL], template, 16)], "m" if template else None, 16)
        assert SECRET[4:20] not in text and "[redacted]" in text


# -- the page ----------------------------------------------------------------------------------------------


def _page(text: str, name: str = "arm") -> str:
    arm = Shown(
        name, "b", "tail", "replace", (Run("user", text, 3), Run(BAR, "<x>", 2)), Bill(5, 2, 1, 0, 2, 0, 5, 2)
    )
    return page([View("id", "", 1, (arm,))], "a model", 16)


def test_nothing_that_is_shown_becomes_part_of_the_page() -> None:
    attack = "</pre></details><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[2J"
    for text in (_page(attack), _page("x", attack)):
        assert "<script" not in text and "<img" not in text and "\u202e" not in text and "\x1b" not in text
        assert "&lt;script&gt;" in text and "⟨U+202E⟩" in text


def test_the_page_needs_nothing_from_outside_and_has_no_script() -> None:
    text = _page("hello")
    assert "default-src &#39;none&#39;" in text
    assert not re.search(r"<(script|link|iframe|img)\b|\bsrc=|\bhref=|\bstyle=|url\(", text)


def test_the_page_marks_bar_and_older_copies_and_equal_views_give_equal_bytes(qwen: ChatTemplate) -> None:
    shown = view(SERVICE, [CONTROL, KEPT], qwen, 16)
    text = page([shown], "a model", 16)
    kept = shown.arms[1]
    assert kept.bill is not None
    assert text.count('class="block b-bar"') == 1
    assert text.count('class="block b-stale_bar"') == kept.bill.stale
    assert f"{kept.bill.prompt:,}" in text and f"{kept.bill.over_control:+,}" in text
    assert text == page([view(SERVICE, [CONTROL, KEPT], qwen, 16)], "a model", 16)


# -- the verb ----------------------------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, weights_05b: Path) -> Console:
    told = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    monkeypatch.setattr(console, "out", told)
    return told


MODEL = "model=qwen2.5-coder-0.5b"


def test_any_bar_is_shown_beside_the_control_and_its_own_placebo(shown: Console, tmp_path: Path) -> None:
    made = tmp_path / "new" / "page.html"
    arguments = ["preview", MODEL, "--bar", "agent_status", "--placement", "before", "--html", str(made)]
    assert cli.main(arguments) == 0
    text = shown.export_text()
    for said in (
        "control: ",
        "placebo of agent_status: ",
        "agent_status: ",
        "billed anew",
        "▶<agent_status>",
    ):
        assert said in text
    assert "placed before, policy replace" in made.read_text()


def test_the_last_requests_of_a_recorded_trajectory_are_shown(shown: Console, cases_dir: Path) -> None:
    file = cases_dir / "tau_bench/airline_sample.json"
    assert (
        cli.main(
            [
                "preview",
                MODEL,
                "--trace",
                f"{file}:2",
                "--samples",
                "2",
                "--bar",
                "agent_status",
                "--policy",
                "append",
            ]
        )
        == 0
    )
    text = shown.export_text()
    assert text.count("airline_sample/002/r") == 2 and "▷<agent_status>" in text


def test_options_of_the_bar_reach_it_and_its_placebo(shown: Console) -> None:
    arguments = ["preview", MODEL, "--bar", "agent_status", "--set", "says=counts", "--set", "tag=seen"]
    assert cli.main(arguments) == 0
    text = shown.export_text()
    assert "agent_status says=counts tag=seen: " in text and text.count("▶<seen>") == 2
    assert "<agent_status>" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "colour=red"], "agent_status.colour: AgentStatus has no such option"),
        (["--set", "("], "bar agent_status, option (: expected key=value"),
        (["--bar", "nonesuch"], "agent_status, completion"),
        (["--placement", "nowhere"], "there are before"),
        (["--policy", "sometimes"], "there are append"),
        (["--trace", "no/such.json"], "no/such.json"),
        (["--samples", "0"], "expected 1 or more"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["preview", MODEL, *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.strip().count("\n") == 0


def test_what_a_transcript_says_cannot_write_on_the_terminal(shown: Console) -> None:
    hostile = replace(SERVICE, messages=(*SERVICE.messages, Message("user", "\x1b[2J[bold]x[/] \u202e")))
    preview._show(view(hostile, [CONTROL], None, 16), False, 16)
    text = shown.export_text()
    assert "\x1b" not in text and "[bold]x[/]" in text and "\u202e" not in text


def test_a_coding_trajectory_is_shown_too(qwen: ChatTemplate) -> None:
    named = Condition("placebo", Placebo(AgentStatus()), Tail())
    arms = view(sample_of(case("coding", coding())), [CONTROL, named, TAIL], qwen, 16).arms
    assert arms[1].bill and arms[2].bill and arms[1].bill.prompt == arms[2].bill.prompt
