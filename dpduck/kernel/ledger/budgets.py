"""Budgets: what units have spent (rebuilt from the rows of the ledger), what is left, and changes of budgets.

Every number in a message is public. With units by periods, a charge names a run of periods. Its answers depend on no
rows of other periods, since rows/placed.py reads each table in this run alone. So

  of one period:   the charges with this period in their run add up, and no others.
  of a person:     let a charge of (epsilon, rho) name k periods. Taking away all rows of a person takes away at most k
                   units that its answers read, one after the other. That costs k epsilon, and k^2 rho (Bun and Steinke
                   2016, Proposition 1.9) or the rho of k epsilon if that is less. These costs add up over charges.

LIFETIME bounds the second sum. A delta for selected keys is bounded for one unit at a time. Over more than one period
nothing is proven for a person, so LIFETIME refuses it (docs/privacy.md, "Units by periods").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import reduce

from dpduck.kernel.ledger.entries import GENESIS, LedgerRow, budget_of, charge_of
from dpduck.kernel.ledger.shares import RELEASED, RESERVED, Reservation, read_reservation
from dpduck.values.accounting import epsilon_of, rho_of, rho_of_pure
from dpduck.values.errors import BudgetRefusal, InternalError, Refusal
from dpduck.values.periods import Periods, every, last_number, runs, split_key, word_of
from dpduck.values.privacy import NOTHING, ZERO, Budget, Charge, add_charges

Payer = str | tuple[str, ...] | None
"""A principal, several principals together, or None for all."""

Members = Callable[[str], tuple[str, ...]]
"""Lists the principals of a payer of a reservation: the members of a project, or a principal alone."""

MICROSECONDS = 86_400_000_000
"""Of a day."""

WIDENED = "a budget widened by the owner"

UNBOUNDED = Fraction(1)
"""The delta of a person if nothing is proven. Every budget has a smaller delta."""


@dataclass
class PeriodSums:
    """Spending of a unit by periods. charges: sums by charged run of periods. person: sum of for_person of each."""

    charges: dict[Periods, Charge] = field(default_factory=dict)
    person: Charge = NOTHING

    def add(self, periods: Periods, charge: Charge) -> None:
        self.charges[periods] = add_charges(self.charges.get(periods, NOTHING), charge)
        self.person = add_charges(self.person, for_person(charge, periods.count))

    def by_run(self) -> list[tuple[Periods, Charge]]:
        """Splits the charged periods into runs with the same charges. Returns the runs in order, with their sums."""
        # one sweep, even for many runs: a daily statement over all days so far leaves one run for each day
        changes: dict[int, list[tuple[int, Charge]]] = defaultdict(list)
        for periods, charge in self.charges.items():
            changes[periods.first].append((1, charge))
            changes[periods.last + 1].append((-1, charge))
        waiting, sums = sorted(changes, reverse=True), []
        without, epsilon, rho, delta = 0, ZERO, ZERO, ZERO
        for run in runs(self.charges):
            while waiting and waiting[-1] <= run.first:
                for sign, charge in changes[waiting.pop()]:
                    without += sign * (charge.epsilon is None)
                    epsilon += sign * (charge.epsilon or ZERO)
                    rho, delta = rho + sign * charge.rho, delta + sign * charge.delta
            sums.append((run, Charge(None if without else epsilon, rho, delta)))
        return sums

    def most(self, within: Periods | None) -> Charge:
        """Returns the most that was spent of any one period in `within`, in each measure. None: of all periods."""
        near = {named: charge for named, charge in self.charges.items() if within is None or named.overlaps(within)}
        sums = [spent for run, spent in PeriodSums(near).by_run() if within is None or run.overlaps(within)]
        return reduce(largest, sums, NOTHING)


def largest(charge: Charge, other: Charge) -> Charge:
    """Returns the larger amount in each measure. The result has no epsilon if one of the charges has none."""
    epsilon = None if charge.epsilon is None or other.epsilon is None else max(charge.epsilon, other.epsilon)
    return Charge(epsilon, max(charge.rho, other.rho), max(charge.delta, other.delta))


def for_person(charge: Charge, count: int) -> Charge:
    """Returns the cost of a charge to a person with rows in each of the `count` periods that it names."""
    if count == 1:
        return charge
    epsilon = None if charge.epsilon is None else count * charge.epsilon
    rho = count * count * charge.rho
    if epsilon:  # an epsilon of 0 beside a rho bounds nothing: missing_from may return one for an adopted copy
        rho = min(rho, rho_of_pure(epsilon))
    return Charge(epsilon, rho, UNBOUNDED if charge.delta else ZERO)


def require_named(unit_key: str, periods: Periods | None) -> None:
    """Raises unless a charge names periods of the length in its unit's key, or none for a unit without periods."""
    if word_of(unit_key) != (None if periods is None else periods.word):
        raise InternalError("a charge and its unit disagree about periods; nothing was charged")


