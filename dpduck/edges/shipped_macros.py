"""The macros of sql/macros, which any DuckDB runs over released tables, put on a connection where dpduck is loaded."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import duckdb

from dpduck.frontend.names import quote_text

MARK = "CREATE OR REPLACE MACRO"


def install_shipped(connection: duckdb.DuckDBPyConnection, temporary: str, store: str) -> None:
    """Creates them in the current database. A released table without a database's name is the store's."""
    for text in shipped_texts():
        connection.execute(text.replace(MARK, f"CREATE OR REPLACE {temporary}MACRO"))
    connection.execute(
        f"CREATE OR REPLACE {temporary}MACRO dp_released(name) AS "
        f"CASE WHEN contains(name, '.') THEN name ELSE {quote_text(store + '.')} || name END"
    )


def shipped_texts() -> list[str]:
    """The files of sql/macros: beside the modules in a wheel, beside the package in a checkout."""
    installed = files("dpduck").joinpath("sql/macros")
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "sql" / "macros"
    found = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda item: item.name)
    return [item.read_text(encoding="utf-8") for item in found]


def shipped_names() -> list[str]:
    """The names of the shipped macros."""
    return [name for text in shipped_texts() for name in re.findall(rf"{MARK} (\w+)\(", text)]
