"""The ledger adds up exactly, for ever, and refuses charges that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.values.accounting import rho_of
from dpduck.values.errors import BudgetRefusal, InternalError, Refusal, StoreError
from dpduck.values.privacy import NOTHING, ZERO, Budget, Charge

UNIT = "main.patients.id"
PURE = Budget(epsilon=Fraction(3), delta=ZERO, delta_keys=ZERO, rho=None)
ZCDP = Budget(epsilon=None, delta=Fraction(1, 10**6), delta_keys=Fraction(1, 10**6), rho=Fraction(1, 10))


def in_memory(budget: Budget | None = PURE) -> Ledger:
    connection = duckdb.connect()
    connection.execute("""ATTACH ':memory:' AS "priv""ate" """)
    ledger = Ledger.open(connection.cursor, 'priv"ate', secrets_path=None, witness_directory=None)
    if budget is not None:
        ledger.declare_budget(UNIT, "visits", budget, "owner", "CREATE PRIVACY POLICY")
    return ledger


def spend(ledger: Ledger, charge: Charge, principal: str = "alice", **options: Any) -> int:
    return ledger.charge(UNIT, "visits", charge, principal, "SELECT 1", "noise", **options)


def message(error: type[Exception], action: Callable[[], object]) -> str:
    with pytest.raises(error) as raised:
        action()
    return str(raised.value)


def test_a_charge_is_an_entry() -> None:
    """Every field of a charge can be read back exactly, and the entries are numbered from 1."""
    ledger = in_memory(ZCDP)
    charge = Charge.zcdp(Fraction(1, 30), Fraction(1, 3 * 10**6))
    assert spend(ledger, charge) == 2
    first, second = ledger.entries()
    assert (first.id, first.mechanism, first.budget, first.epsilon, first.rho) == (
        1,
        "budget declared",
        ZCDP,
        ZERO,
        ZERO,
    )
    assert (second.principal, second.unit_key, second.table_name) == ("alice", UNIT, "visits")
    assert (second.statement, second.mechanism, second.budget) == ("SELECT 1", "noise", None)
    assert (second.epsilon, second.rho, second.delta) == (None, Fraction(1, 30), Fraction(1, 3 * 10**6))
    assert second.previous_hash == first.hash
    assert timedelta(0) <= datetime.now(UTC) - second.at < timedelta(minutes=5)
    ledger.verify()


def test_an_overdraft_is_refused_and_charges_nothing() -> None:
    """The rest of a budget can be spent to the last bit, and not more. A refusal says the asked amount and the rest."""
    ledger = in_memory()
    spend(ledger, Charge.pure(Fraction(14, 5)))
    over = Charge.pure(Fraction(1, 5) + Fraction(1, 10**40))
    text = message(BudgetRefusal, lambda: spend(ledger, over))
    assert text == (
        "the statement asks for epsilon = 0.200001 but the budget of main.patients.id has 0.2 of 3 left; "
        "accepted: epsilon of at most 0.2"
    )
    assert message(BudgetRefusal, lambda: ledger.check(UNIT, over)) == text
    assert len(ledger.entries()) == 2
    ledger.check(UNIT, Charge.pure(Fraction(1, 5)))
    assert len(ledger.entries()) == 2
    spend(ledger, Charge.pure(Fraction(1, 5)))
    text = message(BudgetRefusal, lambda: spend(ledger, Charge.pure(Fraction(1, 10**9))))
    assert text.endswith("has 0 of 3 left; accepted: a budget widened by the owner")


def test_pure_budgets_take_pure_charges_only() -> None:
    """A Gaussian release, or one with a delta, cannot be paid from a budget without delta."""
    ledger = in_memory()
    for charge in (Charge.zcdp(Fraction(1, 1000)), Charge(Fraction(1), Fraction(1, 2), Fraction(1, 10**9))):
        assert "is pure and cannot pay" in message(BudgetRefusal, partial(spend, ledger, charge))


def test_other_budgets_add_rho_and_the_delta_of_keys() -> None:
    """A pure release costs epsilon^2/2 of rho. Delta is paid from the part of the budget for keys."""
    delta, delta_keys = Fraction(1, 10**6), Fraction(1, 10**7)
    rho = rho_of(Fraction(1), delta - delta_keys)
    ledger = in_memory(Budget(epsilon=Fraction(1), delta=delta, delta_keys=delta_keys, rho=rho))
    spend(ledger, Charge.pure(Fraction(1, 10)))
    spend(ledger, Charge.zcdp(Fraction(1, 100), delta_keys))
    assert ledger.spent(UNIT) == Charge(None, Fraction(1, 200) + Fraction(1, 100), delta_keys)
    text = message(BudgetRefusal, lambda: spend(ledger, Charge.zcdp(Fraction(1, 1000), Fraction(1, 10**12))))
    assert "delta for keys = 1e-12 but the budget of main.patients.id has 0 of 1e-7 left" in text
    text = message(BudgetRefusal, lambda: spend(ledger, Charge.zcdp(Fraction(1, 50))))
    assert "rho = 0.02 but the budget of main.patients.id has 0.00912" in text
    spend(ledger, Charge.zcdp(rho - Fraction(3, 200)))
    assert ledger.spent(UNIT).rho == rho


@settings(max_examples=15)
@given(
    st.lists(
        st.builds(Charge.zcdp, st.fractions(Fraction(1, 10**9), 1), st.fractions(0, Fraction(1, 100)))
        | st.builds(Charge.pure, st.fractions(Fraction(1, 10**9), 1)),
        max_size=12,
    )
)
def test_sums_are_exact(charges: list[Charge]) -> None:
    """A charge is accepted if and only if the exact sum of the accepted ones stays within the budget."""
    budget = Budget(epsilon=None, delta=Fraction(1, 20), delta_keys=Fraction(1, 20), rho=Fraction(2))
    ledger, rho, delta = in_memory(budget), ZERO, ZERO
    for charge in charges:
        if rho + charge.rho <= 2 and delta + charge.delta <= Fraction(1, 20):
            spend(ledger, charge)
            rho, delta = rho + charge.rho, delta + charge.delta
        else:
            message(BudgetRefusal, partial(spend, ledger, charge))
    assert (ledger.spent(UNIT).rho, ledger.spent(UNIT).delta) == (rho, delta)
    assert sum(entry.rho for entry in ledger.entries()) == rho
    ledger.verify()


NO_COST, INEXACT = "a charge must cost something", "a charge must be made of exact rationals"


@pytest.mark.parametrize(
    ("charge", "reason"),
    [
        (NOTHING, NO_COST),
        (Charge.zcdp(ZERO, Fraction(1, 10)), NO_COST),
        (Charge.zcdp(Fraction(-1)), NO_COST),
        (Charge.zcdp(Fraction(1), Fraction(-1, 10)), NO_COST),
        (Charge(Fraction(-1), Fraction(1, 2)), NO_COST),
        (Charge(ZERO, Fraction(1, 2)), NO_COST),
        (Charge(Fraction(1), Fraction(3, 5)), "a pure charge must cost at most epsilon^2/2 of rho"),
        (Charge(0.5, Fraction(1, 8)), INEXACT),  # type: ignore[arg-type]
        (Charge.zcdp(0.1), INEXACT),  # type: ignore[arg-type]
        (Charge.zcdp(Fraction(1), 0.1), INEXACT),  # type: ignore[arg-type]
    ],
)
def test_a_charge_that_is_none_is_an_internal_error(charge: Charge, reason: str) -> None:
    """Charges that are zero, negative or inexact are internal errors, and never reach the ledger."""
    ledger = in_memory(ZCDP)
    assert message(InternalError, lambda: spend(ledger, charge)) == reason
    assert message(InternalError, lambda: ledger.check(UNIT, charge)) == reason
    assert len(ledger.entries()) == 1


def test_without_a_budget_nothing_is_paid() -> None:
    """A unit that no policy has given a budget answers nothing."""
    text = message(BudgetRefusal, lambda: spend(in_memory(None), Charge.pure(Fraction(1))))
    assert text.startswith("there is no budget of main.patients.id; accepted: CREATE PRIVACY POLICY")


def test_widening_never_resets_and_narrowing_stops_at_what_is_spent() -> None:
    """Declaring a budget again, wider, narrower or the same, leaves the sum as it was."""
    ledger = in_memory()
    spend(ledger, Charge.pure(Fraction(2)))

    def declare(epsilon: Fraction) -> int:
        return ledger.declare_budget(UNIT, "visits", Budget(epsilon, ZERO, ZERO, None), "owner", "ALTER")

    declare(Fraction(3))
    declare(Fraction(5))
    declare(Fraction(2))
    assert ledger.spent(UNIT).epsilon == 2
    message(BudgetRefusal, lambda: spend(ledger, Charge.pure(Fraction(1, 10**6))))
    text = message(Refusal, lambda: declare(Fraction(199, 100)))
    assert text == (
        "the budget of main.patients.id cannot be epsilon = 1.99: 2 is already spent; accepted: epsilon of at least 2"
    )
    words = [entry.mechanism for entry in ledger.entries() if entry.budget is not None]
    assert words == ["budget declared", "budget restated", "budget widened", "budget narrowed"]
    assert ledger.budget(UNIT) == Budget(Fraction(2), ZERO, ZERO, None)


def test_a_budget_may_change_its_measure_but_not_its_past() -> None:
    """Pure charges count as rho under a rho budget. After a Gaussian release a pure budget is refused."""
    ledger = in_memory()
    spend(ledger, Charge.pure(Fraction(1, 10)))
    assert "already spent" in message(
        Refusal,
        lambda: ledger.declare_budget(UNIT, "visits", Budget(None, ZERO, ZERO, Fraction(1, 1000)), "owner", "ALTER"),
    )
    ledger.declare_budget(UNIT, "visits", ZCDP, "owner", "ALTER")
    ledger.declare_budget(UNIT, "visits", PURE, "owner", "ALTER")
    ledger.declare_budget(UNIT, "visits", ZCDP, "owner", "ALTER")
    spend(ledger, Charge.zcdp(Fraction(1, 100)))
    text = message(Refusal, lambda: ledger.declare_budget(UNIT, "visits", PURE, "owner", "ALTER"))
    assert "cannot become pure: rho or delta was spent from it" in text
    assert ledger.entries()[-2].mechanism == "budget changed"


def test_what_is_kept_for_keys_stays_above_what_keys_have_cost() -> None:
    """A budget's delta for keys cannot be narrowed below the delta that keys have spent."""
    ledger = in_memory(ZCDP)
    spend(ledger, Charge.zcdp(Fraction(1, 100), Fraction(1, 10**7)))
    half, tenth = Fraction(1, 2 * 10**7), Fraction(1, 10**7)
    narrow = Budget(epsilon=None, delta=half, delta_keys=half, rho=Fraction(1, 10))
    text = message(Refusal, lambda: ledger.declare_budget(UNIT, "visits", narrow, "owner", "ALTER"))
    assert text.endswith("delta for keys = 5e-8: 1e-7 is already spent; accepted: delta for keys of at least 1e-7")
    exact = Budget(epsilon=None, delta=tenth, delta_keys=tenth, rho=Fraction(1, 10))
    ledger.declare_budget(UNIT, "visits", exact, "owner", "ALTER")
    assert ledger.entries()[-1].mechanism == "budget narrowed"


