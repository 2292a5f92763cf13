"""A principal who may ask about one table reaches no other one through a join, whichever is named first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpduck
from dpduck.database.database import Database
from dpduck.database.functions import database_of
from dpduck.store.cursors import Caller
from dpduck.values.errors import PermissionRefusal

ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "
BOTH = (
    "sex, count(*) FROM visits JOIN patients ON patient = id GROUP BY sex",
    "sex, count(*) FROM patients JOIN visits ON patient = id GROUP BY sex",
    "count(*) FROM visits SEMI JOIN patients ON patient = id AND sex = 'F'",
    "count(*) FROM visits LEFT JOIN (SELECT * FROM patients WHERE sex = 'F') AS p ON patient = p.id",
    "count(*) FROM (SELECT patient FROM visits UNION ALL SELECT id FROM patients)",
    "n, count(*) FROM (SELECT id, count(*) AS n FROM patients GROUP BY id) AS p JOIN visits ON patient = p.id "
    "GROUP BY n",
)


@pytest.fixture
def database() -> Iterator[Database]:
    """Patients, and visits that find their unit through them."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE patients (id INTEGER PRIMARY KEY, sex VARCHAR)")
        connection.execute("INSERT INTO patients SELECT i, 'FM'[i % 2 + 1] FROM range(100) AS r(i)")
        connection.execute("CREATE TABLE visits AS SELECT CAST(i // 4 AS INTEGER) AS patient FROM range(400) AS r(i)")
        for policy in (
            "patients (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 100), DOMAIN sex IN ('F', 'M'))",
            "visits (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 4)",
        ):
            connection.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON {policy}"])
        found = database_of(connection)
        assert found is not None
        yield found


def entries(database: Database) -> int:
    return len(database.ledger.entries(None))


@pytest.mark.parametrize("body", BOTH)
def test_a_join_is_no_way_to_another_table(database: Database, body: str) -> None:
    """Every table in a statement must be the caller's. Others are refused before the charge and before the cache."""
    allowed = Caller("ann", owner=False, tables=("visits", "patients"))
    for released in (False, True):
        if released:
            database.run(ASK + body, allowed)
        before = entries(database)
        for tables, missing in ((("visits",), "patients"), (("patients",), "visits")):
            caller = Caller("bob", owner=False, tables=tables)
            for call in (database.run, database.explain, database.describe):
                with pytest.raises(PermissionRefusal, match=f"bob may not ask about '{missing}'"):
                    call(ASK + body, caller)
        assert entries(database) == before


def test_the_table_that_only_tells_the_unit_needs_no_permission(database: Database) -> None:
    """Visits find their unit in patients, where nothing else is read: whoever may ask about visits is answered."""
    database.run(ASK + "count(*) FROM visits", Caller("bob", owner=False, tables=("visits",)))
    with pytest.raises(PermissionRefusal):
        database.run(ASK + "count(*) FROM patients", Caller("bob", owner=False, tables=("visits",)))


OTHER_KINDS = (
    "CREATE PRIVATE TABLE {name} OPTIONS (epsilon = 1, mechanism = 'mwem', rows = 5) AS "
    "SELECT sex FROM {joined} WORKLOAD MARGINALS (1)",
    "CREATE PRIVATE HISTOGRAM {name} OPTIONS (epsilon = 1) AS SELECT sex FROM {joined}",
    "CREATE PRIVATE SESSION {name} OPTIONS (epsilon = 1, sparsity = 2, queries = 5, updates = 1) AS "
    "SELECT sex FROM {joined}",
    "CREATE PRIVATE PROJECTION {name} OPTIONS (epsilon = 1, sparsity = 2, queries = 5, rows = 16) AS "
    "SELECT sex FROM {joined}",
)


@pytest.mark.parametrize("statement", OTHER_KINDS, ids=lambda text: text.split()[2])
@pytest.mark.parametrize("joined", ["visits JOIN patients ON patient = id", "patients JOIN visits ON patient = id"])
def test_no_kind_of_release_is_a_way_to_another_table(database: Database, statement: str, joined: str) -> None:
    """Synthetic tables, histograms, sessions and projections of a join need permission for every table of the join."""
    before = entries(database)
    text = statement.format(name="made", joined=joined)
    for tables, missing in ((("visits",), "patients"), (("patients",), "visits")):
        caller = Caller("bob", owner=False, tables=tables)
        for call in (database.run, database.explain):
            with pytest.raises(PermissionRefusal, match=f"bob may not ask about '{missing}'"):
                call(text, caller)
    assert entries(database) == before


@pytest.mark.parametrize("statement", OTHER_KINDS[1:3], ids=lambda text: text.split()[2])
def test_what_the_owner_made_of_a_join_answers_who_may_ask_about_all_of_it(database: Database, statement: str) -> None:
    """dp_ask checks every table behind a name, and dp_sessions lists only sessions that the caller may ask."""
    database.run(
        statement.format(name="made", joined="visits JOIN patients ON patient = id"), Caller("owner", owner=True)
    )
    question = '["made", ["F"], null]'
    with pytest.raises(PermissionRefusal, match="bob may not ask about every table of 'made'"):
        database.sparse.ask(question, Caller("bob", owner=False, tables=("visits",)))
    assert "made" not in database.sparse.list_sessions(Caller("bob", owner=False, tables=("visits",)))
    both = Caller("ann", owner=False, tables=("visits", "patients"))
    assert database.sparse.ask(question, both) and "made" in database.sparse.list_sessions(both)
