"""Public database: a locked DuckDB in memory that holds released tables and nothing else, for clients to read.

memory.main has the private views, `listing` the part of the catalog that clients may see, and `answers` the results of
dp functions and runners. Only the statement that asked may read a result.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb

from dpduck.database.analyst_macros import install_analyst_macros
from dpduck.database.macros import read_macro_files
from dpduck.server.answer_index import NOTHING, AnswerIndex, Size, size_of
from dpduck.server.inspection import ANSWERS, LISTING, OWN
from dpduck.server.limits import GivenUp, Limits, never
from dpduck.server.locked import LOCK
from dpduck.server.runner_process import ROWS_AT_ONCE, create_table
from dpduck.server.runners import Runners, TableRead
from dpduck.server.vault import ReleasedRows
from dpduck.server.vault_messages import create_view_table
from dpduck.store.cursors import NamedLocks
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import fold, quote_identifier

THREADS = 1
"""Threads of one statement. With more, DuckDB may let another thread ask the gate for a connection's statement. Quack's
own thread then waits in a busy loop, so a client with waiting statements would use up a processor."""

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


class NoRoom(StoreError):
    """Refusal of rows for which there is no memory now."""


class PublicDatabase:
    """DuckDB instance that clients read. Many threads may use it."""

    def __init__(self, limits: Limits, *, prepare: Callable[[duckdb.DuckDBPyConnection], None] | None = None) -> None:
        """prepare: a step before the settings are locked, such as loading an extension that listens for clients."""
        self._limits = limits
        self._root = duckdb.connect(":memory:", config={"memory_limit": f"{limits.memory}B", "threads": THREADS})
        for database in (ANSWERS, LISTING):
            self._root.execute(f"ATTACH ':memory:' AS {database}")
        for name, sql in LISTINGS.items():
            self._root.execute(f"CREATE VIEW {LISTING}.main.{name} AS {sql}")
        install_analyst_macros(self._root, "memory")
        for text in read_macro_files():
            self._root.execute(text)
        if prepare is not None:
            prepare(self._root)
        for statement in LOCK:
            self._root.execute(statement)
        self._lock = threading.Lock()
        self._marks: dict[str, str] = {}
        self._sizes: dict[str, Size] = {}
        self._kept = AnswerIndex(limits)
        self._inserting = NamedLocks()
        self._runners = Runners(limits, LOCK)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self._root.cursor()

    def close(self) -> None:
        self._runners.close()
        self._root.close()

    def end_statements(self) -> None:
        """Ends every statement that runs in a runner, and accepts no more."""
        self._runners.close()

    def processes(self) -> list[int]:
        return self._runners.processes()

    def marks(self) -> Mapping[str, str]:
        """Returns the mark of each private view, by its name in small letters."""
        return dict(self._marks)

    def size(self, view: str) -> Size | None:
        """Returns the size of a private view, or None if there is none. view: its name in small letters."""
        return self._sizes.get(view)

    def sizes(self) -> Mapping[str, Size]:
        return dict(self._sizes)

    def answer_size(self, key: str) -> Size:
        """Returns the size of an answer, or NOTHING if it was removed."""
        return self._kept.size(key) or NOTHING

    def put_view(self, name: str, mark: str, rows: ReleasedRows) -> None:
        table = f"memory.main.{quote_identifier(name)}"
        with self._lock, self._transaction() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
            create_view_table(cursor, table, rows)
        self._marks[fold(name)], self._sizes[fold(name)] = mark, size_of(rows)

    def drop_view(self, name: str) -> None:
        with self._lock, self._transaction() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS memory.main.{quote_identifier(name)}")
        self._marks.pop(fold(name), None)
        self._sizes.pop(fold(name), None)

    def has_answer(self, key: str) -> bool:
        """Tells whether the answer of a key is stored. If so, it counts as just used, and stays for its next reader."""
        return self._kept.touch(key)

    def put_answer(self, principal: str, key: str, rows: ReleasedRows) -> None:
        """Stores the rows of an answer under a key. Removes this principal's longest unused answers to make room."""
        size = size_of(rows)
        with self._inserting.hold(principal):  # one lock for each principal: no one waits for another's large answer
            with self._lock:
                if self._kept.touch(key):
                    return
                self._drop(self._kept.room_for(principal, size))
            try:
                self._insert(key, rows)
            except NoRoom:  # makes room by removing old answers, which nobody waits for
                with self._lock:
                    self._drop(self._kept.unread())
                try:
                    self._insert(key, rows)
                except NoRoom:
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
        """Runs a SELECT in a runner, with limits of time, rows and memory. Returns the key of its stored result.

        tables: the private views, listings and answers that it reads, as (database, name). letters: as in shown_sql.
        """
        sources = [self._source(database, name) for database, name in tables]
        rows = self._runners.run(principal, sql, sources, self._limits.seconds, self._limits.rows, given_up, letters)
        key = secrets.token_hex(20)
        self.put_answer(principal, key, rows)
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
                except duckdb.Error:  # it was dropped after the check that it exists
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
        except (duckdb.OutOfMemoryException, MemoryError):
            raise NoRoom("the server cannot keep these rows; accepted: a server with more memory") from None
        except duckdb.Error:
            raise StoreError("no table has columns of these types; accepted: CAST(.. AS VARCHAR)") from None


def answer_name(key: str) -> str:
    """Returns the name of an answer's table, a hash of the key."""
    return f"dpduck_answer_{hashlib.sha256(key.encode()).hexdigest()[:40]}"


def _answer_table(key: str) -> str:
    return f"{ANSWERS}.main.{answer_name(key)}"
