"""Collations of key columns, which DuckDB's catalog shows only in the text of a table's definition."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from dpduck.language.statements.kinds import PROJECTION
from dpduck.language.text.names import TableName
from dpduck.mechanisms.sparse.keys import require_collation
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.store.catalog import Catalog
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold


def with_collations(sparse: SparseRequest, catalog: Catalog) -> SparseRequest:
    """Returns the request with the collations of its columns.

    Refuses a projection of a column with a collation, because the queries that it will answer are not known yet.
    """
    keys = []
    for key in sparse.keys:
        collation = _collation_of(catalog, sparse.table, key.name) if key.type_name == "VARCHAR" else ""
        keys.append(replace(key, collation=collation))
        require_collation(keys[-1])
        if collation and sparse.kind == PROJECTION:
            raise Refusal(
                f"the column {key.name!r} has a collation, of which a projection knows nothing",
                accepted="a column without COLLATE, or a private histogram",
            )
    return replace(sparse, keys=tuple(keys))


def _collation_of(catalog: Catalog, table: TableName, column: str) -> str:
    if not catalog.has_collations(table):
        return ""
    try:
        parsed = parse_one(catalog.definition(table), dialect="duckdb")
    except SqlglotError:
        parsed = exp.Expr()
    for node in parsed.find_all(exp.ColumnDef):
        if fold(node.name) == fold(column):
            rule = node.find(exp.CollateColumnConstraint)
            return "" if rule is None else rule.this.name
    raise Refusal(f"the collation of {column!r} cannot be read", accepted="a table of columns without COLLATE")
