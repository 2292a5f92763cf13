"""Columns of a table, as DuckDB describes them."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from dpduck.language.text.names import TableName


def columns_of_table(cursor: duckdb.DuckDBPyConnection, table: TableName) -> Mapping[str, str]:
    """Returns DuckDB's types of a table's columns, none if the table is gone or its database is not attached."""
    try:
        return {str(row[0]): str(row[1]) for row in cursor.execute(f"DESCRIBE {table.sql}").fetchall()}
    except (duckdb.CatalogException, duckdb.BinderException):
        return {}
