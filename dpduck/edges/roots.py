"""The connections that dpduck was loaded on: where its own cursors come from."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import duckdb

from dpduck.errors import StoreError

OpenCursor = Callable[[], duckdb.DuckDBPyConnection]

CLOSED = "the connection that dpduck was loaded on is closed; accepted: dpduck.load(..) on the one that is in use"


class Roots:
    """Open connections of one database, held weakly: whether they stay open is up to who opened them.

    A connection of dpduck's own would keep the database, and the locks on its files, until the process ends.
    """

    def __init__(self) -> None:
        self._connections: list[weakref.ref[duckdb.DuckDBPyConnection]] = []

    def add(self, connection: duckdb.DuckDBPyConnection) -> None:
        """One more connection of the same database."""
        known = [reference for reference in self._connections if reference() not in (None, connection)]
        self._connections = [*known, weakref.ref(connection)]

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A new cursor, from any connection that is still open; to be closed by the caller."""
        for reference in self._connections:
            connection = reference()
            if connection is None:
                continue
            try:
                return connection.cursor()
            except duckdb.Error:
                continue  # it was closed
        raise StoreError(CLOSED)

    def any_open(self) -> bool:
        """Whether some connection is still open."""
        try:
            self.cursor().close()
        except StoreError:
            return False
        return True