def test_tables_that_share_a_unit_share_its_budget_and_other_units_do_not() -> None:
    """The amount that one table spends is gone for every table of the unit, and for no other unit."""
    ledger = in_memory()
    ledger.declare_budget("main.other.ROW", "other", PURE, "owner", "CREATE")
    ledger.charge(UNIT, "visits", Charge.pure(Fraction(2)), "alice", "s", "m")
    message(BudgetRefusal, lambda: ledger.charge(UNIT, "stays", Charge.pure(Fraction(2)), "alice", "s", "m"))
    ledger.charge("main.other.ROW", "other", Charge.pure(Fraction(2)), "alice", "s", "m")
    assert ledger.spent("main.nowhere.ROW") == NOTHING


def test_a_principal_has_a_share_and_sees_only_own_rows() -> None:
    """An allotment bounds the sum of one principal, and the whole budget bounds the sum of all principals."""
    ledger = in_memory()
    half = Fraction(1, 2)
    spend(ledger, Charge.pure(Fraction(3, 2)), "alice", allotment=half)
    text = message(BudgetRefusal, lambda: spend(ledger, Charge.pure(Fraction(1, 10)), "alice", allotment=half))
    assert "share of alice in the budget of main.patients.id has 0 of 1.5 left" in text
    ledger.check(UNIT, Charge.pure(half), principal="bob", allotment=half)
    message(InternalError, lambda: ledger.check(UNIT, Charge.pure(half), allotment=half))
    for wrong in (ZERO, Fraction(2), 0.5):
        message(InternalError, partial(spend, ledger, Charge.pure(half), "bob", allotment=wrong))
    spend(ledger, Charge.pure(Fraction(1)), "bob")
    assert "the budget of" in message(
        BudgetRefusal, lambda: spend(ledger, Charge.pure(Fraction(1)), "carol", allotment=half)
    )
    assert [entry.principal for entry in ledger.entries("bob")] == ["bob"]
    assert ledger.entries("nobody") == []
    assert ledger.spent(UNIT, "alice").epsilon == Fraction(3, 2)


