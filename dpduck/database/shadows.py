"""Built-in functions that a macro or function of the database hides, for whoever runs SQL on its connections."""

from __future__ import annotations

import duckdb

from dpduck.database.cursors import PREFIX
from dpduck.frontend.text.names import quote_text

_HIDDEN = (
    "SELECT lower(function_name) FROM duckdb_functions() GROUP BY lower(function_name) "
    "HAVING bool_or(internal) AND NOT bool_and(internal)"
)


class Shadows:
    """The names that are hidden; where nothing can be added they are looked for once: listing functions takes 25 ms.

    Nothing can be added where every database is read-only, as on a server, but the store and the copies of releases,
    which no name without a database leads to.
    """

    def __init__(self, store: str) -> None:
        own = f"database_name = {quote_text(store)} OR starts_with(database_name, {quote_text(PREFIX)})"
        self._databases = (
            "SELECT bool_and(readonly), list((database_name, path, database_oid) ORDER BY database_oid) "
            f"FROM duckdb_databases() WHERE NOT internal AND NOT ({own})"
        )
        self._known: tuple[str, frozenset[str]] | None = None

    def names(self, cursor: duckdb.DuckDBPyConnection) -> frozenset[str]:
        """Names in lower case."""
        row, known = cursor.execute(self._databases).fetchone(), self._known
        databases = repr(row[1]) if row is not None and row[0] is True else None
        if databases is not None and known is not None and known[0] == databases:
            return known[1]
        found = frozenset(str(name) for (name,) in cursor.execute(_HIDDEN).fetchall())
        self._known = None if databases is None else (databases, found)
        return found
