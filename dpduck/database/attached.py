"""The store's attachment, and facts about attached databases: their names, possible changes and hidden functions.

Any user who runs SQL on a connection of a database may have hidden a function by a macro. Listing functions takes 10 to
25 ms. Where nothing can be added, the hidden functions are looked for once.

The store is one of the attached databases, beside the user's own. It holds policies, the ledger and released tables,
never a private row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import duckdb

from dpduck.database.cursors import PREFIX, OpenCursor, SandboxAnswers
from dpduck.frontend.text.names import TableName, fold, quote_identifier, quote_text
from dpduck.values.errors import Refusal, StoreError

SERVED = "the database is in use by dpduck serve"
WHEN_ENDED = "the same when that has ended"
STORE_NAME = "private"
STORAGE_VERSION = "v1.5.0"  # the oldest DuckDB that must be able to open a store, whichever wrote it


@dataclass(frozen=True)
class StoreFiles:
    """Where a store and its secrets are; both None in memory."""

    store: Path | None
    secrets: Path | None


def not_opened(error: duckdb.Error, name: str, what: str = "the database") -> StoreError | None:
    """Returns the reason why a file cannot be opened: a newer DuckDB wrote it, or it is in use.

    Returns None for other reasons.
    name: the file's name without its ending, for a statement that copies the file.
    """
    if "version number" in str(error):
        return StoreError(
            f"{what} was written by a newer DuckDB than {duckdb.__version__}, which is installed here; accepted: "
            f"a copy by that DuckDB in its place: ATTACH 'copy.duckdb' AS copy (STORAGE_VERSION '{STORAGE_VERSION}'); "
            f"COPY FROM DATABASE {quote_identifier(name)} TO copy"
        )
    if re.search(r"\block\b", str(error)) is None:  # for a damaged file DuckDB names a block
        return None
    return StoreError(f"{what} is in use by another process, perhaps dpduck serve; accepted: {WHEN_ENDED}")


def store_files(database: Path | None, store: str | Path | None) -> StoreFiles:
    """Returns the files of a store: as asked, else beside the database, else in memory."""
    if store is None and database is None:
        return StoreFiles(None, None)
    if store is None and database is not None:
        path = database.with_name(f"{database.stem}_private.duckdb")
    else:
        path = Path(str(store))
        if str(store) == ":memory:":
            return StoreFiles(None, None)
    if database is not None and path.resolve() == database.resolve():
        raise Refusal("the store is the database itself", accepted="another file for the store")
    return StoreFiles(path, path.with_name(f"{path.stem}_secrets"))


def require_no_store(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuses a connection of a store. It would get a store of its own, and has nothing to protect."""
    here = "database_name = current_database() AND schema_name = 'dpduck'"
    schemas = connection.execute(f"SELECT 1 FROM duckdb_schemas() WHERE {here}").fetchall()
    of_store = f"SELECT 1 FROM duckdb_tables() WHERE {here} AND table_name = 'releases'"
    if schemas and connection.execute(of_store).fetchall():
        file = database_file(connection)
        name = "database" if file is None else file.stem.removesuffix("_private")
        raise Refusal("this is a store, which lies beside a database", accepted=f"that database, such as {name}.duckdb")


def database_file(connection: duckdb.DuckDBPyConnection) -> Path | None:
    """Returns the file of the connection's current database, None in memory."""
    asked = "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"
    rows = connection.execute(asked).fetchall()  # all, so that DuckDB 2.0 takes the result for finished
    return Path(rows[0][0]) if rows and rows[0][0] else None


