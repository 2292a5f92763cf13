"""Every notebook runs from top to bottom in a fresh kernel."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
RUN = """
import sys, nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
# Sockets with names, because ports that were free could be taken before the kernel has them.
kernel = AsyncKernelManager(kernel_name="python3", transport="ipc")
NotebookClient(notebook, km=kernel, timeout=1200, startup_timeout=600).execute()
outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
print(sum("image/png" in output.get("data", {}) for output in outputs))
"""


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_a_plot(notebook: Path, tmp_path: Path) -> None:
    """DESIGN section 2: notebooks are executed by a test; each shows at least one picture."""
    pytest.importorskip("nbclient")
    environment = {
        **os.environ,
        "DPDUCK_STATE_DIR": str(tmp_path),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    with tempfile.TemporaryDirectory(prefix="k") as runtime:  # names of sockets have to be short
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", RUN, str(notebook)],
            cwd=tmp_path, env={**environment, "JUPYTER_RUNTIME_DIR": runtime}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) >= 1, "the notebook shows no plot"


def test_notebooks_are_committed_without_outputs() -> None:
    """Outputs would go stale; the test above makes them anew."""
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert not any(cell.get("outputs") for cell in cells), path.name
