"""The magics of dpduck.notebook, in a real shell of IPython and in a kernel of Jupyter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.notebook import connect_notebook, load_ipython_extension, read_line, run_cell
from dpduck.values.errors import Refusal

VISITS = """CREATE TABLE visits AS SELECT i // 3 AS person, ['A', 'B', NULL][1 + i % 3] AS ward FROM range(900) AS r(i);
    CREATE VIEW old AS SELECT ward FROM visits; CREATE TABLE wards AS SELECT 'A' AS ward;
    CREATE MACRO mine(t) AS TABLE FROM query_table(t); CREATE MACRO most() AS (SELECT max(ward) FROM visits);
    FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS 3, BUDGET (epsilon = 2),
        DOMAIN ward IN ('A', 'B')) $$)"""
SELECT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}) ward, count(*) AS n FROM visits GROUP BY ward"


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    """The variables of a notebook with a connection."""
    with dpduck.connect() as con:
        con.execute(VISITS)
        yield {"con": con}


def spent(names: dict[str, Any]) -> float:
    ((epsilon,),) = names["con"].execute("SELECT spent FROM dp_budget()").fetchall()
    return float(epsilon)


def test_a_statement_is_typed_bare(names: dict[str, Any]) -> None:
    """A question, a view and a SELECT over it. Results are kept under a name, and charged once."""
    shown = run_cell(names, "answer <<", SELECT.format(0.5) + ";\n")
    assert shown is not None and shown is names["answer"] and shown.columns == ["ward", "n"]
    assert shown.fetchall() == run_cell(names, "", SELECT.format(0.5)).fetchall()  # type: ignore[union-attr]
    status = run_cell(names, "", "CREATE PRIVATE VIEW v OPTIONS (epsilon = 0.5) AS SELECT count(*) AS n FROM visits")
    assert status is not None and status.fetchall() == [("private.v is ready",)]
    plain = run_cell(names, "rows<<", "SELECT n > 0 AS some FROM private.v, wards")
    assert plain is not None and names["rows"].fetchall() == [(True,)] and spent(names) == 1.0


def test_a_price_is_told_and_not_charged(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """--price of one statement or several, and --explain, print lines."""
    assert run_cell(names, "--price", SELECT.format(0.5)) is None
    assert capsys.readouterr().out == "25 % of your budget (epsilon = 0.5); you can ask this 4 times\n"
    run_cell(names, "--price", f"{SELECT.format(0.5)}; {SELECT.format(1.75)}")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("statement 1: 25 % of") and said[1].endswith("; costs more than what is left")
    assert run_cell(names, "--explain", SELECT.format(0.5)) is None
    told = capsys.readouterr().out
    assert "stderr" in told and "cost: 25 % of your budget (epsilon = 0.5)\n" in told
    assert "left: you can still ask this 4 times\n" in told and spent(names) == 0
    assert run_cell(names, "", f"EXPLAIN {SELECT.format(0.5)};") is None
    assert capsys.readouterr().out == told
    kept = run_cell(names, "kept <<", f"EXPLAIN {SELECT.format(0.5)}")
    assert kept is not None and "strategy" in names["kept"].columns and spent(names) == 0


def test_a_plain_question_is_told_from_earlier_answers(names: dict[str, Any]) -> None:
    """As in the owner's shell: free if it follows from paid answers, with its error, and refused if not."""
    plain = "SELECT ward, count(*) AS n FROM visits GROUP BY ward;"
    with pytest.raises(Refusal, match="visits has private rows, and earlier answers do not tell this"):
        run_cell(names, "", plain)
    run_cell(names, "", SELECT.format(0.5))
    known = run_cell(names, "", plain)
    assert known is not None and known.columns[:3] == ["ward", "n", "stderr"] and spent(names) == 0.5


@pytest.mark.parametrize(("line", "cell", "message"), [
    ("", "FROM visits", "do not tell this; accepted: SELECT WITH DIFFERENTIAL_PRIVACY .., or con.sql(..)"),
    ("", "SELECT max(ward) FROM old", "old has private rows, and earlier answers do not tell this; accepted: "),
    ("", "FROM wards; -- and\nFROM wards", "this cell has 2 statements; accepted: a cell for each, or %%dp --price"),
    ("", f"{SELECT.format(1)};;{SELECT.format(0.1)};", "this cell has 2 statements; accepted: "),
    ("--explain", f"{SELECT.format(1)};{SELECT.format(0.1)}", "this cell has 2 statements; accepted: "),
    ("", "FROM mine('visits')", "mine() has private rows, and earlier answers do not tell this; "),
    ("", "SELECT most()", "most() has private rows, and earlier answers do not tell this; "),
    ("", "FROM query_table('visits')", "the table function query_table may read private rows; accepted: "),
    ("", "PRAGMA storage_info('visits')", "PRAGMA may tell of private rows; accepted: "),
    ("--price", "FROM private.v", "--price is for a statement of dp(); accepted: "),
    ("--prize", "FROM wards", "%%dp cannot read '--prize'; accepted: %%dp [--price | --explain] [name <<], and a"),
    ("--price x <<", SELECT.format(1), "%%dp cannot read '--price x <<'; accepted: "),
])  # fmt: skip
def test_what_a_cell_refuses(names: dict[str, Any], line: str, cell: str, message: str) -> None:
    """Exact rows are not taken for private answers, and wrong words are named. Nothing is charged."""
    with pytest.raises(Refusal, match=re.escape(message)):
        run_cell(names, line, cell)
    assert spent(names) == 0


