"""Facts about attached databases: their names, possible changes and hidden functions.

Any user who runs SQL on a connection of a database may have hidden a function by a macro. Listing functions takes 10 to
25 ms. Where nothing can be added, the hidden functions are looked for once. Where the database is one file, they are
looked for when something was written to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import duckdb

from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.language.text.names import TableName
from dpduck.store.cursors import PREFIX, OpenCursor, SandboxAnswers
from dpduck.values.quoting import fold

Fact = TypeVar("Fact")

_HIDDEN = (
    "SELECT lower(function_name) FROM duckdb_functions() GROUP BY lower(function_name) "
    "HAVING bool_or(internal) AND NOT bool_and(internal)"
)
_DATABASES = (
    "SELECT database_name, path, database_oid, readonly, type = 'duckdb' AND NOT contains(coalesce(path, '://'), "
    "'://'), current_setting('default_collation'), type, internal, current_setting('disabled_optimizers') "
    "FROM duckdb_databases()"
)
"""Whether it is a file of DuckDB's; the setting of which DISTINCT and GROUP BY, so facts about a table, depend; and the
passes that plans are made without."""

MOST_STILL = 512
"""Facts about tables that cannot change that are remembered."""


@dataclass(frozen=True)
class Databases:
    """What is attached, as one cursor saw it. rows: by name, but for DuckDB's own, the store and copies of releases.

    kinds: of all, by folded names. collation: that texts have where none is written. token: what tells these databases
    from others, where all are read-only; None where one can be written. unchanging: the same where all of them are
    files of DuckDB's, so that nothing can be added to one. quiet: a text that changes when anybody writes to the one
    file. It is as unchanging where nobody can write. disabled: the passes that DuckDB plans without.
    """

    rows: tuple[tuple[object, ...], ...]
    kinds: Mapping[str, str]
    collation: str
    token: str | None
    unchanging: str | None
    quiet: str | None
    disabled: str


@dataclass(frozen=True)
class Looked:
    """What is attached; names: returns the built-in functions that are hidden, which are looked for meanwhile."""

    databases: Databases
    names: Callable[[], frozenset[str]]


@dataclass(frozen=True)
class Still:
    """Databases whose tables cannot change while they are attached, by their folded names, and what is known of them.

    A file of DuckDB's that is open for reading alone: nobody else can open it to write meanwhile.
    """

    databases: frozenset[str]
    facts: SandboxAnswers = field(default_factory=lambda: SandboxAnswers(MOST_STILL), repr=False, compare=False)


def kept(still: Still | None, table: TableName, asked: tuple[object, ...], ask: Callable[[], Fact]) -> Fact:
    """Returns a fact about a table, which is asked once for all statements where the table cannot change."""
    if still is None or fold(table.parts[0]) not in still.databases:
        return ask()
    question = (*map(fold, table.parts), *asked)
    known: tuple[Fact] | None = still.facts.get(question)
    if known is None:
        known = (ask(),)
        still.facts.put(question, known)
    return known[0]


_BESIDE = ("", ".wal", ".wal.checkpoint", ".wal.recovery")
"""What DuckDB writes to before a commit can be seen: the file, and its logs."""

_SETTLED = 2_000_000_000
"""Nanoseconds after which a file's time tells a later write from the last one, on any file system."""


def _quiet(others: Sequence[tuple[object, ...]]) -> str | None:
    """Returns the state of the one database's files, which a later write changes. None for several databases, for
    other kinds, and for a file written just now. One of several databases may be attached without a log.
    """
    if len(others) != 1 or not others[0][4]:
        return None
    states = {}
    for ending in _BESIDE:
        with suppress(OSError):
            state = Path(f"{others[0][1]}{ending}").stat()
            states[ending] = state.st_ino, state.st_size, state.st_mtime_ns
    newest = max((written for _, _, written in states.values()), default=0)
    return f"{others[0]!r} {states}" if "" in states and time.time_ns() - newest > _SETTLED else None


class Shadows:
    """The names that are hidden, of which those of databases that cannot change are remembered.

    Nothing can be added where every database is read-only, as on a server, but the store and the copies of releases,
    which no name without a database leads to.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self._known: tuple[str, frozenset[str]] | None = None
        self._still: tuple[str, Still] | None = None
        self._plain: str | None = None

    def keep_plans_plain(self, cursor: duckdb.DuckDBPyConnection, databases: Databases) -> None:
        """Does so by the setting that was found to be right before. databases: as this cursor sees them."""
        if databases.disabled != self._plain:
            self._plain = keep_plans_plain(cursor)

    def databases(self, cursor: duckdb.DuckDBPyConnection) -> Databases:
        """Returns what is attached, as this cursor sees it."""
        rows = cursor.execute(_DATABASES).fetchall()
        others = [row[:6] for row in rows if not (row[7] or row[0] == self.store or str(row[0]).startswith(PREFIX))]
        others.sort(key=lambda row: str(row[2]))
        token = repr(others) if others and all(row[3] for row in others) else None
        unchanging = token if all(row[4] for row in others) else None
        kinds, collation = {fold(str(row[0])): str(row[6]) for row in rows}, str(rows[0][5] or "") if rows else ""
        disabled = str(rows[0][8] or "") if rows else ""
        return Databases(tuple(others), kinds, collation, token, unchanging, unchanging or _quiet(others), disabled)

    def still(self, databases: Databases, quiet: bool = False) -> Still | None:
        """Returns what cannot change of these; None where something can.

        quiet: whether a file counts that was not written to since. Whoever counts rows by such a fact looks again.
        """
        token = databases.token or (databases.quiet if quiet else None)
        if token is None:
            return None
        known = self._still
        if known is None or known[0] != token:
            known = token, Still(frozenset(fold(str(row[0])) for row in databases.rows if row[4]))
            self._still = known
        return known[1]

    def still_here(self, cursor: duckdb.DuckDBPyConnection) -> Still | None:
        """Returns what cannot change of what this cursor sees."""
        return self.still(self.databases(cursor))

    def names(self, cursor: duckdb.DuckDBPyConnection, databases: Databases | None = None) -> frozenset[str]:
        """Returns the names in lower case. databases: as this cursor sees them."""
        token = (databases or self.databases(cursor)).quiet
        known = self._held(token)
        return self._listed(cursor, token) if known is None else known

    @contextmanager
    def looked_for(self, cursor: duckdb.DuckDBPyConnection, aside: OpenCursor) -> Iterator[Looked]:
        """Looks for the names while other facts are asked, on a cursor of its own.

        They are those of a moment after this was called: what was committed before is seen.
        """
        databases = self.databases(cursor)
        token = databases.quiet
        known = self._held(token)
        if known is not None:
            yield Looked(databases, lambda: known)
            return
        with aside() as second, ThreadPoolExecutor(1) as beside:
            found = beside.submit(self._listed, second, token)
            yield Looked(databases, found.result)

    def _held(self, token: str | None) -> frozenset[str] | None:
        known = self._known
        return known[1] if token is not None and known is not None and known[0] == token else None

    def _listed(self, cursor: duckdb.DuckDBPyConnection, token: str | None) -> frozenset[str]:
        found = frozenset(str(name) for (name,) in cursor.execute(_HIDDEN).fetchall())
        self._known = None if token is None else (token, found)
        return found
