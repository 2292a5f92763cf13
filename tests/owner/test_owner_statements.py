"""Every owner statement, through every way a client has of running it: it is carried out once and reported as done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.owner import policies as owner_policies
from tests.support.clinics import Clinic

Way = Callable[[duckdb.DuckDBPyConnection, str], list[tuple[Any, ...]]]
SELECT = "SELECT sex, count(*) AS n FROM visits GROUP BY sex"


def quoted(statement: str) -> str:
    return f"FROM dp($${statement}$$)"


def executed(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    return con.execute(quoted(statement)).fetchall()


def bound(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    return con.execute("FROM dp(?)", [statement]).fetchall()


def as_relation(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    return con.sql(quoted(statement)).fetchall()


def shown(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    relation = con.sql(quoted(statement))
    str(relation)
    return relation.fetchall()


def prepared(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    con.execute(f"PREPARE done AS {quoted(statement)}")
    try:
        return con.execute("EXECUTE done").fetchall()
    finally:
        con.execute("DEALLOCATE done")


def in_transaction(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    con.execute("BEGIN")
    try:
        return con.execute(quoted(statement)).fetchall()
    finally:
        con.execute("COMMIT")


def twice(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    first = con.execute(quoted(statement)).fetchall()
    assert con.execute(quoted(statement)).fetchall() == first
    return first


WAYS: tuple[Way, ...] = (executed, bound, as_relation, shown, prepared, in_transaction, twice)
SESSION = "OPTIONS (epsilon = 0.1, delta = 1e-7, sparsity = 4, queries = 10) ON visits (ward)"
ITEMS = """PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10, delta = 1e-5), DOMAIN sex IN (0, 1),
    DOMAIN ward FROM wards.name"""
STATEMENTS = (
    ("DECLARE PUBLIC TABLE wards", "memory.main.wards is public"),
    (f"CREATE PRIVACY POLICY ON visits ({ITEMS}, CLAMP age BETWEEN 0 AND 99)", "is in force (revision 1, epoch 0)"),
    (f"CREATE OR REPLACE PRIVACY POLICY ON visits ({ITEMS}, CLAMP age BETWEEN 0 AND 90)", "(revision 2, epoch 0)"),
    ("ALTER PRIVACY POLICY ON visits SET EXPECT ROWS 500", "(revision 3, epoch 0)"),
    ("ALTER PRIVACY POLICY ON visits SET DOMAIN age RANGE 0 TO 100 STEP 10", "(revision 4, epoch 0)"),
    ("ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 20, delta = 1e-5)", "(revision 5, epoch 0)"),
    ("ALTER PRIVACY POLICY ON visits SET MAX EPSILON 15 PER QUERY", "(revision 6, epoch 0)"),
    ("ALTER PRIVACY POLICY ON visits DROP DOMAIN age", "(revision 7, epoch 0)"),
    ("ALTER PRIVACY POLICY ON visits DROP CLAMP age", "(revision 8, epoch 0)"),
    ("ALTER PRIVACY POLICY ON visits NEW EPOCH", "(revision 9, epoch 1)"),
    (f"CREATE PRIVATE VIEW by_sex OPTIONS (epsilon = 1) AS {SELECT}", "private.by_sex is ready"),
    (f"CREATE OR REPLACE PRIVATE VIEW by_sex OPTIONS (epsilon = 0.5) AS {SELECT}", "private.by_sex is ready"),
    ("DROP PRIVATE VIEW by_sex", "private.by_sex is dropped"),
    (f"CREATE PRIVATE SESSION s {SESSION}", "s"),
    ("DROP PRIVATE SESSION s", "s"),
    ("CREATE PRIVATE PROJECTION p OPTIONS (epsilon = 1, delta = 1e-6, sparsity = 4, queries = 10) AS "
     "SELECT ward FROM visits", "p"),
    ("DROP PRIVATE PROJECTION p", "p"),
    ("DROP PRIVACY POLICY ON visits", "memory.main.visits is dropped"),
    ("UNDECLARE PUBLIC TABLE wards", "memory.main.wards is no longer public"),
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_owner_statements_are_carried_out_once(open_clinic: Callable[..., Clinic], way: Way) -> None:
    """Each statement of a policy's life reports what it has done. A revision counts up by one."""
    clinic = open_clinic()
    clinic.fill()
    for statement, said in STATEMENTS:
        try:
            (answer,) = way(clinic.con, statement)
        except duckdb.Error as error:
            pytest.fail(f"{statement}: {error}")
        assert said in str(answer), statement
    spent = clinic.rows("SELECT count(*) FROM dp_ledger() WHERE mechanism NOT LIKE '%budget%' AND rho > 0")
    assert spent == [(4,)]


