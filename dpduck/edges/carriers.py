"""In-memory databases that carry a fresh release into a statement whose snapshot of the store is older (DESIGN 6.1)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress

import duckdb

from dpduck.edges.roots import OpenCursor
from dpduck.frontend.names import quote_identifier

PREFIX = "dpduck_release_"
"""How the names of these databases begin, since those of releases begin with release_."""

MOST_CARRIERS = 64
MOST_ROWS = 5_000_000


class Carriers:
    """Copies of the latest releases of this process; the oldest are detached when there are too many.

    A transaction that began before a release sees its copy, though not the store's table: attached databases have no
    snapshot yet. A carrier that was detached is not needed by any transaction that began since.
    """

    def __init__(self, open_cursor: OpenCursor) -> None:
        self._open_cursor = open_cursor
        self._lock = threading.Lock()  # for the books only: copying and reading go on meanwhile
        self._rows: OrderedDict[str, int] = OrderedDict()

    def carry(self, name: str, stored_table_sql: str, rows: int) -> None:
        """Copies a stored release into a database of its own; where that fails, the store is read."""
        database = quote_identifier(_database(name))
        with suppress(duckdb.Error), self._open_cursor() as cursor:
            cursor.execute(f"ATTACH ':memory:' AS {database} (READ_WRITE)")
            cursor.execute(f"CREATE TABLE {database}.main.t AS FROM {stored_table_sql}")
            for oldest in self._enter(name, rows):
                cursor.execute(f"DETACH {quote_identifier(_database(oldest))}")

    def table_sql(self, name: str) -> str | None:
        """The carried table, None where the release is read from the store."""
        with self._lock:
            return f"{quote_identifier(_database(name))}.main.t" if name in self._rows else None

    def _enter(self, name: str, rows: int) -> list[str]:
        """Notes a new carrier and says which are to go."""
        leaving = []
        with self._lock:
            self._rows[name] = rows
            while len(self._rows) > MOST_CARRIERS or (sum(self._rows.values()) > MOST_ROWS and len(self._rows) > 1):
                leaving.append(self._rows.popitem(last=False)[0])
        return leaving


def _database(name: str) -> str:
    return f"dpduck_{name}"
