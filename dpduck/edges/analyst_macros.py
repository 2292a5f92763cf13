"""The SQL macros for analysts, as they ship in sql/macros.sql."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from dpduck.edges.shipped_macros import shipped_texts
from dpduck.frontend.names import quote_identifier

PACKAGE = Path(__file__).resolve().parent.parent


def macros_sql() -> str:
    """The file's text: dpduck/sql in a wheel, sql/ beside the package in a checkout."""
    shipped = PACKAGE / "sql" / "macros.sql"
    return (shipped if shipped.is_file() else PACKAGE.parent / "sql" / "macros.sql").read_text(encoding="utf-8")


def macro_names() -> tuple[str, ...]:
    """The names of the macros."""
    return tuple(re.findall(r"^CREATE OR REPLACE MACRO (\w+)", macros_sql(), flags=re.MULTILINE))


def install_analyst_macros(connection: duckdb.DuckDBPyConnection, database: str) -> None:
    """Creates the macros, and those of sql/macros, in an attached database; the current database stays what it was."""
    row = connection.execute("SELECT current_database(), current_schema()").fetchone()
    connection.execute(f"USE {quote_identifier(database)}")
    try:
        for text in (macros_sql(), *shipped_texts()):
            connection.execute(text)
    finally:
        if row is not None:
            connection.execute(f"USE {quote_identifier(row[0])}.{quote_identifier(row[1])}")
