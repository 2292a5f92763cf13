"""Answers to Arrow Flight SQL clients about the server and its catalog (arrow/format/FlightSql.proto). Nothing here
charges.

Private views are in one catalog and schema. Private tables that the caller may ask about are listed without a catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.metadata import version

import duckdb
import pyarrow as pa

from dpduck.server.flight.statements import Message, as_texts
from dpduck.server.public_database import PublicDatabase
from dpduck.values.quoting import quote_identifier

CATALOG, SCHEMA, TABLE = "private", "main", "TABLE"
_VIEWS = (
    "SELECT table_name FROM duckdb_tables() WHERE database_name = 'memory' AND schema_name = 'main' AND NOT internal "
    "ORDER BY table_name"
)

PrivateTables = Callable[[], Mapping[str, Mapping[str, str]]]
"""Function that returns the tables that a caller may ask about, with the types of their columns."""


def _strings(*names: str, required: tuple[str, ...] = ()) -> pa.Schema:
    return pa.schema([pa.field(name, pa.string(), nullable=name not in required) for name in names])


CATALOGS = _strings("catalog_name", required=("catalog_name",))
SCHEMAS = _strings("catalog_name", "db_schema_name", required=("db_schema_name",))
TABLE_TYPES = _strings("table_type", required=("table_type",))
TABLES = _strings("catalog_name", "db_schema_name", "table_name", "table_type", required=("table_name", "table_type"))
TABLES_WITH_SCHEMA = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
PRIMARY_KEYS = _strings(
    "catalog_name", "db_schema_name", "table_name", "column_name", "key_name", required=("table_name", "column_name")
).append(pa.field("key_sequence", pa.int32(), nullable=False))
FOREIGN_KEYS = pa.schema(
    [
        *_strings("pk_catalog_name", "pk_db_schema_name", "pk_table_name", "pk_column_name", "fk_catalog_name",
                  "fk_db_schema_name", "fk_table_name", "fk_column_name",
                  required=("pk_table_name", "pk_column_name", "fk_table_name", "fk_column_name")),
        pa.field("key_sequence", pa.int32(), nullable=False), pa.field("fk_key_name", pa.string()),
        pa.field("pk_key_name", pa.string()), pa.field("update_rule", pa.uint8(), nullable=False),
        pa.field("delete_rule", pa.uint8(), nullable=False),
    ]
)  # fmt: skip
_REQUIRED_OF_TYPES = ("type_name", "data_type", "nullable", "case_sensitive", "searchable", "fixed_prec_scale",
                      "sql_data_type")  # fmt: skip
TYPE_INFO = pa.schema(
    [
        pa.field(name, kind, nullable=name not in _REQUIRED_OF_TYPES)
        for name, kind in (
            ("type_name", pa.string()), ("data_type", pa.int32()), ("column_size", pa.int32()),
            ("literal_prefix", pa.string()), ("literal_suffix", pa.string()),
            ("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))), ("nullable", pa.int32()),
            ("case_sensitive", pa.bool_()), ("searchable", pa.int32()), ("unsigned_attribute", pa.bool_()),
            ("fixed_prec_scale", pa.bool_()), ("auto_increment", pa.bool_()), ("local_type_name", pa.string()),
            ("minimum_scale", pa.int32()), ("maximum_scale", pa.int32()), ("sql_data_type", pa.int32()),
            ("datetime_subcode", pa.int32()), ("num_prec_radix", pa.int32()), ("interval_precision", pa.int32()),
        )
    ]
)  # fmt: skip
_INTEGERS = pa.list_(pa.field("$data$", pa.int32()))
_INFO_VALUES = {
    "string_value": pa.string(),
    "bool_value": pa.bool_(),
    "bigint_value": pa.int64(),
    "int32_bitmask": pa.int32(),
    "string_list": pa.list_(pa.field("string_data", pa.string())),
    "int32_to_int32_list_map": pa.map_(pa.int32(), _INTEGERS),
}
SQL_INFO = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field(
            "value", pa.dense_union([pa.field(name, kind) for name, kind in _INFO_VALUES.items()]), nullable=False
        ),
    ]
)


def sql_info() -> dict[int, str | bool | int]:
    """Returns facts by their number in SqlInfo: the server's name and versions, and that it is read-only."""
    return {
        0: "dpduck", 1: version("dpduck"), 2: pa.__version__, 3: True, 4: True, 5: False, 8: 0, 9: False, 100: 0,
        101: 0, 500: False, 501: False, 502: False, 503: 1, 504: '"', 505: 1, 506: True, 515: True, 516: True,
        518: True, 531: "catalog", 532: True, 544: False, 545: False, 546: False, 547: False,
    }  # fmt: skip


