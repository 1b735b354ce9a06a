"""Every notebook runs from top to bottom, on a copy, as a reader would run it, and shows what is stored in it."""

import importlib.util
import os
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
READING = [name for name in NOTEBOOKS if name != "your_own_bar.ipynb"]
"""Notebooks that read finished runs: the same outputs on every machine with the pinned versions."""


def test_the_notebooks_are_here() -> None:
    assert set(NOTEBOOKS) == {
        "attention.ipynb", "small_vs_frontier.ipynb", "xfinity.ipynb", "your_own_bar.ipynb",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", READING)
def test_a_notebook_on_finished_runs_shows_what_is_stored_in_it(name: str, tmp_path: Path) -> None:
    stored, fresh = _shown(_stored(name)), _shown(_executed(name, tmp_path))
    assert any(shown for shown in fresh.values())
    assert [cell for cell in fresh if fresh[cell] != stored[cell]] == [], (
        "out of date: python notebooks/refresh.py"
    )


@pytest.mark.slow
@pytest.mark.weights
def test_your_own_bar_is_measured_on_a_real_model(tmp_path: Path, weights_05b: Path) -> None:
    """It runs a model; other hardware gives other last digits, so only what does not depend on it is compared."""
    stored, fresh = _shown(_stored("your_own_bar.ipynb")), _shown(_executed("your_own_bar.ipynb", tmp_path))
    assert {cell for cell in fresh if fresh[cell]} == {cell for cell in stored if stored[cell]}
    before_the_run = ("b03", "b05", "b07", "b09", "b11", "b13")
    assert [cell for cell in before_the_run if fresh[cell] != stored[cell]] == []
    assert "inconclusive" in str(fresh["b18"]), "six episodes are too few for a verdict"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_stored_output_names_the_machine(name: str) -> None:
    for cell in _stored(name).cells:
        if cell.cell_type == "code":
            assert cell.outputs or "import" in cell.source or "%%capture" in cell.source, cell.source
            assert not re.search(r"/(home|root|tmp|work|Users)/|Traceback", str(cell.outputs)), cell.source
            assert all(output.output_type != "error" for output in cell.outputs)
        assert cell.metadata == {}


def test_the_bar_of_the_notebook_is_that_of_the_readme() -> None:
    cell = next(cell for cell in _stored("your_own_bar.ipynb").cells if "class CallsLeft" in cell.source)
    assert cell.source.removeprefix("%%writefile my_bars.py\n").strip() in (ROOT / "README.md").read_text(
        "utf-8"
    )


def _stored(name: str) -> Any:
    import nbformat

    return nbformat.read(ROOT / "notebooks" / name, as_version=4)


def _executed(name: str, folder: Path) -> Any:
    """The notebook run in a copy of what it may read, so that nothing it writes lands in the checkout."""
    for part in ("notebooks", "results/reference", "conf", "scenarios"):
        shutil.copytree(ROOT / part, folder / part)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {k: v for k, v in os.environ.items() if k != "TAILGAUGE_RUN"} | {"PYTHONPATH": path}
    return _refresh().run(folder / "notebooks" / name, environment)


def _refresh() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "notebooks" / "refresh.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _shown(notebook: Any) -> dict[str, list[str]]:
    """Cell id → its outputs as text; of a picture only that it is there, since fonts differ between machines."""
    found: dict[str, list[str]] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            found[cell.id] = [
                out.get("text") or out.data.get("text/markdown") or out.data["text/plain"]
                for out in cell.outputs
            ]
    return found
