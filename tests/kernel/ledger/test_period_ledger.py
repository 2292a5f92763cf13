"""Units by periods in the ledger: disjoint periods compose in parallel, others add up, and LIFETIME bounds the sum."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.kernel.ledger.budgets import PeriodSums
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.values.accounting import rho_of_pure
from dpduck.values.errors import BudgetRefusal, InternalError, Refusal, StoreError
from dpduck.values.periods import Periods, every
from dpduck.values.privacy import ZERO, Budget, Charge

UNIT = "clinic.main.visits.patient_id PER MONTH"
FIRST = 12 * 2023
PURE = Budget(Fraction(2), ZERO, ZERO, None, Budget(Fraction(12), ZERO, ZERO, None))
RHO = Budget(None, ZERO, ZERO, Fraction(2), Budget(None, ZERO, ZERO, Fraction(12)))


def months(first: int, last: int | None = None) -> Periods:
    """Months by number, from January 2024 on."""
    return Periods("MONTH", FIRST + first, FIRST + (first if last is None else last))


def opened(folder: Path | None = None) -> Ledger:
    """Opens a ledger in memory, or the ledger of a folder."""
    connection = duckdb.connect()
    place = ":memory:" if folder is None else str(folder / "store.duckdb")
    connection.execute(f"ATTACH '{place}' AS private")
    secrets = None if folder is None else folder / "store_secrets"
    witness = None if folder is None else folder.parent / "state"
    return Ledger.open(connection.cursor, "private", secrets_path=secrets, witness_directory=witness)


@pytest.fixture(scope="module")
def shared() -> Ledger:
    """One ledger for many units."""
    return opened()


def unit_of(ledger: Ledger, budget: Budget) -> str:
    """Returns a unit that has spent nothing yet."""
    key = f"clinic.main.t{ledger.last_entry()}.patient_id PER MONTH"
    ledger.declare_budget(key, "visits", budget, "owner", "CREATE")
    return key


def pay(
    ledger: Ledger,
    charge: Charge,
    periods: Periods | None,
    who: str = "alice",
    part: str | None = None,
    unit: str = UNIT,
) -> int:
    share = None if part is None else Fraction(part)
    return ledger.charge(unit, "visits", charge, who, "statement", "noise", periods=periods, allotment=share)


@pytest.fixture
def ledger() -> Ledger:
    found = opened()
    found.declare_budget(UNIT, "visits", PURE, "owner", "CREATE")
    return found


RUNS = st.tuples(st.integers(0, 8), st.integers(0, 4)).map(lambda ends: months(ends[0], ends[0] + ends[1]))
AMOUNTS = st.sampled_from([Fraction(1, 10), Fraction(1, 3), Fraction(1), Fraction(2)])


@settings(max_examples=10, deadline=None)
@given(asked=st.lists(st.tuples(RUNS, AMOUNTS, st.booleans()), max_size=14))
def test_what_is_charged_is_what_a_table_of_months_says(
    shared: Ledger, asked: list[tuple[Periods, Fraction, bool]]
) -> None:
    """Random charges are accepted, refused and added up as by sums for each month, in a budget of epsilon or of rho.

    Under rho, Gaussian and pure charges are mixed.
    """
    for budget in (PURE, RHO):
        unit = unit_of(shared, budget)
        spent: dict[int, Fraction] = defaultdict(Fraction)
        person, most, limit = ZERO, Fraction(2), Fraction(12)
        for run, amount, gaussian in asked:
            charge = Charge.zcdp(amount) if gaussian and not budget.pure else Charge.pure(amount)
            own = charge.epsilon if budget.pure and charge.epsilon is not None else charge.rho
            whole = run.count * own if budget.pure else run.count**2 * own
            if charge.epsilon is not None and not budget.pure and run.count > 1:
                whole = min(whole, rho_of_pure(run.count * charge.epsilon))
            numbers = range(run.first, run.last + 1)
            fits = all(spent[number] + own <= most for number in numbers) and person + whole <= limit
            if fits:
                pay(shared, charge, run, unit=unit)
                spent.update({number: spent[number] + own for number in numbers})
                person += whole
            else:
                with pytest.raises(BudgetRefusal):
                    pay(shared, charge, run, unit=unit)
        total, whole_person = shared.spent(unit), shared.spent_of_person(unit)
        found = {number: sum_ for run, sum_ in shared.spent_by_run(unit) for number in range(run.first, run.last + 1)}
        amounts = {number: one.epsilon if budget.pure else one.rho for number, one in found.items()}
        assert amounts == {number: one for number, one in spent.items() if one}
        assert (total.epsilon if budget.pure else total.rho) == max(spent.values(), default=ZERO)
        assert (whole_person.epsilon if budget.pure else whole_person.rho) == person


@settings(max_examples=10, deadline=None)
@given(one=RUNS, other=RUNS)
def test_two_statements_cost_the_maximum_or_the_sum(shared: Ledger, one: Periods, other: Periods) -> None:
    """With two charges of disjoint months no month spends more than the larger one. In a common month they add up."""
    unit = unit_of(shared, Budget(Fraction(9), ZERO, ZERO, None))
    pay(shared, Charge.pure(Fraction(2)), one, unit=unit)
    pay(shared, Charge.pure(Fraction(3)), other, unit=unit)
    assert shared.spent(unit).epsilon == (5 if one.overlaps(other) else 3)


def test_a_charge_of_every_month_is_a_charge_of_each(ledger: Ledger) -> None:
    """A charge of undecided months is a charge of each month, also of months before and after all others."""
    ledger.declare_budget(UNIT, "visits", Budget(Fraction(2), ZERO, ZERO, None), "owner", "ALTER")
    pay(ledger, Charge.pure(Fraction(1)), months(3))
    pay(ledger, Charge.pure(Fraction(1)), every("MONTH"))
    with pytest.raises(BudgetRefusal, match="has 0 of 2 left"):
        pay(ledger, Charge.pure(Fraction(1)), months(3))
    pay(ledger, Charge.pure(Fraction(1)), months(900))
    assert ledger.spent(UNIT, within=months(4)).epsilon == 1


def test_lifetime_asks_for_ends_and_for_a_proof(ledger: Ledger) -> None:
    """LIFETIME refuses months without an end, and selected keys over two months, which have no bound for a person."""
    for run in (every("MONTH"), Periods("MONTH", 0, FIRST), Periods("MONTH", FIRST, every("MONTH").last)):
        with pytest.raises(BudgetRefusal, match="months without an end, and LIFETIME adds up"):
            pay(ledger, Charge.pure(Fraction(1, 1000)), run)
    keys = Budget(None, Fraction(1, 100), Fraction(1, 200), Fraction(2))
    lifetime = Budget(None, Fraction(1, 100), Fraction(1, 200), Fraction(12))
    ledger.declare_budget(UNIT, "visits", Budget(*_fields(keys), lifetime), "owner", "ALTER")
    charge = Charge.zcdp(Fraction(1), Fraction(1, 500))
    pay(ledger, charge, months(0))
    pay(ledger, charge, months(1))
    with pytest.raises(BudgetRefusal, match=r"LIFETIME in the .* has 0.001 of 0.005 left"):
        pay(ledger, charge, months(2))
    with pytest.raises(BudgetRefusal, match="selected keys over 2 months have no bound for a whole person"):
        pay(ledger, charge, months(3, 4))


def _fields(budget: Budget) -> tuple[Fraction | None, Fraction, Fraction, Fraction | None]:
    return budget.epsilon, budget.delta, budget.delta_keys, budget.rho


def test_a_lifetime_that_comes_later_counts_what_was_before() -> None:
    """A LIFETIME below the possible loss of a person so far is refused, and one equal to the loss is accepted."""
    ledger = opened()
    ledger.declare_budget(UNIT, "visits", Budget(Fraction(2), ZERO, ZERO, None), "owner", "CREATE")
    pay(ledger, Charge.pure(Fraction(1)), months(0, 11))
    for amount, fits in ((11, False), (12, True)):
        lifetime = Budget(Fraction(amount), ZERO, ZERO, None)
        if fits:
            ledger.declare_budget(UNIT, "visits", Budget(Fraction(2), ZERO, ZERO, None, lifetime), "owner", "ALTER")
        else:
            with pytest.raises(
                Refusal, match=r"the budget of LIFETIME of .* cannot be epsilon = 11: 12 is already spent"
            ):
                ledger.declare_budget(UNIT, "visits", Budget(Fraction(2), ZERO, ZERO, None, lifetime), "owner", "ALTER")
    assert ledger.budget(UNIT) == Budget(Fraction(2), ZERO, ZERO, None, Budget(Fraction(12), ZERO, ZERO, None))


def test_shares_are_of_each_period_and_of_the_lifetime(ledger: Ledger) -> None:
    """A principal may spend their part of each month, and their part of the lifetime budget."""
    for month in range(6):
        pay(ledger, Charge.pure(Fraction(1)), months(month), "alice", "1/2")
        with pytest.raises(BudgetRefusal, match="share of alice in the budget of"):
            pay(ledger, Charge.pure(Fraction(1, 10)), months(month), "alice", "1/2")
    with pytest.raises(BudgetRefusal, match=r"LIFETIME in the share of alice"):
        pay(ledger, Charge.pure(Fraction(1)), months(6), "alice", "1/2")
    pay(ledger, Charge.pure(Fraction(2)), months(6), "bob")
    assert ledger.spent(UNIT, "alice", months(6)).epsilon == 0


def test_a_charge_names_periods_of_its_units_word(ledger: Ledger) -> None:
    """A charge without months, or by days, is a defect for a unit by months: nothing is charged."""
    for periods in (None, Periods("DAY", 1, 1)):
        with pytest.raises(InternalError, match="a charge and its unit disagree about periods"):
            pay(ledger, Charge.pure(Fraction(1)), periods)
    plain = "clinic.main.visits.patient_id"
    ledger.declare_budget(plain, "visits", Budget(Fraction(2), ZERO, ZERO, None), "owner", "CREATE")
    with pytest.raises(InternalError, match="disagree about periods"):
        ledger.charge(plain, "visits", Charge.pure(Fraction(1)), "alice", "s", "noise", periods=months(1))
    assert ledger.spent(UNIT).rho == ledger.spent(plain).rho == 0


def test_a_charge_without_periods_is_of_every_period(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier dpduck without periods charges the unit's key alone: each period and a person owe that charge."""
    ledger.declare_budget(UNIT, "visits", Budget(Fraction(2), ZERO, ZERO, None), "owner", "ALTER")
    pay(ledger, Charge.pure(Fraction(1)), months(0))
    monkeypatch.setattr("dpduck.kernel.ledger.ledger.require_named", lambda *_: None)
    pay(ledger, Charge.pure(Fraction(1)), None)
    monkeypatch.undo()
    assert [ledger.spent(UNIT, within=months(month)).epsilon for month in (0, 5)] == [2, 1]
    assert ledger.spent_of_person(UNIT).epsilon == 1 + every("MONTH").count
    with pytest.raises(BudgetRefusal, match="has 0 of 2 left"):
        pay(ledger, Charge.pure(Fraction(1)), months(0))


