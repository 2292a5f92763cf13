"""The running state of the ledger, rebuilt from its rows: budgets, and what was spent of each."""

from __future__ import annotations

from dpduck.trusted.ledger.entries import GENESIS, NOTHING, LedgerRow, added, budget_of, charge_of
from dpduck.trusted.ledger.periods import PeriodSums
from dpduck.values.periods import Periods, every, split_key, word_of
from dpduck.values.privacy import Budget, Charge


class LedgerState:
    """Sums over all verified rows: kept in memory so that a charge never reads the whole ledger.

    spent, spent_by: by the key of what is charged, which has a unit's periods in it. periods: the same of units by
    periods, by unit and principal, None for all of them.
    """

    def __init__(self) -> None:
        self.last_id = 0
        self.charged_last = False
        """Whether the last entry is a charge."""

        self.budgets: dict[str, Budget] = {}
        self.spent: dict[str, Charge] = {}
        self.spent_by: dict[tuple[str, str], Charge] = {}
        self.periods: dict[tuple[str, str | None], PeriodSums] = {}
        self._hashes = bytearray(bytes.fromhex(GENESIS))

    def hash_at(self, row_id: int) -> str:
        """Returns the hash of a row that was absorbed; of no row, the beginning of the chain."""
        return self._hashes[32 * row_id : 32 * (row_id + 1)].hex()

    def absorb(self, row: LedgerRow) -> None:
        """Add a row that has just been written or verified."""
        charge = charge_of(row.epsilon, row.rho, row.delta)
        person = (row.unit_key, row.principal)
        self.spent[row.unit_key] = added(self.spent.get(row.unit_key, NOTHING), charge)
        self.spent_by[person] = added(self.spent_by.get(person, NOTHING), charge)
        unit_key, periods = split_key(row.unit_key)
        word = word_of(row.unit_key)
        if periods is None and word is not None and charge != NOTHING:  # by a dpduck that knows no periods
            periods = every(word)
        if periods is not None:
            for payer in (None, row.principal):
                self.periods.setdefault((unit_key, payer), PeriodSums()).add(periods, charge)
        if row.budget is not None:
            self.budgets[row.unit_key] = budget_of(row.budget)
        self._hashes += bytes.fromhex(row.hash)
        self.last_id, self.charged_last = row.id, charge != NOTHING

    def of(self, unit_key: str, principal: str | None = None, within: Periods | None = None) -> Charge:
        """Returns the sum of all charges of a unit, or of one principal's; by periods the most of any one period of a
        run.
        """
        sums = self.periods.get((unit_key, principal))
        if sums is not None:
            return sums.most(within)
        if principal is None:
            return self.spent.get(unit_key, NOTHING)
        return self.spent_by.get((unit_key, principal), NOTHING)

    def of_person(self, unit_key: str, principal: str | None = None) -> Charge:
        """Returns what the charges of a unit by periods cost a person with rows in each of their periods."""
        sums = self.periods.get((unit_key, principal))
        return NOTHING if sums is None else sums.person
