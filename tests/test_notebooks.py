"""Every notebook runs from top to bottom in a fresh kernel."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks import pictures
from tests.support.words import long_sentences, words_of

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


@pytest.mark.sampled
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_a_plot(notebook: Path, tmp_path: Path) -> None:
    """Notebooks are executed by a test. Each shows at least one picture."""
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


def test_notebooks_are_committed_with_their_outputs() -> None:
    """Whoever looks at one sees its tables and plots, of a run from top to bottom without a warning."""
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), path.name
        outputs = [output for cell in cells for output in cell["outputs"]]
        assert any("image/png" in output.get("data", {}) for output in outputs), path.name
        assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]


def test_notebooks_declare_nothing_public_that_was_read_off_private_rows() -> None:
    """A declared table is made of constants and ranges: none is selected from a table that has a policy."""
    for path in NOTEBOOKS:
        text = "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
        private = set(re.findall(r"PRIVACY POLICY ON (\w+)", text))
        for name in re.findall(r"DECLARE PUBLIC TABLE (\w+)", text):
            (made,) = re.findall(rf"CREATE (?:OR REPLACE )?TABLE {name} AS(.*?)(?:\"\"\"|\"\)|;)", text, re.DOTALL)
            assert not private & set(re.findall(r"\w+", made)), f"{path.name}: {name}"


WORDS = 600


def cells(path: Path) -> list[tuple[str, str, bool]]:
    """Each cell's kind and text, and whether it shows a picture."""
    listed = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        (
            cell["cell_type"],
            "".join(cell["source"]),
            any("image/png" in one.get("data", {}) for one in cell.get("outputs", [])),
        )
        for cell in listed
    ]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_tells_what_it_does(notebook: Path) -> None:
    """600 words or more of short sentences, the run time in the first cell, a conclusion under each picture."""
    found = cells(notebook)
    prose = [text for kind, text, _ in found if kind == "markdown"]
    assert sum(map(words_of, prose)) >= WORDS
    assert [one for text in prose for one in long_sentences(text)] == []
    assert re.search(r"(seconds|minutes?) on two cores", prose[0]), "the run time"
    assert any(picture for *_, picture in found)
    for (*_, picture), (kind, text, _) in zip(found, [*found[1:], ("none", "", False)], strict=True):
        assert not picture or (kind == "markdown" and text.startswith("**What the figure shows.**"))


def test_the_first_picture_is_the_readmes() -> None:
    """Notebook 01 has the clinic, the policy, the price and the colours of the picture that the README shows."""
    source = " ".join(" ".join(text for kind, text, _ in cells(NOTEBOOKS[0]) if kind == "code").split())
    wards = ", ".join(f"'{ward}'" for ward in pictures.WARDS)
    for sql in (pictures.CLINIC.format(wards=wards), pictures.POLICY.format(wards=wards)):
        assert " ".join(sql.split()) in source
    for part in pictures.RELEASE.replace(str(pictures.EPSILON), "{epsilon}").splitlines():
        assert " ".join(part.split()) in source
    drawn = Path(pictures.__file__).read_text(encoding="utf-8")
    colours = set(re.findall(r"#[0-9a-f]{6}", drawn))
    assert colours == set(re.findall(r"#[0-9a-f]{6}", source)) and len(colours) == 3
    assert "first_counts.svg" in (NOTEBOOKS[0].parents[1] / "README.md").read_text(encoding="utf-8")


def test_one_notebook_starts_from_a_file() -> None:
    """The last one reads a Parquet file. Its name stands in the first cell of code, and publishes a file."""
    code = [text for kind, text, _ in cells(NOTEBOOKS[-1]) if kind == "code"]
    assert re.search(r"^FILE = Path\(", code[0], re.MULTILINE) and "FROM '{FILE}'" in code[0]
    assert "publish(" in code[-1]
