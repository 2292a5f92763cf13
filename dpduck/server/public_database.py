"""The public database: a DuckDB in memory that holds released tables and nothing else, locked, for clients to read.

memory.main: the private views. listing: what clients may see of the catalog. answers: results of dp functions and of
statements that ran in a runner, for the statement that asked; the gate lets nobody name them. What runs here streams:
scans of one table whose work is bounded. Everything else runs in a runner, a process that may be killed.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from dpduck.engine.macros import install_analyst_macros, shipped_texts
from dpduck.server.inspection import ANSWERS, LISTING, OWN
from dpduck.server.limits import GivenUp, Limits, never
from dpduck.server.runner_process import ROWS_AT_ONCE, create_table
from dpduck.server.runners import Runners, TableRead
from dpduck.server.vault import ReleasedRows
from dpduck.store.cursors import NamedLocks
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import fold, quote_identifier, quote_text

LOCK = (
    "SET temp_directory = ''",  # before the next line, which forbids it
    "SET enable_external_access = false",
    "SET disabled_filesystems = 'LocalFileSystem'",
    "SET python_enable_replacements = false",
    "SET python_scan_all_frames = false",
    "SET allow_community_extensions = false",
    "SET autoload_known_extensions = false",
    "SET autoinstall_known_extensions = false",
    "SET allow_unsigned_extensions = false",
    "SET lock_configuration = true",
)
"""In this order, and after everything that needs more."""

THREADS = 1
"""Of one statement. With more, DuckDB may let another thread ask the gate for a connection's statement, and Quack's own
thread then waits for it by looking again and again: whoever sends statements that wait takes a processor from all."""

_SERVED = "database_name = 'memory' AND schema_name = 'main' AND NOT internal"
LISTINGS = {
    "tables": f"SELECT * FROM duckdb_tables() WHERE {_SERVED}",
    "views": "SELECT * FROM duckdb_views() WHERE false",
    "columns": f"SELECT * FROM duckdb_columns() WHERE {_SERVED}",
    "schemas": "SELECT * FROM duckdb_schemas() WHERE database_name = 'memory' AND schema_name = 'main'",
    "databases": "SELECT * FROM duckdb_databases() WHERE database_name = 'memory'",
    "information_schemata": (
        "SELECT * FROM information_schema.schemata WHERE catalog_name = 'memory' AND schema_name = 'main'"
    ),
    "information_tables": "SELECT * FROM information_schema.tables WHERE table_catalog = 'memory'",
    "information_columns": "SELECT * FROM information_schema.columns WHERE table_catalog = 'memory'",
}


class PublicDatabase:
    """The instance that clients read; safe to use from many threads."""

    def __init__(self, limits: Limits, *, prepare: Callable[[duckdb.DuckDBPyConnection], None] | None = None) -> None:
        """prepare: what must happen before the lock, such as loading the extension that listens."""
        self._limits = limits
        self._root = duckdb.connect(":memory:", config={"memory_limit": f"{limits.memory}B", "threads": THREADS})
        for database in (ANSWERS, LISTING):
            self._root.execute(f"ATTACH ':memory:' AS {database}")
        for name, sql in LISTINGS.items():
            self._root.execute(f"CREATE VIEW {LISTING}.main.{name} AS {sql}")
        install_analyst_macros(self._root, "memory")
        for text in shipped_texts():
            self._root.execute(text)
        if prepare is not None:
            prepare(self._root)
        for statement in LOCK:
            self._root.execute(statement)
        self._lock = threading.Lock()
        self._marks: dict[str, str] = {}
        self._sizes: dict[str, Size] = {}
        self._kept = Kept(limits)
        self._inserting = NamedLocks()
        self._runners = Runners(limits, LOCK)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Returns a connection of its own, for a reader or a listener."""
        return self._root.cursor()

    def close(self) -> None:
        """Ends every statement that is at work, and forgets everything."""
        self._runners.close()
        self._root.close()

    def end_statements(self) -> None:
        """Ends every statement that is at work in a runner, and takes no more."""
        self._runners.close()

    def processes(self) -> list[int]:
        """Lists the runners' processes, whose memory can be watched."""
        return self._runners.processes()

    def marks(self) -> Mapping[str, str]:
        """Returns the private views that are here, by name as DuckDB compares names, each with its mark."""
        return dict(self._marks)

    def size(self, view: str) -> Size | None:
        """Tells how large a private view is; None where there is no such view. view: folded."""
        return self._sizes.get(view)

    def sizes(self) -> Mapping[str, Size]:
        """Tells how large the private views are, by name as DuckDB compares names."""
        return dict(self._sizes)

    def answer_size(self, key: str) -> Size:
        """Tells how large an answer is that was put here."""
        return self._kept.size(key) or NOTHING

    def put_view(self, name: str, mark: str, rows: ReleasedRows) -> None:
        """Puts a private view, new or anew, with its comments."""
        table = f"memory.main.{quote_identifier(name)}"
        with self._lock, self._transaction() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
            create_table(cursor, table, list(rows.columns), rows.table)
            if rows.comment:
                cursor.execute(f"COMMENT ON TABLE {table} IS {quote_text(rows.comment)}")
            for (column, _), comment in zip(rows.columns, rows.comments, strict=bool(rows.comments)):
                if comment:
                    cursor.execute(f"COMMENT ON COLUMN {table}.{quote_identifier(column)} IS {quote_text(comment)}")
        self._marks[fold(name)], self._sizes[fold(name)] = mark, size_of(rows)

    def drop_view(self, name: str) -> None:
        """Drops a private view that is no more."""
        with self._lock, self._transaction() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS memory.main.{quote_identifier(name)}")
        self._marks.pop(fold(name), None)
        self._sizes.pop(fold(name), None)

    def has_answer(self, key: str) -> bool:
        """Tells whether the answer under a key is here; if so it stays for its next reader."""
        return self._kept.used(key)

    def put_answer(self, principal: str, key: str, rows: ReleasedRows) -> None:
        """Keeps the rows of an answer under a key, for this principal, whose oldest answers make room for them."""
        size = size_of(rows)
        with self._inserting.held(principal):  # one at a time: others' small ones do not wait for somebody's large ones
            with self._lock:
                if self._kept.used(key):
                    return
                self._drop(self._kept.room_for(principal, size))
            try:
                self._insert(key, rows)
            except StoreError:  # whatever nobody waits for any more goes first
                with self._lock:
                    self._drop(self._kept.unread())
                try:
                    self._insert(key, rows)
                except StoreError:
                    raise Refusal(
                        "the server has no room for this result now", accepted="a smaller result, or a minute later"
                    ) from None
            with self._lock:
                self._kept.enter(principal, key, size)

    def run(
        self,
        principal: str,
        sql: str,
        tables: Sequence[tuple[str, str]],
        given_up: GivenUp = never,
        letters: int | None = None,
    ) -> str:
        """Runs a SELECT in a runner, within time, rows and memory; returns the key of what it found.

        tables: what it reads, each as database and name: private views, listings, answers. letters: see shown_sql.
        """
        sources = [self._source(database, name) for database, name in tables]
        found = self._runners.run(principal, sql, sources, self._limits.seconds, self._limits.rows, given_up, letters)
        key = secrets.token_hex(20)
        self.put_answer(principal, key, found)
        return key

    def _source(self, database: str, name: str) -> TableRead:
        table = f"{database}.main.{quote_identifier(name)}"

        def rows() -> ReleasedRows:
            with self.cursor() as cursor:
                try:
                    relation = cursor.sql(f"FROM {table}")
                    columns = tuple(zip(relation.columns, map(str, relation.types), strict=True))
                    return ReleasedRows(columns, relation.to_arrow_table(ROWS_AT_ONCE))
                except duckdb.OutOfMemoryException:
                    raise StoreError("the server is short of memory; accepted: the same statement later") from None
                except duckdb.Error:  # it went between the look whether it is there and here
                    raise Refusal(f"there is no table {name[:200]!r}", accepted="a name of dp_releases()") from None

        return TableRead(table, self._marks.get(fold(name), "") if database == OWN else "", rows)

    def _insert(self, key: str, rows: ReleasedRows) -> None:
        with self._transaction() as cursor:
            create_table(cursor, _answer_table(key), list(rows.columns), rows.table)

    def _drop(self, keys: Sequence[str]) -> None:
        with self.cursor() as cursor:
            for key in keys:
                cursor.execute(f"DROP TABLE IF EXISTS {_answer_table(key)}")

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            with self.cursor() as cursor:
                cursor.execute("BEGIN")
                yield cursor
                cursor.execute("COMMIT")
        except (duckdb.Error, MemoryError):
            raise StoreError("the server cannot keep these rows; accepted: a server with more memory") from None


