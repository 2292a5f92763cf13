"""Projects and reservations: what each bounds, raced from 16 threads, and ended at every step of a charge."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from threading import Barrier, Thread
from typing import Any

import pytest

from dpduck.kernel.ledger import ledger as ledgers
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.shares import Project, Reservation, change_project, read_projects, read_reservation
from dpduck.values.errors import BudgetRefusal, Refusal, StoreError
from dpduck.values.periods import between
from dpduck.values.privacy import ZERO, Budget, Charge

UNIT = "main.patients.id"
TENTH = Fraction(1, 10)
THREADS = 16
STEPS = (
    "charge begins", "row not committed", "row committed", "secrets begun", "secrets written", "witness written",
    "counters written", "charge returns",
)  # fmt: skip


def pay(ledger: Ledger, who: str, epsilon: Fraction = TENTH, **options: Any) -> int:
    return ledger.charge(UNIT, "visits", Charge.pure(epsilon), who, "SELECT 1", "noise", **options)


def refusal(action: Callable[[], object], kind: type[Exception] = BudgetRefusal) -> str:
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


def spent_by(ledger: Ledger, *names: str) -> Fraction:
    """Sums the entries of the ledger itself, apart from the sums that the ledger keeps."""
    return sum((entry.epsilon or ZERO for entry in ledger.entries() if entry.principal in names), ZERO)


def race(asks: list[Callable[[], object]], attempts: int = 8) -> int:
    """Calls each ask again and again in a thread of its own, all at once. Returns how many were not refused."""
    start, paid, errors = Barrier(len(asks)), list[object](), list[BaseException]()

    def run(ask: Callable[[], object]) -> None:
        start.wait()
        for _ in range(attempts):
            try:
                paid.append(ask())
            except BudgetRefusal:
                continue
            except BaseException as error:
                errors.append(error)

    workers = [Thread(target=run, args=(ask,)) for ask in asks]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    assert len(set(paid)) == len(paid), "nothing is lost"
    return len(paid)


def test_members_share_a_part(store_place: Any) -> None:
    """The charges of all members add up, and those of others do not. A share of one's own bounds, too."""
    ledger = store_place.begin(charges=0)
    for name in ("ada", "bob"):
        change_project(ledger.secrets, "census", Fraction(1, 3), name)
    pay(ledger, "eve", Fraction(1))
    pay(ledger, "ada", Fraction(7, 10), project="census")
    text = refusal(lambda: pay(ledger, "bob", Fraction(4, 10), project="census"))
    assert "share of the project census in the budget of main.patients.id has 0.3 of 1 left" in text
    pay(ledger, "bob", Fraction(3, 10), project="census")
    refusal(lambda: ledger.check(UNIT, Charge.pure(TENTH), principal="ada", project="census"))
    assert ledger.times_left(UNIT, Charge.pure(TENTH), "ada", project="census") == 0
    assert ledger.times_left(UNIT, Charge.pure(TENTH), "eve") == 10
    change_project(ledger.secrets, "census", Fraction(2, 3))
    assert ledger.times_left(UNIT, Charge.pure(TENTH), "ada", project="census") == 10
    own = ledger.times_left(UNIT, Charge.pure(TENTH), "ada", project="census", allotment=Fraction(1, 4))
    assert own == 0, "0.75 of ada's own"


def test_a_project_that_is_not_there_pays_nothing(store_place: Any) -> None:
    """A lost record, or one that cannot be read, refuses: nobody spends without a bound."""
    ledger = store_place.begin(charges=0)
    assert "there is no project 'census'" in refusal(lambda: pay(ledger, "ada", project="census"), StoreError)
    ledger.secrets.save("projects", b'[{"name": "census"}]')
    assert "damaged" in refusal(lambda: pay(ledger, "ada", project="census"), StoreError)
    assert ledger.spent(UNIT).epsilon == 0


def test_members_stay_listed(store_place: Any) -> None:
    """A member is listed once and for good, and a new share keeps all members."""
    secrets = store_place.begin(charges=0).secrets
    assert "there is no project 'x'" in refusal(lambda: change_project(secrets, "x", None, "ada"), Refusal)
    change_project(secrets, "x", Fraction(1, 2))
    for name in ("ada", "bob", "ada"):
        change_project(secrets, "x", None, name)
    change_project(secrets, "y", Fraction(1, 4), "ada")
    change_project(secrets, "x", Fraction(1, 3))
    assert read_projects(secrets) == (
        Project("x", Fraction(1, 3), ("ada", "bob")),
        Project("y", Fraction(1, 4), ("ada",)),
    )


