"""Declared facts of a table, from DuckDB's catalog of columns and constraints."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.text.names import TableName
from dpduck.owner.policy_text import Home
from dpduck.store.catalog import Catalog
from dpduck.values.quoting import fold, quote_text


@dataclass(frozen=True)
class Constraint:
    """Constraint of a table. kind: 'PRIMARY KEY', 'UNIQUE', 'NOT NULL', 'FOREIGN KEY' or 'CHECK'. check: CHECK's SQL.

    references, referenced: for a FOREIGN KEY, the other table in the same schema, and its columns.
    """

    kind: str
    columns: tuple[str, ...]
    references: str
    referenced: tuple[str, ...]
    check: str


def _constraints(cursor: duckdb.DuckDBPyConnection, table: TableName) -> list[Constraint]:
    names = ", ".join(map(quote_text, table.parts))
    rows = cursor.execute(
        "SELECT constraint_type, constraint_column_names, coalesce(referenced_table, ''), "
        "coalesce(referenced_column_names, []), coalesce(expression, '') FROM duckdb_constraints() WHERE "
        f"(lower(database_name), lower(schema_name), lower(table_name)) = ({names.lower()}) ORDER BY constraint_index"
    ).fetchall()
    return [Constraint(row[0], tuple(row[1]), row[2], tuple(row[3]), row[4]) for row in rows]


@dataclass(frozen=True)
class Schema:
    """Declared facts of one table. links: FOREIGN KEYs of one column: the column, the other table, and its column."""

    table: TableName
    columns: tuple[CatalogColumn, ...]
    keys: frozenset[str]
    required: frozenset[str]
    checks: tuple[Constraint, ...]
    links: tuple[tuple[str, TableName, str], ...]
    home: Home

    def is_key(self, column: str) -> bool:
        return fold(column) in self.keys

    def null(self, column: str) -> str:
        """Returns " WITH NULL" if a column may hold NULL, so that rows with NULL are in a cell. Otherwise ""."""
        return "" if fold(column) in self.required else " WITH NULL"


def read_schema(cursor: duckdb.DuckDBPyConnection, table: TableName, catalog: Catalog, home: Home) -> Schema:
    """Reads the declared facts of a table. It reads no row, and no statistics that DuckDB keeps about rows."""
    rules = _constraints(cursor, table)
    single = [rule for rule in rules if len(rule.columns) == 1]
    keys = {fold(rule.columns[0]) for rule in single if rule.kind in ("PRIMARY KEY", "UNIQUE")}
    required = {fold(name) for rule in rules if rule.kind in ("PRIMARY KEY", "NOT NULL") for name in rule.columns}
    links = []
    for rule in single:
        other = catalog.resolve(TableName((*table.parts[:2], rule.references))) if rule.kind == "FOREIGN KEY" else None
        if other is not None:
            links.append((rule.columns[0], other, rule.referenced[0]))
    checks = tuple(rule for rule in single if rule.kind == "CHECK")
    return Schema(table, catalog.columns(table), frozenset(keys), frozenset(required), checks, tuple(links), home)
