"""Items of a draft from types, checks, keys and public tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.text.names import TableName
from dpduck.owner.draft_remarks import TODO, name_in_comment, remark_lines
from dpduck.owner.draft_schema import Constraint, Schema
from dpduck.owner.policy_text import name_text, table_text
from dpduck.store.catalog import Catalog
from dpduck.values.quoting import fold, quote_text
from dpduck.values.sqltypes import sql_type


def type_items(schema: Schema, done: set[str]) -> Iterator[str]:
    """Yields DOMAIN items of BOOLEAN and ENUM columns: one item for all columns of a kind with, or without, NULL."""
    for kind in ("BOOLEAN", "ENUM"):
        typed = [column.name for column in schema.columns if sql_type(column.type_name).kind == kind]
        free = [name for name in typed if name not in done]
        for null in dict.fromkeys(map(schema.null, free)):
            alike = [name for name in free if schema.null(name) == null]
            names = ", ".join(map(name_text, alike))
            target = "ALL" if alike == typed and len(alike) > 1 else f"({names})" if len(alike) > 1 else names
            yield f"    DOMAIN {target} {kind}{null},"


def declaration_items(schema: Schema, catalog: Catalog, public: Sequence[TableName]) -> Iterator[tuple[str, list[str]]]:
    """Yields columns with their items, if a CHECK lists or bounds the values, or a public table has these values."""
    checked = {fold(check.columns[0]): check for check in schema.checks}
    links = {fold(column): (other, key) for column, other, key in schema.links if catalog.is_public(other)}
    for column in schema.columns:
        name, null = name_text(column.name), schema.null(column.name)
        lines = _read_check(checked[fold(column.name)], column, null) if fold(column.name) in checked else []
        if fold(column.name) in links:
            other, key = links[fold(column.name)]
            lines = [f"    DOMAIN {name} FROM {table_text(other, schema.home)}.{name_text(key)}{null},"]
        elif not lines and not sql_type(column.type_name).lists_its_values:
            lines = _namesakes(column, catalog, public, schema)
        if lines:
            yield column.name, lines


def _read_check(constraint: Constraint, column: CatalogColumn, null: str) -> list[str]:
    """Returns the items of a column from CHECK (column IN (..)) or CHECK (column BETWEEN a AND b)."""
    try:
        check = parse_one(constraint.check, read="duckdb").unnest()
    except SqlglotError:
        return []
    name = name_text(column.name)
    if isinstance(check, exp.In) and isinstance(check.this, exp.Column):
        values = [_literal(value) for value in check.expressions]
        texts = [value for value in values if value is not None]
        return [f"    DOMAIN {name} IN ({', '.join(texts)}){null},"] if texts and len(texts) == len(values) else []
    if isinstance(check, exp.Between) and sql_type(column.type_name).is_numeric:
        low, high = (_literal(check.args[side]) for side in ("low", "high"))
        if low is None or high is None or low.startswith("'") or high.startswith("'"):
            return []
        wide = f"-- DOMAIN {name} RANGE {low} TO {TODO} STEP {TODO}{null} WITH EDGES,"
        return [f"    CLAMP {name} BETWEEN {low} AND {high},", f"    {wide}"]
    return []


def _literal(value: exp.Expr) -> str | None:
    """Returns a literal as a policy writes it, with its sign and without DuckDB's casts. None for other expressions."""
    value = value.unnest()
    while isinstance(value, exp.Cast):
        value = value.this
    if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal) and not value.this.is_string:
        return f"-{value.this.this}"
    if isinstance(value, exp.Literal):
        return quote_text(value.this) if value.is_string else str(value.this)
    return None


def _namesakes(column: CatalogColumn, catalog: Catalog, public: Sequence[TableName], schema: Schema) -> list[str]:
    """Returns a DOMAIN from a public table with a column of the same name, or with the column's name or its plural."""
    plural = {fold(column.name), fold(column.name) + "s", fold(column.name) + "es"}
    for table in public:
        if not catalog.is_public(table):
            continue
        key_names = {"name", "code", "id", "key"} if fold(table.table) in plural else set[str]()
        for other in catalog.columns(table):
            if other.type_name == column.type_name and fold(other.name) in key_names | {fold(column.name)}:
                source = f"{table_text(table, schema.home)}.{name_text(other.name)}"
                domain = f"DOMAIN {name_text(column.name)} FROM {source}{schema.null(column.name)},"
                remark = f"by its name: {name_in_comment(table.table)} is public. Take it out if it means otherwise."
                return [*remark_lines(remark), f"    {domain}"]
    return []
