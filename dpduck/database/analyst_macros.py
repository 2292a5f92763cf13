"""The SQL macros for analysts, as they ship in sql/macros.sql."""

from __future__ import annotations

from pathlib import Path

import duckdb

from dpduck.database.macros import read_macro_files
from dpduck.values.quoting import quote_identifier

PACKAGE = Path(__file__).resolve().parent.parent


def macros_sql() -> str:
    """Reads macros.sql from dpduck/sql in a wheel, or from sql/ beside the package in a checkout."""
    shipped = PACKAGE / "sql" / "macros.sql"
    return (shipped if shipped.is_file() else PACKAGE.parent / "sql" / "macros.sql").read_text(encoding="utf-8")


def install_analyst_macros(connection: duckdb.DuckDBPyConnection, database: str) -> None:
    """Creates the macros of macros.sql and sql/macros in an attached database. The current database stays the same."""
    row = connection.execute("SELECT current_database(), current_schema()").fetchone()
    connection.execute(f"USE {quote_identifier(database)}")
    try:
        for text in (macros_sql(), *read_macro_files()):
            connection.execute(text)
    finally:
        if row is not None:
            connection.execute(f"USE {quote_identifier(row[0])}.{quote_identifier(row[1])}")