def attach_store(connection: duckdb.DuckDBPyConnection, files: StoreFiles) -> bool:
    """Attaches the store as `private`; False where it is attached already."""
    row = connection.execute(
        "SELECT path, readonly FROM duckdb_databases() WHERE database_name = ?", [STORE_NAME]
    ).fetchone()
    if row is not None:
        attached = Path(row[0]).resolve() if row[0] else None
        if attached != (files.store.resolve() if files.store is not None else None):
            raise Refusal(f"another database is attached as {STORE_NAME!r}", accepted=f"DETACH {STORE_NAME} first")
        if row[1]:
            raise StoreError("the store is attached read-only, so nothing can be charged; accepted: DETACH it first")
        return False
    new = files.store is not None and not files.store.exists()
    if files.store is not None and not new and files.store.stat().st_nlink > 1:
        raise StoreError(
            "the store's file has a second name, a hard link: under that its ledger would begin anew; "
            f"accepted: cp {files.store.name} to a file of its own, and rm the other name"
        )
    place = quote_text(":memory:" if files.store is None else str(files.store))
    # READ_WRITE even where the database is read-only: a release writes to the store alone
    options = "READ_WRITE" if files.store is None else f"READ_WRITE, STORAGE_VERSION '{STORAGE_VERSION}'"
    try:
        connection.execute(f"ATTACH {place} AS {quote_identifier(STORE_NAME)} ({options})")
    except duckdb.Error as error:
        if any(word in str(error) for word in ("Read-only", "Permission denied")):
            raise StoreError(
                "the store cannot be written: it, or the disk that it is on, is read-only for this user; "
                "accepted: a copy on another disk (dpduck publish gives released tables that anybody can read)"
            ) from None
        raise not_opened(error, STORE_NAME, "the store") or StoreError(
            "the store cannot be opened: it is no DuckDB file, or another process has it open; "
            "accepted: the file that dpduck made, in one process at a time"
        ) from None
    if new and files.store is not None:
        files.store.chmod(0o600)  # its ledger says who asked what
    return True


def detach_store(connection: duckdb.DuckDBPyConnection) -> None:
    """Undoes attach_store."""
    connection.execute(f"DETACH {quote_identifier(STORE_NAME)}")


Fact = TypeVar("Fact")

_HIDDEN = (
    "SELECT lower(function_name) FROM duckdb_functions() GROUP BY lower(function_name) "
    "HAVING bool_or(internal) AND NOT bool_and(internal)"
)
_DATABASES = (
    "SELECT database_name, path, database_oid, readonly, type = 'duckdb' AND NOT contains(coalesce(path, '://'), "
    "'://'), current_setting('default_collation'), type, internal FROM duckdb_databases()"
)
"""Whether it is a file of DuckDB's; and the setting of which DISTINCT and GROUP BY, so facts about a table, depend."""

MOST_STILL = 512
"""Facts about tables that cannot change that are remembered."""


@dataclass(frozen=True)
class Databases:
    """What is attached, as one cursor saw it. rows: by name, but for DuckDB's own, the store and copies of releases.

    kinds: of all, by folded names. collation: that texts have where none is written. token: what tells these databases
    from others, where all are read-only; None where one can be written. unchanging: the same where all of them are
    files of DuckDB's, so that nothing can be added to one.
    """

    rows: tuple[tuple[object, ...], ...]
    kinds: Mapping[str, str]
    collation: str
    token: str | None
    unchanging: str | None


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


class Shadows:
    """The names that are hidden, of which those of databases that cannot change are remembered.

    Nothing can be added where every database is read-only, as on a server, but the store and the copies of releases,
    which no name without a database leads to.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self._known: tuple[str, frozenset[str]] | None = None
        self._still: tuple[str, Still] | None = None

    def databases(self, cursor: duckdb.DuckDBPyConnection) -> Databases:
        """Returns what is attached, as this cursor sees it."""
        rows = cursor.execute(_DATABASES).fetchall()
        others = [row[:6] for row in rows if not (row[7] or row[0] == self.store or str(row[0]).startswith(PREFIX))]
        others.sort(key=lambda row: str(row[2]))
        token = repr(others) if others and all(row[3] for row in others) else None
        unchanging = token if all(row[4] for row in others) else None
        kinds, collation = {fold(str(row[0])): str(row[6]) for row in rows}, str(rows[0][5] or "") if rows else ""
        return Databases(tuple(others), kinds, collation, token, unchanging)

    def still(self, databases: Databases) -> Still | None:
        """Returns what cannot change of these; None where something can."""
        token = databases.token
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
        token = (databases or self.databases(cursor)).unchanging
        known = self._held(token)
        return self._listed(cursor, token) if known is None else known

    @contextmanager
    def looked_for(self, cursor: duckdb.DuckDBPyConnection, aside: OpenCursor) -> Iterator[Looked]:
        """Looks for the names while other facts are asked, on a cursor of its own.

        They are those of a moment after this was called: what was committed before is seen.
        """
        databases = self.databases(cursor)
        token = databases.unchanging
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
