"""A statement has a smallest price: the owner's to set, and a principal's by default."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from dpduck.database import registered
from dpduck.store.cursors import Caller
from dpduck.values.errors import PermissionRefusal
from dpduck.values.privacy import Budget, Charge
from tests.support.clinics import Clinic

OpenClinic = Callable[..., Clinic]
PURE = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10), MIN EPSILON 0.01)"
APPROXIMATE = PURE.replace("(epsilon = 10)", "(epsilon = 10, delta = 1e-6)")
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({}) count(*) AS n FROM visits"


@pytest.fixture
def visits(open_clinic: OpenClinic) -> Clinic:
    made = open_clinic()
    made.fill()
    return made


def test_the_owners_smallest_price(visits: Clinic) -> None:
    """A smaller epsilon is refused, the smallest is answered. dp_policies lists the limit in force."""
    visits.dp(PURE)
    said = visits.refused(COUNT.format("epsilon = 0.0099"))
    assert "one statement has a smallest price; accepted: epsilon of at least 0.01" in said
    assert len(visits.dp(COUNT.format("epsilon = 0.01"))) == 1
    assert visits.rows("SELECT min_epsilon, max_epsilon FROM dp_policies()") == [(0.01, None)]
    visits.dp("ALTER PRIVACY POLICY ON visits SET MIN EPSILON 0.02")
    assert "at least 0.02" in visits.refused(COUNT.format("epsilon = 0.01, refresh = 'a'"))
    assert "MIN EPSILON is above MAX EPSILON" in visits.refused("ALTER PRIVACY POLICY ON visits SET MAX EPSILON 0.01")


def test_prices_in_rho(visits: Clinic) -> None:
    """Under an approximate budget the limit holds for an epsilon with its delta, and for rho as its square over 2."""
    visits.dp(APPROXIMATE)
    assert "at least 0.01" in visits.refused(COUNT.format("epsilon = 0.009, delta = 1e-7"))
    assert "rho of at least 5e-05" in visits.refused(COUNT.format("rho = 0.00004"))
    assert len(visits.dp(COUNT.format("rho = 0.00005"))) == 1
    assert len(visits.dp(COUNT.format("epsilon = 0.01, delta = 1e-7"))) == 1


@pytest.mark.parametrize(("policy", "least"), [(PURE, 0.01), (APPROXIMATE, 0.00005)])
def test_a_target_never_pays_less(visits: Clinic, policy: str, least: float) -> None:
    """A standard error that would cost next to nothing is bought at the smallest price, and comes out smaller."""
    visits.dp(policy)
    assert len(visits.dp(COUNT.format("target_stderr = 1e9"))) == 1
    assert visits.value("SELECT spent FROM dp_budget() WHERE measure <> 'delta'") == pytest.approx(least, rel=1e-6)


def test_the_strictest_of_joined_tables_holds(visits: Clinic) -> None:
    """Of tables that are read together, the largest smallest price counts."""
    visits.rows("CREATE TABLE stays AS SELECT DISTINCT patient FROM visits")
    visits.dp(PURE)
    visits.dp(
        "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES visits.patient MAX ROWS 1, MIN EPSILON 1)"
    )
    joined = COUNT + " JOIN stays ON visits.patient = stays.patient"
    assert "at least 1" in visits.refused(joined.format("epsilon = 0.5"))
    union = COUNT.replace("FROM visits", "FROM (SELECT patient FROM visits UNION ALL SELECT patient FROM stays)")
    assert "at least 1" in visits.refused(union.format("epsilon = 0.5"))
    assert len(visits.dp(COUNT.format("epsilon = 0.5"))) == 1


def test_a_principal_pays_a_part_of_the_budget() -> None:
    """A ten-thousandth of a budget in epsilon, a millionth of one in rho. The owner pays what the policy says."""
    alice, owner = Caller("alice", owner=False), Caller("owner", owner=True)
    pure = Budget(Fraction(3), Fraction(0), Fraction(0), None)
    concentrated = Budget(None, Fraction(0), Fraction(0), Fraction(1, 2))
    alice.require_price(Charge.pure(Fraction(3, 10_000)), pure)
    alice.require_price(Charge.zcdp(Fraction(1, 2_000_000)), concentrated)
    owner.require_price(Charge.pure(Fraction(1, 10**9)), pure)
    with pytest.raises(PermissionRefusal, match=r"at least epsilon = 0\.0003"):
        alice.require_price(Charge.pure(Fraction(1, 10**9)), pure)
    with pytest.raises(PermissionRefusal, match="at least rho = 5e-07"):
        alice.require_price(Charge.pure(Fraction(1, 10**9)), concentrated)


def test_a_principals_release_is_priced(visits: Clinic) -> None:
    """New releases alone are checked, before the charge. Asking again for a released answer is free."""
    visits.dp(PURE.replace("MIN EPSILON 0.01", "EXPECT ROWS 1000"))
    alice, tiny = Caller("alice", owner=False), COUNT.format("epsilon = 1e-9")
    database = list(registered._DATABASES.values())[-1].whole()
    with pytest.raises(PermissionRefusal, match="a principal's statement costs at least"):
        database.run(tiny, alice)
    assert visits.charges() == 0
    visits.dp(tiny)
    assert "SELECT" in database.run(tiny, alice)
    assert "SELECT" in database.run(COUNT.format("epsilon = 0.001"), alice)
    assert visits.charges() == 2
