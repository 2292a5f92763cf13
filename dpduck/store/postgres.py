"""Tables in PostgreSQL, and the checks by which some are refused.

DuckDB remembers types and labels of an attached database, and another client may change them. So the table is first
locked as by SELECT, until this transaction ends, and ALTER TABLE waits. Then a second connection describes the table in
a later snapshot. If the transaction keeps to one snapshot, none of its rows has a later label.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from dpduck.language.text.names import TableName
from dpduck.store.cursors import BUILT_IN_ONLY
from dpduck.store.table_columns import columns_of_table
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier, quote_text
from dpduck.values.sqltypes import decimal_name

ACCEPTED = "a table with rows of its own, in DuckDB, DuckLake or PostgreSQL"


_HELD = """
SELECT pg_catalog.current_setting('transaction_isolation') AS isolation,
    pg_catalog.current_setting('client_encoding') AS here, pg_catalog.current_setting('server_encoding') AS there
FROM (SELECT 1) AS dpduck_one LEFT JOIN {} ON false
"""
_TABLE = """
SELECT c.relkind::text, c.relrowsecurity,
    EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = c.oid AND pg_catalog.to_jsonb(a) ->> 'attgenerated' = 'v') AS computed,
    EXISTS (WITH RECURSIVE part AS (
                SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid
                UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN part ON i.inhparent = part.inhrelid)
            SELECT 1 FROM part JOIN pg_catalog.pg_class k ON k.oid = part.inhrelid
            WHERE k.relkind NOT IN ('r', 'p')) AS foreign_parts,
    (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(a.attname, t.typname,
                t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace, t.typtype, t.typcategory, a.atttypmod,
                ARRAY(SELECT e.enumlabel FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)))
        FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)::text AS columns
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {} AND c.relname = {}
"""
_READ = {
    "bool": "BOOLEAN", "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE",
    "text": "VARCHAR", "varchar": "VARCHAR", "bpchar": "VARCHAR", "bytea": "BLOB", "date": "DATE", "time": "TIME",
    "timetz": "TIME WITH TIME ZONE", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "interval": "INTERVAL", "uuid": "UUID",
}  # fmt: skip
"""DuckDB's types for types of PostgreSQL, except numeric."""

_READ_BESIDE = {
    "oid": "UINTEGER", "json": "VARCHAR", "jsonb": "VARCHAR", "point": "STRUCT(x DOUBLE, y DOUBLE)",
    "line": "DOUBLE[]", "lseg": "DOUBLE[]", "box": "DOUBLE[]", "path": "DOUBLE[]", "polygon": "DOUBLE[]",
    "circle": "DOUBLE[]",
}  # fmt: skip
"""Types that PostgreSQL and DuckDB compare differently. So are types in neither list, which DuckDB reads as texts."""

_BY_NAME = frozenset((*_READ, *_READ_BESIDE, "numeric", "char", "geometry", "hstore"))
"""Names that DuckDB takes for types of PostgreSQL's own, in any schema."""

_SAFE_ISOLATION = ("repeatable read", "serializable")


@dataclass(frozen=True)
class _LentColumn:
    """Column as PostgreSQL describes it. own: whether the type is PostgreSQL's own. kind: "e" for an ENUM."""

    name: str
    type_name: str
    own: bool
    kind: str
    category: str
    modifier: int
    labels: list[str]

    @property
    def readable(self) -> bool:
        """Tells whether DuckDB can read all values of the type: no arrays, no rows and no "char", which is a byte."""
        misnamed = self.type_name in _BY_NAME and not self.own
        return self.category not in ("A", "C") and not misnamed and not (self.own and self.type_name == "char")

    @property
    def as_text(self) -> bool:
        """Tells whether PostgreSQL and DuckDB compare values differently: in all types but ENUM, numeric and _READ."""
        return self.kind != "e" and not (self.own and (self.type_name in _READ or self.type_name == "numeric"))

    def is_read_as(self, type_name: str) -> bool:
        if self.own and self.type_name == "numeric":
            return type_name == _numeric(self.modifier)
        if self.own and self.type_name in _READ:
            return type_name == _READ[self.type_name]
        if self.kind == "e":
            return type_name == f"ENUM({', '.join(map(quote_text, self.labels))})"
        return type_name == (_READ_BESIDE.get(self.type_name, "VARCHAR") if self.own else "VARCHAR")