def test_unusual_texts_survive() -> None:
    """Quotes, zero bytes, emoji and long statements are chained and verified as they are."""
    ledger = in_memory()
    texts = ["'; DROP TABLE x --", 'a"b', "\x00", "é🦆", "x" * 100_000, ""]
    for text in texts:
        ledger.charge(UNIT, text, Charge.pure(Fraction(1, 100)), text, text, text)
    ledger.verify()
    assert [entry.statement for entry in ledger.entries()[1:]] == texts


def test_everything_is_there_after_a_restart(store_place: Any) -> None:
    """After a restart the sums, budgets, entries and keys are the same as before."""
    ledger = store_place.begin(charges=5)
    before = (ledger.entries(), ledger.spent(UNIT), ledger.budget(UNIT), ledger.bounding_key)
    again = store_place.open()
    assert (again.entries(), again.spent(UNIT), again.budget(UNIT), again.bounding_key) == before
    assert again.spent(UNIT).epsilon == Fraction(1, 2)
    assert len(again.bounding_key) == 32
    again.verify()


def test_a_ledger_that_cannot_be_written_refuses(store_place: Any, tmp_path: Path) -> None:
    """A store attached for reading, or detached, is a StoreError without DuckDB's text."""
    ledger = store_place.begin(charges=1)
    store_place.connection.execute("DETACH private")
    detached = message(StoreError, lambda: store_place.charge(ledger))
    store_place.connection.execute(f"ATTACH '{store_place.directory}/clinic_private.duckdb' AS private (READ_ONLY)")
    closed = message(StoreError, lambda: store_place.charge(ledger))
    assert "could not be read" in detached and "could not be written" in closed
    assert "Error" not in detached + closed, "DuckDB's text could quote a row"
