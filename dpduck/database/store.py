"""The store: a database beside the user's, with policies, the ledger and released tables, never a private row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpduck.frontend.text.names import quote_identifier, quote_text
from dpduck.values.errors import Refusal, StoreError

STORE_NAME = "private"
STORAGE_VERSION = "v1.5.0"  # the oldest DuckDB that must be able to open a store, whichever wrote it


@dataclass(frozen=True)
class StoreFiles:
    """Where a store and its secrets are; both None in memory."""

    store: Path | None
    secrets: Path | None


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
        raise StoreError(
            "the store cannot be opened: it is no DuckDB file, or another process has it open; "
            "accepted: the file that dpduck made, in one process at a time"
        ) from None
    if new and files.store is not None:
        files.store.chmod(0o600)  # its ledger says who asked what
    return True


def detach_store(connection: duckdb.DuckDBPyConnection) -> None:
    """Undoes attach_store."""
    connection.execute(f"DETACH {quote_identifier(STORE_NAME)}")
