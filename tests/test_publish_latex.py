"""LaTeX and Markdown of the publication kit: hostile names are printed, not run; and the verdict forest shows the table."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import analysis_data as made
import matplotlib as mpl
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_publish import run_folder

from harness.analysis.drawing import RC, WIDE, WIDTH
from harness.analysis.frames import load
from harness.analysis.publication import captions, texts
from harness.analysis.publication.captions import Item
from harness.analysis.publication.facts import Facts
from harness.analysis.publication.kit import read
from harness.analysis.publication.latex import MOST_CHARS, MOST_ROWS, grids, tabulars
from harness.analysis.publication.methods import methods
from harness.analysis.publication.prose import escape_latex, name, to_latex, to_markdown
from harness.analysis.publication.references import SHORT, bibtex
from harness.analysis.table import Shown, Table
from harness.analysis.tables import build_tables
from harness.analysis.verdict_forest import MARGIN, VERDICTS, verdict_forest

HOSTILE = r"\input{/etc/passwd} 100% #1 $x$ a_b^c & {d ~ <script>alert(1)</script> `code` | [x](javascript:y) \\ “ü” 北 "
HOSTILE += "\u202e\u0007--,,''"
RAW = re.compile(r"(?<!\\)[%#&$_^~]|(?<!\\)\\(?:input|write)")
"""What LaTeX would act on."""


def without_commands(latex: str) -> str:
    """The text without the escapes that the writer makes itself, the `{}` that keeps a ligature apart included."""
    apart = re.sub(r"([-,'`])\{\}", r"\1", latex)
    return re.sub(r"\\[a-zA-Z]+\{\}|\$(?:\\[A-Za-z]+|[-'])\$|\\[{}$&#%_]|(?<=\S)~(?=\\%)", "", apart)


def hostile(folder: Path) -> Facts:
    """A run whose model, conditions, scenario and revision are hostile."""
    arms = (made.CONTROL, made.PLACEBO, (HOSTILE, "agent_status", "tail"))
    cells = [c | {"condition": HOSTILE} if c["condition"] == "agent_status" else c
             for c in made.rows(8, arms=(made.CONTROL, made.PLACEBO, made.BAR), curve=False)]  # fmt: skip
    run_folder(
        folder, cells, run_id=HOSTILE, experiment=HOSTILE, model={"name": HOSTILE, "sha256": HOSTILE},
        conditions=[{"name": n, "bar": b, "placement": p} for n, b, p in arms],
        config={"scenario": {"file": HOSTILE}, "seed": 1}, git={"revision": HOSTILE, "dirty": True},
        left_out=[HOSTILE],
    )  # fmt: skip
    return read([folder], incomplete=False)[0]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """The tables of a plain run."""
    return build_tables(load(run_folder(tmp_path_factory.mktemp("plain") / "run")))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All texts and tabulars of the hostile run, without its figures."""
    facts = hostile(tmp_path_factory.mktemp("hostile") / "run")
    items, files = [], {}
    for table in facts.tables.values():
        parts = {f"tables/{table.name}_{i}.tex": text for i, text in enumerate(tabulars(table))}
        files |= parts
        items.append(Item(captions.table_caption(facts, table), tuple(parts), "", not table.data.empty))
    paragraphs = methods(facts)
    files |= texts.written([facts], items, [paragraphs])
    return files | {"README.md": texts.readme([facts], items), "references.bib": bibtex(SHORT)}


@settings(deadline=None)
@example("-- '' ,, ```")
@given(st.text(max_size=40))
def test_any_text_is_escaped_for_latex(text: str) -> None:
    shown = escape_latex(text)
    bare = without_commands(shown)
    assert not set(bare) & set("\\{}$&#%_^<>|`")
    shown.encode("latin-1")  # the letters that LaTeX's standard fonts have
    assert not re.search(r"--|,,|''", shown)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_name_stays_one_name_in_every_format(text: str) -> None:
    said = f"the model {name(text)} ran [@holm1979]."
    latex, markdown = to_latex(said), to_markdown(said, SHORT)
    assert latex.startswith(r"the model \texttt{") and latex.endswith(r"} ran \cite{holm1979}.")
    assert markdown.startswith("the model `") and markdown.endswith("` ran (Holm 1979).")
    assert markdown.count("`") == 2 and "\n" not in markdown