def _numeric(modifier: int) -> str:
    """Returns DuckDB's type for a numeric: DOUBLE if the type has no number of digits, or too many."""
    digits, scale = ((modifier - 4) >> 16) & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    return "DOUBLE" if modifier == -1 or scale < 0 or digits > 38 else decimal_name(digits, scale)


def require_as_in_postgres(cursor: duckdb.DuckDBPyConnection, table: TableName) -> None:
    """Refuses a table that is no plain table in PostgreSQL, or differs from the one that DuckDB remembers."""
    database, schema, name = table.parts
    held = _HELD.format(f"{quote_identifier(schema)}.{quote_identifier(name)}")
    asked = _TABLE.format(quote_text(schema), quote_text(name))
    try:
        ((isolation, *encodings),) = cursor.execute(_query(database, held)).fetchall()
        with cursor.cursor() as second:
            second.execute(BUILT_IN_ONLY)
            rows = second.execute(_query(database, asked)).fetchall()
    except duckdb.Error:
        raise Refusal(f"PostgreSQL shows no table {table} to this connection", accepted=ACCEPTED) from None
    if len(rows) != 1 or rows[0][0] not in ("r", "p") or rows[0][3]:
        raise Refusal(f"{table} is a view, or no plain table, in PostgreSQL", accepted=ACCEPTED)
    _, secured, computed, _, listed = rows[0]
    if secured:
        raise Refusal(f"{table} has row-level security: its rows depend on who reads", accepted=ACCEPTED)
    columns = [_LentColumn(*values) for values in json.loads(listed or "[]")]
    if computed or not all(column.readable for column in columns) or encodings != ["UTF8", "UTF8"]:
        raise Refusal(
            f'{table} has columns of arrays or rows, of "char" or a type of a built-in name, computed ones, or texts '
            "in another encoding than UTF8: one row could make reading fail",
            accepted="a PostgreSQL table without them",
        )
    if isolation not in _SAFE_ISOLATION:
        raise Refusal(
            f"{table} is read at {isolation}: a row of a moment later could make reading fail",
            accepted="ATTACH .. (TYPE postgres) without isolation_level",
        )
    _require_remembered(cursor, table, {column.name: column for column in columns})
    if any(column.as_text for column in columns):
        _keep_comparisons_here(cursor, table)


def _query(database: str, sql: str) -> str:
    return f"SELECT * FROM postgres_query({quote_text(database)}, {quote_text(sql)})"


def _require_remembered(cursor: duckdb.DuckDBPyConnection, table: TableName, lent: Mapping[str, _LentColumn]) -> None:
    """Refuses columns that have changed since DuckDB described them. New labels or wider values make reading fail."""
    for name, type_name in columns_of_table(cursor, table).items():
        if name not in lent or not lent[name].is_read_as(type_name):
            raise Refusal(
                f"{table}.{name} changed in PostgreSQL since DuckDB looked: its type, or the labels of its ENUM",
                accepted="CALL pg_clear_cache() and the same statement again",
            )


def _keep_comparisons_here(cursor: duckdb.DuckDBPyConnection, table: TableName) -> None:
    """Makes this cursor compare values in DuckDB, since PostgreSQL has no comparison of a json."""
    try:
        cursor.execute("SET pg_experimental_filter_pushdown = false")
    except duckdb.Error:
        raise Refusal(
            f"{table} has columns of json, inet or the like, and DuckDB's configuration is locked",
            accepted="SET GLOBAL pg_experimental_filter_pushdown = false before it is locked",
        ) from None
