"""A column with a name that dpduck adds beside a statement's own would hide the kernel's column."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpduck
from tests.language.clinic import ask, charges, told

OPTIONS = "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001)"


@pytest.fixture(scope="module")
def clinic() -> Iterator[duckdb.DuckDBPyConnection]:
    with dpduck.connect() as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT i AS id, i % 3 AS ward FROM range(30) r(i); "
            "CREATE TABLE visits AS SELECT i % 30 AS id, i % 5 AS nights, i % 2 = 0 AS Dpduck_Cut_0 FROM range(90) r(i)"
        )
        connection.execute("ALTER TABLE people ADD PRIMARY KEY (id)")
        ask(connection, "CREATE PRIVACY POLICY ON people (PRIVACY UNIT id MAX ROWS 4, BUDGET (epsilon = 1000))")
        ask(connection, "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT id REFERENCES people.id MAX ROWS 4)")
        yield connection


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("(SELECT id, 'x' AS dpduck_cut_0 FROM people UNION ALL SELECT id, 'y' FROM people)", "dpduck_cut_0"),
        ("(SELECT id, count(*) AS DPDUCK_ORDER_OF_TABLE FROM people GROUP BY id)", "DPDUCK_ORDER_OF_TABLE"),
        ("people JOIN visits ON people.id = visits.id", "Dpduck_Cut_0"),
        ("visits LEFT JOIN people ON people.id = visits.id", "Dpduck_Cut_0"),
        ("(SELECT id, max(nights) AS most FROM visits GROUP BY id)", "Dpduck_Cut_0"),
        ("(SELECT id, row_number() OVER (PARTITION BY id ORDER BY nights) AS n FROM visits)", "Dpduck_Cut_0"),
    ],
)
def test_names_of_the_kernel_are_refused(clinic: duckdb.DuckDBPyConnection, source: str, name: str) -> None:
    """A UNION ALL with a column named like the kernel's order is refused: others' rows decided what a cut kept."""
    before = charges(clinic)
    assert f"'{name}' is a name of dpduck's own; accepted: another name" in told(
        clinic, f"SELECT {OPTIONS} count(*) AS n FROM {source}"
    )
    assert charges(clinic) == before


def test_such_a_table_is_counted_alone(clinic: duckdb.DuckDBPyConnection) -> None:
    """No name is added beside rows of one table, so that its columns may have any name."""
    assert len(ask(clinic, f"SELECT {OPTIONS} count(*) AS n FROM visits WHERE Dpduck_Cut_0").fetchall()) == 1
