"""Private views as tables of a PostgreSQL database, through DuckDB's postgres_scanner, in one transaction.

If a table was published before, its rows are deleted and inserted anew. So its grants stay, and so do other people's
views over it. Readers see all of the old publication or all of the new one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import duckdb

from dpduck.kernel.ledger.secrets import Steps
from dpduck.store.attaching import not_opened
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import fold, quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

# The published parts of a store: its private views with their comments and metadata, and nothing else.


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
        raise not_opened(error, store.stem, "the store") or StoreError(
            "the store cannot be read: it is no DuckDB file; accepted: the file <name>_private.duckdb"
        ) from None
    return connection


def read_views(
    connection: duckdb.DuckDBPyConnection, *, with_ledger: bool, wanted: Sequence[str] = ()
) -> tuple[PublishedView, ...]:
    """Returns the private views of the attached store, by name. wanted: the names of views, empty for all views."""
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
    """Writes SQL that reads a rational from a text as a DOUBLE."""
    divisor = f"coalesce(nullif(split_part({column}, '/', 2), ''), '1')"
    return f"CAST(split_part({column}, '/', 1) AS DOUBLE) / CAST({divisor} AS DOUBLE)"


LONGEST_NAME = 63
"""Most bytes of a name. PostgreSQL cuts longer names off."""
_ONE_AT_A_TIME = 7_236_511_904  # an arbitrary number for an advisory lock
_WITHDRAWN = "withdrawn: no longer among the published private views"
_ABOUT_METADATA = "what dpduck published: each private view with its statement, strategy and price"


def is_postgres(target: str) -> bool:
    """Tells whether a target is a PostgreSQL URI."""
    return target.startswith(("postgresql://", "postgres://"))


def shown_target(target: str) -> str:
    """Returns the target without user name, password and parameters, for messages."""
    parts = urlsplit(target)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def to_postgres(
    connection: duckdb.DuckDBPyConnection,
    views: Sequence[PublishedView],
    metadata: str,
    target: str,
    schema: str,
    steps: Steps,
) -> None:
    """Publishes views of the attached store to a schema of PostgreSQL: all of them, or nothing."""
    load_extension(connection, "postgres_scanner", "pip install '.[postgres]' in dpduck's folder")
    try:
        connection.execute(f"ATTACH {quote_text(target)} AS target (TYPE postgres)")
    except duckdb.Error as error:
        raise StoreError(f"{_why(error, target)}; accepted: postgresql://user@host:port/database") from None
    try:
        connection.execute("BEGIN")
        _Publication(connection, schema).publish(views, metadata)
        steps("written")
        connection.execute("COMMIT")
    except duckdb.Error as error:
        raise StoreError(f"{_why(error, target)}; nothing was published") from None


def _why(error: duckdb.Error, target: str) -> str:
    """Returns PostgreSQL's reason in one line. DuckDB quotes the whole URI with its password, which is left out."""
    text = str(error).replace(target, shown_target(target))
    reasons = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next((line for line in reasons if "ERROR:" in line or "FATAL:" in line), reasons[0] if reasons else "")
    for mark in ("ERROR:", "FATAL:", '": '):
        reason = reason.rpartition(mark)[2].strip()
    password = urlsplit(target).password
    if password and password in reason:
        reason = "the connection failed"
    return f"PostgreSQL at {shown_target(target)}: {reason}"


