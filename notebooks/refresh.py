"""Run every notebook from top to bottom and store what it shows: `python notebooks/refresh.py [NAME …]`.

Knows nothing of what a notebook is about. The tests run the same function on a copy and compare, so a notebook whose
stored outputs are out of date is found there.
"""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
SECONDS = 600
"""Longest that one cell may take."""


def run(path: Path, environment: dict[str, str]) -> nbformat.NotebookNode:
    """The notebook with fresh outputs, computed in its own folder. What names the machine or the hour is left out:
    metadata, and warnings (stderr) with their paths.

    Raises nbclient's CellExecutionError where a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )  # fmt: skip
    client.execute(env=environment)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def main(names: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    for path in [HERE / name for name in names] or sorted(HERE.glob("*.ipynb")):
        nbformat.write(run(path, environment), path)


if __name__ == "__main__":
    main(sys.argv[1:])
