"""How often a join meets a public row: once by a key that DuckDB enforces, else as often as rows are counted."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpduck
from dpduck.language.text.names import TableName
from dpduck.store.catalog import Catalog
from dpduck.store.policies import PolicyStore

TABLES = {
    "keyed": "(id INTEGER PRIMARY KEY, name VARCHAR UNIQUE)",
    "pairs": "(a INTEGER, b DATE, PRIMARY KEY (a, b))",
    "sparse": "(id BIGINT UNIQUE)",
    "spelled": "(name VARCHAR COLLATE NOCASE PRIMARY KEY, id INTEGER UNIQUE)",
    "measured": "(length DOUBLE UNIQUE)",
    "loose": "(id INTEGER)",
}


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Public tables with and without keys."""
    with dpduck.connect() as connection:
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {name} {columns}")
            connection.execute("FROM dp(?)", [f"DECLARE PUBLIC TABLE {name}"])
        connection.execute("INSERT INTO keyed VALUES (1, 'a'), (2, 'b')")
        connection.execute("INSERT INTO pairs VALUES (1, '2024-01-01'), (1, '2024-01-02'), (1, '2024-01-03')")
        connection.execute("INSERT INTO sparse VALUES (NULL), (NULL), (3)")
        connection.execute("INSERT INTO spelled VALUES ('a', 1), ('b', 2)")
        connection.execute("INSERT INTO measured VALUES (0.0), (1.0)")
        connection.execute("INSERT INTO loose VALUES (1), (1)")
        yield connection


def found(connection: duckdb.DuckDBPyConnection, table: str, columns: list[str]) -> tuple[int, bool]:
    """Returns the multiplicity, and whether rows were counted for it."""
    with connection.cursor() as cursor:
        catalog = Catalog(cursor, PolicyStore(connection.cursor, "private", dict))
        asked: list[str] = []
        row = catalog._row
        catalog._row = lambda sql: asked.append(sql) or row(sql)  # type: ignore[method-assign, func-returns-value]
        number = catalog.multiplicity(TableName(("memory", "main", table)), columns)
    return number, any("repeated" in sql for sql in asked)


@pytest.mark.parametrize(
    ("table", "columns", "number", "counted"),
    [
        ("keyed", ["id"], 1, False),
        ("keyed", ["ID", "name"], 1, False),
        ("sparse", ["id"], 1, False),
        ("pairs", ["a", "b"], 1, False),
        ("pairs", ["a"], 3, True),
        ("keyed", ["name"], 1, True),  # collations may call two texts equal
        ("spelled", ["id"], 1, True),
        ("measured", ["length"], 1, True),  # 0 and -0 are equal, but stored as two values
        ("loose", ["id"], 2, True),
    ],
)
def test_keys_answer_for_themselves(
    connection: duckdb.DuckDBPyConnection, table: str, columns: list[str], number: int, counted: bool
) -> None:
    """Rows are counted unless a joined column is a key of a type in which equal values are stored alike."""
    assert found(connection, table, columns) == (number, counted)


def test_keys_of_other_systems_are_not_relied_on(connection: duckdb.DuckDBPyConnection) -> None:
    """PostgreSQL's keys do not cover the rows of tables that inherit, which a SELECT returns, so rows are counted."""
    with connection.cursor() as cursor:
        catalog = Catalog(cursor, PolicyStore(connection.cursor, "private", dict))
        table = TableName(("memory", "main", "keyed"))
        assert catalog.unique_keys(table) == (("id",), ("name",))
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP MACRO duckdb_databases() AS TABLE SELECT 'memory' AS database_name, 'postgres' AS type, "
            "NULL AS path, 1 AS database_oid, false AS readonly, false AS internal"
        )
        catalog = Catalog(cursor, PolicyStore(connection.cursor, "private", dict))
        assert catalog.unique_keys(table) == ()