def test_numbers_and_words_come_out_as_they_are() -> None:
    assert (
        escape_latex("50 % of x_1, −0.5 – 2 × d′") == r"50~\% of x\_1, $-$0.5 \textendash{} 2 $\times$ d$'$"
    )
    assert escape_latex("naïve 北") == "naïve (U+5317)"


def test_hostile_names_are_text_in_every_latex_file(told: dict[str, str]) -> None:
    for path, text in told.items():
        if path.endswith(".tex"):
            assert (
                r"\input{/etc" not in text and r"\textbackslash{}input\{/etc/passwd\}" in text
            ) or "script" not in text
            assert text.count(r"\begin{") == text.count(r"\end{")
            unescaped = re.sub(r"\\.", "", text)
            assert unescaped.count("{") == unescaped.count("}"), path
    assert (
        r"\textbackslash{}input\{/etc/passwd\}" in told["methods.tex"] and "(U+202E)" in told["methods.tex"]
    )


def test_hostile_names_are_no_html_in_markdown(told: dict[str, str]) -> None:
    for path in ("captions.md", "methods.md", "README.md"):
        outside = re.sub(r"`[^`\n]*`", "", told[path].split("```latex")[0])
        assert not re.search(r"(?<!\\)<|(?<!\\)\]\(", outside), path
        assert "\u202e" not in told[path]


def test_a_wide_or_long_table_is_split_and_loses_nothing(built: dict[str, Table]) -> None:
    for table in built.values():
        found, _ = grids(table)
        made_of = tabulars(table)
        text = " ".join(re.sub(r"\\shortstack\[.\]\{|\\\\|\}", " ", part) for part in made_of)
        for grid in found:
            for cell in {cell for row in grid.body for cell in row}:
                assert escape_latex(re.sub(r"(?<![\w.])-(?=\d)", "−", cell)) in " ".join(made_of), cell
            assert all(word in text for header in grid.headers for word in map(escape_latex, header.split()))
        for part in made_of:
            lines = [
                line for line in part.splitlines() if line.endswith(r"\\") and not line.startswith(r"\multi")
            ]
            assert len({len(re.split(r"(?<!\\)&", line)) for line in lines}) == 1
            assert len(lines) <= MOST_ROWS + 1


def long_table(rows: int, columns: int) -> Table:
    keys = ["what", *(f"value {i}" for i in range(columns))]
    data = pd.DataFrame(
        [{key: f"row {r}" if key == "what" else 1234567.25 for key in keys} for r in range(rows)]
    )
    return Table(
        "long",
        "Long",
        "",
        {k: None if k == "what" else 2 for k in keys},
        tuple(Shown(k, (k,)) for k in keys),
        data,
    )


@pytest.mark.parametrize("rows, columns", [(1, 1), (MOST_ROWS, 3), (MOST_ROWS + 1, 3), (3, 40), (100, 40)])
def test_no_tabular_is_longer_or_wider_than_a_page(rows: int, columns: int) -> None:
    parts = tabulars(long_table(rows, columns))
    for part in parts:
        body = [line for line in part.splitlines() if line.startswith("row ")]
        assert 0 < len(body) <= MOST_ROWS and max(map(len, body)) <= MOST_CHARS * 1.4
    shown = sum(line.count("1234567.25") for part in parts for line in part.splitlines())
    assert shown == rows * columns


def test_a_row_that_starts_with_a_bracket_does_not_open_an_argument() -> None:
    data = pd.DataFrame([{"a": "[x]"}, {"a": "*"}])
    (text,) = tabulars(Table("t", "T", "", {"a": None}, (Shown("a", ("a",)),), data))
    assert "\n{}[x] \\\\\n{}* \\\\" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_kit_compiles_with_pdflatex(told: dict[str, str], tmp_path: Path) -> None:
    for path, text in told.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(text.encode("utf-8", "backslashreplace"))
    found = re.search(r"```latex\n(.*?)```", told["README.md"], re.S)
    assert found is not None
    (tmp_path / "paper.tex").write_text(found[1].replace(r"\bibliography{", r"\nocite{*}\bibliography{"))
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper"]
    for command in (latex, ["bibtex", "paper"], latex, latex):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "paper.log").read_text(errors="replace")
    assert not re.search(r"(Citation|Reference) .*undefined|multiply defined", log)
    assert "root:" not in log


