"""The ledger's two tables in the attached store, and the few statements that read and write them.

<store>.dpduck.ledger_identity: one row, the identity that ties the store to its secrets file.
<store>.dpduck.ledger_entries: the chain; budgets are entries too, so there is no table of budgets that could differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import duckdb

from dpduck.errors import StoreError
from dpduck.trusted.hash_chain import LedgerRow, datetime_of

OpenCursor = Callable[[], duckdb.DuckDBPyConnection]

_COLUMNS = """id, epoch_us("at"), principal, unit_key, table_name, statement, mechanism, epsilon, rho, delta, budget,
    previous_hash, hash"""
_BATCH = 10_000


class TakenError(Exception):
    """Another ledger object on the same store wrote this entry's number first: read on, and try again."""


class LedgerTable:
    """The ledger's tables in one attached store; every call uses a cursor of its own and leaves it closed."""

    def __init__(self, open_cursor: OpenCursor, store: str) -> None:
        self._open_cursor = open_cursor
        self._store = store
        quoted = store.replace('"', '""')
        self._schema = f'"{quoted}".dpduck'

    def store_id(self) -> str | None:
        """The identity of the store; None where there is no ledger yet."""
        known = (
            "SELECT count(*) FROM duckdb_tables() WHERE lower(database_name) = lower(?) "
            "AND schema_name = 'dpduck' AND table_name = 'ledger_identity'"
        )
        with _own_errors("read"), closing(self._open_cursor()) as cursor:
            found = cursor.execute(known, [self._store]).fetchone()
            if found is None or found[0] == 0:
                return None
            row = cursor.execute(f"SELECT store_id FROM {self._schema}.ledger_identity").fetchone()
        if row is None:
            raise StoreError("the store has lost its identity; accepted: the store as it was last written")
        return str(row[0])

    def create(self, store_id: str) -> None:
        """Make both tables and the identity in one transaction."""
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
            cursor.execute(f"INSERT INTO {self._schema}.ledger_identity VALUES (?)", [store_id])
            cursor.execute("COMMIT")

    def rows_from(self, first_id: int) -> Iterator[LedgerRow]:
        """Every row from this id on, in order."""
        yield from self._rows(f"WHERE id >= {int(first_id)}", [])

    def rows_of(self, principal: str | None) -> Iterator[LedgerRow]:
        """Every row, or those of one principal, in order."""
        if principal is None:
            yield from self._rows("", [])
        else:
            yield from self._rows("WHERE principal = ?", [principal])

    def _rows(self, condition: str, parameters: list[object]) -> Iterator[LedgerRow]:
        query = f"SELECT {_COLUMNS} FROM {self._schema}.ledger_entries {condition} ORDER BY id"
        with _own_errors("read"), closing(self._open_cursor()) as cursor:
            cursor.execute(query, parameters)
            while batch := cursor.fetchmany(_BATCH):
                yield from map(LedgerRow._make, batch)

    def append(self, row: LedgerRow) -> None:
        """Commit one row; it is on disk when this returns (DuckDB syncs its write-ahead log at every commit)."""
        values = [row.id, datetime_of(row.at), *row[2:]]
        marks = ", ".join("?" * len(values))
        with _own_errors("written"), closing(self._open_cursor()) as cursor:
            try:
                cursor.execute(f"INSERT INTO {self._schema}.ledger_entries VALUES ({marks})", values)
            except (duckdb.ConstraintException, duckdb.TransactionException) as error:
                if "rite file" in str(error):  # a commit that the disk did not take is one of these, too
                    raise StoreError(
                        "the ledger cannot be written to disk; nothing is answered; "
                        "accepted: the same when there is room, and the store is writable"
                    ) from None
                raise TakenError from None


@contextmanager
def _own_errors(what: str) -> Iterator[None]:
    """Turn DuckDB's errors into a StoreError without DuckDB's text, which may quote rows."""
    try:
        yield
    except duckdb.Error as error:
        raise StoreError(
            f"the ledger could not be {what} ({type(error).__name__}); nothing is answered; "
            "accepted: a store that is attached, writable and whole"
        ) from None