def test_a_change_that_another_one_follows_is_a_change_again(open_clinic: Callable[..., Clinic]) -> None:
    """A policy that was dropped, declared anew and is dropped again is dropped. A missing policy is refused."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect()
    for _ in range(2):
        clinic.dp("ALTER PRIVACY POLICY ON visits DROP DOMAIN age")
        assert "age" not in clinic.value("SELECT domains FROM dp_policies()")
        clinic.dp("ALTER PRIVACY POLICY ON visits SET DOMAIN age RANGE 0 TO 100 STEP 10")
        assert "age" in clinic.value("SELECT domains FROM dp_policies()")
    assert "'note' has no domain" in clinic.refused("ALTER PRIVACY POLICY ON visits DROP DOMAIN note")


DOTTED = (
    'CREATE PRIVACY POLICY ON "orders.old" (PRIVACY UNIT uid REFERENCES users.id MAX ROWS 1)',
    'CREATE PRIVACY POLICY ON orders (PRIVACY UNIT "old.id" MAX ROWS 1, BUDGET (epsilon = 1))',
    'CREATE PRIVACY POLICY ON orders (PRIVACY UNIT uid REFERENCES "orders.old".id MAX ROWS 1, BUDGET (epsilon = 1))',
    'CREATE PRIVACY POLICY ON "other.db".people (PRIVACY UNIT ROW, BUDGET (epsilon = 1))',
)


@pytest.fixture
def dotted() -> Iterator[duckdb.DuckDBPyConnection]:
    """Tables and columns with dots in their names, where an answer's SQL could join rows of two people."""
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS \"other.db\"")
        connection.execute('CREATE TABLE "other.db".people (id INTEGER)')
        connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY)")
        connection.execute('CREATE TABLE orders ("old.id" INTEGER UNIQUE, uid INTEGER)')
        connection.execute('CREATE TABLE "orders.old" (id INTEGER UNIQUE, uid INTEGER)')
        dpduck.load(connection)
        yield connection


def policies(connection: duckdb.DuckDBPyConnection) -> None:
    """Policies of the three tables, each with the user's id as its unit."""
    for table in ("users", "orders", '"orders.old"'):
        unit, budget = ("id", ", BUDGET (epsilon = 9)") if table == "users" else ("uid REFERENCES users.id", "")
        connection.execute(f"FROM dp('CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT {unit} MAX ROWS 1{budget})')")


@pytest.mark.parametrize("statement", DOTTED)
def test_names_with_dots_are_no_units(dotted: duckdb.DuckDBPyConnection, statement: str) -> None:
    dotted.execute("FROM dp('CREATE PRIVACY POLICY ON users (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 9))')")
    with pytest.raises(duckdb.Error, match="has a dot"):
        dotted.execute("FROM dp($1)", [statement])


def test_rows_of_two_people_are_not_joined_by_names_that_look_alike(
    dotted: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored policy on a name with a dot answers nothing. A key with a dot proves no unit."""
    monkeypatch.setattr(owner_policies, "require_plain_names", lambda *names: None)
    policies(dotted)
    select = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM orders"
    with pytest.raises(duckdb.Error, match="has a dot"):
        dotted.execute("FROM dp($1)", [f'{select} JOIN "orders.old" AS x ON orders."old.id" = x.id'])
    with pytest.raises(duckdb.Error, match="accepted"):
        dotted.execute("FROM dp($1)", [f'{select} JOIN orders AS x ON orders."old.id" = x."old.id"'])


def test_names_are_compared_as_duckdb_does() -> None:
    """Only capitals of ASCII are folded: else another column than the named one would be the unit."""
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE visits ("É" INTEGER, "é" INTEGER, Age INTEGER)')
        dpduck.load(connection)
        connection.execute(
            "FROM dp('CREATE PRIVACY POLICY ON visits (PRIVACY UNIT \"é\" MAX ROWS 1, BUDGET (epsilon = 1))')"
        ).fetchall()
        connection.execute("FROM dp('ALTER PRIVACY POLICY ON visits SET DOMAIN AGE RANGE 0 TO 90 STEP 5')").fetchall()
        assert connection.sql("SELECT privacy_unit FROM dp_policies()").fetchall() == [("memory.main.visits.é",)]
