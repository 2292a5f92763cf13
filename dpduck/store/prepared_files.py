"""Files of prepared tables, which hold copies of private rows.

Only the owner of the store can read such a file (0600). It is attached read-only to a DuckDB instance of its own, which
runs no SQL of an owner or analyst. Its header identifies the table, epoch and layout, with a MAC under a key of the
ledger. A file with another header is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from dpduck.kernel.places.prepared_writer import sent_sql
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.worker.program import BATCH_TEXTS
from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.text.names import TableName
from dpduck.store.attached import Still, look_up_fact
from dpduck.store.attaching import STORAGE_VERSION
from dpduck.store.prepared_records import PreparedRecord
from dpduck.values.errors import InternalError, Refusal, StoreError
from dpduck.values.quoting import quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

TABLE = "main.twin"
BLOCK = 1 << 16
"""Bytes of a block. Reading one column brings the others in its block into memory: reading three codes of eight took
15 MB, and 38 MB with DuckDB's blocks of 262,144 bytes.
"""

MOST_COPIES = 16
"""Most copies of public tables, which are kept for joins with prepared tables."""

_SETTINGS = ("memory_limit", "threads", "temp_directory", "TimeZone")
_LEAST_SHARE, _LEAST = 4, 256 << 20
"""A new table may use 1 / _LEAST_SHARE of the memory limit, or _LEAST bytes if more, even if the database uses all."""

_UNITS = {"bytes": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5}
_COPIES = "dpduck_public"
Shapes = Sequence[tuple[TableName, tuple[CatalogColumn, ...], bool]]


class PreparedFiles:
    """Files of one store's prepared tables. store: the store's file, None in memory. key: returns the key of MACs."""

    def __init__(
        self, open_cursor: Callable[[], duckdb.DuckDBPyConnection], store: Path | None, key: Callable[[], bytes]
    ) -> None:
        self._open_cursor, self._store, self._key = open_cursor, store, key
        self._instance: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.RLock()
        self._attached: dict[str, str] = {}
        self._copies: OrderedDict[str, str] = OrderedDict()
        self._doubted: set[str] = set()

    def path(self, nonce: str) -> Path | None:
        if self._store is None:
            return None
        return self._store.with_name(f"{self._store.stem.removesuffix('_private')}_prepared_{nonce}.duckdb")

    @contextmanager
    def create(self, nonce: str, layout: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """Yields a cursor and the name of a table to write. Removes the table if an exception is raised."""
        path, catalog = self.path(nonce), _catalog(nonce)
        part = None if path is None else path.with_suffix(".partial")
        if part is not None:
            part.mkdir(mode=0o700)
        place = ":memory:" if part is None else str(part / "twin.duckdb")
        options = f"BLOCK_SIZE {BLOCK}" + ("" if part is None else f", STORAGE_VERSION '{STORAGE_VERSION}'")
        try:
            with self.cursor() as cursor, self._within_limit(cursor):
                cursor.execute(f"ATTACH {quote_text(place)} AS {catalog} ({options})")
                yield cursor, f"{catalog}.{TABLE}"
                cursor.execute(f"CREATE TABLE {catalog}.main.header (nonce VARCHAR, layout VARCHAR, mac VARCHAR)")
                cursor.execute(
                    f"INSERT INTO {catalog}.main.header VALUES (?, ?, ?)", [nonce, layout, self._mac(nonce, layout)]
                )
                if part is not None and path is not None:
                    cursor.execute(f"CHECKPOINT {catalog}")
                    cursor.execute(f"DETACH {catalog}")
                    (part / "twin.duckdb").chmod(0o600)
                    (part / "twin.duckdb").rename(path)
            with self._lock:
                if part is None:
                    self._attached[nonce] = catalog
        except BaseException:
            with suppress(duckdb.Error), self.cursor() as cursor:
                cursor.execute(f"DETACH DATABASE IF EXISTS {catalog}")
            raise
        finally:
            if part is not None:
                shutil.rmtree(part, ignore_errors=True)

    @contextmanager
    def _within_limit(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Limits this DuckDB instance to the memory that the database leaves free, while a table is written.

        The database keeps the blocks that it reads, up to its limit. Rows without room in memory go to temp_directory.
        """
        with self._open_cursor() as database:
            limit, held = _memory(database)
        share = max(limit - held, limit // _LEAST_SHARE, min(limit, _LEAST))
        cursor.execute(f"SET GLOBAL memory_limit = '{share}B'")
        try:
            yield
        finally:
            cursor.execute(f"SET GLOBAL memory_limit = '{limit}B'")

    def stream_path(self, nonce: str) -> Path | None:
        """Returns the path of a stream's file, in a folder that only its owner can open. None in memory."""
        if self._store is None:
            return None
        folder = self._store.with_name(f"{self._store.stem.removesuffix('_private')}_streams")
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)  # an old folder may be open to others, as its files' logs would then be
        return folder / f"{nonce}.duckdb"

    def size(self, nonce: str) -> int:
        path = self.path(nonce)
        return 0 if path is None else path.stat().st_size

    def digest(self, nonce: str) -> str:
        path = self.path(nonce)
        if path is None:
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()

    def doubt(self, nonces: Sequence[str]) -> None:
        """Marks prepared tables, because a count over them failed. The next use checks their whole content first."""
        with self._lock:
            self._doubted.update(nonces)

    def table(self, record: PreparedRecord) -> str:
        """Attaches a prepared table and returns its name. Raises StoreError if its file is missing or was exchanged."""
        nonce, layout, size = record.nonce, record.layout, record.size
        with self._lock:
            path, catalog = self.path(nonce), _catalog(nonce)
            if nonce in self._doubted and path is not None:
                if not path.is_file() or self.digest(nonce) != record.digest:
                    raise _refusal(record, "is damaged")
                self._doubted.discard(nonce)
            if nonce not in self._attached:
                if path is None or not path.is_file() or path.stat().st_size != size:
                    raise _refusal(record, "is not there, or is not whole")
                try:
                    with self.cursor() as cursor:
                        cursor.execute(f"ATTACH {quote_text(str(path))} AS {catalog} (READ_ONLY)")
                        rows = cursor.execute(f"FROM {catalog}.main.header").fetchall()
                        if rows != [(nonce, layout, self._mac(nonce, layout))]:
                            cursor.execute(f"DETACH {catalog}")
                            raise _refusal(record, "is that of another table, epoch or store")
                except duckdb.Error:
                    raise _refusal(record, "cannot be read") from None
                self._attached[nonce] = catalog
            return f"{catalog}.{TABLE}"

    def remove(self, nonce: str) -> None:
        path = self.path(nonce)
        with self._lock:
            if self._attached.pop(nonce, None) is not None:
                with suppress(duckdb.Error), self.cursor() as cursor:
                    cursor.execute(f"DETACH {_catalog(nonce)}")
        if path is not None:
            path.unlink(missing_ok=True)
            shutil.rmtree(path.with_suffix(".partial"), ignore_errors=True)

    @contextmanager
    def reading(
        self,
        cursor: duckdb.DuckDBPyConnection,
        tables: Sequence[str],
        public: Sequence[tuple[TableName, str]],
        shapes: Shapes,
        still: Callable[[duckdb.DuckDBPyConnection], Still | None] = lambda cursor: None,
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, Mapping[str, str]]]:
        """Yields a cursor that reads these tables and copies of public tables, and the name of each copy.

        public: tables with digests, as `cursor` sees them. still: returns the databases that cannot change.
        """
        unchanging = still(cursor) if public else None
        columns = {table: listed for table, listed, _ in shapes}
        with self.cursor() as second:
            with self._lock:
                names = {
                    table.sql: self._copy(cursor, table, digest, columns[table], unchanging) for table, digest in public
                }
                self._evict(set(names.values()))
                reader.begin(second)
                _hold(second, (*tables, *names.values()))
            yield second, names

    def _copy(
        self,
        cursor: duckdb.DuckDBPyConnection,
        table: TableName,
        digest: str,
        columns: Sequence[CatalogColumn],
        still: Still | None,
    ) -> str:
        types = [(column.name, column.type_name) for column in columns]
        texts = look_up_fact(still, table, ("texts", tuple(columns)), lambda: _texts_digest(cursor, table, columns))
        key = repr((table.sql, digest, texts, types))
        if key in self._copies:
            self._copies.move_to_end(key)
            return self._copies[key]
        other = next((column for column in columns if not sql_type(column.type_name).is_carried), None)
        if other is not None:
            raise Refusal(
                f"{table.table} has a column {other.name} of type {sql_type(other.type_name).word}, and is joined "
                "with a prepared table",
                accepted="a public table of numbers, texts and moments, or ALTER PRIVACY POLICY ON .. UNPREPARE",
            )
        name = f'{_COPIES}.main."{hashlib.sha256(key.encode()).hexdigest()}"'
        quoted = [(quote_identifier(column.name), column.type_name) for column in columns]
        sent = ", ".join(f"{sent_sql(column, type_name)} AS {column}" for column, type_name in quoted)
        typed = ", ".join(f"CAST({column} AS {type_name}) AS {column}" for column, type_name in quoted)
        batches = reader.record_batches(cursor, f"SELECT {sent} FROM {table.sql}", {}, BATCH_TEXTS)
        with self.cursor() as second:
            second.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {_COPIES}")
            reader.pour_rows(
                second, f"CREATE TABLE {name} AS SELECT {typed} FROM dpduck_poured", {}, "dpduck_poured", batches
            )
        self._copies[key] = name
        return name

    def _evict(self, used: set[str]) -> None:
        for key, name in list(self._copies.items()):
            if len(self._copies) > MOST_COPIES and name not in used:
                del self._copies[key]
                with self.cursor() as second:
                    second.execute(f"DROP TABLE {name}")

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Returns a cursor of this DuckDB instance, which runs no SQL of a client."""
        with self._lock:
            if self._instance is None:
                self._instance = self._open_instance()
            return self._instance.cursor()

    def _open_instance(self) -> duckdb.DuckDBPyConnection:
        config: dict[str, str | bool | int | float | list[str]] = {
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
        }
        instance = duckdb.connect(":memory:", config=config)
        with self._open_cursor() as cursor:
            for name in _SETTINGS:
                with suppress(duckdb.Error):
                    row = cursor.execute(f"SELECT current_setting({quote_text(name)})").fetchone()
                    if row is not None:  # "" for temp_directory says that no row goes to a disk
                        instance.execute(f"SET GLOBAL {name} = {quote_text(str(row[0]))}")
        keep_plans_plain(instance)
        return instance

    def _mac(self, nonce: str, layout: str) -> str:
        return hmac.new(self._key(), f"dpduck prepared\n{nonce}\n{layout}".encode(), hashlib.sha256).hexdigest()


def _memory(database: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Returns a database's memory limit in bytes, and the bytes that its tables need once they are read."""
    sql = (
        "SELECT current_setting('memory_limit'), (SELECT sum(memory_usage_bytes) FROM duckdb_memory()), "
        "(SELECT sum(total_blocks * block_size) FROM pragma_database_size())"
    )
    ((written, used, stored),) = database.execute(sql).fetchall()
    amount, unit = str(written).split(" ")
    limit = int(float(amount) * 1024 ** _UNITS[unit])
    return limit, min(limit, max(int(used or 0), int(stored or 0)))