# The verdict forest.


def forest(tables: dict[str, Any], width: float = WIDTH) -> Any:
    with mpl.rc_context(RC):
        return verdict_forest(tables, (), width)


def titles(figure: Any) -> list[str]:
    return [axis.get_title(loc="left") for axis in figure.axes]


@pytest.mark.parametrize("width", [WIDTH, WIDE])
def test_the_forest_has_a_row_and_a_verdict_for_every_comparison(
    built: dict[str, Table], width: float
) -> None:
    data = built["comparisons"].data
    figure = forest(built, width)
    verdicts = [text for axis in figure.axes for text in (t.get_text() for t in axis.texts)]
    assert sorted(verdicts) == sorted(data["verdict"]) and set(verdicts) <= set(VERDICTS)
    bold = [
        t.get_text() for axis in figure.axes for t in axis.get_yticklabels() if t.get_fontweight() == "bold"
    ]
    assert bold == ["agent status − placebo"] * int((data["label"] == "confirmatory").sum())
    assert figure.get_figwidth() == width


def test_the_forest_draws_the_tables_numbers(built: dict[str, Table]) -> None:
    row = built["comparisons"].data.iloc[0]
    axis = forest(built).axes[0]
    marks = [tuple(line.get_xdata()) for line in axis.lines]
    for expected in (
        (row["low"], row["high"]),
        (row["equivalence_low"], row["equivalence_high"]),
        (row["estimate"],),
    ):
        assert any(mark == pytest.approx(expected) for mark in marks if len(mark) == len(expected))
    shade = axis.collections[0]
    assert mpl.colors.to_hex(shade.get_facecolor()[0]).upper() == MARGIN
    assert (shade.get_paths()[0].vertices[:, 0].min(), shade.get_paths()[0].vertices[:, 0].max()) == (
        -0.5,
        0.5,
    )


def test_the_forest_is_left_out_where_nothing_was_compared(tmp_path: Path) -> None:
    lone = [c for c in made.rows(3, curve=False) if c["condition"] == "control"]
    assert forest(made.tables_of(tmp_path / "run", lone)) is None


def test_an_unknown_interval_leaves_the_bare_marker(tmp_path: Path) -> None:
    tables = made.tables_of(
        tmp_path / "run", made.rows(1, arms=(made.CONTROL, made.PLACEBO, made.BAR), curve=False)
    )
    figure = forest(tables)
    assert all(
        len(line.get_xdata()) == 1
        for axis in figure.axes
        for line in axis.lines
        if line.get_marker() in "osv^<>"
    )
    assert set(tables["comparisons"].data["verdict"]) == {"inconclusive"}
    assert "n = 1 clusters" in " ".join(titles(figure))


def test_ratios_are_on_a_log_scale_around_one(built: dict[str, Table]) -> None:
    assert (built["comparisons"].data["unit"] == "ratio").any()
    axis = next(a for a in forest(built).axes if "ratio" in a.get_title(loc="left"))
    assert axis.get_xscale() == "log"
    assert any(" ÷ " in label.get_text() for label in axis.get_yticklabels())


def test_rows_of_long_notes_take_more_of_a_page() -> None:
    note = "too few clusters: the smallest possible p is .5, and six clusters are needed here"
    data = pd.DataFrame([{"what": f"row {i}", "note": note} for i in range(MOST_ROWS)])
    shown = (Shown("what", ("what",)), Shown("note", ("note",)))
    parts = tabulars(Table("t", "T", "", {"what": None, "note": None}, shown, data))
    assert sum(part.count("row ") for part in parts) == MOST_ROWS
    assert all(part.count("row ") * 4 <= MOST_ROWS for part in parts)