def test_members_of_units_by_periods(store_place: Any) -> None:
    """In each month, and over a lifetime, the members together have their part."""
    ledger = store_place.open()
    unit = "main.visits.patient PER MONTH"
    lifetime = Budget(Fraction(20), ZERO, ZERO, None)
    ledger.declare_budget(unit, "visits", Budget(Fraction(4), ZERO, ZERO, None, lifetime), "owner", "CREATE")
    for name in ("ada", "bob"):
        change_project(ledger.secrets, "census", Fraction(1, 2), name)

    def ask(who: str, first: tuple[int, int], last: tuple[int, int], epsilon: int = 1) -> None:
        run = between("MONTH", datetime(*first, 1).date(), datetime(*last, 1).date())
        assert run is not None
        charge = Charge.pure(Fraction(epsilon))
        ledger.charge(unit, "visits", charge, who, "s", "noise", periods=run, project="census")

    ask("ada", (2024, 1), (2024, 3))
    ask("bob", (2024, 2), (2024, 2))
    refusal(lambda: ask("ada", (2024, 2), (2024, 4)))
    ask("bob", (2024, 1), (2024, 1))
    refusal(lambda: ask("bob", (2024, 1), (2024, 1)))
    assert "LIFETIME" in refusal(lambda: ask("ada", (2025, 1), (2025, 6)))
    ask("ada", (2025, 1), (2025, 5))
    assert ledger.spent_of_person(unit, ("ada", "bob")).epsilon == 10
    assert ledger.spent(unit, ("ada", "bob")).epsilon == 2


def test_others_cannot_spend_a_reservation(store_place: Any) -> None:
    """It counts as spent for all others, the owner too. Its payer spends it first, and may spend more beside it."""
    ledger = store_place.begin(charges=0)
    ledger.reserve(UNIT, "visits", Reservation("monthly", Fraction(1, 3)), "owner")
    pay(ledger, "eve", Fraction(18, 10))
    for who in ("eve", "owner"):
        assert "has 0.2 of 3 left" in refusal(partial(pay, ledger, who, Fraction(3, 10)))
        assert ledger.times_left(UNIT, Charge.pure(TENTH), who) == 2
    assert ledger.times_left(UNIT, Charge.pure(TENTH), "monthly") == 12
    pay(ledger, "monthly", Fraction(6, 10))
    assert ledger.kept_for_others(UNIT, "eve").epsilon == Fraction(4, 10)
    assert ledger.kept_for_others(UNIT, "monthly").epsilon == 0
    assert ledger.times_left(UNIT, Charge.pure(TENTH), "eve") == 2, "as before: others learn nothing of it"
    pay(ledger, "monthly", Fraction(6, 10))
    assert ledger.times_left(UNIT, Charge.pure(TENTH), "eve") == 0
    assert ledger.kept_for_others(UNIT, "eve").epsilon == 0
    assert ledger.spent(UNIT).epsilon == 3


def test_a_reservation_has_payers_of_its_own(store_place: Any) -> None:
    """A member of a project could use up the project's reservation by charges to another one, so there is no other."""
    ledger = store_place.begin(charges=0)
    change_project(ledger.secrets, "census", Fraction(1), "ada")
    change_project(ledger.secrets, "survey", Fraction(1), "bob")

    def reserve(payer: str) -> None:
        ledger.reserve(UNIT, "visits", Reservation(payer, TENTH), "owner")

    reserve("census")
    for payer in ("ada", "census"):
        assert "census has a reservation already" in refusal(partial(reserve, payer), Refusal)
    reserve("survey")
    assert "survey has a reservation already, which bob may use" in refusal(partial(reserve, "bob"), Refusal)
    ledger.release_reservation(UNIT, "visits", "census", "owner")
    reserve("ada")
    assert "ada has a reservation already, which ada may use" in refusal(partial(reserve, "census"), Refusal)


def test_what_was_spent_before_is_not_of_a_reservation(store_place: Any) -> None:
    """A payer's earlier charges use up nothing of it, and neither do those before it was made again."""
    ledger = store_place.begin(charges=0)
    pay(ledger, "monthly", Fraction(1))
    ledger.reserve(UNIT, "visits", Reservation("monthly", Fraction(1, 3)), "owner")
    assert ledger.kept_for_others(UNIT, None).epsilon == 1
    pay(ledger, "monthly", Fraction(1, 2))
    ledger.release_reservation(UNIT, "visits", "monthly", "owner")
    assert ledger.kept_for_others(UNIT, None).epsilon == 0
    ledger.reserve(UNIT, "visits", Reservation("monthly", Fraction(1, 3)), "owner")
    assert ledger.kept_for_others(UNIT, None).epsilon == 1
    reopened = store_place.open()
    assert reopened.kept_for_others(UNIT, None).epsilon == 1, "as read from the store"
    assert [(one.payer, one.share) for one, _ in reopened.reservations(UNIT)] == [("monthly", Fraction(1, 3))]
    reopened.verify()


