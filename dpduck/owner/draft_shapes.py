"""Advice of a draft on columns that statements cannot look into: SQL of tables with simpler columns.

The advice consists of names and types. No row is read, and so no key of a JSON or MAP value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import duckdb

from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.text.names import TableName
from dpduck.owner.draft_remarks import MOST_NAMES, TODO, name_in_comment, remark_lines
from dpduck.owner.draft_schema import Schema
from dpduck.owner.policy_text import table_text
from dpduck.store.sandbox import sandbox
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

FLAT = (
    "This makes a table with simpler columns, typed in DuckDB. Take what you need, and draft a policy of the new table:"
)
ROWS_OF_LISTS = (
    "A list becomes a table of its elements, with the same privacy unit. The unit must be a column, never ROW: one row "
    "becomes several there. Budgets of two tables add up, unless their units REFERENCE one table of people."
)
_SIMPLER: Mapping[str, tuple[str, str]] = {
    "TIMESTAMP WITH TIME ZONE": ("{} AT TIME ZONE 'UTC'", ""),
    "TIMESTAMP_S": ("CAST({} AS TIMESTAMP)", ""),
    "TIMESTAMP_MS": ("CAST({} AS TIMESTAMP)", ""),
    "TIMESTAMP_NS": ("CAST({} AS TIMESTAMP)", ""),
    "TIME WITH TIME ZONE": ("CAST({} AS TIME)", ""),
    "TIME_NS": ("CAST({} AS TIME)", ""),
    "INTERVAL": ("epoch({})", "_seconds"),
    "BLOB": ("octet_length({})", "_bytes"),
    "BIT": ("bit_count({})", "_ones"),
    "BIGNUM": ("TRY_CAST({} AS DOUBLE)", ""),
    "JSON": (f"{{}}->>'$.{TODO}'", f"_{TODO}"),
    "VARIANT": ("CAST({} AS VARCHAR)", ""),
}
"""For each type the SQL of a simpler value, where {} is a column, and the end of the new column's name."""


def shape_lines(schema: Schema, unit: str) -> Iterator[str]:
    """Yields comments with the SQL of a table with simpler columns, and of a table for each list and each MAP.

    unit: the column of the privacy unit, "" if the draft has none.
    """
    others = [column for column in schema.columns if fold(column.name) != fold(unit)]
    with sandbox() as cursor:
        parts = {column.name: _parts(cursor, column) for column in others}
        lists = [(column, _elements(cursor, column)) for column in others]
    flat = {name: list(found) for name, found in parts.items() if found}
    if flat:
        yield from remark_lines(FLAT)
        yield from remark_lines(_flat_table(schema, dict(list(flat.items())[:MOST_NAMES])))
    several = [(column, elements) for column, elements in lists if elements]
    if several:
        yield from remark_lines(ROWS_OF_LISTS)
    for column, elements in several[:MOST_NAMES]:
        key = name_in_comment(unit) if unit else TODO
        new, old = _beside(schema, column.name), table_text(schema.table, schema.home)
        yield from remark_lines(f"CREATE TABLE {new} AS SELECT {key}, {elements} FROM {old};")


def _flat_table(schema: Schema, parts: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """Returns the statement that makes a table with other columns in place of those that have `parts`."""
    taken = {fold(column.name) for column in schema.columns if column.name not in parts}
    values = list[str]()
    for value, name in (part for several in parts.values() for part in several):
        free, number = name, 2
        while fold(free) in taken:
            free, number = f"{name}_{number}", number + 1
        taken.add(fold(free))
        values.append(f"{value} AS {name_in_comment(free)}")
    left_out = ", ".join(map(name_in_comment, parts))
    rows = table_text(schema.table, schema.home)
    return f"CREATE TABLE {_beside(schema, 'flat')} AS SELECT * EXCLUDE ({left_out}), {', '.join(values)} FROM {rows};"


def _beside(schema: Schema, ending: str) -> str:
    """Returns a table's name with an ending, which is in the same schema as the table."""
    *place, name = schema.table.parts
    return " ".join(table_text(TableName((*place, f"{name}_{ending}")), schema.home).split())


def _parts(cursor: duckdb.DuckDBPyConnection, column: CatalogColumn) -> list[tuple[str, str]]:
    """Returns the SQL and the name of each simpler value in a column. None for simple columns and for lists."""
    simpler = _SIMPLER.get(sql_type(column.type_name).kind)
    name = name_in_comment(column.name)
    if simpler is not None:
        return [(simpler[0].format(name), column.name + simpler[1])]
    kind = _parts_type(cursor, column)
    return [] if kind is None or kind.id not in ("struct", "union") else list(_fields(name, column.name, kind))


def _parts_type(cursor: duckdb.DuckDBPyConnection, column: CatalogColumn) -> duckdb.sqltypes.DuckDBPyType | None:
    """Returns the type of a column with parts. None for other columns, and for types of an extension."""
    with suppress(duckdb.Error):
        return cursor.type(column.type_name) if sql_type(column.type_name).has_parts else None
    return None


def _fields(value: str, name: str, kind: duckdb.sqltypes.DuckDBPyType) -> Iterator[tuple[str, str]]:
    """Yields the SQL and the name of each field of a STRUCT or UNION, and of its fields in turn."""
    for field, inner in kind.children:
        if not field or isinstance(inner, (int, list)):  # the tag of a UNION
            continue
        inside, label = f"{value}.{name_in_comment(field)}", f"{name}_{field}"
        if inner.id in ("struct", "union"):
            yield from _fields(inside, label, inner)
            continue
        simpler, ending = _SIMPLER.get(sql_type(str(inner)).kind, ("{}", ""))
        yield simpler.format(inside), label + ending


def _elements(cursor: duckdb.DuckDBPyConnection, column: CatalogColumn) -> str:
    """Returns SQL with a row for each element of a list, or for each key of a MAP. "" for other columns."""
    parts, name = _parts_type(cursor, column), name_in_comment(column.name)
    kind = "" if parts is None else parts.id
    if kind in ("list", "array"):
        return f"unnest({name}) AS {name}"
    if kind == "map":
        key, value = (name_in_comment(f"{column.name}_{part}") for part in ("key", "value"))
        return f"unnest(map_keys({name})) AS {key}, unnest(map_values({name})) AS {value}"
    return ""
