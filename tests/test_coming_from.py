"""The page for users of other systems: our side of every statement runs, and BigQuery's as it says."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

import dpduck

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "coming_from.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"```sql\n(.*?)```", re.DOTALL)
SETUP = "The table and its policy"
SYSTEMS = ("BigQuery", "Tumult Analytics", "OpenDP", "SmartNoise SQL", "PipelineDP")
_THEIRS = re.compile(r"^-- \d+\. (.*)$", re.MULTILINE)
_DIALECT = re.compile(r"\s*(SELECT WITH|CREATE PRIVA|DECLARE PUBLIC)")


def statements(section: str) -> list[str]:
    """Our statements of a section, without the comments before them."""
    listed = (re.sub(r"^--[^\n]*\n", "", one, flags=re.MULTILINE) for one in BLOCK.findall(SECTIONS[section]))
    return [one for block in listed for one in re.split(r";\s*$", block, flags=re.MULTILINE) if one.strip()]


def run(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[object, ...]]:
    """Runs a statement of the dialect inside of dp(), and any other as it is."""
    if _DIALECT.match(statement):
        return con.execute("FROM dp(?)", [statement]).fetchall()
    return con.execute(statement).fetchall()


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    made = dpduck.connect()
    for statement in statements(SETUP):
        run(made, statement)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_ten_statements_of_each_system_run(system: str, con: duckdb.DuckDBPyConnection) -> None:
    """Ten statements each, with as many rows as their public groups have, or none where a threshold stands."""
    ours = statements(system)
    assert len(ours) == 10
    for statement in ours:
        assert run(con, statement) or "_THRESHOLD" in statement, statement
    con.close()


def test_every_other_statement_runs(con: duckdb.DuckDBPyConnection) -> None:
    """So do those beside DuckDB's community extensions."""
    (others,) = [name for name in SECTIONS if name not in {*SYSTEMS, SETUP}]
    assert all(run(con, statement) for statement in statements(others))
    con.close()


def test_theirs_stand_beside_ours() -> None:
    """Each of our translations has the statement of the other system above it, numbered in order."""
    for system in SYSTEMS:
        numbers = [int(one) for one in re.findall(r"^-- (\d+)\. ", SECTIONS[system], re.MULTILINE)]
        assert numbers == list(range(1, (5 if system == "BigQuery" else 10) + 1)), system


def test_bigquerys_text_needs_what_the_page_says(con: duckdb.DuckDBPyConnection) -> None:
    """Five statements run as BigQuery has them. Each of the other five is refused before anything is charged."""
    unchanged, changed = BLOCK.findall(SECTIONS["BigQuery"])
    assert "--" not in unchanged and len(unchanged.split(";\n")) == 5
    charged = con.execute("SELECT spent FROM dp_budget()").fetchall()
    theirs = _THEIRS.findall(changed)
    assert len(theirs) == 5
    for text in theirs:
        with pytest.raises(duckdb.Error, match="accepted:"):
            con.execute("FROM dp(?)", [text]).fetchall()
    assert con.execute("SELECT spent FROM dp_budget()").fetchall() == charged
    con.close()
