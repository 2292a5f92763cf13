"""The published parts of a store: its private views with their comments and metadata, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpduck.store.attaching import not_opened
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import fold, quote_text

METADATA = "dpduck_releases"
LEDGER_ENTRY = re.compile(r"; ledger entry \d+")


@dataclass(frozen=True)
class PublishedColumn:
    """A column of a private view, with its full DuckDB type."""

    name: str
    type_name: str
    comment: str


@dataclass(frozen=True)
class PublishedView:
    """A private view for publication."""

    name: str
    comment: str
    columns: tuple[PublishedColumn, ...]


def open_store(store: Path) -> duckdb.DuckDBPyConnection:
    """Opens a new connection with the file attached read-only as `store`."""
    if not store.is_file():
        raise StoreError(f"there is no store at {store}; accepted: the file <name>_private.duckdb")
    connection = duckdb.connect(":memory:")
    try:
        connection.execute(f"ATTACH {quote_text(str(store))} AS store (READ_ONLY)")
    except duckdb.Error as error:
        connection.close()
        if "already attached" in str(error):
            raise StoreError("the store is open in this process; accepted: publishing when it is closed") from None
        raise not_opened(error, store, "the store") or StoreError(
            "the store cannot be read: it is no DuckDB file; accepted: the file <name>_private.duckdb"
        ) from None
    return connection


def read_views(
    connection: duckdb.DuckDBPyConnection, *, with_ledger: bool, wanted: Sequence[str] = ()
) -> tuple[PublishedView, ...]:
    """Returns the private views of the attached store, sorted by name. wanted: the names of views, empty for all."""
    try:
        names = connection.execute(
            "SELECT name FROM store.dpduck.releases WHERE kind = 'view' ORDER BY name"
        ).fetchall()
    except duckdb.Error:
        raise StoreError("the file is not a dpduck store; accepted: the file <name>_private.duckdb") from None
    if not names:
        raise Refusal("the store has no private view", accepted="CREATE PRIVATE VIEW .. first")
    present = {fold(name): name for (name,) in names}
    missing = [name for name in wanted if fold(name) not in present]
    if missing:
        raise Refusal(f"there is no private view {missing[0][:80]!r}", accepted=", ".join(present.values())[:400])
    chosen = {fold(name) for name in wanted} or set(present)
    return tuple(_view(connection, name, with_ledger) for folded, name in present.items() if folded in chosen)


def _view(connection: duckdb.DuckDBPyConnection, name: str, with_ledger: bool) -> PublishedView:
    place = "database_name = 'store' AND schema_name = 'main' AND table_name = ?"
    row = connection.execute(f"SELECT comment FROM duckdb_tables() WHERE {place}", [name]).fetchone()
    columns = connection.execute(
        "SELECT column_name, data_type, coalesce(comment, '') FROM duckdb_columns() "
        f"WHERE {place} ORDER BY column_index",
        [name],
    ).fetchall()
    comment = "" if row is None or row[0] is None else str(row[0])
    return PublishedView(
        name,
        comment if with_ledger else LEDGER_ENTRY.sub("", comment),
        tuple(PublishedColumn(*map(str, column)) for column in columns),
    )


def metadata_sql(*, with_ledger: bool, wanted: Sequence[str] = ()) -> str:
    """Writes a SELECT of one row per private view. with_ledger: whether it has the principal and the ledger entry."""
    ledger = ", principal, ledger_id" if with_ledger else ""
    listed = ", ".join(quote_text(fold(name)) for name in wanted)
    named = f" AND lower(name) IN ({listed})" if listed else ""
    prices = ", ".join(f"{_number(column)} AS {column}" for column in ("epsilon", "delta", "rho"))
    return (
        f"SELECT name, statement, strategy, {prices}, released_at, rows{ledger} "
        f"FROM store.dpduck.releases WHERE kind = 'view'{named} ORDER BY name"
    )


def _number(column: str) -> str:
    divisor = f"coalesce(nullif(split_part({column}, '/', 2), ''), '1')"
    return f"CAST(split_part({column}, '/', 1) AS DOUBLE) / CAST({divisor} AS DOUBLE)"