def _hold(cursor: duckdb.DuckDBPyConnection, names: Sequence[str]) -> None:
    """Begins a transaction in each table's file, so that its rows stay the same even if the table is prepared again."""
    try:
        reader.columns(cursor, " UNION ALL ".join(f"(SELECT 1 FROM {name} LIMIT 0)" for name in names), {})
    except InternalError:
        raise Refusal("a table was prepared again meanwhile", accepted="the same statement again") from None


def _texts_digest(cursor: duckdb.DuckDBPyConnection, table: TableName, columns: Sequence[CatalogColumn]) -> list[str]:
    """Returns a digest of texts for columns in which DuckDB may have one hash for two values, such as 0 and -0.

    The digest of a public table does not tell such values apart.
    """
    tied = [column for column in columns if sql_type(column.type_name).has_tied_hashes]
    if not tied:
        return []
    texts = ", ".join(f"CAST({quote_identifier(column.name)} AS VARCHAR)" for column in tied)
    sql = f"SELECT CAST(bit_xor(hash({texts})) AS VARCHAR), CAST(sum(hash(1, {texts})) AS VARCHAR) FROM {table.sql}"
    return [str(column[0]) for column in reader.columns(cursor, sql, {})]


def _catalog(nonce: str) -> str:
    if not nonce.isalnum():
        raise InternalError("no name of a prepared table")
    return quote_identifier(f"dpduck_{nonce}")


def _refusal(record: PreparedRecord, why: str) -> StoreError:
    return StoreError(
        f"the file of the prepared table {record.table} {why}; "
        f"accepted: ALTER PRIVACY POLICY ON {record.table} PREPARE, which reads the table anew"
    )
