"""A statement that is asked again is read anew only where a public fact has changed."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpduck
from dpduck.database import database

COUNT = "FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex')"
WARDS = (
    "FROM dp($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits "
    "JOIN wards USING (sex) $$)"
)
POLICY = "PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 90), DOMAIN sex IN ('F', 'M'{}))"

OTHER = ", 'X'"


@pytest.fixture
def clinic() -> Iterator[duckdb.DuckDBPyConnection]:
    """Visits under a policy, and a public table."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE visits AS SELECT i patient, ['F', 'M'][1 + i % 2] AS sex FROM range(9) t(i)")
        connection.execute("CREATE TABLE wards AS SELECT 'F' AS sex")
        connection.execute("FROM dp('DECLARE PUBLIC TABLE wards')")
        connection.execute(f"FROM dp($$ CREATE {POLICY.format('')} $$)")
        yield connection


@pytest.fixture
def analyses(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Lists the analysed statements."""
    seen: list[object] = []
    analyse = vars(database)["analyse"]

    def noted(*asked: object) -> object:
        seen.append(asked[0])
        found: object = analyse(*asked)
        return found

    monkeypatch.setattr(database, "analyse", noted)
    return seen


def test_the_same_text_is_analysed_once(clinic: duckdb.DuckDBPyConnection, analyses: list[object]) -> None:
    """The same text has the same answer, without a second analysis."""
    first = clinic.execute(COUNT).fetchall()
    assert clinic.execute(COUNT).fetchall() == first
    assert len(analyses) == 1


@pytest.mark.parametrize(
    "change",
    [
        f"FROM dp($$ CREATE OR REPLACE {POLICY.format(OTHER)} $$)",
        "FROM dp('ALTER PRIVACY POLICY ON visits NEW EPOCH')",
        "ALTER TABLE visits ADD COLUMN more INTEGER",
    ],
)
def test_a_changed_fact_is_noticed(clinic: duckdb.DuckDBPyConnection, analyses: list[object], change: str) -> None:
    """A policy, an epoch or a column: the statement is analysed again."""
    clinic.execute(COUNT).fetchall()
    clinic.execute(change)
    with_change = clinic.execute(COUNT).fetchall()
    assert len(analyses) == 2
    assert clinic.execute(COUNT).fetchall() == with_change


def test_what_is_refused_now_is_refused(clinic: duckdb.DuckDBPyConnection) -> None:
    """A macro hides a function, a policy is dropped, a view replaces the table: earlier answers are refused."""
    clinic.execute(COUNT).fetchall()
    clinic.execute("CREATE MACRO count_star() AS 1")
    with pytest.raises(duckdb.Error, match="hides the built-in"):
        clinic.execute(COUNT)
    clinic.execute("DROP MACRO count_star")
    clinic.execute(COUNT).fetchall()
    clinic.execute("FROM dp('DROP PRIVACY POLICY ON visits')")
    with pytest.raises(duckdb.Error, match="no privacy policy"):
        clinic.execute(COUNT)
    clinic.execute(f"FROM dp($$ CREATE {POLICY.format('')} $$)")
    clinic.execute(COUNT).fetchall()
    clinic.execute("ALTER TABLE visits RENAME TO others")
    clinic.execute("CREATE VIEW visits AS FROM others")
    with pytest.raises(duckdb.Error, match="replaced by a view"):
        clinic.execute(COUNT)


def test_a_public_table_that_grew_is_another_statement(clinic: duckdb.DuckDBPyConnection) -> None:
    """Rows of a public table are part of the question: the statement is charged again."""
    clinic.execute(WARDS).fetchall()
    clinic.execute(WARDS).fetchall()
    clinic.execute("INSERT INTO wards VALUES ('M')")
    clinic.execute(WARDS).fetchall()
    assert clinic.execute("SELECT count(*) FROM dp_releases()").fetchone() == (2,)
