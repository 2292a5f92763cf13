"""Collations of columns, which DuckDB's catalog shows only in the text of a table's definition."""

from __future__ import annotations

import duckdb
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from dpduck.errors import Refusal
from dpduck.frontend.names import TableName, fold


def collation_of(cursor: duckdb.DuckDBPyConnection, table: TableName, column: str) -> str:
    """The collation that a column was declared with, '' where it has none."""
    rows = cursor.execute(
        "SELECT sql, database_name, schema_name, table_name FROM duckdb_tables() WHERE lower(table_name) = lower($1)",
        [table.table],
    ).fetchall()
    row = next((one for one in rows if tuple(map(fold, one[1:])) == tuple(map(fold, table.parts))), None)
    definition = "" if row is None else str(row[0])
    if row is not None and " COLLATE " not in definition.upper():
        return ""
    try:
        parsed = parse_one(definition, dialect="duckdb")
    except SqlglotError:
        parsed = exp.Expr()
    for found in parsed.find_all(exp.ColumnDef):
        if fold(found.name) == fold(column):
            rule = found.find(exp.CollateColumnConstraint)
            return "" if rule is None else rule.this.name
    raise Refusal(f"the collation of {column!r} cannot be read", accepted="a table of columns without COLLATE")
