"""Place of rows that are counted in the stored tables, as the transaction of the count sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from dpduck.kernel.places.place import Opened, RowPlace
from dpduck.kernel.rows import reader
from dpduck.kernel.worker.workers import Workers
from dpduck.values.quoting import quote_text


class LivePlace(RowPlace):
    """Place of rows in the tables of attached databases."""

    is_live = True

    @contextmanager
    def open_rows(self, cursor: duckdb.DuckDBPyConnection, workers: Workers) -> Iterator[Opened]:
        yield cursor, lambda job: job

    def has_key(self, cursor: duckdb.DuckDBPyConnection, table: str, key: tuple[str, ...]) -> bool:
        """Tells whether DuckDB enforces this key for a table of its own, of which no column has a collation."""
        parts = (f"""'"' || replace({part}_name, '"', '""') || '"'""" for part in ("database", "schema", "table"))
        named, columns = " || '.' || ".join(parts), ", ".join(map(quote_text, key))
        own = "database_name IN (SELECT database_name FROM duckdb_databases() WHERE type = 'duckdb')"
        own += f" AND {named} = {quote_text(table)}"
        keys = f"constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND constraint_column_names = [{columns}]"
        keyed = f"(SELECT count(*) FROM duckdb_constraints() WHERE {own} AND {keys}) > 0"
        tables = f"(SELECT count(*) FROM duckdb_tables() WHERE {own} AND NOT contains(upper(sql), ' COLLATE '))"
        (flags,) = reader.columns(cursor, f"SELECT {keyed} AND {tables} = 1", {})
        return bool(flags[0])


LIVE_PLACE = LivePlace()
"""The place of all tables that are neither prepared nor in an engine."""
