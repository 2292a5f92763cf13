"""Two databases that differ in one bit of one row, and the visible outcome of a statement on each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpduck
from tests.support.clinics import one_line

HER = "name = 'alice' AND hiv"
"""Any predicate at all over one row."""

FALSE_CAST = f"CAST(CASE WHEN {HER} THEN 'x' ELSE '1' END AS INTEGER)"
"""A text that does not convert in her row alone."""

FAILED = "failed after its charge"
PATIENT, ROW = "PRIVACY UNIT id MAX ROWS 4", "PRIVACY UNIT ROW"
TABLES = (
    "CREATE TABLE pub AS SELECT i AS k, i::UBIGINT AS u, DATE '2024-01-01' + i::INTEGER AS day, "
    "[1, 2]::FLOAT[2] AS emb, TIMESTAMPTZ '2024-01-01 10:00:00+00' AS seen, 1 AS one FROM range(3) r(i)",
    "CREATE TABLE visits AS SELECT i AS id, 'p' || i AS name, false AS hiv, i % 3 AS ward, (i % 3)::UBIGINT AS u, "
    "i AS salary, DATE '1950-01-01' + (i * 7)::INTEGER AS born, [1, 2]::FLOAT[2] AS emb, "
    "TIMESTAMPTZ '2024-01-01 10:00:00+00' AS seen, [i] AS notes, 1 AS one FROM range(2000) r(i)",
    "ANALYZE",
)
NEIGHBOUR = (
    "INSERT INTO visits "
    "VALUES (1000000, 'alice', ?, 1, NULL, ?, '1990-01-01', [1, 3], '2024-01-02 10:00:00+00', [0], 1)"
)


class Neighbours:
    """Two databases that differ in one row: whether alice has hiv, and what she earns."""

    def __init__(self, unit: str, prepared: bool = False) -> None:
        self.both = [_database(unit, hiv, prepared) for hiv in (False, True)]

    def outcomes(self, select: str, more: str = "") -> tuple[str, str]:
        """Returns the outcome of an annotated SELECT on each: 'answered', or the message. more: options."""
        first, second = (_outcome(connection, select, more) for connection in self.both)
        return first, second

    def close(self) -> None:
        for connection in self.both:
            connection.close()


def _database(unit: str, hiv: bool, prepared: bool) -> duckdb.DuckDBPyConnection:
    connection = dpduck.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    for sql in TABLES:
        connection.execute(sql)
    connection.execute(NEIGHBOUR, [hiv, 1_000_000 if hiv else 7])
    for statement in (
        "DECLARE PUBLIC TABLE pub",
        f"CREATE PRIVACY POLICY ON visits ({unit}, BUDGET (epsilon = 10, delta = 1e-3, delta_keys = 5e-4), "
        "DOMAIN ward IN (0, 1, 2), DOMAIN u IN (0, 1, 2) WITH NULL)",
    ):
        connection.execute("FROM dp(?)", [statement]).fetchall()
    if prepared:  # which lists and arrays cannot be
        for column in ("visits DROP COLUMN emb", "visits DROP COLUMN notes", "pub DROP COLUMN emb"):
            connection.execute(f"ALTER TABLE {column}")
        connection.execute("FROM dp('ALTER PRIVACY POLICY ON visits PREPARE')").fetchall()
    return connection


def _outcome(connection: duckdb.DuckDBPyConnection, select: str, more: str) -> str:
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {'0.1' if more else '1e-9'}{more}) {select}"
    try:
        connection.execute("FROM dp(?)", [statement]).fetchall()
    except duckdb.Error as error:
        said = one_line(error)
        return FAILED if FAILED in said.replace("the release ", "") else said
    return "answered"


def open_neighbours(unit: str, state: Path, prepared: bool = False) -> Iterator[Neighbours]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(state))
        made = Neighbours(unit, prepared)
        yield made
        made.close()