class _Publication:
    """A publication to one schema of the attached database, in one transaction."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def publish(self, views: Sequence[PublishedView], metadata: str) -> None:
        self._rows(f"SELECT pg_advisory_xact_lock({_ONE_AT_A_TIME})")
        self._make_schema()
        present = self._present()
        earlier = self._earlier(present)
        described = self._connection.execute(f"DESCRIBE {metadata}").fetchall()
        facts = tuple(postgres_column(name, type_name) for name, type_name, *_ in described)
        tables = {
            view.name: tuple(postgres_column(column.name, column.type_name) for column in view.columns)
            for view in views
        }
        for name, columns in tables.items():
            _require_names([name, *(column.name for column in columns)])
            if name in present and name not in earlier:
                raise Refusal(
                    f"PostgreSQL has a {name!r} that was not published from here", accepted="another --schema"
                )
        for name, columns in {**tables, METADATA: facts}.items():
            self._make_empty(name, columns, present.get(name))
        self._connection.execute("CALL pg_clear_cache()")
        for name, columns in tables.items():
            self._insert(name, columns, f"store.main.{quote_identifier(name)}")
        self._insert(METADATA, facts, f"({metadata})")
        for view in views:
            self._comment(view)
        self._execute(f"COMMENT ON TABLE {self._place(METADATA)} IS {quote_text(_ABOUT_METADATA)}")
        for name in earlier.intersection(present).difference(tables):
            self._execute(f"DELETE FROM {self._place(name)}")
            self._execute(f"COMMENT ON TABLE {self._place(name)} IS {quote_text(_WITHDRAWN)}")

    def _make_schema(self) -> None:
        if not self._rows(f"SELECT 1 FROM pg_namespace WHERE nspname = {quote_text(self._schema)}"):
            self._execute(f"CREATE SCHEMA {quote_identifier(self._schema)}")

    def _present(self) -> dict[str, tuple[PostgresColumn, ...]]:
        """Returns every relation of the schema with its columns. A view, or another relation, gets no columns."""
        rows = self._rows(
            "SELECT c.relname::text, CASE WHEN c.relkind = 'r' THEN a.attname::text END, "
            "format_type(a.atttypid, a.atttypmod) "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_attribute a "
            "ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
            f"WHERE n.nspname = {quote_text(self._schema)} AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY a.attnum"
        )
        relations: dict[str, tuple[PostgresColumn, ...]] = {}
        for name, column, type_name in rows:
            columns = relations.setdefault(name, ())
            if column is not None:
                relations[name] = (*columns, PostgresColumn(column, type_name, None))
        return relations

    def _earlier(self, present: dict[str, tuple[PostgresColumn, ...]]) -> frozenset[str]:
        """Returns the tables of earlier publications: the tables in the metadata, and tables withdrawn since."""
        if METADATA not in present:
            return frozenset()
        named = self._rows(f"SELECT name FROM {self._place(METADATA)}")
        withdrawn = self._rows(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {quote_text(self._schema)} AND obj_description(c.oid) = {quote_text(_WITHDRAWN)}"
        )
        return frozenset(str(row[0]) for row in (*named, *withdrawn))

    def _make_empty(
        self, name: str, columns: tuple[PostgresColumn, ...], present: tuple[PostgresColumn, ...] | None
    ) -> None:
        if present is None:
            listed = ", ".join(f"{quote_identifier(column.name)} {column.type_name}" for column in columns)
            self._execute(f"CREATE TABLE {self._place(name)} ({listed})")
        elif [column.stored for column in present] == [column.stored for column in columns]:
            self._execute(f"DELETE FROM {self._place(name)}")
        else:
            raise Refusal(
                f"PostgreSQL has a table {name!r} with other columns", accepted="dropping it there, or another --schema"
            )

    def _insert(self, name: str, columns: tuple[PostgresColumn, ...], source: str) -> None:
        place = f"target.{quote_identifier(self._schema)}.{quote_identifier(name)}"
        selected = ", ".join(column.select_sql for column in columns)
        self._connection.execute(f"INSERT INTO {place} SELECT {selected} FROM {source} AS released")

    def _comment(self, view: PublishedView) -> None:
        place = self._place(view.name)
        self._execute(f"COMMENT ON TABLE {place} IS {quote_text(view.comment)}")
        for column in view.columns:
            text = quote_text(column.comment)
            self._execute(f"COMMENT ON COLUMN {place}.{quote_identifier(column.name)} IS {text}")

    def _place(self, name: str) -> str:
        return f"{quote_identifier(self._schema)}.{quote_identifier(name)}"

    def _execute(self, sql: str) -> None:
        self._connection.execute(f"CALL postgres_execute('target', {quote_text(sql)})")

    def _rows(self, sql: str) -> list[tuple[str, ...]]:
        return self._connection.execute(f"SELECT * FROM postgres_query('target', {quote_text(sql)})").fetchall()


def _require_names(names: Sequence[str]) -> None:
    for name in names:
        if len(name.encode()) > LONGEST_NAME:
            raise Refusal(f"the name {name!r} is too long for PostgreSQL", accepted=f"at most {LONGEST_NAME} bytes")


# PostgreSQL's types for DuckDB's types. Every type has one, and nested values become jsonb.

_SAME = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "UTINYINT": "smallint",
    "SMALLINT": "smallint",
    "USMALLINT": "integer",
    "INTEGER": "integer",
    "UINTEGER": "bigint",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "JSON": "jsonb",
    "BLOB": "bytea",
    "DATE": "date",
    "TIME": "time without time zone",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
    "INTERVAL": "interval",
    "UUID": "uuid",
}
_CAST = {
    "UBIGINT": ("numeric(20,0)", "DECIMAL(20,0)"),
    "HUGEINT": ("numeric(38,0)", "DECIMAL(38,0)"),  # the type of sums: without a cast it would arrive as a double
    "TIMESTAMP_S": ("timestamp without time zone", "TIMESTAMP"),
    "TIMESTAMP_MS": ("timestamp without time zone", "TIMESTAMP"),
    "TIMESTAMP_NS": ("timestamp without time zone", "TIMESTAMP"),
}


@dataclass(frozen=True)
class PostgresColumn:
    """A column in PostgreSQL. cast: the type that DuckDB casts values to before it sends them. None for no cast."""

    name: str
    type_name: str
    cast: str | None

    @property
    def stored(self) -> tuple[str, str]:
        """Returns the name and the type of the column in PostgreSQL."""
        return self.name, self.type_name

    @property
    def select_sql(self) -> str:
        """Writes SQL of the value to send, from a row with the name `released`."""
        value = f"released.{quote_identifier(self.name)}"
        if self.cast is None:
            return value
        return f"CAST(to_json({value}) AS VARCHAR)" if self.cast == "JSON" else f"CAST({value} AS {self.cast})"


def postgres_column(name: str, type_name: str) -> PostgresColumn:
    """Returns the column for a DuckDB type. ENUM, and types that PostgreSQL lacks, become text.

    >>> postgres_column("n", "UBIGINT").select_sql
    'CAST(released."n" AS DECIMAL(20,0))'
    """
    if type_name in _SAME:
        return PostgresColumn(name, _SAME[type_name], None)
    if type_name in _CAST:
        return PostgresColumn(name, *_CAST[type_name])
    kind = sql_type(type_name)
    if kind.has_parts:
        return PostgresColumn(name, "jsonb", "JSON")
    if kind.is_decimal:
        return PostgresColumn(name, f"numeric({kind.digits},{kind.scale})", None)
    return PostgresColumn(name, "text", "VARCHAR")


# DuckDB extensions that are installed as Python packages: nothing is downloaded at run time.


def extension_file(name: str, accepted: str) -> Path:
    """Returns the extension's file in the package duckdb-extension-<name>. accepted: how to install it."""
    spec = find_spec(f"duckdb_extension_{name}")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    for place in places:
        file = Path(place) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        if file.is_file():
            return file
    raise Refusal(f"DuckDB {duckdb.__version__} has no extension {name} here", accepted=accepted)


def load_extension(connection: duckdb.DuckDBPyConnection, name: str, accepted: str) -> None:
    """Loads the extension of the package duckdb-extension-<name>."""
    connection.execute(f"LOAD {quote_text(str(extension_file(name, accepted)))}")
