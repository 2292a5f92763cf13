"""Batches of rows stay below the 2 GiB of one column in Arrow, however long a unit, a key or a text is.

A longer batch ends the statement after its charge, which reveals the person with the long rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dpduck
from dpduck.kernel.rows import reader
from dpduck.kernel.worker.program import BATCH_TEXTS, LONGEST_TEXT, longest_read

LONG = LONGEST_TEXT + 1
ARROW = 2**31 - 1
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Records, of everything that is read in batches, the rows asked for at a time, and the longest text or bytes."""
    seen: list[tuple[int, int]] = []
    plain = reader.batches

    def noted(
        cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object], rows: int
    ) -> Iterator[pa.Table]:
        for table in plain(cursor, sql, parameters, rows):
            for column in table.columns:
                if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                    seen.append((rows, pc.max(pc.binary_length(column)).as_py() or 0))
            yield table

    monkeypatch.setattr(reader, "batches", noted)
    return seen


def asked(unit: str, statement: str, looked_up: bool = False, kind: str = "VARCHAR") -> None:
    """Asks a statement over rows, one of which has a long unit, or a long kind."""
    with duckdb.connect() as connection:
        person = "INTEGER" if looked_up else unit
        connection.execute(f"CREATE TABLE people (id INTEGER PRIMARY KEY, name {unit})")
        connection.execute("INSERT INTO people VALUES (1, 'a'), (2, 'b')")
        connection.execute(f"INSERT INTO people VALUES (3, CAST(repeat('x', {LONG}) AS {unit}))")
        connection.execute(f"CREATE TABLE visits (person {person}, age INTEGER, kind {kind})")
        column = "id" if looked_up else "name"
        connection.execute(f"INSERT INTO visits SELECT {column}, 40 + id, repeat('y', 10 * id) FROM people")
        connection.execute(f"INSERT INTO visits SELECT {column}, 40, repeat('y', {LONG}) FROM people WHERE id = 1")
        dpduck.load(connection)
        policy = "PRIVACY UNIT {} MAX ROWS 2"
        budget = "BUDGET (epsilon = 9, delta = 1e-6, delta_keys = 5e-7)"
        if looked_up:
            connection.execute(f"FROM dp('CREATE PRIVACY POLICY ON people ({policy.format('name')}, {budget})')")
        own = policy.format("person REFERENCES people.id" if looked_up else "person")
        connection.execute(f"FROM dp('CREATE PRIVACY POLICY ON visits ({own}{'' if looked_up else f', {budget}'})')")
        connection.execute(f"FROM dp($${statement}$$)").fetchall()


@pytest.mark.parametrize(
    ("unit", "looked_up"), [("VARCHAR", False), ("BLOB", False), ("VARCHAR", True), ("BLOB", True)]
)
def test_long_units_stay_below_the_limit(unit: str, looked_up: bool, read: list[tuple[int, int]]) -> None:
    asked(unit, f"{COUNT} WHERE age * 2 > 20", looked_up)
    assert read and all(rows * longest <= ARROW for rows, longest in read)
    assert {rows for rows, _ in read} == {reader.VECTOR} and max(longest for _, longest in read) <= LONGEST_TEXT


@pytest.mark.parametrize("condition", ["", "WHERE age * 2 > 20"])
@pytest.mark.parametrize("key", ["kind", "lower(kind)"])
def test_long_keys_stay_below_the_limit(key: str, condition: str, read: list[tuple[int, int]]) -> None:
    statement = COUNT.replace(
        "epsilon = 1", "epsilon = 1, delta = 1e-7, group_selection_strategy = GAUSSIAN_THRESHOLD"
    ).replace("count(*)", f"{key} AS k, count(*)")
    asked("VARCHAR", f"{statement} {condition} GROUP BY k")
    assert (
        read and {rows for rows, _ in read} == {reader.VECTOR} and max(longest for _, longest in read) <= LONGEST_TEXT
    )


def test_long_texts_of_expressions_stay_below_the_limit(read: list[tuple[int, int]]) -> None:
    asked("VARCHAR", f"{COUNT} WHERE length(kind) > 20")
    assert {rows for rows, _ in read} == {reader.VECTOR} and max(longest for _, longest in read) <= LONGEST_TEXT


def test_long_texts_are_read_few_at_a_time() -> None:
    """Batches grow up to 64 MiB, and no row is lost. With short texts they have as many rows as before."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        long = "SELECT i, CAST(i AS VARCHAR) || repeat('x', 30000) AS t FROM range(12000) AS r(i)"
        tables = list(reader.text_batches(connection, long, {}, BATCH_TEXTS))
        assert tables[0].num_rows == 0 and tables[0].column_names == ["i", "t"]
        assert max(table.nbytes for table in tables) < reader.MOST_BYTES + reader.VECTOR * 31000
        assert [i for table in tables for i in table.column("i").to_pylist()] == list(range(12000))
        short = list(
            reader.text_batches(connection, "SELECT CAST(i AS VARCHAR) FROM range(100000) AS r(i)", {}, BATCH_TEXTS)
        )
        assert [table.num_rows for table in short] == [0, 30720, 30720, 30720, 7840]
        assert all(column.num_chunks == 1 for table in short[1:] for column in table.columns)


COPIES = " ".join(f"JOIN copies AS c{number} ON p.id % 1 = c{number}.k" for number in range(4))
NOTES = range(12)
READ = (
    " ".join(f"JOIN people AS p{number} ON p.id = p{number}.id" for number in NOTES)
    + f" {COPIES} WHERE {' + '.join(f'length(p{number}.note)' for number in NOTES)} > 0"
)
SELECTED = "epsilon = 1, delta = 1e-7, group_selection_strategy = GAUSSIAN_THRESHOLD"


@pytest.mark.parametrize(
    ("asked_of", "options", "most"),
    [
        (f"count(*) AS n FROM people AS p {READ}", "epsilon = 1", longest_read(12, 625)),
        (f"p.note AS s, count(*) AS n FROM people AS p {COPIES} GROUP BY s", SELECTED, longest_read(1, 625)),
        (f"lower(p.note) AS s, count(*) AS n FROM people AS p {COPIES} GROUP BY s", SELECTED, longest_read(1, 625)),
    ],
    ids=["in many columns", "as a stored key", "as a key that is made"],
)  # fmt: skip
def test_texts_of_a_row_are_bounded_together(
    asked_of: str, options: str, most: int, read: list[tuple[int, int]]
) -> None:
    """One text in 12 columns, or as a key of 625 copies, filled the memory: the failure revealed the text.

    All texts of a row together have 65,535 bytes at most, and those of all its copies sixteen times that.
    """
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, note VARCHAR)")
        connection.execute(f"INSERT INTO people VALUES (1, 'a'), (2, repeat('b', {LONGEST_TEXT}))")
        connection.execute("CREATE TABLE copies AS SELECT 0 AS k FROM range(5)")
        dpduck.load(connection)
        budget = "BUDGET (epsilon = 99, delta = 1e-5, delta_keys = 5e-6)"
        connection.execute("FROM dp('DECLARE PUBLIC TABLE copies')")
        connection.execute(f"FROM dp('CREATE PRIVACY POLICY ON people (PRIVACY UNIT id MAX ROWS 1, {budget})')")
        statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) {asked_of}"
        connection.execute("FROM dp(?)", [statement]).fetchall()
    assert 0 < max(longest for _, longest in read) <= most
    assert most <= 1677 and [longest_read(*many) for many in ((1, 1), (1, 16), (2, 1))] == [65535, 65535, 32767]
