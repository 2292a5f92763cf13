"""Rows that find their unit by references are filtered and narrowed before the unit is looked up."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpduck

POLICIES = (
    "people (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1))",
    "houses (PRIVACY UNIT person REFERENCES people.id MAX ROWS 4)",
    "calls (PRIVACY UNIT house REFERENCES houses.number MAX ROWS 4)",
)


QUESTION = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM calls WHERE minutes > 3"


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Calls from houses of people. A house is referred to by its number, or by a text."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE houses (number BIGINT PRIMARY KEY, tag VARCHAR UNIQUE, person INTEGER)")
        connection.execute("INSERT INTO houses SELECT (1::BIGINT << 60) + i, 'Tt'[i + 1], i FROM range(2) AS r(i)")
        connection.execute("CREATE TABLE calls (house BIGINT, minutes INTEGER)")
        for policy in POLICIES:
            connection.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON {policy}"])
        yield connection


def refusal(connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    """Returns the line of a statement that must be refused and must have cost nothing."""
    with pytest.raises(duckdb.Error) as caught:
        connection.execute("FROM dp(?)", [statement]).fetchall()
    assert connection.execute("SELECT count(*) FROM dp_ledger() WHERE mechanism LIKE 'discrete%'").fetchone() == (0,)
    return str(caught.value)


@pytest.mark.parametrize("changed", ["DOUBLE", "VARCHAR"])
def test_a_reference_is_of_the_key_s_type(connection: duckdb.DuckDBPyConnection, changed: str) -> None:
    """A reference of another type is refused: as DOUBLE it equals many keys, and as VARCHAR it may not convert."""
    connection.execute(f"ALTER TABLE calls ALTER house TYPE {changed}")
    connection.execute("INSERT INTO calls VALUES (1::BIGINT << 60, 5)")
    line = refusal(connection, QUESTION)
    assert "memory.main.calls.house does not compare with memory.main.houses.number as keys do" in line
    assert "accepted: a reference of the key's type, in a table without COLLATE" in line


def test_units_compare_as_texts_do(connection: duckdb.DuckDBPyConnection) -> None:
    """Under a collation a reference equals every spelling of a key, and two units would be bounded as one."""
    line = "a COLLATION makes privacy units equal that are different texts; accepted: memory.main.notes without COLLATE"
    policy = "CREATE PRIVACY POLICY ON notes (PRIVACY UNIT tag {}MAX ROWS 4{})"
    connection.execute("CREATE TABLE notes (tag VARCHAR COLLATE NOCASE, minutes INTEGER)")
    connection.execute("INSERT INTO notes VALUES ('t', 5), ('T', 6)")
    budget = ", BUDGET (epsilon = 1)"
    assert line in refusal(connection, policy.format("REFERENCES houses.tag ", ""))
    assert line in refusal(connection, policy.format("", budget))
    connection.execute("CREATE OR REPLACE TABLE notes (tag VARCHAR, minutes INTEGER)")
    connection.execute("FROM dp(?)", [policy.format("", budget)])
    connection.execute("CREATE OR REPLACE TABLE notes (tag VARCHAR COLLATE NOCASE, minutes INTEGER)")
    assert line in refusal(connection, QUESTION.replace("calls", "notes"))
    connection.execute("CREATE OR REPLACE TABLE notes (tag VARCHAR, minutes INTEGER)")
    connection.execute("FROM dp('DROP PRIVACY POLICY ON notes')")
    connection.execute("FROM dp(?)", [policy.format("REFERENCES houses.tag ", "")])
    connection.execute("CREATE OR REPLACE TABLE notes (tag VARCHAR COLLATE NOCASE, minutes INTEGER)")
    reference = "memory.main.notes.tag does not compare with memory.main.houses.tag as keys do"
    assert reference in refusal(connection, QUESTION.replace("calls", "notes"))


def test_a_unit_is_looked_at_however_its_column_is_written(connection: duckdb.DuckDBPyConnection) -> None:
    """A recreated table with its unit's column in other capitals has the same unit, checked by its new type."""
    policy = "CREATE PRIVACY POLICY ON {} (PRIVACY UNIT Tag {}MAX ROWS 4{})"
    for name, end in (("notes", ("", ", BUDGET (epsilon = 1)")), ("marks", ("REFERENCES notes.Tag ", ""))):
        connection.execute(f"CREATE TABLE {name} (Tag VARCHAR, minutes INTEGER)")
        connection.execute("FROM dp(?)", [policy.format(name, *end)])
    connection.execute("CREATE OR REPLACE TABLE notes (tag VARCHAR COLLATE NOCASE, minutes INTEGER)")
    line = "a COLLATION makes privacy units equal that are different texts; accepted: memory.main.notes without COLLATE"
    assert line in refusal(connection, QUESTION.replace("calls", "notes"))
    connection.execute("CREATE OR REPLACE TABLE notes (tag BIGINT, minutes INTEGER)")
    connection.execute("CREATE OR REPLACE TABLE marks (tag DOUBLE, minutes INTEGER)")
    both = "FROM (SELECT minutes FROM notes UNION ALL SELECT minutes FROM marks)"
    assert "the privacy units of UNION ALL differ in type" in refusal(connection, QUESTION.replace("FROM calls", both))


def test_the_lookup_comes_last(connection: duckdb.DuckDBPyConnection) -> None:
    """dp_explain of a chain shows conditions inside, then the hidden join, then the bounding."""
    row = connection.execute("SELECT private_sql FROM dp_explain(?)", [QUESTION]).fetchone()
    assert row is not None
    rows, lookup = row[0].split(") AS dpduck_rows ")
    always = "(current_transaction_id() >= 0)"
    assert f""" WHERE (("r0"."minutes" > 3) IS NOT DISTINCT FROM {always})""" in rows and "houses" not in rows
    assert lookup.startswith(
        'JOIN "memory"."main"."houses" AS "r0_1" ON "dpduck_rows"."dpduck_reference" = "r0_1"."number" '
        'WHERE (("r0_1"."person" IS NOT NULL'
    )
    assert "PARTITION BY dpduck_unit" in lookup
