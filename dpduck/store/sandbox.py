"""Empty DuckDB for questions about types and public values. It never holds a private row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from types import MappingProxyType
from typing import TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from dpduck.language.rows.facts import CatalogColumn, Image, ImageInput
from dpduck.language.text.names import TableName
from dpduck.store.cursors import KeptSandbox, SandboxAnswers
from dpduck.store.parse_tree import check_tree
from dpduck.values.errors import DpduckError, Refusal
from dpduck.values.quoting import quote_identifier, quote_text, written_values
from dpduck.values.sqltypes import sql_type

Tables = Mapping[TableName, Sequence[CatalogColumn]]
Fact = TypeVar("Fact")
NO_TABLES: Tables = MappingProxyType({})

MOST_LABELS = 4096
"""Most labels of a cached answer. With more labels, the question is asked again each time."""

_OWN_DATABASES = ("memory", "system", "temp")
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
}
_CLEANUP_SQL = r"""
FROM (SELECT 'DETACH ' AS word, database_name AS name FROM duckdb_databases() WHERE database_name <> 'memory'
        AND NOT internal
    UNION ALL SELECT 'DROP SCHEMA ', schema_name FROM duckdb_schemas() WHERE database_name = 'memory' AND NOT internal
    UNION ALL SELECT 'DROP TABLE ', table_name FROM duckdb_tables() WHERE database_name = 'memory'
        AND schema_name = 'main')
SELECT word || '"' || replace(name, '"', '""') || '"' || if(word = 'DROP SCHEMA ', ' CASCADE', '')"""
"""SQL that lists the statements that empty a sandbox: they remove databases, schemas and tables of copies."""


Fill = Callable[[duckdb.DuckDBPyConnection, TableName, Sequence[CatalogColumn]], None]
"""Adds made-up rows to a copy of a table."""


class Sandbox:
    """In-memory DuckDB that can reach nothing outside itself, for all questions of one statement.

    The first question without a cached answer opens it. Copies of tables stay, each with one row of NULLs. Everything
    else that a question creates or sets ends with its cursor. The next statement may get the sandbox, with the copies
    of its own tables. fill: adds rows to each copy.
    """

    def __init__(self, answered: SandboxAnswers | None = None, fill: Fill | None = None) -> None:
        self._answered = answered or SandboxAnswers()
        self._fill = fill
        self._root: duckdb.DuckDBPyConnection | None = None
        self._copies: dict[TableName, tuple[CatalogColumn, ...]] = {}

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        root, self._root = self._root, None
        if root is not None:
            if kind is None and self._copies:
                self._answered.keep(KeptSandbox(root, self._describe_copies(self._copies)))
            elif (kind is None or issubclass(kind, DpduckError)) and _is_emptied(root):
                self._answered.keep(KeptSandbox(root, frozenset()))
            else:
                root.close()
        self._copies = {}

    def _describe_copies(self, tables: Tables) -> frozenset[Hashable]:
        return frozenset((table, tuple(columns), self._fill) for table, columns in tables.items())

    @contextmanager
    def cursor(self, tables: Tables = NO_TABLES) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yields a connection with copies of the tables. Its temporary objects and settings end with it."""
        if self._root is None:
            self._root = self._open(tables)
        with self._root.cursor() as cursor:
            self._copy(cursor, tables)
            yield cursor

    def _open(self, tables: Tables) -> duckdb.DuckDBPyConnection:
        """Returns an idle sandbox, or a new one. It has no copies of tables that are not listed."""
        wanted = self._describe_copies(tables)
        idle = self._answered.lend(wanted)
        if idle is not None and idle.copies <= wanted:
            self._copies = {
                table: tuple(columns)
                for table, columns in tables.items()
                if self._describe_copies({table: columns}) <= idle.copies
            }
            return idle.root
        if idle is not None:
            if _is_emptied(idle.root):
                return idle.root
            idle.root.close()
        return duckdb.connect(":memory:", config=_CLOSED)

    def answer(
        self,
        question: Hashable,
        ask: Callable[[duckdb.DuckDBPyConnection], Fact],
        tables: Tables = NO_TABLES,
        labels: int = 0,
    ) -> Fact:
        """Returns the answer to a question. The question names everything that its answer depends on.

        tables, labels: the question's tables and number of labels. Answers about more than MOST_LABELS are not cached.
        """
        cached: Fact | None = self._answered.get(question) if labels <= MOST_LABELS else None
        if cached is not None:
            return cached
        with self.cursor(tables) as connection:
            fact = ask(connection)
        if labels <= MOST_LABELS:
            self._answered.save(question, fact)
        return fact

    def bind(self, select_sql: str, tables: Tables) -> tuple[CatalogColumn, ...]:
        """Returns the columns of a SELECT over copies of the tables. Refuses SQL with an error of DuckDB."""
        return self.answer(("bind", select_sql, _shapes(tables)), partial(_bound, select_sql=select_sql), tables)

    def bind_rows(self, row_sql: str, once_sql: str, tables: Tables) -> None:
        """Checks SQL over rows by its parse tree and its types, and runs once_sql over one row of NULLs."""
        ask = partial(_bind_rows, row_sql=row_sql, once_sql=once_sql)
        self.answer(("bind_rows", row_sql, once_sql, _shapes(tables)), ask, tables)

    def image(self, expression_sql: str, columns: Sequence[ImageInput]) -> Image:
        """Evaluates an expression for each combination of public labels. Returns the values as labels, with codes."""
        ask = partial(_image, expression_sql=expression_sql, columns=columns)
        labels = prod(len(column.labels) for column in columns)
        return self.answer(("image", expression_sql, tuple(columns)), ask, labels=labels)

    def _copy(self, connection: duckdb.DuckDBPyConnection, tables: Tables) -> None:
        for table, columns in tables.items():
            if self._copies.get(table) == tuple(columns):
                continue
            if self._copies.pop(table, None) is not None:
                connection.execute(f"DROP TABLE {table.sql}")
            _create_copy(connection, table, columns)
            connection.execute(f"INSERT INTO {table.sql} DEFAULT VALUES")
            if self._fill is not None:
                self._fill(connection, table, columns)
            self._copies[table] = tuple(columns)


