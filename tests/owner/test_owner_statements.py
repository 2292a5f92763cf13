"""Every owner statement, through every way a client has of running it: it is carried out once and reported as done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

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


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_owner_statements_are_carried_out_once(open_clinic: Callable[..., Clinic], way: Way) -> None:
    """Each of a policy's whole life, one after the other: what is said is what was done, and a revision counts one."""
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
    """What was dropped, declared anew and is dropped again is dropped; what is not there is refused."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect()
    for _ in range(2):
        clinic.dp("ALTER PRIVACY POLICY ON visits DROP DOMAIN age")
        assert "age" not in clinic.value("SELECT domains FROM dp_policies()")
        clinic.dp("ALTER PRIVACY POLICY ON visits SET DOMAIN age RANGE 0 TO 100 STEP 10")
        assert "age" in clinic.value("SELECT domains FROM dp_policies()")
    assert "'note' has no domain" in clinic.refused("ALTER PRIVACY POLICY ON visits DROP DOMAIN note")