def test_the_connection_is_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, a connection of the notebook, or a database in memory becomes `con`."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path))
    names: dict[str, Any] = {}
    with pytest.raises(Refusal, match=r"there is no connection yet; accepted: %dp_connect clinic\.duckdb"):
        run_cell(names, "", "FROM wards")
    for line in ("it's.duckdb", "a.duckdb b.duckdb"):
        with pytest.raises(Refusal, match=r"takes one database; accepted: %dp_connect clinic\.duckdb"):
            connect_notebook(names, line)
    assert connect_notebook(names, f"'{tmp_path}/a b.duckdb'") == "con is a b.duckdb, a new database"
    names["con"].close()
    assert connect_notebook(names, f"'{tmp_path}/a b.duckdb'") == "con is a b.duckdb"
    names["con"].close()
    names["mine"] = duckdb.connect()
    assert connect_notebook(names, "mine") == "con is mine" and names["con"] is names["mine"]
    names["con"].close()
    assert connect_notebook(names, "") == "con is :memory:, a new database"
    names["con"].close()
    for line, con, message in (("a b", None, "takes one database"), ("", 7, "the variable con is no connection")):
        with pytest.raises(Refusal, match=message):
            connect_notebook({"con": con}, line)


class Shell:
    """What load_ipython_extension asks of a shell."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.magics: dict[str, Any] = {}

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        self.magics[f"{kind} {name}"] = function


def test_errors_are_usage_errors() -> None:
    """Of dpduck, of DuckDB and of Ctrl-C. IPython shows such an error in one line. Others are shown whole."""
    error = pytest.importorskip("IPython.core.error").UsageError
    shell = Shell()
    load_ipython_extension(shell)
    cell = shell.magics["cell dp"]
    shell.magics["line dp_connect"]("")
    for text, message in (
        ("SELECT FROM WHERE", "cannot be parsed"),
        ("FROM nothing_here", "^Catalog Error: Table with name nothing_here does not exist!$"),
        (SELECT.format(1), "there is no table .*; accepted: "),
    ):
        with pytest.raises(error, match=message) as raised:
            cell("", text)
        assert "\n" not in str(raised.value)
    shell.user_ns["con"].close()
    with pytest.raises(error, match="closed"):
        cell("", "FROM wards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpduck.notebook.run_cell", interrupted)
        with pytest.raises(error, match=r"^the charge stays$"):
            cell("", "FROM wards")
        patch.setattr("dpduck.notebook.run_cell", broken)
        with pytest.raises(RuntimeError, match=r"^a defect$"):
            cell("", "FROM wards")


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt("the charge stays")


def broken(*_: object) -> None:
    raise RuntimeError("a defect")


def test_the_line_is_read() -> None:
    """A comment may follow."""
    assert read_line(" a_1  <<  # keep").name == "a_1" and read_line("--explain # look").mode == "explain"


RUN = """
import asyncio, sys, nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
cells = ["%load_ext dpduck.notebook", "%dp_connect", CREATE, "%%dp kept <<\\n" + SELECT, "print(kept.df().shape)",
    "%%dp\\nFROM visits"]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
kernel = AsyncKernelManager(kernel_name="python3", transport="ipc")
try:
    NotebookClient(notebook, km=kernel, timeout=600, startup_timeout=600).execute()
except Exception as error:
    print(type(error).__name__)
for cell in notebook.cells:
    for output in cell.outputs:
        print("OUTPUT", output.get("name"), output.get("ename"), output.get("text") or output.get("data"))
"""


@pytest.mark.slow
def test_a_kernel_shows_tables_and_lines(tmp_path: Path) -> None:
    """In Jupyter a table is shown and kept. A refusal is one line on the error stream, and stops a run of all cells."""
    for package in ("nbclient", "ipykernel", "pandas"):
        pytest.importorskip(package)
    texts = f"CREATE = {f'con.execute({VISITS!r})'!r}\nSELECT = {SELECT.format(0.5)!r}\n"
    with tempfile.TemporaryDirectory(prefix="k") as runtime:  # names of sockets have to be short
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", texts + RUN], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "DPDUCK_STATE_DIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": runtime}, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout
    assert "con is :memory:, a new database" in said and "varchar" in said and "(2, 2)" in said
    assert "UsageError: visits has private rows, and " in said and "Traceback" not in said
    assert said.startswith("CellExecutionError"), "the run stopped"