def require_proven(charge: Charge, periods: Periods) -> None:
    """Refuses a charge under a LIFETIME without a proven bound for a person: periods without end, or a delta."""
    word = periods.word.lower()
    if periods.first == 0 or periods.last == last_number(periods.word):
        raise BudgetRefusal(
            f"the statement may read rows of {word}s without an end, and LIFETIME adds up what each of them costs",
            accepted=f"WHERE with the first and the last {word}: comparisons of the column of PER {periods.word} OF .. "
            "with dates; or GROUP BY that column, with its DOMAIN",
        )
    if charge.delta and periods.count > 1:
        raise BudgetRefusal(
            f"selected keys over {periods.count} {word}s have no bound for a whole person, which LIFETIME asks for",
            accepted=f"one {word} at a time, or keys with a DOMAIN",
        )


def require_charge(charge: Charge) -> None:
    """Refuses a charge that costs nothing, is not exact, or has both an epsilon and a rho above epsilon^2/2."""
    amounts = [charge.rho, charge.delta, *([] if charge.epsilon is None else [charge.epsilon])]
    if not all(isinstance(amount, Fraction) for amount in amounts):
        raise InternalError("a charge must be made of exact rationals")
    if charge.rho <= 0 or charge.delta < 0 or (charge.epsilon is not None and charge.epsilon <= 0):
        raise InternalError("a charge must cost something")
    if charge.epsilon is not None and charge.rho > charge.epsilon * charge.epsilon / 2:
        raise InternalError("a pure charge must cost at most epsilon^2/2 of rho")


def require_budget(budget: Budget) -> None:
    """Refuses a budget with contradictory amounts: a rho that its epsilon and delta do not allow, or no amount."""
    amounts = [budget.delta, budget.delta_keys, *(x for x in (budget.epsilon, budget.rho) if x is not None)]
    if not all(isinstance(amount, Fraction) for amount in amounts):
        raise InternalError("a budget must be made of exact rationals")
    if budget.delta < 0 or not 0 <= budget.delta_keys <= budget.delta or budget.delta >= 1:
        raise InternalError("a budget's delta must be smaller than 1, and at least what it keeps for keys")
    if budget.lifetime is not None:
        require_budget(budget.lifetime)
        if budget.lifetime.pure != budget.pure or budget.lifetime.lifetime is not None:
            raise InternalError("a lifetime must add up what its budget does")
    if budget.rho is None:
        if budget.epsilon is None or budget.epsilon <= 0 or budget.delta != 0:
            raise InternalError("a pure budget must have a positive epsilon and no delta")
        return
    if budget.rho <= 0:
        raise InternalError("a budget must have a positive rho")
    if budget.epsilon is not None and budget.rho > _rho_allowed(budget.epsilon, budget.delta - budget.delta_keys):
        raise InternalError("a budget's rho must not exceed what its epsilon and delta allow")


def _rho_allowed(epsilon: Fraction, delta: Fraction) -> Fraction:
    try:
        return rho_of(epsilon, delta)
    except ValueError:
        return ZERO


