"""Facts about attached databases: their names, possible changes and hidden functions.

Any user who runs SQL on a connection of a database may have hidden a built-in function by a macro of its name. Listing
functions takes 10 to 25 ms, so hidden functions are searched for only once while no macro can be added.
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
"""Columns by position: 4 tells whether the database is a file of DuckDB's. 5 is the default collation, which changes
DISTINCT and GROUP BY, and with them facts about a table. 8 lists the optimizer passes that are off.
"""

MOST_STILL = 512
"""Largest number of cached facts about tables that cannot change."""


@dataclass(frozen=True)
class Databases:
    """Attached databases, as one cursor sees them.

    rows: a row for each database except DuckDB's own, the store and copies of releases. kinds: types of all databases,
    by name in lower case. collation: the default for texts. token: identifies these databases if all are read-only.
    unchanging: the token if all are also files of DuckDB's, so that nothing can be added. quiet: `unchanging`, or for
    one file, a text that changes at any write to it. Otherwise these three are None. disabled: the disabled optimizer
    passes.
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
    """Attached databases, and a search for hidden functions in the background. `names` waits for the result."""

    databases: Databases
    names: Callable[[], frozenset[str]]


@dataclass(frozen=True)
class Still:
    """Databases (in lower case) that cannot change while attached, and a cache of facts about their tables.

    Each database is a read-only file of DuckDB's, which nobody can write meanwhile, or `quiet` (see Shadows.still).
    """

    databases: frozenset[str]
    facts: SandboxAnswers = field(default_factory=lambda: SandboxAnswers(MOST_STILL), repr=False, compare=False)


def look_up_fact(still: Still | None, table: TableName, asked: tuple[object, ...], ask: Callable[[], Fact]) -> Fact:
    """Returns a fact about a table from `ask`, or from the cache if the table cannot change. asked: the fact's key."""
    if still is None or fold(table.parts[0]) not in still.databases:
        return ask()
    question = (*map(fold, table.parts), *asked)
    cached: tuple[Fact] | None = still.facts.get(question)
    if cached is None:
        cached = (ask(),)
        still.facts.save(question, cached)
    return cached[0]


_BESIDE = ("", ".wal", ".wal.checkpoint", ".wal.recovery")
"""Endings of the files that DuckDB writes before a commit becomes visible: the database file and its logs."""

_SETTLED = 2_000_000_000
"""Nanoseconds after which a new write changes the file's time, on any file system."""


def _quiet(others: Sequence[tuple[object, ...]]) -> str | None:
    """Returns the state of the only database's files, which differs after any later write.

    Returns None for several databases (one may be attached without a log), for a database of another kind, and for a
    file written just now.
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
    """Names of hidden built-in functions, remembered for databases that cannot change.

    If every database is read-only, as on a server, only the store and the copies of releases change. A name without a
    database never leads to the store or a copy.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self._remembered: tuple[str, frozenset[str]] | None = None
        self._still: tuple[str, Still] | None = None
        self._plain: str | None = None

    def keep_plans_plain(self, cursor: duckdb.DuckDBPyConnection, databases: Databases) -> None:
        """Calls plans.keep_plans_plain, except if `databases` still has the setting that the last call returned."""
        if databases.disabled != self._plain:
            self._plain = keep_plans_plain(cursor)

    def databases(self, cursor: duckdb.DuckDBPyConnection) -> Databases:
        rows = cursor.execute(_DATABASES).fetchall()
        others = [row[:6] for row in rows if not (row[7] or row[0] == self.store or str(row[0]).startswith(PREFIX))]
        others.sort(key=lambda row: str(row[2]))
        token = repr(others) if others and all(row[3] for row in others) else None
        unchanging = token if all(row[4] for row in others) else None
        kinds, collation = {fold(str(row[0])): str(row[6]) for row in rows}, str(rows[0][5] or "") if rows else ""
        disabled = str(rows[0][8] or "") if rows else ""
        return Databases(tuple(others), kinds, collation, token, unchanging, unchanging or _quiet(others), disabled)

    def still(self, databases: Databases, quiet: bool = False) -> Still | None:
        """Returns the databases that cannot change, None if any database is not read-only.

        quiet: whether a file without recent writes is accepted, too. If its facts decide a count, they are checked
        again.
        """
        token = databases.token or (databases.quiet if quiet else None)
        if token is None:
            return None
        cached = self._still
        if cached is None or cached[0] != token:
            cached = token, Still(frozenset(fold(str(row[0])) for row in databases.rows if row[4]))
            self._still = cached
        return cached[1]

    def still_here(self, cursor: duckdb.DuckDBPyConnection) -> Still | None:
        return self.still(self.databases(cursor))

    def names(self, cursor: duckdb.DuckDBPyConnection, databases: Databases | None = None) -> frozenset[str]:
        """Returns the hidden names in lower case. `databases`: the attached databases, as this cursor sees them."""
        token = (databases or self.databases(cursor)).quiet
        cached = self._recall_names(token)
        return self._list_names(cursor, token) if cached is None else cached

    @contextmanager
    def search_names(self, cursor: duckdb.DuckDBPyConnection, aside: OpenCursor) -> Iterator[Looked]:
        """Yields the databases and a search for hidden names, which runs on a second cursor in the background.

        The search begins after this call, so that it sees every earlier commit.
        """
        databases = self.databases(cursor)
        token = databases.quiet
        cached = self._recall_names(token)
        if cached is not None:
            yield Looked(databases, lambda: cached)
            return
        with aside() as second, ThreadPoolExecutor(1) as beside:
            search = beside.submit(self._list_names, second, token)
            yield Looked(databases, search.result)

    def _recall_names(self, token: str | None) -> frozenset[str] | None:
        cached = self._remembered
        return cached[1] if token is not None and cached is not None and cached[0] == token else None

    def _list_names(self, cursor: duckdb.DuckDBPyConnection, token: str | None) -> frozenset[str]:
        names = frozenset(str(name) for (name,) in cursor.execute(_HIDDEN).fetchall())
        self._remembered = None if token is None else (token, names)
        return names
