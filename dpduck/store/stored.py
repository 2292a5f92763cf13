"""Checks that a table of a foreign database is a table there, and that no row can make it unreadable.

DuckDB lists views of an attached PostgreSQL as tables. A view could compute from all rows, or raise an error because of
one row. Other kinds of databases are refused. In SQLite, a column may have a value of another type than its own. One
such row makes every reading of the column fail.

DuckDB cannot read some values. Such a value ends a statement after its charge, if the statement reads its row. The
error then gives an exact answer for free. So the check asks the database that has the rows, and not DuckDB's own
memory. The check runs in the transaction that counts.
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
