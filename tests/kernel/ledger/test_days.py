"""Parts of a budget for one day: their bounds, over midnight, after a restart, and raced from 16 threads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from dpduck.kernel.ledger import chain as chains
from dpduck.kernel.ledger import ledger as ledgers
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.values.errors import BudgetRefusal, InternalError
from dpduck.values.periods import between
from dpduck.values.privacy import ZERO, Budget, Charge
from tests.kernel.ledger.test_shares import UNIT, pay, race, refusal, spent_by

PART = Fraction(1, 10)
"""Of a budget of 3 each day."""


class Clock:
    """Stands in for datetime in the ledger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moment = datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)
        monkeypatch.setattr(ledgers, "now_in_utc", lambda: self.moment)
        monkeypatch.setattr(chains, "datetime", self)

    def now(self, _zone: object) -> datetime:
        return self.moment


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_day_has_a_part_and_the_next_has_one_too(store_place: Any, clock: Clock) -> None:
    """Charges of a principal's day add up, midnight in UTC begins anew, and other principals have days of their own."""
    ledger = store_place.begin(charges=0)
    pay(ledger, "agent", Fraction(2, 10), a_day=PART)
    text = refusal(lambda: pay(ledger, "agent", Fraction(2, 10), a_day=PART))
    assert "part of agent for this day in the budget of main.patients.id has 0.1 of 0.3 left" in text
    pay(ledger, "agent", a_day=PART)
    assert "accepted: the same after midnight in UTC" in refusal(lambda: pay(ledger, "agent", a_day=PART))
    refusal(lambda: ledger.check(UNIT, Charge.pure(PART), principal="agent", a_day=PART))
    assert ledger.times_left(UNIT, Charge.pure(PART), "agent", a_day=PART) == 0
    assert ledger.times_left(UNIT, Charge.pure(PART), "other", a_day=PART) == 3
    pay(ledger, "other", Fraction(3, 10), a_day=PART)
    clock.moment += timedelta(seconds=1)
    assert ledger.times_left(UNIT, Charge.pure(PART), "agent", a_day=PART) == 3
    pay(ledger, "agent", Fraction(3, 10), a_day=PART)
    refusal(lambda: pay(ledger, "agent", a_day=PART))
    assert ledger.spent(UNIT, ledger.today("agent")).epsilon == Fraction(3, 10)
    assert ledger.spent(UNIT, "agent").epsilon == Fraction(6, 10)
    pay(ledger, "agent", Fraction(1))
    refusal(lambda: pay(ledger, "agent", a_day=Fraction(2, 5)))


def test_a_clock_that_goes_back_begins_no_day(store_place: Any, clock: Clock) -> None:
    """A full day stays full, whatever an earlier moment says."""
    ledger = store_place.begin(charges=0)
    clock.moment += timedelta(days=3)
    pay(ledger, "agent", Fraction(3, 10), a_day=PART)
    for back in (1, 3, 400):
        clock.moment -= timedelta(days=back)
        refusal(lambda: pay(ledger, "agent", a_day=PART))
    assert spent_by(ledger, "agent") == Fraction(3, 10)


def test_a_restart_keeps_the_day(store_place: Any, clock: Clock) -> None:
    """The sums of a day are made from the rows, which have no more fields than before."""
    before = store_place.begin(charges=0)
    pay(before, "agent", Fraction(3, 10), a_day=PART)
    rows = before.entries()
    after = store_place.open()
    refusal(lambda: pay(after, "agent", a_day=PART))
    assert after.entries() == rows
    clock.moment += timedelta(days=1)
    pay(after, "agent", Fraction(3, 10), a_day=PART)


def test_a_day_of_nobody_is_an_error(store_place: Any) -> None:
    """A part of a day without a principal would bound nobody."""
    ledger = store_place.begin(charges=0)
    with pytest.raises(InternalError):
        ledger.check(UNIT, Charge.pure(PART), a_day=PART)


def test_sixteen_threads_and_two_ledgers_race_for_one_day(store_place: Any, clock: Clock) -> None:
    """No interleaving charges more than the day's part, and the whole part is spent."""
    first = store_place.begin(charges=0)
    second = Ledger.open(
        store_place.connection.cursor, "private", secrets_path=store_place.secrets, witness_directory=store_place.state
    )
    asks: list[Callable[[], object]] = [
        partial(pay, (first, second)[number % 2], "agent", Fraction(1, 50), a_day=PART) for number in range(16)
    ]
    assert race(asks, attempts=4) == 15
    assert spent_by(first, "agent") == Fraction(3, 10)


def test_each_period_has_a_part_a_day(store_place: Any, clock: Clock) -> None:
    """For a unit by periods, each period and the lifetime have their part."""
    ledger = store_place.open()
    unit = "main.visits.patient PER MONTH"
    lifetime = Budget(Fraction(20), ZERO, ZERO, None)
    ledger.declare_budget(unit, "visits", Budget(Fraction(4), ZERO, ZERO, None, lifetime), "owner", "CREATE")

    def ask(first: int, last: int) -> None:
        run = between("MONTH", date(2024, first, 1), date(2024, last, 1))
        ledger.charge(
            unit, "visits", Charge.pure(Fraction(1)), "agent", "s", "noise", periods=run, a_day=Fraction(1, 4)
        )

    ask(1, 3)
    assert "part of agent for this day" in refusal(lambda: ask(3, 4))
    ask(4, 5)
    ended = refusal(lambda: ask(6, 6))
    assert "LIFETIME in the part of agent for this day" in ended and "the same after midnight in UTC" in ended
    clock.moment += timedelta(seconds=1)
    ask(3, 4)


def test_rho_and_delta_have_parts(store_place: Any, clock: Clock) -> None:
    """Budgets that add up rho bound its part, and the part of their delta for keys."""
    ledger = store_place.open()
    tiny = Fraction(1, 10**6)
    budget = Budget(None, 10 * tiny, 10 * tiny, Fraction(1))
    ledger.declare_budget(UNIT, "visits", budget, "owner", "CREATE")

    def ask(rho: Fraction, delta: Fraction) -> None:
        ledger.charge(UNIT, "visits", Charge.zcdp(rho, delta), "agent", "s", "noise", a_day=PART)

    ask(Fraction(1, 20), tiny)
    with pytest.raises(BudgetRefusal, match="delta for keys"):
        ask(Fraction(1, 100), tiny)
    with pytest.raises(BudgetRefusal, match="rho"):
        ask(Fraction(1, 10), ZERO)
    ask(Fraction(1, 20), ZERO)
