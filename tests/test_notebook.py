"""Every notebook runs from top to bottom, on a copy, as a reader would run it."""

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(name: str, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    # A copy of what a notebook may read, so that nothing it writes lands in the checkout.
    for part in ("notebooks", "results/reference", "conf", "scenarios"):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tmp_path / part)
    notebook = nbformat.read(tmp_path / "notebooks" / name, as_version=4)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path / "notebooks")}},
    )  # fmt: skip
    client.execute(env={**os.environ, "PYTHONPATH": path})
    assert any(cell.cell_type == "code" and cell.outputs for cell in notebook.cells), "it shows something"


def test_the_notebook_of_the_reference_run_is_here() -> None:
    assert "xfinity.ipynb" in NOTEBOOKS
