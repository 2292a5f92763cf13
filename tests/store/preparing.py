"""Statements of owners for tests of prepared tables, and counts over these tables."""

from __future__ import annotations

from pathlib import Path

import duckdb

POLICY = (
    "CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT patient MAX ROWS 2, BUDGET (epsilon = 1000000), "
    "DOMAIN sex IN (0, 1), CLAMP cost BETWEEN 0 AND 10)"
)
PREPARE = "ALTER PRIVACY POLICY ON visits PREPARE"
TAGS = iter(range(10**6))


def dp(con: duckdb.DuckDBPyConnection, statement: str) -> str:
    """Runs an owner's statement, and returns the line that it reports."""
    return str(con.execute("FROM dp(?)", [statement]).fetchall()[0][0])


def total(con: duckdb.DuckDBPyConnection, table: str = "visits", more: str = "") -> int:
    """Returns a new count, at a price where noise is below ten with a chance beyond 1 - 1e-12."""
    options = f"OPTIONS (epsilon = 100, refresh = '{next(TAGS)}')"
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY {options} count(*) AS n FROM {table} {more}"
    return int(con.execute("FROM dp(?)", [statement]).fetchall()[0][0])


def prepared_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if "_prepared_" in path.name)


SHARED = ("", "SEMI JOIN orders ON lines.id = orders.id", "JOIN orders ON lines.id = orders.id")
