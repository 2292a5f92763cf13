"""Facts of tables are read from the store and from DuckDB's catalog, whatever a statement says."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpduck
from dpduck.kernel.facts import PolicyUnit, TableFacts, read_facts
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

TABLES = """
CREATE TABLE people (id INTEGER PRIMARY KEY, house INTEGER, "Ward" VARCHAR);
CREATE TABLE "Stays" ("no" INTEGER UNIQUE, person INTEGER, day DATE);
CREATE TABLE tests (stay INTEGER, code VARCHAR COLLATE NOCASE);
CREATE TABLE monthly (person INTEGER, day DATE);
CREATE TABLE answers (house INTEGER, wave INTEGER, UNIQUE (house, wave));
CREATE TABLE wards (ward VARCHAR PRIMARY KEY);
CREATE TABLE other (id INTEGER);
"""
POLICIES = (
    "CREATE PRIVACY POLICY ON people (PRIVACY UNIT house MAX ROWS 1, BUDGET (epsilon = 1))",
    'CREATE PRIVACY POLICY ON "Stays" (PRIVACY UNIT person REFERENCES people.id MAX ROWS 3, BUDGET (epsilon = 1))',
    'CREATE PRIVACY POLICY ON tests (PRIVACY UNIT stay REFERENCES "Stays".no MAX ROWS 9, BUDGET (epsilon = 1))',
    "CREATE PRIVACY POLICY ON monthly (PRIVACY UNIT person PER MONTH OF day MAX ROWS 1, BUDGET (rho = 1) PER MONTH)",
    "CREATE PRIVACY POLICY ON answers (PRIVACY UNIT (house, wave) MAX ROWS 1, BUDGET (epsilon = 1))",
    "DECLARE PUBLIC TABLE wards",
)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A store with a policy of every kind."""
    with dpduck.connect() as connection:
        connection.execute(TABLES)
        for statement in POLICIES:
            connection.execute("FROM dp(?)", [statement])
        yield connection


def store(con: duckdb.DuckDBPyConnection) -> str:
    """The name of the database that holds the store."""
    held = con.execute("SELECT database_name FROM duckdb_schemas() WHERE schema_name = 'dpduck'").fetchone()
    assert held is not None
    return str(held[0])


def found(con: duckdb.DuckDBPyConnection, table: str) -> TableFacts:
    """Returns the facts of a table."""
    name = f'"memory"."main"."{table}"'
    return read_facts(con, store(con), [name])[name]


def test_a_column_is_a_unit(con: duckdb.DuckDBPyConnection) -> None:
    """Names of columns are compared without case in types and keys."""
    facts = found(con, "people")
    assert facts == TableFacts(
        facts.unit, {"id": "INTEGER", "house": "INTEGER", "ward": "VARCHAR"}, frozenset({"id"}), False
    )
    assert facts.unit is not None
    assert (facts.unit.columns, facts.unit.reference, facts.unit.period) == (("house",), None, None)


def test_references_lead_to_their_tables(con: duckdb.DuckDBPyConnection) -> None:
    """A chain is read to its end, with the unit's name of the last table."""
    tests, stays, people = (f'"memory"."main"."{name}"' for name in ("tests", "Stays", "people"))
    facts = read_facts(con, store(con), [tests])
    assert facts.keys() == {tests, stays, people}
    units = [facts[name].unit for name in (tests, stays, people)]
    assert [None if unit is None else unit.reference for unit in units] == [
        ("stay", stays, "no"), ("person", people, "id"), None,
    ]  # fmt: skip
    assert len({None if unit is None else unit.key for unit in units}) == 1
    assert facts[stays].keys == {"no"}
    assert (facts[tests].collated, facts[stays].collated) == (True, False)


def test_periods_and_several_columns(con: duckdb.DuckDBPyConnection) -> None:
    """A key of two columns is a key of neither column alone."""
    monthly, answers = found(con, "monthly").unit, found(con, "answers")
    assert monthly is not None
    assert (monthly.columns, monthly.period) == (("person",), ("MONTH", "day"))
    assert answers.unit is not None
    assert answers.unit.columns == ("house", "wave")
    assert answers.keys == frozenset()


def test_public_tables_have_no_unit(con: duckdb.DuckDBPyConnection) -> None:
    """A table is public because its owner says so."""
    assert found(con, "wards") == TableFacts(None, {"ward": "VARCHAR"}, frozenset({"ward"}), False)
    with pytest.raises(Refusal, match="changed meanwhile"):
        found(con, "other")


def test_what_stands_for_a_table_is_looked_at() -> None:
    """A view in place of a table, and columns with dpduck's own names, are noticed in the catalog of the moment."""
    with dpduck.connect() as con:
        con.execute("CREATE TABLE people (id INTEGER, ward VARCHAR); CREATE TABLE rows (id INTEGER, RowId INTEGER)")
        con.execute("CREATE TABLE made (id INTEGER, Dpduck_f0 BOOLEAN)")
        for table in ("people", "rows", "made"):
            con.execute(
                "FROM dp(?)", [f"CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1))"]
            )
        told = {name: found(con, name) for name in ("people", "rows", "made")}
        assert all(one.is_table for one in told.values())
        assert {name: one.is_numbered for name, one in told.items()} == {"people": True, "rows": False, "made": False}
        con.execute("ALTER TABLE people RENAME TO others; CREATE VIEW people AS FROM others")
        assert not found(con, "people").is_table
        assert not found(con, "people").is_numbered


def test_a_policy_that_is_gone_is_no_fact(con: duckdb.DuckDBPyConnection) -> None:
    """A dropped policy and an undeclared table are refused, within a transaction that is rolled back."""
    con.execute("BEGIN")
    con.execute(f"UPDATE {store(con)}.dpduck.policies SET active = false")
    con.execute(f"DELETE FROM {store(con)}.dpduck.public_tables")
    try:
        for table in ("people", "wards"):
            with pytest.raises(Refusal, match="changed meanwhile"):
                found(con, table)
    finally:
        con.execute("ROLLBACK")
    assert isinstance(found(con, "people").unit, PolicyUnit)


def test_a_collation_for_all_texts_is_a_fact(con: duckdb.DuckDBPyConnection) -> None:
    """A default collation is a fact, since DuckDB compares every text by it."""
    con.execute("SET default_collation = 'nocase'")
    try:
        assert found(con, "people").collated
    finally:
        con.execute("RESET default_collation")
    assert not found(con, "people").collated


def test_tables_that_differ_in_a_capital_beyond_ascii_are_two(con: duckdb.DuckDBPyConnection) -> None:
    """Tables that differ in a capital beyond ASCII are two tables: a key of one is no key of the other."""
    con.execute('CREATE TABLE "É" (code INTEGER UNIQUE); CREATE TABLE "é" (code INTEGER)')
    for table in ("É", "é"):
        con.execute("FROM dp(?)", [f'DECLARE PUBLIC TABLE "{table}"'])
    assert [found(con, table).keys for table in ("É", "é")] == [{"code"}, frozenset()]


def test_capitals_of_ascii_alone_are_folded(con: duckdb.DuckDBPyConnection) -> None:
    """Only capitals of ASCII are folded, as DuckDB compares names."""
    assert fold("WARD Ä") == "ward Ä"
    assert con.execute('SELECT "X" FROM (SELECT 1 AS x)').fetchall() == [(1,)]