def test_a_reservation_ends(store_place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its last moment it holds, and after it everybody may spend it. Another one may then be made."""
    ledger = store_place.begin(charges=0)
    until = datetime.now(UTC) + timedelta(days=9)
    ledger.reserve(UNIT, "visits", Reservation("monthly", Fraction(1), until), "owner")
    refusal(lambda: pay(ledger, "eve"))
    assert "has a reservation already" in refusal(
        lambda: ledger.reserve(UNIT, "visits", Reservation("monthly", TENTH), "owner"), Refusal
    )
    monkeypatch.setattr(ledgers, "now_in_utc", lambda: until + timedelta(seconds=1))
    pay(ledger, "eve", Fraction(2))
    ledger.reserve(UNIT, "visits", Reservation("monthly", Fraction(1, 3)), "owner")
    assert ledger.times_left(UNIT, Charge.pure(TENTH), "eve") == 0


def test_a_reservation_needs_room(store_place: Any) -> None:
    """More than what is left beside others is refused, and so are units by periods, and releases of nothing."""
    ledger = store_place.begin(charges=0)
    ledger.reserve(UNIT, "visits", Reservation("a", Fraction(1, 2)), "owner")
    pay(ledger, "a", Fraction(1))
    refusal(lambda: ledger.reserve(UNIT, "visits", Reservation("b", Fraction(6, 10)), "owner"))
    ledger.reserve(UNIT, "visits", Reservation("b", Fraction(1, 2)), "owner")
    refusal(lambda: pay(ledger, "c", Fraction(1, 1000)))
    assert "'c' has no reservation; accepted: a, b" in refusal(
        lambda: ledger.release_reservation(UNIT, "visits", "c", "owner"), Refusal
    )
    by_month = "main.visits.patient PER MONTH"
    ledger.declare_budget(by_month, "visits", store_place.pure, "owner", "CREATE")
    assert "a budget of its own" in refusal(
        lambda: ledger.reserve(by_month, "visits", Reservation("a", TENTH), "owner"), Refusal
    )
    refusal(lambda: ledger.reserve("main.other.id", "other", Reservation("a", TENTH), "owner"), Refusal)


def test_budgets_of_rho_and_of_keys(store_place: Any) -> None:
    """Rho and the delta for keys are reserved apart: what ends first decides."""
    ledger = store_place.open()
    budget = Budget(None, Fraction(1, 10**5), Fraction(1, 10**5), Fraction(1))
    ledger.declare_budget(UNIT, "visits", budget, "owner", "CREATE")
    ledger.reserve(UNIT, "visits", Reservation("a", Fraction(1, 2)), "owner")

    def ask(who: str, rho: Fraction, delta: Fraction) -> int:
        return ledger.charge(UNIT, "visits", Charge.zcdp(rho, delta), who, "s", "noise")

    ask("b", TENTH, Fraction(1, 2 * 10**5))
    assert "delta" in refusal(lambda: ask("b", TENTH, Fraction(1, 10**6)))
    ask("b", Fraction(4, 10), ZERO)
    assert "rho" in refusal(lambda: ask("b", TENTH, ZERO))
    ask("a", Fraction(1, 2), Fraction(1, 2 * 10**5))
    spent = ledger.spent(UNIT)
    assert (spent.rho, spent.delta) == (1, Fraction(1, 10**5))


def test_a_project_has_a_reservation(store_place: Any) -> None:
    """All members of a project may spend what is reserved for it, each within the project's share."""
    ledger = store_place.begin(charges=0)
    for name in ("ada", "bob"):
        change_project(ledger.secrets, "census", Fraction(2, 3), name)
    ledger.reserve(UNIT, "visits", Reservation("census", Fraction(2, 3)), "owner")
    pay(ledger, "eve", Fraction(9, 10))
    assert "budget of" in refusal(lambda: pay(ledger, "eve", Fraction(2, 10)))
    pay(ledger, "ada", Fraction(15, 10), project="census")
    assert "share of the project census" in refusal(lambda: pay(ledger, "bob", Fraction(6, 10), project="census"))
    pay(ledger, "bob", Fraction(5, 10), project="census")
    pay(ledger, "eve", TENTH)
    assert (spent_by(ledger, "ada", "bob"), spent_by(ledger, "eve")) == (Fraction(2), Fraction(1))


def test_records_are_read_as_written() -> None:
    """A reservation's JSON has its payer, share and end, and nothing else."""
    until = datetime(2027, 1, 31, 23, 59, 59, tzinfo=UTC)
    for one in (Reservation("a b", Fraction(1, 3), until), Reservation("x", Fraction(1))):
        assert read_reservation(one.record()) == one


def test_sixteen_members_race_for_a_share(store_place: Any) -> None:
    """Over two ledgers, members who join while others charge: exactly the share is spent, and every charge is there."""
    first = store_place.begin(charges=0)
    second = Ledger.open(
        store_place.connection.cursor, "private", secrets_path=store_place.secrets, witness_directory=store_place.state
    )
    change_project(first.secrets, "census", Fraction(1, 2))

    def joining(number: int) -> Callable[[], int]:
        ledger, name = (first, second)[number % 2], f"member{number}"

        def ask() -> int:
            change_project(ledger.secrets, "census", None, name)
            return pay(ledger, name, project="census")

        return ask

    assert race([joining(number) for number in range(THREADS)], attempts=4) == 15
    members = read_projects(first.secrets)[0].members
    assert len(members) == THREADS
    assert spent_by(first, *members) == Fraction(3, 2) == first.spent(UNIT, members).epsilon
    first.verify()
    second.verify()


def test_a_reservation_holds_in_a_race(store_place: Any) -> None:
    """Fifteen who may not spend it against its payer, and against the owner who makes it meanwhile."""
    ledger = store_place.begin(charges=0)
    others = [f"other{number}" for number in range(THREADS - 1)]
    ledger.reserve(UNIT, "visits", Reservation("monthly", Fraction(1, 3)), "owner")
    asks = [lambda name=name: pay(ledger, name) for name in others]
    race([*asks, lambda: pay(ledger, "monthly")], attempts=2)
    for name in others:
        while ledger.times_left(UNIT, Charge.pure(TENTH), name):
            pay(ledger, name)
    assert spent_by(ledger, *others) <= 2
    while ledger.times_left(UNIT, Charge.pure(TENTH), "monthly"):
        pay(ledger, "monthly")
    assert spent_by(ledger, "monthly") >= 1 and ledger.spent(UNIT).epsilon == 3


def test_reservations_race_for_the_budget(store_place: Any) -> None:
    """Of sixteen reservations of a tenth each beside charges, no more are made than there is room for."""
    ledger = store_place.begin(charges=0)
    makers = [
        lambda name=f"payer{number}": ledger.reserve(UNIT, "visits", Reservation(name, TENTH), "owner")
        for number in range(12)
    ]
    made = race([*makers, *[lambda: pay(ledger, "eve", Fraction(3, 10))] * 4], attempts=1)
    reserved = ledger.kept_for_others(UNIT, None).epsilon
    assert reserved is not None
    assert reserved + spent_by(ledger, "eve") <= 3 and made <= 10
    assert len(ledger.reservations(UNIT)) * Fraction(3, 10) == reserved


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("action", ["charge", "reserve", "release"])
def test_a_kill_at_any_step_keeps_the_bounds(store_place: Any, step: str, action: str) -> None:
    """A process that is killed at a step of a charge, of a reservation or of its release: the next one is bounded."""
    ledger = store_place.begin(charges=0)
    change_project(ledger.secrets, "census", Fraction(1, 3), "ada")
    if action != "reserve":
        ledger.reserve(UNIT, "visits", Reservation("census", Fraction(1, 3)), "owner")
    store_place.close()
    pid = os.fork()
    if pid == 0:
        try:
            _die_at(store_place, step, action)
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or (step.startswith("charge") and action != "charge")
    after = store_place.open()
    after.verify()
    while after.times_left(UNIT, Charge.pure(TENTH), "ada", project="census"):
        pay(after, "ada", project="census")
    while after.times_left(UNIT, Charge.pure(TENTH), "eve"):
        pay(after, "eve")
    assert spent_by(after, "ada") == 1, "the project's share, whatever was killed"
    assert after.spent(UNIT).epsilon == 3
    assert spent_by(after, "eve") == 2


def _die_at(store_place: Any, step: str, action: str) -> None:
    """Opens the store again, and dies at the named step of an action, like a process that is killed."""
    begun = False

    def kill(name: str) -> None:
        if begun and name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    ledger = store_place.open(steps=kill)
    begun = True
    if action == "charge":
        pay(ledger, "ada", project="census")
    elif action == "reserve":
        ledger.reserve(UNIT, "visits", Reservation("census", Fraction(1, 3)), "owner")
    else:
        ledger.release_reservation(UNIT, "visits", "census", "owner")
