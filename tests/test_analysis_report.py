"""A report is rebuilt from the run folder alone, byte for byte, and says no more than the data do."""

import hashlib
import sys
from pathlib import Path
from subprocess import run as run_process

import matplotlib
import pytest
from analysis_data import ARMS, BAR, CONTROL, PLACEBO, ROBUST, chosen, matched, rows, write_run
from rich.console import Console

from harness.analysis.report import build, headline, terminal_table
from harness.errors import ReportError


def digests(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.parent != folder
    }


def test_two_builds_of_the_same_run_give_the_same_bytes(tmp_path: Path) -> None:
    cells = rows(8)
    write_run(tmp_path / "a", cells)
    write_run(tmp_path / "b", list(reversed(cells)))
    first, second = build(tmp_path / "a"), build(tmp_path / "b")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    names = {p.name for p in first.figures}
    assert names == {
        f"{n}.{s}"
        for n in ("both_sides", "sensitivity", "verdicts", "prior_calls", "tokens")
        for s in ("png", "svg")
    }
    assert len(first.tables) == 32 and first.summary.name == "tables.md"
    assert second.summary.read_text(encoding="utf-8").count("\n## ") == 16


def test_a_report_needs_samples_timings_and_manifest_alone(tmp_path: Path) -> None:
    write_run(tmp_path, rows(3, arms=ARMS[:4], curve=False))
    build(tmp_path)
    before = digests(tmp_path)
    for path in [p for p in tmp_path.rglob("*") if p.is_file() and p.parent != tmp_path]:
        path.unlink()
    build(tmp_path)
    assert digests(tmp_path) == before


def test_a_report_leaves_matplotlibs_settings_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    build(write_run(tmp_path, rows(2, arms=ARMS[:4], act_arms=0, curve=False)))
    assert dict(matplotlib.rcParams) == before
    code = "import sys, harness.analysis.report; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert run_process([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_itself_loads_nothing_heavy() -> None:
    heavy = "{'pandas', 'scipy', 'matplotlib', 'statsmodels', 'rich'}"
    code = f"import sys, harness.analysis; sys.exit(bool({heavy} & set(sys.modules)))"
    assert run_process([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", list(ROBUST))
def test_a_partial_run_gives_a_report_and_no_crash(tmp_path: Path, name: str) -> None:
    write_run(tmp_path, ROBUST[name])
    paths = build(tmp_path)
    assert paths.summary.is_file() and all(p.stat().st_size > 0 for p in paths.figures)
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(terminal_table(tmp_path))
    assert "condition" in console.export_text()
    sentences = " ".join(headline(tmp_path))
    assert sentences and "nan" not in sentences


def test_a_folder_without_samples_is_one_clear_line(tmp_path: Path) -> None:
    for ask in (build, terminal_table, headline):
        with pytest.raises(ReportError, match=r"samples\.parquet"):
            ask(tmp_path)


def say(tmp_path: Path, bar: list[float], placebo: list[float]) -> str:
    """The headline of a run whose arms have these sensitivities, cluster by cluster, and no bias."""
    cells = matched(CONTROL, [0.1, 0.3, 0.2] * 4, [0.0] * 12)
    for arm, values in ((BAR, bar), (PLACEBO, placebo)):
        cells += matched(arm, [v / 2 for v in values], [-v / 2 for v in values])
    return "\n".join(headline(write_run(tmp_path, cells)))


def test_the_headline_names_a_clear_gain_over_the_placebo(tmp_path: Path) -> None:
    text = say(tmp_path, [1.0, 1.4, 1.2] * 4, [0.1, 0.0, 0.2] * 4)
    line = next(s for s in text.split("\n") if "against placebo" in s)
    assert "p = 0.0005 after Holm, 12 episodes" in line and "tells due from forbidden better" in line
    assert "sensitivity changes by 1.10 [" in line


def test_the_headline_names_a_loss_as_a_loss(tmp_path: Path) -> None:
    text = say(tmp_path, [-1.0, -1.4, -1.2] * 4, [0.1, 0.0, 0.2] * 4)
    assert "tells due from forbidden worse" in next(s for s in text.split("\n") if "against placebo" in s)


def test_the_headline_says_undecided_where_it_is(tmp_path: Path) -> None:
    text = say(tmp_path, [1.0, -1.4, 0.5] * 4, [0.1, 0.0, 0.2] * 4)
    line = next(s for s in text.split("\n") if "against placebo" in s)
    assert "undecided whether the bar helps" in line and "better" not in line
    assert "significant" not in text


def test_the_headline_does_not_call_one_episode_a_finding(tmp_path: Path) -> None:
    cells = [
        chosen(x, cluster="c0", side=s, sample_id=f"c0-{s}", condition=a[0], bar=a[1], placement=a[2])
        for a, x in ((CONTROL, 0.0), (PLACEBO, 0.0), (BAR, 3.0))
        for s in ("due", "forbidden")
    ]
    text = "\n".join(headline(write_run(tmp_path, cells)))
    assert "no uncertainty can be given" in text and "better" not in text and "undecided" in text


def test_the_terminal_table_has_one_row_per_condition_in_the_manifests_order(tmp_path: Path) -> None:
    arms = tuple(reversed(ARMS))
    table = terminal_table(write_run(tmp_path, rows(4, arms=arms), arms=arms))
    assert list(table.columns[0].cells) == [name for name, _, _ in arms]