def _is_emptied(root: duckdb.DuckDBPyConnection) -> bool:
    """Removes all copies, and the settings of a rehearsal. Returns whether this succeeded."""
    try:
        with root.cursor() as cursor:
            for (sql,) in cursor.execute(_CLEANUP_SQL).fetchall():
                cursor.execute(sql)
            cursor.execute("RESET GLOBAL disabled_optimizers")
    except duckdb.Error:
        return False
    return True


def _shapes(tables: Tables) -> tuple[tuple[TableName, tuple[CatalogColumn, ...]], ...]:
    return tuple((table, tuple(columns)) for table, columns in tables.items())


@contextmanager
def sandbox() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yields a connection to a sandbox for one question."""
    with Sandbox() as box, box.cursor() as connection:
        yield connection


def _bound(connection: duckdb.DuckDBPyConnection, select_sql: str) -> tuple[CatalogColumn, ...]:
    try:
        if len(connection.extract_statements(select_sql)) != 1:
            raise Refusal("DuckDB reads more than one statement in this", accepted="one SELECT")
        rows = connection.execute(f"DESCRIBE {select_sql}").fetchall()
        connection.execute(f"SELECT * FROM ({select_sql}) LIMIT 0").fetchall()
    except duckdb.Error as error:
        raise _complaint(error) from None
    return tuple(CatalogColumn(row[0], row[1]) for row in rows)


def _bind_rows(connection: duckdb.DuckDBPyConnection, row_sql: str, once_sql: str) -> bool:
    try:
        marks, values = written_values([row_sql])
        tree = connection.execute(f"SELECT json_serialize_sql(CAST({marks} AS VARCHAR))", values).fetchone()
        check_tree(json.loads(tree[0]) if tree is not None else None)
        connection.execute(f"SELECT * FROM ({row_sql}) LIMIT 0").fetchall()
        connection.execute("PRAGMA disable_optimizer")  # it would fold always-NULL expressions, constants inside too
        connection.execute(once_sql).fetchall()
    except duckdb.Error as error:
        raise _complaint(error) from None
    return True


def _complaint(error: duckdb.Error) -> Refusal:
    return Refusal(f"DuckDB does not accept this: {_message(error)}", accepted="DuckDB's SQL")


def _message(error: duckdb.Error) -> str:
    """Returns DuckDB's message without the kind of error, and without internal aliases of tables."""
    message = re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", first_line(error))
    return re.sub(r'"?\b[rp]\d+"?\.', "", message)


def _create_copy(connection: duckdb.DuckDBPyConnection, table: TableName, columns: Sequence[CatalogColumn]) -> None:
    """Creates a table with the same columns, except columns of types that a plain DuckDB does not know."""
    database, schema, _ = table.parts
    if database.lower() not in _OWN_DATABASES:
        attached = connection.execute("SELECT 1 FROM duckdb_databases() WHERE database_name = ?", [database]).fetchone()
        if attached is None:
            connection.execute(f"ATTACH ':memory:' AS {quote_identifier(database)}")
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(database)}.{quote_identifier(schema)}")
    try:
        _create(connection, table, columns)
    except duckdb.Error:
        _create(connection, table, [column for column in columns if _is_known(connection, column.type_name)])


