"""Draft of a privacy policy from the schema alone. Facts that only the owner can know become TODOs."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.text.names import TableName
from dpduck.owner.draft_declaration_items import declaration_items, type_items
from dpduck.owner.draft_open_items import Suggested, items_for_owner, open_items
from dpduck.owner.draft_remarks import TODO, remark_lines
from dpduck.owner.draft_schema import read_schema
from dpduck.owner.draft_shapes import shape_lines
from dpduck.owner.draft_unit import unit_lines
from dpduck.owner.policy_text import Home, table_text
from dpduck.store.catalog import Catalog

BUDGET = (
    "epsilon is all that answers together may ever reveal of one unit. 1 is strong, 10 is weak; with "
    "delta = 1e-6 beside it many answers cost less than their sum. What is spent does not come back."
)


def open_columns(
    cursor: duckdb.DuckDBPyConnection, table: TableName, catalog: Catalog, public: Sequence[TableName], home: Home
) -> list[tuple[CatalogColumn, str]]:
    """Returns the columns that the schema declares nothing about, each with the result of Schema.null."""
    schema = read_schema(cursor, table, catalog, home)
    declared = dict(declaration_items(schema, catalog, public))
    return [
        (column, schema.null(column.name))
        for column in schema.columns
        if column.name not in declared and any(open_items(column, schema))
    ]


def draft_lines(
    cursor: duckdb.DuckDBPyConnection,
    table: TableName,
    catalog: Catalog,
    public: Sequence[TableName],
    home: Home,
    given: Suggested | None = None,
) -> list[str]:
    """Returns the lines of CREATE PRIVACY POLICY. public: tables that are declared public. given: suggestions."""
    schema = read_schema(cursor, table, catalog, home)
    if given is None:
        unit, column = unit_lines(schema, catalog)
    else:
        unit, column = [*remark_lines(given.unit_why), f"    {given.unit},"], given.unit_column
    declared = dict(declaration_items(schema, catalog, public))
    declared.pop(column, None)
    replacing = "OR REPLACE " if catalog.policy(table) is not None else ""
    alone = f"A draft from the schema of {table.table} alone: no row was read. Fill in what is marked {TODO}."
    budget = [*remark_lines(f"{TODO}: {BUDGET}"), f"    BUDGET (epsilon = {TODO})"]
    return [
        *remark_lines(alone if given is None else given.said, ""),
        f"CREATE {replacing}PRIVACY POLICY ON {table_text(table, home)} (",
        *unit,
        *type_items(schema, {column, *declared}),
        *(line for items in declared.values() for line in items),
        *items_for_owner(schema, {column, *declared}, given),
        *shape_lines(schema, column),
        *(budget if given is None else [f"    {given.budget}"]),
        ")",
    ]
