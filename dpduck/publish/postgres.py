"""Private views as tables of a PostgreSQL database, through DuckDB's postgres_scanner, in one transaction.

Rows of a published table are deleted and inserted anew, so that its grants and other people's views over it stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import duckdb

from dpduck.kernel.ledger.secrets import Steps
from dpduck.publish.extensions import load_extension
from dpduck.publish.postgres_types import PostgresColumn, postgres_column
from dpduck.publish.published_views import METADATA, PublishedView
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import quote_identifier, quote_text

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
    """Returns PostgreSQL's reason in one line, without the URI, which DuckDB quotes with its password."""
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
    def __init__(self, connection: duckdb.DuckDBPyConnection, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def publish(self, views: Sequence[PublishedView], metadata: str) -> None:
        self._rows(f"SELECT pg_advisory_xact_lock({_ONE_AT_A_TIME})")
        if not self._rows(f"SELECT 1 FROM pg_namespace WHERE nspname = {quote_text(self._schema)}"):
            self._execute(f"CREATE SCHEMA {quote_identifier(self._schema)}")
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

    def _present(self) -> dict[str, tuple[PostgresColumn, ...]]:
        """Returns every relation of the schema with its columns. A relation that is no table gets no columns."""
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
        elif [column.name_and_type for column in present] == [column.name_and_type for column in columns]:
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
