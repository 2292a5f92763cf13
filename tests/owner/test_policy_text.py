"""dp_policies() returns statements that make the same policies again, and keep earlier releases free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpduck
from dpduck.database.functions import database_of
from dpduck.language.rows.facts import Policy
from dpduck.language.text.names import TableName
from dpduck.owner.policy_text import name_text
from dpduck.store.policies import PolicyStore
from tests.support.clinics import Clinic, by

TABLES = """
CREATE TABLE people (id INTEGER PRIMARY KEY, "born on" DATE, sex VARCHAR);
CREATE TABLE orders (order_id INTEGER PRIMARY KEY, customer INTEGER, paid DECIMAL(9, 2), kind ENUM ('a', 'b'),
    "row" INTEGER, fast BOOLEAN, slow BOOLEAN, x DOUBLE, y FLOAT, seen TIMESTAMP, note VARCHAR,
    small TINYINT, u UUID);
CREATE TABLE lines (of_order INTEGER, price DOUBLE, item VARCHAR);
CREATE TABLE items AS FROM (VALUES ('pen'), ('it''s'), ('a -- b'), ('--'), ('\\n'), ('{"}')) AS i(item)
"""
POLICIES = (
    """CREATE PRIVACY POLICY ON people (PRIVACY UNIT id MAX ROWS 1,
    BUDGET (epsilon = 3.5, delta = 1e-6, delta_keys = 1e-7),
    DOMAIN "born on" RANGE 1900-01-01 TO 2030-01-01 STEP 5 YEARS WITH NULL WITH EDGES,
    DOMAIN sex IN ('F', 'M', '', 'N''Djamena') WITH NULL WITH OTHER 'else', EXPECT ROWS 1000, MAX EPSILON 0.5,
    MIN EPSILON 1e-30)""",
    """CREATE PRIVACY POLICY ON orders (PRIVACY UNIT customer REFERENCES people.id MAX ROWS 4,
    DOMAIN ALL BOOLEAN WITH NULL, DOMAIN kind ENUM, DOMAIN "row" IN (1, -2, 30),
    DOMAIN paid RANGE -1.5 TO 2 STEP 0.25, CLAMP paid BETWEEN 0 AND 10,
    DOMAIN x RANGE 0 TO 1 STEP 0.1, DOMAIN y RANGE -0.3 TO 0.9 STEP 0.3 WITH EDGES, DOMAIN small IN (1),
    DOMAIN seen RANGE '2024-01-01' TO '2024-01-02' STEP 6 HOURS, CLAMP x BETWEEN -1e3 AND 1e3)""",
    """CREATE PRIVACY POLICY ON lines (PRIVACY UNIT of_order REFERENCES orders.order_id MAX ROWS 12,
    DOMAIN item FROM items.item WITH OTHER, CLAMP price BETWEEN 0 AND 100 STEP 0.5)""",
)


ON_T = "CREATE PRIVACY POLICY ON t (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1),"


def shop(policies: list[str] | tuple[str, ...]) -> duckdb.DuckDBPyConnection:
    connection = dpduck.connect()
    connection.execute(TABLES)
    for statement in ("DECLARE PUBLIC TABLE items", *policies):
        connection.execute("FROM dp(?)", [statement]).fetchall()
    return connection


def store_of(connection: duckdb.DuckDBPyConnection) -> PolicyStore:
    database = database_of(connection)
    assert database is not None
    return database._policies


def policies_of(connection: duckdb.DuckDBPyConnection) -> list[Policy]:
    """Returns the policies in force, without their revisions."""
    return [replace(one, revision=0, epoch=0) for one in store_of(connection).policies()]


def printed(connection: duckdb.DuckDBPyConnection) -> list[str]:
    rows = connection.execute("SELECT ddl FROM dp_policies()").fetchall()
    return sorted((str(row[0]) for row in rows), key=lambda ddl: ("lines" in ddl, "orders" in ddl))


def test_what_is_printed_makes_the_same_policies() -> None:
    """Policies of every item, type and label are made again by their text, and print the same text."""
    with shop(POLICIES) as first:
        texts, made = printed(first), policies_of(first)
    with shop(texts) as second:
        assert policies_of(second) == made
        assert printed(second) == texts


def test_the_same_policy_again_keeps_answers_free(clinic: Clinic) -> None:
    """CREATE OR REPLACE with the printed text is no new revision, since the digests of releases stay."""
    answer = clinic.dp(by("sex"))
    charges, ddl = clinic.charges(), clinic.value("SELECT ddl FROM dp_policies()")
    clinic.dp(ddl.replace("CREATE", "CREATE OR REPLACE", 1))
    assert clinic.value("SELECT revision FROM dp_policies()") == 1
    assert clinic.dp(by("sex")) == answer and clinic.charges() == charges


@pytest.fixture(scope="module")
def any_table() -> Iterator[duckdb.DuckDBPyConnection]:
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE t (id INTEGER, s VARCHAR, d DOUBLE, f FLOAT, i BIGINT, c DECIMAL(12, 4))")
        yield connection


numbers = st.decimals(-(10**6), 10**6, places=3).map(lambda value: format(value, "f"))
CHARACTERS = st.characters(exclude_categories=["C", "Z"]) | st.sampled_from("'-$ \"/*\\")
LABELS = st.lists(st.text(CHARACTERS, max_size=6), unique=True, min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=20)
@given(data=st.data())
def test_any_policy_comes_back(data: Any, any_table: duckdb.DuckDBPyConnection) -> None:
    """For any labels, bounds, steps and amounts the text makes the stored policy, or there is no text."""
    labels = ", ".join("'" + label.replace("'", "''") + "'" for label in data.draw(LABELS))
    low, step = data.draw(numbers), data.draw(st.decimals("0.001", 10, places=3).map(lambda value: format(value, "f")))
    high = f"{float(low) + float(step) * data.draw(st.integers(1, 40)):.3f}"
    column = data.draw(st.sampled_from("dfc"))
    epsilon = data.draw(st.decimals("0.000000000000001", 100, places=15).map(str))
    statement = (
        f"CREATE OR REPLACE PRIVACY POLICY ON t (PRIVACY UNIT id MAX ROWS {data.draw(st.integers(1, 10**6))}, "
        f"BUDGET (epsilon = {epsilon}), DOMAIN s IN ({labels}), DOMAIN {column} RANGE {low} TO {high} STEP {step})"
    )
    try:
        any_table.execute("FROM dp(?)", [statement]).fetchall()
    except duckdb.Error:
        return  # two labels or edges are one in this type
    (before,), (ddl,) = policies_of(any_table), printed(any_table)
    if ddl != "None":
        any_table.execute("FROM dp(?)", ["DROP PRIVACY POLICY ON t"]).fetchall()
        any_table.execute("FROM dp(?)", [ddl]).fetchall()
        assert policies_of(any_table) == [before]
    else:
        assert column in "df"


def test_names_are_quoted_where_they_must_be(any_table: duckdb.DuckDBPyConnection) -> None:
    """Words of the grammar, capitals and signs are quoted, so that the printed name is the column again."""
    connection = any_table
    for name in ("row", "all", "in", "max", "select", "of birth", 'a"b', "x", "Größe", "2024", "todo", "as"):
        connection.execute(f"CREATE OR REPLACE TABLE t ({TableName((name,)).sql} INTEGER, id INTEGER)")
        statement = f"{ON_T} DOMAIN {name_text(name)} IN (1))".replace("CREATE", "CREATE OR REPLACE")
        connection.execute("FROM dp(?)", [statement]).fetchall()
        assert [column for column, _ in policies_of(connection)[0].domains] == [name]


def test_what_no_statement_can_say_has_no_text() -> None:
    """A domain from a public table with more labels than a statement may have gives NULL, not half of a statement."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE codes AS SELECT 'code ' || i AS code FROM range(60000) AS r(i)")
        connection.execute("CREATE TABLE t AS SELECT 1 AS id, 'code 1' AS code")
        for statement in (
            "DECLARE PUBLIC TABLE codes",
            f"{ON_T} DOMAIN code FROM codes.code)",
        ):
            connection.execute("FROM dp(?)", [statement]).fetchall()
        assert connection.execute("SELECT ddl FROM dp_policies()").fetchall() == [(None,)]
