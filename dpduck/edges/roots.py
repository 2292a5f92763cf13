"""The connections that dpduck was loaded on: where its own cursors come from."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import duckdb

from dpduck.errors import StoreError

OpenCursor = Callable[[], duckdb.DuckDBPyConnection]

BUILT_IN_ONLY = "SET search_path = 'system.main'"
CLOSED = "the connection that dpduck was loaded on is closed; accepted: dpduck.load(..) on the one that is in use"


class Roots:
    """Open connections of one database, held weakly: whether they stay open is up to who opened them.

    A connection of dpduck's own would keep the database, and the locks on its files, until the process ends.
    home: the database and the schema in which a connection begins, where names of one part are looked up.
    """

    def __init__(self) -> None:
        self._connections: list[weakref.ref[duckdb.DuckDBPyConnection]] = []
        self.home: tuple[str, str] | None = None

    def add(self, connection: duckdb.DuckDBPyConnection) -> None:
        """One more connection of the same database."""
        known = [reference for reference in self._connections if reference() not in (None, connection)]
        self._connections = [*known, weakref.ref(connection)]
        if self.home is None:
            with connection.cursor() as cursor:
                row = cursor.execute("SELECT system.main.current_database(), system.main.current_schema()").fetchone()
                self.home = None if row is None else (str(row[0]), str(row[1]))

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A new cursor, from any connection that is still open; to be closed by the caller.

        Names of functions and operators are looked up among DuckDB's own alone: no macro of the database or of a
        client can take the place of one in what runs here. Names of tables are written in full.
        """
        for reference in self._connections:
            connection = reference()
            if connection is None:
                continue
            try:
                cursor = connection.cursor()
            except duckdb.Error:
                continue  # it was closed
            cursor.execute(BUILT_IN_ONLY)
            return cursor
        raise StoreError(CLOSED)

    def any_open(self) -> bool:
        """Whether some connection is still open."""
        try:
            self.cursor().close()
        except StoreError:
            return False
        return True
