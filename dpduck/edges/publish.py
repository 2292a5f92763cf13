"""Publishing: private views, and nothing else of the store, as a DuckDB file or a directory of Parquet files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpduck.edges.store import STORAGE_VERSION
from dpduck.errors import Refusal, StoreError
from dpduck.frontend.names import quote_identifier, quote_text

METADATA = "dpduck_releases"
_METADATA_COLUMNS = "name, statement, strategy, epsilon, delta, rho, released_at, rows"


@dataclass(frozen=True)
class Published:
    """What was written."""

    views: tuple[str, ...]
    target: Path


def publish(store: Path, target: Path) -> Published:
    """Writes the private views of a store to a .duckdb file, or to a directory as Parquet; all of it or nothing."""
    if not store.is_file():
        raise StoreError(f"there is no store at {store}; accepted: the file <name>_private.duckdb")
    if target.suffix == ".duckdb":
        return _to_duckdb(store, target)
    if target.suffix:
        raise Refusal(f"the target {target.name} is neither", accepted="FILE.duckdb or a directory for Parquet files")
    return _to_parquet(store, target)


def _views(connection: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    try:
        rows = connection.execute("SELECT name FROM store.dpduck.releases WHERE kind = 'view' ORDER BY name").fetchall()
    except duckdb.Error:
        raise StoreError("the file is not a dpduck store; accepted: the file <name>_private.duckdb") from None
    if not rows:
        raise Refusal("the store has no private view", accepted="CREATE PRIVATE VIEW .. first")
    return tuple(row[0] for row in rows)


def _open(store: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    try:
        connection.execute(f"ATTACH {quote_text(str(store))} AS store (READ_ONLY)")
    except duckdb.Error:
        connection.close()
        raise StoreError(
            "the store cannot be read: it is no DuckDB file, or another process has it open; "
            "accepted: a store that no process has open"
        ) from None
    return connection


def _to_duckdb(store: Path, target: Path) -> Published:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".dpduck") as directory, _open(store) as connection:
        unfinished = Path(directory) / "published.duckdb"
        connection.execute(f"ATTACH {quote_text(str(unfinished))} AS target (STORAGE_VERSION '{STORAGE_VERSION}')")
        views = _views(connection)
        for view in views:
            _copy(connection, view)
        connection.execute(f"CREATE TABLE target.main.{METADATA} AS {_metadata_sql()}")
        connection.execute("DETACH target")
        unfinished.replace(target)
    return Published(views, target)


def _metadata_sql() -> str:
    return f"SELECT {_METADATA_COLUMNS} FROM store.dpduck.releases WHERE kind = 'view' ORDER BY name"


def _copy(connection: duckdb.DuckDBPyConnection, view: str) -> None:
    name = quote_identifier(view)
    connection.execute(f"CREATE TABLE target.main.{name} AS FROM store.main.{name}")
    row = connection.execute(
        "SELECT comment FROM duckdb_tables() WHERE database_name = 'store' AND table_name = ?", [view]
    ).fetchone()
    if row is not None and row[0]:
        connection.execute(f"COMMENT ON TABLE target.main.{name} IS {quote_text(row[0])}")
    comments = connection.execute(
        "SELECT column_name, comment FROM duckdb_columns() WHERE database_name = 'store' AND table_name = ? "
        "AND comment IS NOT NULL",
        [view],
    ).fetchall()
    for column, comment in comments:
        connection.execute(f"COMMENT ON COLUMN target.main.{name}.{quote_identifier(column)} IS {quote_text(comment)}")


def _to_parquet(store: Path, target: Path) -> Published:
    ours = (target / f"{METADATA}.parquet").exists()
    if target.exists() and not ours and (not target.is_dir() or any(target.iterdir())):
        raise Refusal(f"{target.name} is in the way", accepted="a new directory, or one that publish made")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".dpduck") as directory, _open(store) as connection:
        unfinished, earlier = Path(directory) / "published", Path(directory) / "earlier"
        unfinished.mkdir()
        views = _views(connection)
        _require_file_names(views)
        for view in views:
            sql = f"FROM store.main.{quote_identifier(view)}"
            connection.execute(f"COPY ({sql}) TO {quote_text(str(unfinished / f'{view}.parquet'))} (FORMAT parquet)")
        metadata = quote_text(str(unfinished / f"{METADATA}.parquet"))
        connection.execute(f"COPY ({_metadata_sql()}) TO {metadata} (FORMAT parquet)")
        if target.exists():
            shutil.move(target, earlier)
        unfinished.replace(target)
    return Published(views, target)


def _require_file_names(views: Sequence[str]) -> None:
    for view in views:
        if not view.replace("_", "").replace("-", "").isalnum():
            raise Refusal(f"the view {view!r} is no file name", accepted="letters, digits, _ and - in names of views")