def _info_table(wanted: tuple[int, ...]) -> pa.Table:
    values = sql_info()
    numbers = [number for number in values if not wanted or number in wanted]
    kinds = {str: 0, bool: 1, int: 3}
    types, places = [], []
    columns: list[list[object]] = [[] for _ in _INFO_VALUES]
    for number in numbers:
        kind = kinds[type(values[number])]
        types.append(kind)
        places.append(len(columns[kind]))
        columns[kind].append(values[number])
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _INFO_VALUES.values(), strict=True)]
    value = pa.UnionArray.from_dense(
        pa.array(types, pa.int8()), pa.array(places, pa.int32()), arrays, list(_INFO_VALUES)
    )
    return pa.Table.from_arrays([pa.array(numbers, pa.uint32()), value], schema=SQL_INFO)


def _pattern(text: str | None) -> Callable[[str], bool]:
    """Returns a test of names by a LIKE pattern of SQL, without escapes. For None, every name passes."""
    if text is None:
        return lambda _: True
    parts = [".*" if letter == "%" else "." if letter == "_" else re.escape(letter) for letter in text]
    compiled = re.compile("".join(parts), re.DOTALL | re.IGNORECASE)
    return lambda name: compiled.fullmatch(name) is not None


def _schemas(command: Message) -> pa.Table:
    here = command.text(1) in (None, CATALOG) and _pattern(command.text(2))(SCHEMA)
    return SCHEMAS.empty_table() if not here else pa.table([[CATALOG], [SCHEMA]], schema=SCHEMAS)


def _tables(command: Message, public: PublicDatabase, private: PrivateTables) -> pa.Table:
    shape = TABLES_WITH_SCHEMA if command.flag(5) else TABLES
    kinds, catalog = command.texts(4), command.text(1)
    fits, named = _pattern(command.text(2)), _pattern(command.text(3))
    if not fits(SCHEMA) or (kinds and TABLE not in kinds):
        return shape.empty_table()
    rows = []

    def add(place: str | None, name: str, schema: pa.Schema) -> None:
        row = {"catalog_name": place, "db_schema_name": SCHEMA, "table_name": name, "table_type": TABLE}
        rows.append(row | ({"table_schema": bytes(schema.serialize())} if command.flag(5) else {}))

    with public.cursor() as cursor:
        views = [name for (name,) in cursor.execute(_VIEWS).fetchall()]
        if catalog in (None, CATALOG):
            for name in filter(named, views):
                add(CATALOG, name, _columns(cursor, f"memory.main.{quote_identifier(name)}"))
        if catalog in (None, ""):
            for name, columns in private().items():
                if named(name) and name not in views:
                    add(None, name, _columns(cursor, _empty_sql(columns)))
    return pa.Table.from_pylist(rows, schema=shape)


def _columns(cursor: duckdb.DuckDBPyConnection, relation: str) -> pa.Schema:
    return as_texts(cursor.sql(f"FROM {relation} LIMIT 0").to_arrow_table().schema)


def _empty_sql(columns: Mapping[str, str]) -> str:
    """Returns a subquery with these columns. Types are parsed and written again, so no other text gets into SQL."""
    listed = (f"CAST(NULL AS {duckdb.sqltype(kind)}) AS {quote_identifier(name)}" for name, kind in columns.items())
    return f"(SELECT {', '.join(listed)})"


_EMPTY: Mapping[str, pa.Schema] = {
    "CommandGetXdbcTypeInfo": TYPE_INFO,  # clients create no tables, so no types are listed
    "CommandGetPrimaryKeys": PRIMARY_KEYS,
    "CommandGetExportedKeys": FOREIGN_KEYS,
    "CommandGetImportedKeys": FOREIGN_KEYS,
    "CommandGetCrossReference": FOREIGN_KEYS,
}
_FULL: Mapping[str, Callable[[Message], pa.Table]] = {
    "CommandGetSqlInfo": lambda command: _info_table(command.numbers(1)),
    "CommandGetCatalogs": lambda _: pa.table([[CATALOG]], schema=CATALOGS),
    "CommandGetDbSchemas": _schemas,
    "CommandGetTableTypes": lambda _: pa.table([[TABLE]], schema=TABLE_TYPES),
}


def catalog_table(command: Message, public: PublicDatabase, private: PrivateTables) -> pa.Table | None:
    """Returns the answer to a command about the catalog, or None for any other command."""
    if command.name == "CommandGetTables":
        return _tables(command, public, private)
    if command.name in _EMPTY:
        return _EMPTY[command.name].empty_table()
    return _FULL[command.name](command) if command.name in _FULL else None