def answer_name(key: str) -> str:
    """Returns the name of an answer's table: unlike any that a statement could have."""
    return f"dpduck_answer_{hashlib.sha256(key.encode()).hexdigest()[:40]}"


def _answer_table(key: str) -> str:
    return f"{ANSWERS}.main.{answer_name(key)}"


# What the public database keeps for readers who have not come yet: whose it is, how large, and what goes first.

YOUNG = 60.0
"""Seconds for which an answer is surely kept from others: its reader may not have begun yet."""


@dataclass(frozen=True)
class _Entry:
    principal: str
    size: Size
    used: float


class Kept:
    """Answers by key, the longest unused first; safe to use from many threads.

    A principal has a share of the room, and makes room for what is new by what is the principal's own. Others' answers
    go only where all of them together are too many, and only when they are not young.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def used(self, key: str) -> bool:
        """Tells whether an answer is here; if so it counts as just used."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return False
            self._entries[key] = _Entry(found.principal, found.size, time.monotonic())
            self._entries.move_to_end(key)
            return True

    def size(self, key: str) -> Size | None:
        with self._lock:
            found = self._entries.get(key)
        return None if found is None else found.size

    def enter(self, principal: str, key: str, size: Size) -> None:
        with self._lock:
            self._entries[key] = _Entry(principal, size, time.monotonic())

    def unread(self) -> list[str]:
        """Takes everything that is not young out, and says what it was."""
        now = time.monotonic()
        with self._lock:
            return self._taken([key for key, entry in self._entries.items() if now - entry.used >= YOUNG])

    def room_for(self, principal: str, size: Size) -> list[str]:
        """Takes out what has to go for something of this size, and says what it was."""
        limits, now = self._limits, time.monotonic()
        with self._lock:
            own = [key for key, entry in self._entries.items() if entry.principal == principal]
            gone = self._first(own, size, limits.kept_each, limits.kept_bytes_each, limits.kept_rows // 2)
            old = [key for key, entry in self._entries.items() if key not in gone and now - entry.used >= YOUNG]
            left = [key for key in self._entries if key not in gone]
            needed = self._first(left, size, limits.kept, limits.kept_bytes, limits.kept_rows)
            gone += old[: len(needed)]
            return self._taken(gone)

    def _first(self, keys: list[str], size: Size, most: int, most_bytes: int, most_rows: int) -> list[str]:
        """Returns the first of these that must go so that the rest and something new stay below these bounds."""
        count, rows, used = len(keys) + 1, size.rows, size.bytes
        for key in keys:
            rows, used = rows + self._entries[key].size.rows, used + self._entries[key].size.bytes
        gone: list[str] = []
        for key in keys:
            if count <= most and rows <= most_rows and used <= most_bytes:
                break
            gone.append(key)
            entry = self._entries[key]
            count, rows, used = count - 1, rows - entry.size.rows, used - entry.size.bytes
        return gone

    def _taken(self, keys: list[str]) -> list[str]:
        for key in keys:
            del self._entries[key]
        return keys


@dataclass(frozen=True)
class Size:
    """Of a table of released rows."""

    rows: int
    columns: int
    bytes: int


NOTHING = Size(0, 0, 0)


def size_of(rows: ReleasedRows) -> Size:
    """Returns the size of these rows."""
    return Size(rows.table.num_rows, len(rows.columns), rows.table.nbytes)
