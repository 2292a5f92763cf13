"""The window: a DuckDB in memory that holds released tables and nothing else, locked, for clients to read.

memory.main: the private views. listing: what clients may see of the catalog. answers: results of dp functions and of
statements that ran under the clock, for the statement that asked; the gate lets nobody name them.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import duckdb

from dpduck.edges.analyst_macros import install_analyst_macros
from dpduck.edges.shipped_macros import shipped_texts
from dpduck.errors import Refusal, StoreError
from dpduck.frontend.names import fold, quote_identifier, quote_text
from dpduck.server.inspection import ANSWERS, LISTING
from dpduck.server.limits import Limits
from dpduck.server.vault import Rows

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
"""In this order, and after everything that needs more (DESIGN 6.4)."""

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
YOUNG = 60.0
"""Seconds for which an answer is surely kept: its reader may not have begun yet."""


class Window:
    """The instance that clients read; safe to use from many threads."""

    def __init__(self, limits: Limits, *, prepare: Callable[[duckdb.DuckDBPyConnection], None] | None = None) -> None:
        """prepare: what must happen before the lock, such as loading the extension that listens."""
        self._limits = limits
        self._root = duckdb.connect(":memory:", config={"memory_limit": limits.memory})
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
        self._sizes: dict[str, int] = {}
        self._kept: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own, for a reader or a listener."""
        return self._root.cursor()

    def close(self) -> None:
        """Forgets everything."""
        self._root.close()

    def marks(self) -> Mapping[str, str]:
        """The private views that are here, by name as DuckDB compares names, each with its mark."""
        return dict(self._marks)

    def size(self, view: str) -> int | None:
        """How many rows a private view has; None where there is no such view. view: folded."""
        return self._sizes.get(view)

    def put_view(self, name: str, mark: str, rows: Rows) -> None:
        """A private view, new or anew, with its comments."""
        table = f"memory.main.{quote_identifier(name)}"
        with self._lock, self._transaction() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
            _create(cursor, table, rows)
            if rows.comment:
                cursor.execute(f"COMMENT ON TABLE {table} IS {quote_text(rows.comment)}")
            for (column, _), comment in zip(rows.columns, rows.comments, strict=bool(rows.comments)):
                if comment:
                    cursor.execute(f"COMMENT ON COLUMN {table}.{quote_identifier(column)} IS {quote_text(comment)}")
        self._marks[fold(name)], self._sizes[fold(name)] = mark, rows.table.num_rows

    def drop_view(self, name: str) -> None:
        """A private view that is no more."""
        with self._lock, self._transaction() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS memory.main.{quote_identifier(name)}")
        self._marks.pop(fold(name), None)
        self._sizes.pop(fold(name), None)

    def has_answer(self, key: str) -> bool:
        """Whether the answer under a key is here; if so it stays for its next reader."""
        with self._lock:
            if key not in self._kept:
                return False
            self._kept[key] = (self._kept[key][0], time.monotonic())
            self._kept.move_to_end(key)
            return True

    def put_answer(self, key: str, rows: Rows) -> None:
        """The rows of an answer under a key."""
        with self._lock:
            if key in self._kept:
                return
            with self._transaction() as cursor:
                _create(cursor, _answer_table(key), rows)
            self._enter(key, rows.table.num_rows)

    def answer_sql(self, key: str) -> str:
        """The table of an answer, as the SQL of a statement names it."""
        return answer_name(key)

    def run(self, sql: str) -> str:
        """Runs a SELECT under the clock and within the limit of rows; returns the key of what it found."""
        key = secrets.token_hex(20)
        table = _answer_table(key)
        with self.cursor() as cursor, _clock(cursor, self._limits.seconds) as late:
            try:
                cursor.execute(f"CREATE TABLE {table} AS SELECT * FROM ({sql}) LIMIT {self._limits.rows + 1}")
                found = cursor.execute(f"SELECT count(*) FROM {table}").fetchone()
            except duckdb.InterruptException:
                raise Refusal("the statement takes too long", accepted=f"at most {self._limits.seconds:g} s") from None
            except duckdb.Error as error:
                if late():
                    seconds = f"at most {self._limits.seconds:g} s"
                    raise Refusal("the statement takes too long", accepted=seconds) from None
                raise Refusal(f"DuckDB does not accept this: {_said(error)}", accepted="DuckDB's SQL") from None
        count = 0 if found is None else int(found[0])
        with self._lock:
            self._enter(key, count)
        if count > self._limits.rows:
            raise Refusal("the result has too many rows", accepted=f"at most {self._limits.rows}")
        return key

    def _enter(self, key: str, rows: int) -> None:
        """Notes an answer and drops the oldest that are too many; those that are young are for their readers."""
        now = time.monotonic()
        self._kept[key] = (rows, now)
        while sum(count for count, _ in self._kept.values()) > self._limits.kept_rows or len(self._kept) > 1_000:
            oldest, (_, entered) = next(iter(self._kept.items()))
            if now - entered < YOUNG:
                return
            del self._kept[oldest]
            with suppress(duckdb.Error), self.cursor() as cursor:
                cursor.execute(f"DROP TABLE IF EXISTS {_answer_table(oldest)}")

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            with self.cursor() as cursor:
                cursor.execute("BEGIN")
                yield cursor
                cursor.execute("COMMIT")
        except duckdb.Error:
            raise StoreError("the window cannot keep these rows; accepted: a server with more memory") from None


def answer_name(key: str) -> str:
    """The name of an answer's table: unlike any that a statement could have."""
    return f"dpduck_answer_{hashlib.sha256(key.encode()).hexdigest()[:40]}"


def _answer_table(key: str) -> str:
    return f"{ANSWERS}.main.{answer_name(key)}"


def _create(cursor: duckdb.DuckDBPyConnection, table: str, rows: Rows) -> None:
    columns = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in rows.columns)
    cursor.register("dpduck_rows", rows.table)
    cursor.execute(f"CREATE TABLE {table} ({columns})")
    cursor.execute(f"INSERT INTO {table} SELECT * FROM dpduck_rows")
    cursor.unregister("dpduck_rows")


@contextmanager
def _clock(cursor: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[Callable[[], bool]]:
    """Interrupts the cursor when its time is over; yields whether it was."""
    rung = threading.Event()

    def ring() -> None:
        rung.set()
        cursor.interrupt()

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield rung.is_set
    finally:
        timer.cancel()
        timer.join()  # the cursor may be closed from here on


def _said(error: duckdb.Error) -> str:
    """DuckDB's own words: in the window they can quote nothing but released values."""
    return str(error).strip().split("\n", 1)[0][:300].split(": ", 1)[-1]
