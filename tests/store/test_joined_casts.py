"""A private value that is compared with a public column of another type never decides whether a release fails."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpduck

PRESENT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) count(*) FROM visits JOIN hours ON {} = hours.{}"


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Visits of two persons, and public columns to which TRY_CAST of some moments raises in DuckDB."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE visits (who INTEGER)")
        connection.execute("INSERT INTO visits VALUES (1), (7)")
        connection.execute("CREATE TABLE hours (clock TIME, moment TIMESTAMPTZ, nanos TIMESTAMP_NS)")
        connection.execute("INSERT INTO hours VALUES ('10:00:00', '2024-01-01 00:00:00+00', '2024-01-01')")
        connection.execute("FROM dp('DECLARE PUBLIC TABLE hours')")
        connection.execute("FROM dp('CREATE PRIVACY POLICY ON visits (PRIVACY UNIT who MAX ROWS 1, BUDGET (rho = 1))')")
        yield connection


@pytest.mark.parametrize(
    ("extreme", "column"),
    [
        ("TIMESTAMP 'infinity'", "clock"),
        ("DATE '5881580-07-10'", "nanos"),
        ("TIMESTAMP '294247-01-10 04:00:54.775806'", "nanos"),
    ],
)
def test_no_cast_in_a_join_tells_who_is_there(connection: duckdb.DuckDBPyConnection, extreme: str, column: str) -> None:
    """A value of one person's row alone that does not convert meets no public row, and raises nothing."""
    assert len(connection.execute("FROM dp(?)", [PRESENT.format(chosen(extreme), column)]).fetchall()) == 1


def chosen(extreme: str) -> str:
    return f"CASE WHEN who = 7 THEN {extreme} ELSE {extreme[: extreme.index(' ')]} '2024-01-01' END"


@pytest.mark.parametrize("extreme", ["TIMESTAMP '294247-01-10 04:00:54.775806'", "DATE '5881580-07-10'"])
def test_no_cast_to_a_time_zone_is_made_for_a_join(connection: duckdb.DuckDBPyConnection, extreme: str) -> None:
    """Casts to time zones are refused before the charge: they ask ICU, which may end the database."""
    with pytest.raises(duckdb.InvalidInputException, match="an expression over TIMESTAMP WITH TIME ZONE is refused"):
        connection.execute("FROM dp(?)", [PRESENT.format(chosen(extreme), "moment")]).fetchall()
    assert connection.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall() == [(0,)]
