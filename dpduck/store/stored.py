"""Checks that a table of a foreign database is a table there, and that no row can make it unreadable.

DuckDB lists views of an attached PostgreSQL as tables, and a view could compute from all rows, or raise an error
because of one row. In SQLite, one row may make every reading of a column fail, by a value of another type. An error
after the charge would give an exact answer for free. So the check asks the database that has the rows, and not DuckDB's
own memory, in the transaction that counts.
"""

from __future__ import annotations

import duckdb

from dpduck.language.text.names import TableName
from dpduck.store.ducklake import require_written_by_ducklake
from dpduck.store.postgres import ACCEPTED, require_as_in_postgres
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_text

_KIND = """SELECT type, options['metadata_catalog'], options['metadata_schema'] FROM duckdb_databases()
    WHERE lower(database_name) = lower({})"""


def require_stored(cursor: duckdb.DuckDBPyConnection, table: TableName) -> None:
    """Refuses a table of an attached database that is no plain table there, as seen by this cursor's transaction."""
    row = cursor.execute(_KIND.format(quote_text(table.parts[0]))).fetchall()
    kind = str(row[0][0]) if row else "duckdb"
    if kind == "ducklake":
        require_written_by_ducklake(cursor, table, *row[0][1:])
    elif kind == "postgres":
        require_as_in_postgres(cursor, table)
    elif kind != "duckdb":
        raise Refusal(f"{table} lies in a database of kind {kind!r}", accepted=ACCEPTED)
