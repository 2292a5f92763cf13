"""Streams in the store: their names, plans and tables. The published version is in the ledger."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pyarrow as pa

from dpduck.kernel.ledger.entries import LedgerEntry
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.table import Note
from dpduck.kernel.queries.stream_state import LedgerVersion, StreamShape, StreamState, file_refusal
from dpduck.kernel.rows import reader
from dpduck.mechanisms.certificate import versions_text
from dpduck.store.attaching import STORAGE_VERSION
from dpduck.store.cursors import OpenCursor, transaction
from dpduck.store.named import OWNER_NAME
from dpduck.store.prepared_files import PreparedFiles
from dpduck.store.releases import STREAM, ReleaseStore, StoredRelease
from dpduck.values.errors import StoreError
from dpduck.values.privacy import Charge
from dpduck.values.quoting import quote_identifier, quote_text, written_values
from dpduck.values.records import as_array, read_record

REFRESHED = "stream refresh"
ADOPTED = "adopted an older copy"
_VERSION = re.compile(r": (\d+) of \d+ periods; version (\d+) of ([0-9a-f]{32}), seal ([0-9a-f]{64})")


@dataclass(frozen=True)
class StreamRecord:
    """Stream under its name. nonce: the name of its file. entry: the ledger entry that paid. plan: its plan as text.

    labels, ends: the periods as `column` shows them, and their ends.
    window: the number of periods that a further column adds up, 0 for no such column.
    """

    name: str
    digest: str
    statement: str
    table: str
    nonce: str
    entry: int
    plan: str
    labels: tuple[str, ...]
    ends: tuple[str, ...]
    answers: str
    column: str
    window: int
    published: int

    @property
    def principal(self) -> str:
        return OWNER_NAME


class StreamStore:
    """Table of streams in a store that is attached under a name."""

    def __init__(self, open_cursor: OpenCursor, store: str, releases: ReleaseStore) -> None:
        self._open_cursor, self._releases = open_cursor, releases
        self._schema = f"{quote_identifier(store)}.dpduck"

    def all(self) -> list[StreamRecord]:
        with self._open_cursor() as cursor:
            rows = cursor.execute(f"FROM {self._schema}.streams ORDER BY lower(name)").fetchall()
        return [read_record(StreamRecord, [*own, *json.loads(facts), published]) for *own, facts, published in rows]

    def find(self, name: str) -> StreamRecord | None:
        return next((stream for stream in self.all() if stream.name.lower() == name.lower()), None)

    def note_creation(self, named: StreamRecord, release: StoredRelease, empty_sql: str, plan_text: str) -> Note:
        """Returns a function for the charge's transaction, which writes a stream and its table without rows."""

        def note(cursor: duckdb.DuckDBPyConnection, entry: int) -> None:
            cursor.execute(f"CREATE TABLE {self._releases.table_sql(named.name)} AS {empty_sql}")
            self._releases.insert(cursor, replace(release, ledger_id=entry), 0)
            *facts, published = as_array(replace(named, entry=entry))
            marks, values = written_values([*facts[:6], json.dumps(facts[6:]), published])
            cursor.execute(f"INSERT INTO {self._schema}.streams VALUES ({marks})", values)
            plan_row = f"({int(entry)}, {quote_text(plan_text)}, {quote_text(versions_text())})"
            cursor.execute(f"INSERT INTO {self._schema}.plans (ledger_id, plan, made_by) VALUES {plan_row}")

        return note

    def note_rows(self, named: StreamRecord, closed: int, rows: pa.Table, select_sql: str) -> Note:
        """Returns a function for the ledger's transaction. It appends rows by a SELECT over dpduck_released_rows."""

        def note(cursor: duckdb.DuckDBPyConnection, entry: int) -> None:
            table = self._releases.table_sql(named.name)
            condition = f"nonce = {quote_text(named.nonce)} AND published = {named.published}"
            matches = cursor.execute(f"SELECT count(*) FROM {self._schema}.streams WHERE {condition}").fetchall()
            if matches != [(1,)]:
                raise StoreError("the stream was refreshed meanwhile; accepted: the same statement again")
            cursor.register("dpduck_released_rows", rows)
            cursor.execute(f"INSERT INTO {table} {select_sql}")
            cursor.execute(f"UPDATE {self._schema}.streams SET published = {closed} WHERE {condition}")
            now = f"rows = (SELECT count(*) FROM {table}), released_at = now() AT TIME ZONE 'UTC'"
            cursor.execute(f"UPDATE {self._schema}.releases SET {now} WHERE name = ? AND kind = 'view'", [named.name])

        return note

    def drop(self, named: StreamRecord) -> None:
        with transaction(self._open_cursor) as cursor:
            cursor.execute(f"DELETE FROM {self._schema}.streams WHERE nonce = ?", [named.nonce])
            cursor.execute(f"DELETE FROM {self._schema}.releases WHERE name = ? AND kind = 'view'", [named.name])
            cursor.execute(f"DROP TABLE IF EXISTS {self._releases.table_sql(named.name)}")


