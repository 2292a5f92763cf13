"""The modules that a process loads until dpduck is loaded on a connection, and until its first count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOAD = "import sys, duckdb, dpduck; con = duckdb.connect(sys.argv[1]); dpduck.load(con)"
POLICY = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN (0, 1))"
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) sex, count(*) AS n FROM visits GROUP BY sex"
MADE = f"""{LOAD}
con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex FROM range(100)")
con.execute('''FROM dp('{POLICY}')''').fetchall()"""
COUNTED = f"""{LOAD}
assert len(con.execute('''FROM dp('{COUNT}')''').fetchall()) == 2"""
WITHOUT_PANDAS = "from dpduck.values.no_pandas import do_without_pandas; do_without_pandas()"
"""DuckDB's client imports pandas, where it is installed, for the first text that a function answers."""

ENGINE = ("dpduck.strategies", "dpduck.mechanisms", "dpduck.kernel.door", "dpduck.kernel.noise", "dpduck.engines")
"""What plans, counts and adds noise; and tables of other engines."""


def loaded(script: str, database: Path) -> set[str]:
    """The modules that a process has in the end."""
    environment = {**os.environ, "DPDUCK_STATE_DIR": str(database.parent / "state")}
    words = [sys.executable, "-c", f"{script}\nprint(*sys.modules)", str(database)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return set(done.stdout.split())


@pytest.mark.parametrize("again", [False, True], ids=["a new store", "a store that exists"])
def test_load_imports_no_engine(again: bool, tmp_path: Path) -> None:
    """Loading dpduck opens only its store. Planning, parsing and counting code waits for a statement."""
    database = tmp_path / "clinic.duckdb"
    modules = [loaded(LOAD, database) for _ in range(1 + again)][-1]
    assert {"dpduck.database.connection", "duckdb"} <= modules
    packages = {name.split(".")[0] for name in modules}
    assert packages & {"pandas", "pyarrow", "scipy", "sqlglot"} == set(), "numpy is DuckDB's, for any function"
    assert [name for name in modules if name.startswith((*ENGINE, "dpduck.database.database"))] == []


def test_a_count_imports_what_it_needs(tmp_path: Path) -> None:
    """A first count needs none of Arrow's file systems, no parts of scipy, and nothing that publishes."""
    loaded(MADE, tmp_path / "clinic.duckdb")
    modules = loaded(f"{WITHOUT_PANDAS}\n{COUNTED}", tmp_path / "clinic.duckdb")
    assert "dpduck.mechanisms.cubes.measure" in modules
    packages = {name.split(".")[0] for name in modules}
    assert packages & {"pandas", "matplotlib", "pyspark"} == set()
    others = ("dpduck.publish", "dpduck.commands", "dpduck.server", "dpduck.auditor", "pyarrow.dataset", "pyarrow.fs")
    assert [name for name in modules if name.startswith((*others, "scipy.special", "scipy.optimize"))] == []
