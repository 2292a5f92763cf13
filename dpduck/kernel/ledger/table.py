"""The ledger's two tables in the attached store, and the few statements that read and write them.

<store>.dpduck.ledger_identity: one row, the identity that ties the store to its secrets file.
<store>.dpduck.ledger_entries: the chain. Budgets are entries too, so there is no table of budgets that could differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import duckdb

from dpduck.kernel.ledger.entries import (
    LedgerRow,
    datetime_of,
)
from dpduck.values.errors import StoreError
from dpduck.values.quoting import quote_text, written_values

OpenCursor = Callable[[], duckdb.DuckDBPyConnection]
Note = Callable[[duckdb.DuckDBPyConnection, int], None]

_COLUMNS = """id, epoch_us("at"), principal, unit_key, table_name, statement, mechanism, epsilon, rho, delta, budget,
    previous_hash, hash"""
_BATCH = 10_000


class TakenError(Exception):
    """Another ledger object on the same store wrote an entry with this number first. The caller then retries."""


class LedgerTable:
    """The ledger's tables in one attached store. Every call uses a cursor of its own and closes it."""

    def __init__(self, open_cursor: OpenCursor, store: str) -> None:
        self._open_cursor = open_cursor
        self.store = store
        quoted = store.replace('"', '""')
        self._schema = f'"{quoted}".dpduck'

    def store_id(self) -> str | None:
        with _own_errors("read"), closing(self._open_cursor()) as cursor:
            try:
                row = cursor.execute(f"SELECT store_id FROM {self._schema}.ledger_identity").fetchone()
            except duckdb.CatalogException:
                return None
        if row is None:
            raise StoreError("the store has lost its identity; accepted: the store as it was last written")
        return str(row[0])

    def create(self, store_id: str) -> None:
        """Makes both tables and the identity in one transaction."""
        with _own_errors("created"), closing(self._open_cursor()) as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
            cursor.execute(f"CREATE TABLE {self._schema}.ledger_identity (store_id VARCHAR NOT NULL)")
            cursor.execute(
                f"""CREATE TABLE {self._schema}.ledger_entries (
                    id BIGINT PRIMARY KEY, "at" TIMESTAMPTZ NOT NULL, principal VARCHAR NOT NULL,
                    unit_key VARCHAR NOT NULL, table_name VARCHAR NOT NULL, statement VARCHAR NOT NULL,
                    mechanism VARCHAR NOT NULL, epsilon VARCHAR, rho VARCHAR NOT NULL, delta VARCHAR NOT NULL,
                    budget VARCHAR, previous_hash VARCHAR NOT NULL, hash VARCHAR NOT NULL)"""
            )
            cursor.execute(f"INSERT INTO {self._schema}.ledger_identity VALUES ({quote_text(store_id)})")
            cursor.execute("COMMIT")

    def rows(self, condition: str = "", *values: object, in_order: bool = True) -> Iterator[LedgerRow]:
        """Yields the rows that meet a condition. in_order: whether several rows are sorted by id."""
        order = "ORDER BY id" if in_order else ""
        query = f"SELECT {_COLUMNS} FROM {self._schema}.ledger_entries {condition} {order}"
        with _own_errors("read"), closing(self._open_cursor()) as cursor:
            cursor.execute(query, list(values))
            while batch := cursor.fetchmany(_BATCH):
                yield from map(LedgerRow._make, batch)

    def rows_from(self, first_id: int) -> Iterator[LedgerRow]:
        """Yields every row from this id on, in order. After the first read few are new, and Python sorts them."""
        if first_id:
            yield from sorted(self.rows(f"WHERE id >= {int(first_id)}", in_order=False), key=lambda row: row.id)
        else:
            yield from self.rows()

    def append(self, row: LedgerRow, note: Note | None = None) -> None:
        """Commits one row. On return it is on disk, since DuckDB syncs its write-ahead log at every commit."""
        marks, values = written_values([row.id, datetime_of(row.at).isoformat(" "), *row[2:]])
        with _own_errors("written"), closing(self._open_cursor()) as cursor:
            try:
                cursor.execute("BEGIN")
                cursor.execute(f"INSERT INTO {self._schema}.ledger_entries VALUES ({marks})", values)
                if note is not None:
                    note(cursor, row.id)
                cursor.execute("COMMIT")
            except (duckdb.ConstraintException, duckdb.TransactionException) as error:
                if "rite file" in str(error):  # a commit that fails on the disk raises one of these, too
                    raise StoreError(
                        "the ledger cannot be written to disk; nothing is answered; "
                        "accepted: the same when there is room, and the store is writable"
                    ) from None
                raise TakenError from None


@contextmanager
def _own_errors(what: str) -> Iterator[None]:
    """Turns DuckDB's errors into a StoreError without DuckDB's text, which may quote rows."""
    try:
        yield
    except duckdb.Error as error:
        raise StoreError(
            f"the ledger could not be {what} ({type(error).__name__}); nothing is answered; "
            "accepted: a store that is attached, writable and whole"
        ) from None
