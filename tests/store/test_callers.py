"""Refusals of dp() itself by role, whoever stands before it: the second lock behind the gate of a server."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from dpduck.database.database import Database
from dpduck.database.functions import database_of
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.store.cursors import Caller
from dpduck.values.errors import BudgetRefusal, PermissionRefusal, Refusal
from tests.support.clinics import Clinic, by

ALICE = Caller("alice", owner=False)
OWNER_STATEMENTS = (
    "DECLARE PUBLIC TABLE wards",
    "UNDECLARE PUBLIC TABLE wards",
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 100))",
    "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 100))",
    "ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 100)",
    "ALTER PRIVACY POLICY ON visits NEW EPOCH",
    "ALTER PRIVACY POLICY ON visits DROP DOMAIN sex",
    "DROP PRIVACY POLICY ON visits",
    "DROP PRIVACY POLICY IF EXISTS ON visits",
)


@pytest.fixture
def database(clinic: Clinic) -> Database:
    found = database_of(clinic.con)
    assert found is not None
    return found


def test_owner_statements_are_refused_by_role(database: Database, clinic: Clinic) -> None:
    """Policies, budgets, epochs and public declarations are for the owner alone, inside dp() too."""
    before = clinic.rows("FROM dp_policies()"), clinic.rows("FROM dp_ledger()")
    for statement in OWNER_STATEMENTS:
        with pytest.raises(PermissionRefusal, match="the data owner's"):
            database.run(statement, ALICE)
    assert (clinic.rows("FROM dp_policies()"), clinic.rows("FROM dp_ledger()")) == before


def test_the_owners_exact_facts_are_refused_by_role(database: Database) -> None:
    """dp_check shows exact figures, and is for the owner alone."""
    with pytest.raises(PermissionRefusal):
        database.about.check("visits", ALICE)


def test_a_typo_is_met_with_names_of_ones_own_alone(database: Database, clinic: Clinic) -> None:
    """The nearest name in a message is of a table that the caller may ask about, or of a public one."""
    asked = by("sex").replace("visits", "visist")
    for tables, told in (
        (None, "accepted: visits (did you mean that?), or a table"),
        (("visits",), "accepted: visits (did you mean that?)"),
        (("wards",), "'visist'; accepted: a table with"), ((), "'visist'; accepted: a table with"),
    ):  # fmt: skip
        with pytest.raises(Refusal) as caught:
            database.run(asked, Caller("bob", owner=False, tables=tables))
        assert told in str(caught.value)


@pytest.mark.parametrize("tables", [("wards",), (), ("other.visits",)])
def test_a_table_that_is_not_the_callers_is_refused(
    database: Database, clinic: Clinic, tables: tuple[str, ...]
) -> None:
    """Asking about another's table is refused before the charge, and before the cache could answer."""
    caller = Caller("bob", owner=False, tables=tables)
    for released in (False, True):
        if released:
            database.run(by("sex"), ALICE)
        before = clinic.charges()
        for statement in (by("sex"), f"CREATE PRIVATE VIEW mine OPTIONS (epsilon = 1) AS {plain('sex')}"):
            with pytest.raises(PermissionRefusal, match="bob may not ask about 'visits'"):
                database.run(statement, caller)
        assert clinic.charges() == before


@pytest.mark.parametrize("tables", [("visits",), ("VISITS",), ("main.visits",), ("memory.main.visits",), None])
def test_a_table_that_is_the_callers_is_answered(database: Database, tables: tuple[str, ...] | None) -> None:
    """The table may be named with its schema and database, and the answer of another caller is free."""
    database.run(by("sex"), ALICE)
    assert "SELECT" in database.run(by("sex"), Caller("bob", owner=False, tables=tables))


def test_the_releaser_asks_too(
    database: Database, clinic: Clinic, monkeypatch: pytest.MonkeyPatch, open_clinic: Callable[..., Clinic]
) -> None:
    """A kind of statement that forgets to check the caller is caught where releases are paid and looked up."""
    caller = Caller("bob", owner=False, tables=("wards",))
    refuse = Caller.require_table
    asked: list[str] = []

    def forgetful(self: Caller, table: str) -> None:
        asked.append(table)
        if len(asked) > 1:  # the engine asks first
            refuse(self, table)

    monkeypatch.setattr(Caller, "require_table", forgetful)
    with pytest.raises(PermissionRefusal):
        database.run(by("sex"), caller)
    asked.clear()
    database.run(by("sex"), ALICE)
    asked.clear()
    with pytest.raises(PermissionRefusal):
        database.run(by("sex"), caller)
    assert asked == ["memory.main.visits", "memory.main.visits"]
    monkeypatch.setattr(Caller, "require_table", refuse)
    (digest,) = [release.digest for release, _ in database._releases.all()]
    with pytest.raises(PermissionRefusal):  # a stored answer, where no earlier check asked
        database._releaser.release(digest, lambda: pytest.fail("planned"), caller, by("sex"))
    assert clinic.charges() == 1


def test_a_share_is_enforced_by_the_ledger(database: Database) -> None:
    """A share bounds the sum that one name spends. Other names go on."""
    half = Caller("alice", owner=False, share=Fraction(1, 5))
    database.run(by("sex", "1.5"), half)
    with pytest.raises(BudgetRefusal, match="share of alice"):
        database.run(by("age", "1"), half)
    database.run(by("age", "0.5"), half)
    with pytest.raises(BudgetRefusal, match=r"share of alice in the budget of .* has 0 of 2 left"):
        database.run(by("ward", "0.001"), half)
    database.run(by("ward", "0.001"), Caller("bob", owner=False, share=Fraction(1, 5)))


def test_a_share_is_enforced_by_the_charge_itself(
    database: Database, clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two statements may both see enough left. The charge checks again, and nothing is counted for the second."""
    half = Caller("alice", owner=False, share=Fraction(1, 5))
    database.run(by("sex", "1.5"), half)
    monkeypatch.setattr(Ledger, "check", lambda *given, **named: None)
    with pytest.raises(BudgetRefusal, match=r"share of alice in the budget of .* has 0\.5 of 2 left"):
        database.run(by("age", "1"), half)
    assert clinic.charges() == 1


def test_another_s_answers_are_not_read_by_name(database: Database) -> None:
    """Sums over a release that is no view are for its caller and the owner alone."""
    database.run(by("sex"), ALICE)
    ask = '["release_2", 0.95, 1, "1"]'
    names = [row.name for row, _ in database._releases.all()]
    ask = ask.replace("release_2", names[0])
    assert database.combine_cells(ask, ALICE)
    with pytest.raises(Refusal, match="there is no release"):
        database.combine_cells(ask, Caller("bob", owner=False))


def plain(column: str) -> str:
    return f"SELECT {column}, count(*) AS n FROM visits GROUP BY {column}"
