"""Runs every notebook from top to bottom and keeps its outputs: `make notebooks`. Signs of progress are not kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent


def cleaned(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Returns the notebook without what differs from run to run for no reason: times, and progress on stderr."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def main() -> None:
    """Runs them in a folder of their own, with plots inside of the page and made-up people."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = os.environ["DPDUCK_DATA"] = folder
        for path in sorted(HERE.glob("*.ipynb")):
            notebook = nbformat.read(path, as_version=4)
            NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": folder}}).execute()
            nbformat.write(cleaned(notebook), path)


if __name__ == "__main__":
    main()
