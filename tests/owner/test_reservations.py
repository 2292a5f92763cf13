"""Reservations as owner statements: what they say, what others see of them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import duckdb
import pytest

import dpduck
from dpduck.database.functions import answer
from dpduck.database.registered import find_database
from dpduck.kernel.ledger.shares import change_project
from dpduck.store.cursors import Caller
from tests.support.clinics import Clinic, by

ALTER = "ALTER PRIVACY POLICY ON visits"
NEXT_MONTH = (datetime.now(UTC) + timedelta(days=30)).date()


@pytest.fixture
def clinic() -> Iterator[Clinic]:
    """A clinic with a budget of epsilon = 10."""
    with dpduck.connect() as connection:
        one = Clinic(connection)
        one.fill()
        one.protect()
        yield one


def as_principal(clinic: Clinic, caller: Caller, action: str, argument: str | None = None) -> list[tuple[object, ...]]:
    """Returns the rows of a call by somebody else than the owner."""
    started = find_database(clinic.con)
    assert started is not None
    return clinic.rows(answer(started, caller, action, argument))


def test_a_reservation_is_made_and_released(clinic: Clinic) -> None:
    """The statement says what nobody else can spend. The owner sees it in dp_budget, and is bounded by it."""
    said = clinic.dp(f"{ALTER} RESERVE 20 % FOR monthly UNTIL '{NEXT_MONTH}'")
    assert said == [
        (
            "20 % of the budget of memory.main.visits.patient is reserved for monthly until the end of "
            f"{NEXT_MONTH}, in UTC: nobody else can spend it",
        )
    ]
    shown = "SELECT spent, remaining, reserved, reserved_for FROM dp_budget()"
    assert clinic.rows(shown) == [(0.0, 8.0, 2.0, f"monthly: 20 % until {NEXT_MONTH}")]
    assert "has 8 of 10 left" in clinic.refused(by("sex", "9"))
    assert clinic.rows(
        "SELECT fits, remaining, times_left FROM dp_plan($$" + by("sex", "9") + "$$) WHERE number = 1"
    ) == [(False, 8.0, 0)]
    clinic.dp(by("sex", "8"))
    said = clinic.dp(f"{ALTER} RELEASE monthly")
    assert said == [("the reservation for monthly is released; what it did not spend is everybody's again",)]
    assert clinic.rows(shown) == [(8.0, 2.0, 0.0, None)]
    clinic.dp(by("sex", "2"))


def test_others_see_less_left_and_nothing_else(clinic: Clinic) -> None:
    """A principal sees what is left for them, which stays the same while the payer spends the reservation."""
    clinic.dp(f"{ALTER} RESERVE 1 FOR 'team-x'")
    eve, payer = Caller("eve", owner=False), Caller("team-x", owner=False, share=Fraction(1, 2))
    listed = as_principal(clinic, eve, "budget")
    assert listed[0][4] == 0.0 and listed[0][-2:] == (None, None)
    assert as_principal(clinic, payer, "budget")[0][4] == 5.0
    as_principal(clinic, payer, "run", by("sex", "3"))
    assert as_principal(clinic, eve, "budget")[0][4] == 0.0
    assert as_principal(clinic, payer, "budget")[0][4] == 2.0
    assert as_principal(clinic, eve, "ledger_entries") == [], "entries of reservations are the owner's"
    with pytest.raises(duckdb.Error, match="left"):
        as_principal(clinic, eve, "run", by("sex", "1"))
    with pytest.raises(duckdb.Error, match="owner"):
        as_principal(clinic, eve, "run", f"{ALTER} RELEASE 'team-x'")


def test_a_project_sees_what_its_members_left(clinic: Clinic) -> None:
    """dp_budget and dp_plan of a member know what all members spent, and what is charged agrees."""
    started = find_database(clinic.con)
    assert started is not None
    for name in ("ada", "bob"):
        change_project(started.ledger.secrets, "census", Fraction(3, 10), name)
    ada, bob = (Caller(name, owner=False, project="census") for name in ("ada", "bob"))
    as_principal(clinic, ada, "run", by("sex", "2"))
    row = as_principal(clinic, bob, "budget")[0]
    assert (row[4], row[13]) == (1.0, "census")
    planned = as_principal(clinic, bob, "plan", f"{by('sex', '0.6')}; {by('ward', '0.6')}")
    assert [(line[9], line[10], line[14]) for line in planned] == [
        (pytest.approx(0.4), True, 1), (pytest.approx(0.4), False, 1), (pytest.approx(0.4), False, None),
    ]  # fmt: skip
    with pytest.raises(duckdb.Error, match="share of the project census"):
        as_principal(clinic, bob, "run", by("ward", "1.1"))
    as_principal(clinic, bob, "run", by("ward", "1"))
    assert as_principal(clinic, ada, "budget")[0][4] == 0.0


def test_what_is_refused(clinic: Clinic) -> None:
    """Shares above all, days that are none, a second one for a payer, and tables without a policy."""
    clinic.dp(f"{ALTER} RESERVE 0.5 FOR a")
    for statement, said in (
        (f"{ALTER} RESERVE 1.5 FOR b", "a share is a part of the budget; accepted: more than 0 and at most 1, or 20 %"),
        (f"{ALTER} RESERVE 0 FOR b", "accepted"),
        (f"{ALTER} RESERVE 0.1 FOR b UNTIL 'soon'", "'soon' is no day; accepted: a day, as in '2027-01-31'"),
        (f"{ALTER} RESERVE 0.1 FOR b UNTIL '2027-02-31'", "'2027-02-31' is no day"),
        (f"{ALTER} RESERVE 0.1", "accepted: FOR"),
        (f"{ALTER} RESERVE 0.1 FOR a", "a has a reservation already; accepted: RELEASE it first"),
        (f"{ALTER} RESERVE 0.6 FOR b", "left"),
        (f"{ALTER} RELEASE b", "'b' has no reservation; accepted: a"),
        ("ALTER PRIVACY POLICY ON wards RESERVE 0.1 FOR b", "has no privacy policy"),
        ("ALTER PRIVACY POLICY ON visits, wards RESERVE 0.1 FOR b", "which alone take several tables"),
    ):
        assert said in clinic.refused(statement), statement


def test_it_is_made_once_however_it_is_bound(clinic: Clinic) -> None:
    """DuckDB binds a statement twice, and one reservation is made. So is it if it is repeated at once."""
    statement = f"{ALTER} RESERVE 0.25 FOR a"
    clinic.con.sql(f"FROM dp($${statement}$$)").fetchall()
    clinic.dp(statement)
    assert clinic.value("SELECT count(*) FROM dp_ledger() WHERE mechanism = 'budget reserved'") == 1
    clinic.dp(f"{ALTER} RELEASE a")
    clinic.dp(f"{ALTER} RELEASE a")
    assert clinic.value("SELECT count(*) FROM dp_ledger() WHERE mechanism = 'reservation released'") == 1


def test_a_wider_budget_widens_it(clinic: Clinic) -> None:
    """A reservation is a part of the budget that is in force."""
    clinic.dp(f"{ALTER} RESERVE 0.5 FOR a")
    clinic.dp(f"{ALTER} SET BUDGET (epsilon = 20)")
    assert clinic.rows("SELECT remaining, reserved FROM dp_budget()") == [(10.0, 10.0)]
