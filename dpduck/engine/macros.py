"""The macros of sql/macros, which any DuckDB runs over released tables, put on a connection where dpduck is loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import duckdb

from dpduck.frontend.text.names import quote_identifier, quote_text

MARK = "CREATE OR REPLACE MACRO"


def install_shipped(connection: duckdb.DuckDBPyConnection, temporary: str, store: str) -> None:
    """Creates them in the current database. A released table without a database's name is the store's."""
    for text in shipped_texts():
        connection.execute(text.replace(MARK, f"CREATE OR REPLACE {temporary}MACRO"))
    connection.execute(
        f"CREATE OR REPLACE {temporary}MACRO dp_released(name) AS "
        f"CASE WHEN contains(name, '.') THEN name ELSE {quote_text(store + '.')} || name END"
    )


def foreign_shipped(connection: duckdb.DuckDBPyConnection, store: str) -> str | None:
    """A macro of the current database that has a shipped name and another body; None where there is none."""
    names = [*shipped_names(), "dp_released"]
    found = _bodies(connection, names)
    if not found:
        return None
    with duckdb.connect() as fresh:
        for text in shipped_texts():  # read by hand, before dpduck was ever loaded
            fresh.execute(text)
        ours = _bodies(fresh, names)
        install_shipped(fresh, "", store)
        ours |= _bodies(fresh, names)
    return next((name for name, body in sorted(found) if (name, body) not in ours), None)


def _bodies(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> set[tuple[str, str]]:
    rows = connection.execute(
        "SELECT function_name, coalesce(macro_definition, '') FROM duckdb_functions() WHERE NOT internal AND "
        "database_name = current_database() AND list_contains($1, function_name)",
        [list(names)],
    ).fetchall()
    return {(str(name), str(body)) for name, body in rows}


def shipped_texts() -> list[str]:
    """The files of sql/macros: beside the modules in a wheel, beside the package in a checkout."""
    installed = files("dpduck").joinpath("sql/macros")
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "sql" / "macros"
    found = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda item: item.name)
    return [item.read_text(encoding="utf-8") for item in found]


def shipped_names() -> list[str]:
    """The names of the shipped macros."""
    return [name for text in shipped_texts() for name in re.findall(rf"{MARK} (\w+)\(", text)]


# The SQL macros for analysts, as they ship in sql/macros.sql.

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
