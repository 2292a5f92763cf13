"""How fast budgets are spent: amounts a day, the day on which a budget ends at that rate, and a warning near its end.

A forecast is a straight line: the charges of the last 30 days go on as they were. It reads the ledger's table without a
check of its hashes, which every charge makes, since a forecast decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.store.cursors import OpenCursor
from dpduck.values.per_cent import in_per_cent
from dpduck.values.periods import Periods, split_key
from dpduck.values.privacy import Budget, Charge, add_charges
from dpduck.values.quoting import quote_identifier

WINDOW = timedelta(days=30)
"""The time before now whose charges make the rate. It begins with the first charge if that is later."""

NEARLY_SPENT = Fraction(4, 5)
"""The part of a budget from which there is a warning."""

_DAY = 86_400.0


@dataclass(frozen=True)
class SpendingRate:
    """Amounts that one unit was charged a day."""

    epsilon: float = 0.0
    rho: float = 0.0
    delta: float = 0.0

    def of(self, measure: str) -> float:
        return {"epsilon": self.epsilon, "rho": self.rho, "delta": self.delta}[measure]


@dataclass(frozen=True)
class SpendingRates:
    """Reader of rates from the ledger's table."""

    open_cursor: OpenCursor
    store: str

    def by_unit(self, principal: str | None, now: datetime) -> dict[str, SpendingRate]:
        """Returns the rate of each unit without periods that was ever charged. principal: None for all charges."""
        amounts = ", ".join(
            f"coalesce(sum(split_part({name}, '/', 1)::DOUBLE / split_part({name}, '/', 2)::DOUBLE) "
            'FILTER ("at" > $begin), 0)'
            for name in ("epsilon", "rho", "delta")
        )
        payer = "" if principal is None else "AND principal = $payer"
        query = (
            f'SELECT unit_key, epoch(min("at")), {amounts} FROM {quote_identifier(self.store)}.dpduck.ledger_entries '
            f"WHERE rho <> '0/1' {payer} GROUP BY unit_key"
        )
        given = {"begin": (now - WINDOW).isoformat(" ")} | ({} if principal is None else {"payer": principal})
        with self.open_cursor() as cursor:
            rows = cursor.execute(query, given).fetchall()
        rates = {}
        for unit, first, *sums in rows:
            days = min(WINDOW.total_seconds(), max(_DAY, now.timestamp() - first)) / _DAY
            rates[str(unit)] = SpendingRate(*(amount / days for amount in sums))
        return rates


def last_day(left: Fraction, per_day: float, now: datetime) -> str | None:
    """Returns the day on which a rate uses up what is left. None if it does not before the year 9999.

    >>> last_day(Fraction(3), 0.5, datetime(2026, 1, 30, tzinfo=UTC)), last_day(Fraction(3), 0.0, datetime.now(UTC))
    ('2026-02-05', None)
    """
    if per_day <= 0:
        return None
    try:
        return (now + timedelta(days=float(left) / per_day)).date().isoformat()
    except OverflowError:
        return None


def days_until(day: date, now: datetime) -> float:
    """Returns the days from now to the end of a day, in UTC. They are 0 if it is over."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)  # the last day that there is has no next one
    return max(0.0, (begin - now).total_seconds() / _DAY + 1)


def warn_of(spent: Fraction, whole: Fraction) -> str | None:
    """Returns a warning if most of a budget is spent, otherwise None.

    >>> warn_of(Fraction(3, 4), Fraction(1)), warn_of(Fraction(5, 6), Fraction(1)), warn_of(Fraction(2), Fraction(2))
    (None, '83 % is spent', 'all of it is spent')
    """
    if not whole or spent < NEARLY_SPENT * whole:
        return None
    return "all of it is spent" if spent >= whole else f"{in_per_cent(spent / whole, up=False)} is spent"


def warn_of_budget(ledger: Ledger, unit_key: str, periods: Periods | None, added: Charge | None = None) -> str:
    """Returns a warning about a unit's budget, in the periods that were charged, '' for none. added: a charge to come.

    A charge that does not fit has no warning, since it is refused. Warnings are for the owner alone, since they say
    how much all principals spent together.
    """
    budget, spent = ledger.latest(unit_key, periods)
    if budget is None:
        return ""
    amount, whole = _amount(add_charges(spent, added) if added else spent, budget), _whole(budget)
    if added and amount > whole:
        return ""
    warning = warn_of(amount, whole)
    if warning and added:
        return f"this answer brings {unit_key} to {in_per_cent(amount / whole, up=False)} of its budget"
    return f"the budget of {unit_key}: {warning}" if warning else ""


def warn_of_entry(ledger: Ledger, entry_id: int) -> str:
    """Returns a warning about the budget that an entry of the ledger was charged to, '' for none."""
    return warn_of_budget(ledger, *split_key(ledger.entry(entry_id).unit_key))


def spent_shares(ledger: Ledger) -> dict[str, float]:
    """Returns the share of each unit's budget that all principals spent together. Of periods it is the largest share.

    It is for the owner alone, and sends no statement to DuckDB.
    """
    shares = {}
    for unit_key in ledger.budgets():
        budget, spent = ledger.latest(unit_key)
        if budget is not None and _whole(budget):
            shares[unit_key] = float(_amount(spent, budget) / _whole(budget))
    return shares


def _amount(charge: Charge, budget: Budget) -> Fraction:
    return (charge.epsilon if budget.pure else charge.rho) or Fraction(0)


def _whole(budget: Budget) -> Fraction:
    return (budget.epsilon if budget.pure else budget.rho) or Fraction(0)
