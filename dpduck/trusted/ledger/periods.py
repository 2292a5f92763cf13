"""What units whose rows are protected by period have spent: in each period, and a whole person in all of them.

A unit is one person's rows of one period. A charge names the run of periods whose rows its answers may read; the
answers do not depend on rows of other periods (rows/periods.py filters the scan). So

  of one period:   the charges whose run has it add up, and no others;
  of a person:     let a charge of (epsilon, rho) name k periods. Taking away all rows of a person takes away at most k
                   units that its answers read, one after the other: k epsilon, or k^2 rho (Bun and Steinke 2016,
                   Proposition 1.9), or what k epsilon costs in rho, whichever is less. These add up over charges.

LIFETIME bounds the second sum. A delta for selected keys is bounded for one unit at a time: of more periods than one
nothing is proven for a person, so that LIFETIME refuses it (docs/privacy.md, "Units by periods").
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce

from dpduck.trusted.ledger.entries import NOTHING, added
from dpduck.values.accounting import rho_of_pure
from dpduck.values.errors import BudgetRefusal, InternalError
from dpduck.values.periods import Periods, last_number, runs, word_of
from dpduck.values.privacy import ZERO, Charge

UNBOUNDED = Fraction(1)
"""The delta of a person where nothing is proven: no budget has so much."""


@dataclass
class PeriodSums:
    """What one unit has spent, or one principal of it. charges: by the run that was named. person: see above."""

    charges: dict[Periods, Charge] = field(default_factory=dict)
    person: Charge = NOTHING

    def add(self, periods: Periods, charge: Charge) -> None:
        """Adds a charge."""
        self.charges[periods] = added(self.charges.get(periods, NOTHING), charge)
        self.person = added(self.person, for_person(charge, periods.count))

    def by_run(self) -> list[tuple[Periods, Charge]]:
        """Runs of periods in which the same was spent, in order, each with the sum of the charges that have it.

        In one sweep: a statement over all days so far, asked anew each day, has as many runs as days.
        """
        changes: dict[int, list[tuple[int, Charge]]] = defaultdict(list)
        for one, charge in self.charges.items():
            changes[one.first].append((1, charge))
            changes[one.last + 1].append((-1, charge))
        waiting, found = sorted(changes, reverse=True), []
        without, epsilon, rho, delta = 0, ZERO, ZERO, ZERO
        for run in runs(self.charges):
            while waiting and waiting[-1] <= run.first:
                for sign, charge in changes[waiting.pop()]:
                    without += sign * (charge.epsilon is None)
                    epsilon += sign * (charge.epsilon or ZERO)
                    rho, delta = rho + sign * charge.rho, delta + sign * charge.delta
            found.append((run, Charge(None if without else epsilon, rho, delta)))
        return found

    def most(self, within: Periods | None) -> Charge:
        """Returns the most that was spent of any one period of a run, in each measure; None for all periods."""
        near = {one: charge for one, charge in self.charges.items() if within is None or one.overlaps(within)}
        found = [spent for run, spent in PeriodSums(near).by_run() if within is None or run.overlaps(within)]
        return reduce(largest, found, NOTHING)


def largest(one: Charge, other: Charge) -> Charge:
    """Returns the larger of each measure; there is no pure epsilon once one of them has none."""
    epsilon = None if one.epsilon is None or other.epsilon is None else max(one.epsilon, other.epsilon)
    return Charge(epsilon, max(one.rho, other.rho), max(one.delta, other.delta))


def for_person(charge: Charge, count: int) -> Charge:
    """Returns what a charge that names so many periods costs a person with rows in each of them."""
    if count == 1:
        return charge
    epsilon = None if charge.epsilon is None else count * charge.epsilon
    rho = count * count * charge.rho
    if epsilon:  # 0 beside a rho says nothing: what an adopted copy misses may have no epsilon
        rho = min(rho, rho_of_pure(epsilon))
    return Charge(epsilon, rho, UNBOUNDED if charge.delta else ZERO)


def require_named(unit_key: str, periods: Periods | None) -> None:
    """Fail closed unless a charge names periods where its unit has such, and of the unit's own word."""
    if word_of(unit_key) != (None if periods is None else periods.word):
        raise InternalError("a charge and its unit disagree about periods; nothing was charged")


def require_proven(charge: Charge, periods: Periods) -> None:
    """Refuses, under a LIFETIME, what would be added up without an end or without a proof."""
    one = periods.word.lower()
    if periods.first == 0 or periods.last == last_number(periods.word):
        raise BudgetRefusal(
            f"the statement may read rows of {one}s without an end, and LIFETIME adds up what each of them costs",
            accepted=f"WHERE with the first and the last {one}: comparisons of the column of PER {periods.word} OF .. "
            "with dates; or GROUP BY that column, with its DOMAIN",
        )
    if charge.delta and periods.count > 1:
        raise BudgetRefusal(
            f"selected keys over {periods.count} {one}s have no bound for a whole person, which LIFETIME asks for",
            accepted=f"one {one} at a time, or keys with a DOMAIN",
        )