def require_room(owner: str, budget: Budget | None, spent: Charge, charge: Charge, later: str = WIDENED) -> None:
    """Refuses a charge above the amount that is left. owner, later: the budget's name and the advice if it is spent."""
    if budget is None:
        raise BudgetRefusal(f"there is no {owner}", accepted="CREATE PRIVACY POLICY with a BUDGET by the owner")
    if budget.rho is not None:
        _require_sum("rho", owner, budget.rho, spent.rho, charge.rho, later)
        _require_sum("delta for keys", owner, budget.delta_keys, spent.delta, charge.delta, later)
        return
    if charge.epsilon is None or charge.delta != 0 or spent.epsilon is None:
        raise BudgetRefusal(
            f"the {owner} is pure and cannot pay for, or after, a release with rho or delta",
            accepted="OPTIONS (epsilon = ...) alone, or a policy with BUDGET (epsilon = ..., delta = ...)",
        )
    if budget.epsilon is None:
        raise InternalError("a pure budget must have an epsilon")
    _require_sum("epsilon", owner, budget.epsilon, spent.epsilon, charge.epsilon, later)


@dataclass(frozen=True)
class Limit:
    """A budget, or a part of one, with the sum that was charged to it. name: for messages.

    person: whether it is a LIFETIME, which adds up what charges cost a person with rows in each of their periods.
    later: the advice if nothing is left.
    """

    name: str
    budget: Budget | None
    spent: Charge
    person: bool = False
    later: str = WIDENED

    def require_room(self, charge: Charge, periods: Periods | None) -> None:
        """Refuses a charge beyond what is left, or one without a proven bound for a person under a LIFETIME."""
        require_room(self.name, self.budget, self.spent, self._amounts(charge, periods), self.later)

    def times(self, charge: Charge, periods: Periods | None) -> int:
        """Returns how often a charge fits into what is left. If it fits n times, `require_room` passes n times."""
        added, budget, spent = self._amounts(charge, periods), self.budget, self.spent
        if budget is None:
            return 0
        sums: tuple[tuple[Fraction, Fraction, Fraction], ...]
        if budget.rho is not None:
            sums = ((budget.rho, spent.rho, added.rho), (budget.delta_keys, spent.delta, added.delta))
        elif added.epsilon is None or added.delta or spent.epsilon is None or budget.epsilon is None:
            return 0
        else:
            sums = ((budget.epsilon, spent.epsilon, added.epsilon),)
        return min(max(0, (whole - used) // amount) for whole, used, amount in sums if amount)

    def _amounts(self, charge: Charge, periods: Periods | None) -> Charge:
        if not self.person or periods is None:
            return charge
        require_proven(charge, periods)
        return for_person(charge, periods.count)


def share_of(budget: Budget | None, allotment: Fraction) -> Budget | None:
    """Returns the part of a budget that one principal may spend."""
    if not isinstance(allotment, Fraction) or not 0 < allotment <= 1:
        raise InternalError("an allotment must be an exact share above 0 and up to 1")
    if budget is None:
        return None
    return Budget(
        epsilon=None if budget.epsilon is None else budget.epsilon * allotment,
        delta=budget.delta * allotment,
        delta_keys=budget.delta_keys * allotment,
        rho=None if budget.rho is None else budget.rho * allotment,
        lifetime=share_of(budget.lifetime, allotment),
    )


def require_change(unit_key: str, new: Budget, spent: Charge) -> None:
    """Refuses a new budget that is less than its unit has spent already, in the measure of the new budget."""
    if new.rho is not None:
        _require_at_least("rho", unit_key, new.rho, spent.rho, _as_epsilon(new, spent.rho))
        _require_at_least("delta for keys", unit_key, new.delta_keys, spent.delta)
        return
    if spent.epsilon is None or spent.delta != 0:
        raise Refusal(
            f"the budget of {unit_key} cannot become pure: rho or delta was spent from it",
            accepted="BUDGET (epsilon = ..., delta = ...) or (rho = ...)",
        )
    if new.epsilon is not None:
        _require_at_least("epsilon", unit_key, new.epsilon, spent.epsilon)


def name_of_change(old: Budget | None, new: Budget) -> str:
    """Returns the ledger's word for the declaration of a budget."""
    if old is None:
        return "budget declared"
    if old == new:
        return "budget restated"
    before, after = _amounts(old), _amounts(new)
    if (old.lifetime is None) != (new.lifetime is None):
        return "budget changed"
    if old.lifetime is not None and new.lifetime is not None:
        before, after = (*before, *_amounts(old.lifetime)), (*after, *_amounts(new.lifetime))
    grows = any(x < y for x, y in zip(before, after, strict=True))
    shrinks = any(x > y for x, y in zip(before, after, strict=True))
    if old.pure != new.pure or grows == shrinks:
        return "budget changed"
    return "budget widened" if grows else "budget narrowed"


def format_amount(amount: Fraction, *, up: bool) -> str:
    """Renders an amount for people in six digits. It is rounded up if `up`, otherwise down.

    >>> [format_amount(Fraction(1, 3), up=up) for up in (False, True)], format_amount(Fraction(10), up=True)
    (['0.333333', '0.333334'], '10')
    >>> format_amount(Fraction(1, 10**6), up=False), format_amount(Fraction(1, 10**7), up=False)
    ('1e-6', '1e-7')
    """
    context = Context(prec=6, rounding=ROUND_CEILING if up else ROUND_FLOOR, Emin=-999_999, Emax=999_999)
    value = context.divide(Decimal(amount.numerator), Decimal(amount.denominator)).normalize(context)
    place = value.adjusted()
    return f"{value:{'f' if 0 <= place <= 9 else 'e' if place < -3 else 'g'}}"


def _amounts(budget: Budget) -> tuple[Fraction, ...]:
    adds = budget.epsilon if budget.rho is None else budget.rho
    return (ZERO if adds is None else adds), budget.delta_keys


def _require_sum(measure: str, owner: str, budget: Fraction, spent: Fraction, asked: Fraction, later: str) -> None:
    if spent + asked <= budget:
        return
    left = max(ZERO, budget - spent)
    accepted = f"{measure} of at most {format_amount(left, up=False)}" if left else later
    if measure == "delta for keys":  # LAPLACE_THRESHOLD spends its whole delta on keys
        accepted += "; GAUSSIAN_THRESHOLD, which takes a part of its delta" if left else ""
        accepted += "; for the owner ALTER PRIVACY POLICY ON .. SET BUDGET (epsilon = .., delta = .., delta_keys = ..)"
    raise BudgetRefusal(
        f"the statement asks for {measure} = {format_amount(asked, up=True)} "
        f"but the {owner} has {format_amount(left, up=False)} of {format_amount(budget, up=False)} left",
        accepted=accepted,
    )


def _as_epsilon(budget: Budget, rho: Fraction) -> str:
    """Returns a text with the epsilon that a budget with this delta needs for a spent rho, "" if there is none."""
    delta = budget.delta - budget.delta_keys
    if budget.epsilon is None or delta <= 0 or rho <= 0:
        return ""
    least = epsilon_of(rho, delta) * (1 + Fraction(1, 10**9))
    return f": epsilon of at least {format_amount(least, up=True)} with delta = {float(budget.delta):g}"


def _require_at_least(measure: str, unit_key: str, new: Fraction, spent: Fraction, also: str = "") -> None:
    if new < spent:
        raise Refusal(
            f"the budget of {unit_key} cannot be {measure} = {format_amount(new, up=False)}: "
            f"{format_amount(spent, up=True)} is already spent",
            accepted=f"{measure} of at least {format_amount(spent, up=True)}{also}",
        )


class LedgerState:
    """Sums over all verified rows, in memory, so that a charge never reads the whole ledger.

    spent, spent_by: by the charged key, which includes a unit's periods. periods: for units by periods, sums by unit
    and principal, with None for all principals together. Each principal's latest day has sums of its own (`on_day`).
    """

    def __init__(self) -> None:
        self.last_id, self.last_hash = 0, GENESIS
        self.charged_last = False
        """Whether the last entry is a charge."""

        self.budgets: dict[str, Budget] = {}
        self.spent: dict[str, Charge] = {}
        self.spent_by: dict[tuple[str, str], Charge] = {}
        self.periods: dict[tuple[str, str | None], PeriodSums] = {}
        self.reserved: dict[str, dict[str, Reservation]] = {}
        self._days: dict[str, int] = {}
        self._hashes = bytearray(bytes.fromhex(GENESIS))

    def hash_at(self, row_id: int) -> str:
        """Returns the hash of a row that was added, or for row 0 the hash that the chain begins with."""
        return self._hashes[32 * row_id : 32 * (row_id + 1)].hex()

    def absorb(self, row: LedgerRow) -> None:
        charge = charge_of(row.epsilon, row.rho, row.delta)
        payers = (row.principal, self._enter_day(row)) if charge != NOTHING else (row.principal,)
        self.spent[row.unit_key] = add_charges(self.spent.get(row.unit_key, NOTHING), charge)
        for key in ((row.unit_key, payer) for payer in payers):
            self.spent_by[key] = add_charges(self.spent_by.get(key, NOTHING), charge)
        unit_key, periods = split_key(row.unit_key)
        word = word_of(row.unit_key)
        if periods is None and word is not None and charge != NOTHING:  # written by a version without periods
            periods = every(word)
        if periods is not None:
            for payer in (None, *payers):
                self.periods.setdefault((unit_key, payer), PeriodSums()).add(periods, charge)
        if row.budget is not None:
            self.budgets[row.unit_key] = budget_of(row.budget)
        if row.mechanism in (RESERVED, RELEASED) and charge == NOTHING:
            self._absorb_reservation(row)
        self._hashes += bytes.fromhex(row.hash)
        self.last_id, self.last_hash, self.charged_last = row.id, row.hash, charge != NOTHING

    def on_day(self, principal: str, at: int) -> str:
        """Returns the payer of a principal's charges on a day in UTC. If a clock goes back, the day stays.

        The payer has a line break, as no principal's name has.
        """
        return f"{principal}\n{max(at // MICROSECONDS, self._days.get(principal, 0))}"

    def _enter_day(self, row: LedgerRow) -> str:
        payer = self.on_day(row.principal, row.at)
        self._days[row.principal] = int(payer.rpartition("\n")[2])
        return payer

    def _absorb_reservation(self, row: LedgerRow) -> None:
        reservation = read_reservation(row.statement)
        reserved = self.reserved.setdefault(row.unit_key, {})
        reserved.pop(reservation.payer, None)
        if row.mechanism == RESERVED:
            begun = {name: charge for (unit, name), charge in self.spent_by.items() if unit == row.unit_key}
            reserved[reservation.payer] = replace(reservation, begun=begun)

    def unspent(self, unit_key: str, members: Members, now: datetime) -> dict[str, Charge]:
        """Returns the unspent part of each reservation in force, by payer. members: lists a payer's principals."""
        budget = self.budgets.get(unit_key)
        parts = {}
        for payer, reservation in self.reserved.get(unit_key, {}).items():
            if budget is not None and reservation.in_force(now):
                spent = {name: self.spent_by.get((unit_key, name), NOTHING) for name in members(payer)}
                parts[payer] = reservation.unspent(budget, spent)
        return parts

    def of(self, unit_key: str, payer: Payer = None, within: Periods | None = None) -> Charge:
        """Returns the sum of a unit's charges, in all or by some principals. For units by periods: PeriodSums.most."""
        sums = self.sums_by_period(unit_key, payer)
        if sums is not None:
            return sums.most(within)
        if payer is None:
            return self.spent.get(unit_key, NOTHING)
        names = payer if isinstance(payer, tuple) else (payer,)
        return reduce(add_charges, (self.spent_by.get((unit_key, name), NOTHING) for name in names), NOTHING)

    def of_person(self, unit_key: str, payer: Payer = None) -> Charge:
        """Returns the cost of all charges of a unit by periods to a person with rows in each of their periods."""
        sums = self.sums_by_period(unit_key, payer)
        return NOTHING if sums is None else sums.person

    def sums_by_period(self, unit_key: str, payer: Payer) -> PeriodSums | None:
        """Returns the sums of some principals together, None if they were charged for no period."""
        if not isinstance(payer, tuple):
            return self.periods.get((unit_key, payer))
        parts = [self.periods[unit_key, name] for name in payer if (unit_key, name) in self.periods]
        together = PeriodSums()
        for part in parts:
            for run, charge in part.charges.items():
                together.charges[run] = add_charges(together.charges.get(run, NOTHING), charge)
            together.person = add_charges(together.person, part.person)
        return together if parts else None