def _create(connection: duckdb.DuckDBPyConnection, table: TableName, columns: Sequence[CatalogColumn]) -> None:
    listed = ", ".join(f"{quote_identifier(column.name)} {column.type_name}" for column in columns)
    connection.execute(f"CREATE TABLE {table.sql} ({listed})")


def _is_known(connection: duckdb.DuckDBPyConnection, type_name: str) -> bool:
    try:
        connection.execute(f"SELECT CAST(NULL AS {type_name})")
    except duckdb.Error:
        return False
    return True


def _image(connection: duckdb.DuckDBPyConnection, expression_sql: str, columns: Sequence[ImageInput]) -> Image:
    for number, column in enumerate(columns):
        labels = pa.table({"code": pa.array(range(len(column.labels))), "label": pa.array(column.labels, pa.string())})
        connection.register(f"labels_{number}", labels)
    order = ", ".join(f"dpduck_code_{number}" for number in range(len(columns)))
    try:
        sql = f"SELECT {expression_sql} AS value, row_number() OVER (ORDER BY {order}) AS place"
        sql = f"{sql} FROM {_from_sql(columns)}"
        type_name = str(connection.execute(f"DESCRIBE {sql}").fetchall()[0][1])
        _require_plain(type_name)
        connection.execute(f"CREATE TEMP TABLE image AS {sql}")
        _require_text_form(connection, type_name)
        labels_sql = "SELECT max(CAST(value AS VARCHAR)) FROM image GROUP BY value ORDER BY value NULLS LAST"
        codes_sql = "SELECT dense_rank() OVER (ORDER BY value NULLS LAST) - 1 FROM image ORDER BY place"
        texts = tuple(row[0] for row in connection.execute(labels_sql).fetchall())
        codes = tuple(row[0] for row in connection.execute(codes_sql).fetchall())
    except duckdb.Error as error:
        raise Refusal(
            f"the expression fails on the public domain: {_message(error)}",
            accepted="an expression that every declared value can go through",
        ) from None
    return Image(type_name, texts, codes)


def _require_plain(type_name: str) -> None:
    if sql_type(type_name).has_parts or sql_type(type_name).is_enum:
        raise Refusal("a group of lists, structs or rows is refused", accepted="its parts one by one in GROUP BY")


def _require_text_form(connection: duckdb.DuckDBPyConnection, type_name: str) -> None:
    """Refuses values that change by a cast to text and back, since labels are stored as texts."""
    changed = connection.execute(
        f"SELECT count(*) FROM image WHERE TRY_CAST(CAST(value AS VARCHAR) AS {type_name}) IS DISTINCT FROM value"
    ).fetchone()
    if changed is None or changed[0] > 0:
        raise Refusal(
            f"a group of type {type_name} cannot be released", accepted="numbers, texts, BOOLEAN, dates and times"
        )


def _from_sql(columns: Sequence[ImageInput]) -> str:
    parts = []
    for alias in dict.fromkeys(column.alias for column in columns):
        inner = ", ".join(
            f"(SELECT code AS dpduck_code_{number}, CAST(label AS {column.type_name}) AS "
            f"{quote_identifier(column.name)} FROM labels_{number})"
            for number, column in enumerate(columns)
            if column.alias == alias
        )
        parts.append(f"(SELECT * FROM {inner}) AS {quote_identifier(alias)}")
    return ", ".join(parts)


EXAMPLES = {"DATE": ", as in 2026-12-31", "TIMESTAMP": ", as in '2026-12-31 23:00:00'"}


def cast_texts(texts: Sequence[str], type_name: str) -> tuple[str, ...]:
    """Returns literals as a type's canonical texts. Refuses a literal that cannot be cast to the type."""
    with sandbox() as connection:
        connection.register("texts", pa.table({"place": np.arange(len(texts)), "value": pa.array(texts, pa.string())}))
        try:
            rows = connection.execute(
                f"SELECT CAST(CAST(value AS {type_name}) AS VARCHAR) FROM texts ORDER BY place"
            ).fetchall()
        except duckdb.Error:
            raise Refusal(
                f"{_not_of(connection, type_name)} is not of type {type_name}",
                accepted=f"values of the column's type {type_name}{EXAMPLES.get(type_name, '')}",
            ) from None
    return tuple(row[0] for row in rows)


def _not_of(connection: duckdb.DuckDBPyConnection, type_name: str) -> str:
    try:
        row = connection.execute(
            f"SELECT value FROM texts WHERE TRY_CAST(value AS {type_name}) IS NULL ORDER BY place LIMIT 1"
        ).fetchone()
    except duckdb.Error:
        row = None
    return "a value" if row is None else quote_text(str(row[0])[:60])


def first_line(error: BaseException) -> str:
    """Returns DuckDB's message without the lines that point into the SQL."""
    return str(error).strip().split("\n", 1)[0][:300]
