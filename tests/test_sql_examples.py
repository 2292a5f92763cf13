"""Every example query that ships in sql/examples runs, statement by statement."""

import re
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.database.analyst_macros import install_analyst_macros

EXAMPLES = Path(__file__).parents[1] / "sql" / "examples"
FILES = sorted(path for path in EXAMPLES.glob("*.sql") if path.stem != "clinic")


def run_file(con: duckdb.DuckDBPyConnection, path: Path) -> list[int]:
    """Number of rows of each statement's answer. Semicolons stand at line ends only."""
    parts = [part for part in re.split(r";\s*$", path.read_text(), flags=re.MULTILINE) if part.strip()]
    return [len(con.execute(part).fetchall()) for part in parts]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_runs(path: Path) -> None:
    """Example queries are run by a test. Each answers with at least one row."""
    con = dpduck.connect()
    if path.stem == "analyst_macros":  # those of sparse queries come with dpduck, for the tables of its store
        install_analyst_macros(con, "memory")
    run_file(con, EXAMPLES / "clinic.sql")
    assert all(run_file(con, path)), "an example answers with nothing"
