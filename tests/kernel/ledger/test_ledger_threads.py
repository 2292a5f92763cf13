"""Charges are serialised, over threads and over ledgers of one process."""

from __future__ import annotations

from fractions import Fraction
from threading import Thread
from typing import Any

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.values.errors import BudgetRefusal
from dpduck.values.privacy import Charge

UNIT = "main.patients.id"


def test_eight_threads_against_ten_queries_get_exactly_ten(store_place: Any) -> None:
    """Charges are serialised: a budget for ten queries pays for ten, whoever asks at once."""
    ledger = store_place.begin(charges=0)
    assert race([ledger], Fraction(3, 10), attempts=3, threads=8) == 10
    assert ledger.spent(UNIT).epsilon == 3
    ledger.verify()


def test_two_ledgers_on_one_store_in_one_process_share_the_budget(store_place: Any) -> None:
    """Two ledgers on one instance share the budget, since each reads the other's entries before it charges."""
    first = store_place.begin(charges=0)
    second = Ledger.open(
        store_place.connection.cursor, "private", secrets_path=store_place.secrets, witness_directory=store_place.state
    )
    assert race([first, second], Fraction(3, 10), attempts=3, threads=8) == 10
    assert first.spent(UNIT) == second.spent(UNIT)
    first.verify()
    second.verify()


def race(ledgers: list[Ledger], epsilon: Fraction, *, attempts: int, threads: int) -> int:
    """Returns how many charges of several threads went through. An error other than a refusal fails the test."""
    paid: list[int] = []
    errors: list[BaseException] = []

    def ask(ledger: Ledger) -> None:
        for _ in range(attempts):
            try:
                paid.append(ledger.charge(UNIT, "visits", Charge.pure(epsilon), "alice", "SELECT 1", "noise"))
            except BudgetRefusal:
                continue
            except BaseException as error:
                errors.append(error)

    workers = [Thread(target=ask, args=(ledgers[number % len(ledgers)],)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    assert len(set(paid)) == len(paid)
    return len(paid)
