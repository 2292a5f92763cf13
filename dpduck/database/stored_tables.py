"""Whether what DuckDB lists as a table holds rows of its own, asked where it lies.

DuckDB lists views of an attached PostgreSQL as tables: a view could compute from all rows, or raise by one.
Other kinds of databases are refused: in SQLite a column may hold values of another type than its own, and
one such row makes every reading of the column fail.
"""

from __future__ import annotations

import duckdb

from dpduck.frontend.text.names import TableName, quote_text
from dpduck.values.errors import Refusal

LISTING_VIEWS = ("duckdb", "ducklake")
"""Kinds of databases whose views DuckDB lists as views."""

_KIND = "SELECT type FROM duckdb_databases() WHERE lower(database_name) = lower({})"
_POSTGRES = """
SELECT c.relkind::text, c.relrowsecurity, pg_catalog.current_setting('server_encoding'),
    EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND t.typcategory IN ('A', 'C')) AS nested,
    EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = c.oid AND pg_catalog.to_jsonb(a) ->> 'attgenerated' = 'v') AS computed,
    EXISTS (WITH RECURSIVE part AS (
                SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid
                UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN part ON i.inhparent = part.inhrelid)
            SELECT 1 FROM part JOIN pg_catalog.pg_class k ON k.oid = part.inhrelid
            WHERE k.relkind NOT IN ('r', 'p')) AS foreign_parts
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE pg_catalog.lower(n.nspname) = pg_catalog.lower({}) AND pg_catalog.lower(c.relname) = pg_catalog.lower({})
"""
_ACCEPTED = "a table with rows of its own, in DuckDB, DuckLake or PostgreSQL"


def require_stored(cursor: duckdb.DuckDBPyConnection, table: TableName) -> None:
    """Refuses what is in another database and no plain table there, as this cursor's transaction sees it."""
    database, schema, name = table.parts
    row = cursor.execute(_KIND.format(quote_text(database))).fetchall()
    kind = str(row[0][0]) if row else ""
    if kind in LISTING_VIEWS or not row:
        return
    if kind != "postgres":
        raise Refusal(f"{table} lies in a database of kind {kind!r}", accepted=_ACCEPTED)
    asked = _POSTGRES.format(quote_text(schema), quote_text(name))
    try:
        found = cursor.execute(f"SELECT * FROM postgres_query({quote_text(database)}, {quote_text(asked)})").fetchall()
    except duckdb.Error:
        raise Refusal(f"PostgreSQL does not say what {table} is", accepted=_ACCEPTED) from None
    if len(found) != 1 or found[0][0] not in ("r", "p") or found[0][5]:
        raise Refusal(f"{table} is a view, or no plain table, in PostgreSQL", accepted=_ACCEPTED)
    _, secured, encoding, nested, computed, _ = found[0]
    if secured:
        raise Refusal(f"{table} has row-level security: its rows depend on who reads", accepted=_ACCEPTED)
    if nested or computed or encoding == "SQL_ASCII":
        raise Refusal(
            f"{table} has columns of arrays or rows, computed ones, or texts without an encoding: one row could make "
            "reading fail",
            accepted="a PostgreSQL table without them",
        )