def new_nonce() -> str:
    """Draws the name of a stream's file."""
    return secrets.token_hex(16)


def release_of(named: StreamRecord, charge: Charge, principal: str, scope: str) -> StoredRelease:
    """Describes a stream's table, for listings and comments. Its ledger entry is not known yet."""
    return StoredRelease(
        *(named.name, named.digest, named.statement, STREAM), *(charge.epsilon, charge.delta, charge.rho),
        rows=0, principal=principal, ledger_id=0, laws=(), kind="view", scope=scope,
    )  # fmt: skip


def read_last_version(ledger: Ledger, named: StreamRecord) -> LedgerVersion:
    """Returns the last published version of a stream, by the ledger's entries.

    Raises StoreError if an older copy of the store was adopted: the lost copy may have published other answers.
    """
    entries = ledger.entries()
    if any(entry.id > named.entry and entry.mechanism == ADOPTED for entry in entries):
        raise StoreError(
            "an older copy of the store was adopted since this stream was made, and what it published may be other "
            "than what is known here; accepted: DROP PRIVATE STREAM, and CREATE, which pays again"
        )
    versions = _refreshes(entries, named)
    return LedgerVersion(int(versions[-1][2]), versions[-1][4]) if versions else LedgerVersion(0, "")


def closings(ledger: Ledger, named: StreamRecord) -> list[int]:
    """Returns the number of closed periods at each refresh, in order."""
    return [int(match[1]) for match in _refreshes(ledger.entries(), named)]


def _refreshes(entries: Sequence[LedgerEntry], named: StreamRecord) -> list[re.Match[str]]:
    matches = (_VERSION.search(entry.statement) for entry in entries if entry.mechanism == REFRESHED)
    return [match for match in matches if match is not None and match[3] == named.nonce]


def version_text(named: StreamRecord, closed: int, version: int, seal: str) -> str:
    """Renders the statement of a refresh's ledger entry."""
    return (
        f"REFRESH PRIVATE STREAM {named.name}: {closed} of {len(named.ends)} periods; "
        f"version {version} of {named.nonce}, seal {seal}"
    )


@contextmanager
def open_state(
    files: PreparedFiles, named: StreamRecord, shape: StreamShape, key: bytes, last: LedgerVersion
) -> Iterator[tuple[duckdb.DuckDBPyConnection, StreamState]]:
    """Yields a cursor with a stream's file attached, and the stream's state. Raises StoreError if the file is lost."""
    path, place = files.stream_path(named.nonce), quote_identifier(f"dpduck_stream_{named.nonce}")
    if path is not None and not path.is_file() and last.version:
        raise file_refusal("is not there")
    with files.cursor() as cursor:
        try:
            attached = "':memory:'" if path is None else quote_text(str(path))
            options = "" if path is None else f" (STORAGE_VERSION '{STORAGE_VERSION}')"
            cursor.execute(f"ATTACH IF NOT EXISTS {attached} AS {place}{options}")
            if path is not None:
                path.chmod(0o600)
        except (duckdb.Error, OSError):
            raise file_refusal("cannot be opened") from None
        try:
            cursor.execute(reader.BUILT_IN_ONLY)
            state = StreamState(cursor, place, shape, key)
            if not _has_tables(cursor, f"dpduck_stream_{named.nonce}"):
                if last.version:
                    raise file_refusal("is empty")
                state.create()
            state.open(last)
            yield cursor, state
        finally:
            with suppress(duckdb.Error):
                cursor.rollback()
            if path is not None:
                with suppress(duckdb.Error):
                    cursor.execute(f"DETACH {place}")


def _has_tables(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    counts = cursor.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = ?", [name]).fetchall()
    return counts != [(0,)]


def remove_file(path: Path | None) -> None:
    """Deletes a stream's file."""
    if path is not None:
        path.unlink(missing_ok=True)
        path.with_name(path.name + ".wal").unlink(missing_ok=True)
