"""Attaches the store, with policies, ledger and released tables, beside the databases of a connection."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from dpduck.store.store_files import WHEN_ENDED, StoreFiles
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import quote_identifier, quote_text

STORE_NAME = "private"
STORAGE_VERSION = "v1.5.0"  # the oldest DuckDB that must be able to open every file made here, whichever wrote it

_WRITER, _WRITTEN_BY = slice(52, 84), re.compile(r"v(\d+\.\d+\.\d+[\w.-]*)", re.ASCII)
"""Place of the writer's version in a file's header, and its form."""


def open_database(database: str | Path, **options: Any) -> duckdb.DuckDBPyConnection:
    """Opens a database. A new file is made so that DuckDB 1.5 can open it, too: by itself, 2.0 would use a new format.

    options: those of duckdb.connect.
    """
    path = str(database)
    new = path not in ("", ":default:") and not path.startswith((":memory:", "md:")) and not Path(path).exists()
    told = "storage_compatibility_version" in (options.get("config") or {})
    try:
        if new and not told and not options.get("read_only") and not duckdb.__version__.startswith("1."):
            with duckdb.connect() as maker:
                maker.execute(f"ATTACH {quote_text(path)} AS made (STORAGE_VERSION '{STORAGE_VERSION}')")
        return duckdb.connect(path, **options)
    except duckdb.IOException as error:
        raise not_opened(error, Path(path)) or error from None


def not_opened(error: duckdb.Error, file: Path | None, what: str = "the database") -> StoreError | None:
    """Returns the reason why a file cannot be opened: a newer DuckDB wrote it, or it is in use. None for other reasons.

    file: the file, whose header names the DuckDB that wrote it. None if it is not known.
    """
    if _is_newer(error):
        name = "that.duckdb" if file is None else file.name
        return StoreError(
            f"{name} was written by {_writer(file)}, and DuckDB {duckdb.__version__}, which is installed here, cannot "
            f"read it; accepted: a copy by that DuckDB in its place: {copying(name)}"
        )
    if re.search(r"\block\b", str(error)) is None:  # for a damaged file DuckDB names a block
        return None
    return StoreError(
        f"{what} is in use by another process, perhaps dpduck serve or dpduck shell; accepted: {WHEN_ENDED}"
    )


def copying(name: str) -> str:
    """Returns the SQL with which a newer DuckDB copies a file so that DuckDB 1.5 can read the copy."""
    return (
        f"ATTACH {quote_text(name)} AS newer (READ_ONLY); "
        f"ATTACH 'copy.duckdb' AS copy (STORAGE_VERSION '{STORAGE_VERSION}'); COPY FROM DATABASE newer TO copy"
    )


def no_store(database: Path | None, accepted: str = "a database with a privacy policy (dpduck sql)") -> StoreError:
    """Returns the error about a database without a store. A newer DuckDB's database gets the error about that."""
    try:
        if database is not None and database.exists():
            duckdb.connect(str(database), read_only=True).close()
    except duckdb.Error as error:
        if _is_newer(error) and (said := not_opened(error, database)) is not None:
            return said
    return StoreError(f"this database has no store; accepted: {accepted}")


def _is_newer(error: duckdb.Error) -> bool:
    return "version number" in str(error)


def _writer(file: Path | None) -> str:
    """Returns the DuckDB that wrote a file, by the file's header."""
    with suppress(OSError, UnicodeDecodeError):
        if file is not None:
            with file.open("rb") as opened:
                written = opened.read(_WRITER.stop)[_WRITER].rstrip(b"\0").decode("ascii")
            if (version := _WRITTEN_BY.fullmatch(written)) is not None:
                return f"DuckDB {version[1]}"
    return "a newer DuckDB"


def require_no_store(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuses a connection to a store. A store for a store would have nothing to protect."""
    here = "database_name = current_database() AND schema_name = 'dpduck'"
    schemas = connection.execute(f"SELECT 1 FROM duckdb_schemas() WHERE {here}").fetchall()
    of_store = f"SELECT 1 FROM duckdb_tables() WHERE {here} AND table_name = 'releases'"
    if schemas and connection.execute(of_store).fetchall():
        file = database_file(connection)
        name = "database" if file is None else file.stem.removesuffix("_private")
        raise Refusal("this is a store, which lies beside a database", accepted=f"that database, such as {name}.duckdb")


def database_file(connection: duckdb.DuckDBPyConnection) -> Path | None:
    """Returns the file of the connection's current database, None in memory."""
    query = "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"
    rows = connection.execute(query).fetchall()  # all rows, so that DuckDB 2.0 takes the result for finished
    return Path(rows[0][0]) if rows and rows[0][0] else None


def attach_store(connection: duckdb.DuckDBPyConnection, files: StoreFiles) -> bool:
    """Attaches the store as `private`. Returns False if it is attached already."""
    row = connection.execute(
        f"SELECT path, readonly FROM duckdb_databases() WHERE database_name = {quote_text(STORE_NAME)}"
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
    # READ_WRITE even if the database is read-only: a release writes to the store only
    options = "READ_WRITE" if files.store is None else f"READ_WRITE, STORAGE_VERSION '{STORAGE_VERSION}'"
    try:
        connection.execute(f"ATTACH {place} AS {quote_identifier(STORE_NAME)} ({options})")
    except duckdb.Error as error:
        if any(word in str(error) for word in ("Read-only", "Permission denied")):
            raise StoreError(
                "the store cannot be written: it, or the disk that it is on, is read-only for this user; "
                "accepted: a copy on another disk (dpduck publish gives released tables that anybody can read)"
            ) from None
        raise not_opened(error, files.store, "the store") or StoreError(
            "the store cannot be opened: it is no DuckDB file, or it is in use by another process; "
            "accepted: the file that dpduck made, in one process at a time"
        ) from None
    if new and files.store is not None:
        files.store.chmod(0o600)  # its ledger records every principal's statements
    return True


def detach_store(connection: duckdb.DuckDBPyConnection) -> None:
    """Detaches the store."""
    connection.execute(f"DETACH {quote_identifier(STORE_NAME)}")