def test_a_day_more_each_day_is_added_up_at_once() -> None:
    """A statement over all days so far, on each of 1,000 days, is summed in one sweep: one sum a day took 4 s."""
    sums = PeriodSums()
    for day in range(1000):
        sums.add(Periods("DAY", 730_000, 730_000 + day), Charge.zcdp(Fraction(day % 7 + 1)))
    before = time.process_time()
    most = sums.most(Periods("DAY", 730_000, 730_999))
    assert time.process_time() - before < 1
    assert most.rho == sum(day % 7 + 1 for day in range(1000))


def test_periods_are_on_disk_and_adopted_copies_owe_them(tmp_path: Path) -> None:
    """A reopened ledger has the same sums. An adopted older copy owes each run the amount it lacks, and no other."""
    folder = tmp_path / "clinic"
    folder.mkdir()
    ledger = opened(folder)
    ledger.declare_budget(UNIT, "visits", PURE, "owner", "CREATE")
    pay(ledger, Charge.pure(Fraction(1, 2)), months(0, 1))
    del ledger
    shutil.copytree(folder, tmp_path / "copy")
    ledger = opened(folder)
    pay(ledger, Charge.pure(Fraction(1)), months(0))
    pay(ledger, Charge.pure(Fraction(1, 4)), months(0, 1))
    before = ledger.spent_by_run(UNIT), ledger.spent_of_person(UNIT)
    del ledger
    again = opened(folder)
    assert (again.spent_by_run(UNIT), again.spent_of_person(UNIT)) == before
    again.verify()
    del again
    with pytest.raises(StoreError, match="older copy"):
        opened(tmp_path / "copy")
    connection = duckdb.connect()
    connection.execute(f"ATTACH '{tmp_path / 'copy' / 'store.duckdb'}' AS private")
    adopted = Ledger.adopt(
        connection.cursor, "private", secrets_path=tmp_path / "copy" / "store_secrets",
        witness_directory=tmp_path / "state", principal="owner", statement="adopt",
    )  # fmt: skip
    runs = {run: spent.epsilon for run, spent in adopted.spent_by_run(UNIT)}
    assert runs == {months(0): Fraction(7, 4), months(1): Fraction(3, 4)}
    assert adopted.spent_of_person(UNIT).epsilon == Fraction(5, 2)
