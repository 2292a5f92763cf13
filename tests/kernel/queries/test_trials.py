"""Doors of a trial: the checks of a release but for the charge, one exact count, and fresh noise for each door."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpduck.database import functions
from dpduck.kernel.door import Door, compute_charge, counting
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.queries import trials
from dpduck.mechanisms.registry import mechanism_of
from dpduck.store.cursors import Caller
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge
from tests.support.clinics import Clinic

OWNER = Caller("owner", owner=True)
TEXT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) ward, count(*) AS n FROM stays GROUP BY ward"
Opened = Callable[..., AbstractContextManager[Callable[[], Door]]]


@pytest.fixture
def stays(open_clinic: Callable[..., Clinic]) -> Clinic:
    clinic = open_clinic()
    clinic.con.execute(
        "CREATE TABLE stays AS SELECT i // 5 AS person, ['n', 's'][1 + i % 2] AS ward FROM range(1000) AS r(i)"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT person MAX ROWS 3, BUDGET (epsilon = 5), "
        "DOMAIN ward IN ('n', 's'))"
    )
    return clinic


def opened(clinic: Clinic) -> tuple[list[Any], Charge, Opened]:
    """Returns the asks of a statement, its price, and a function that opens doors at a price and for a unit."""
    database = functions.database_of(clinic.con)
    assert database is not None
    question, request = database.question_of(TEXT, OWNER)
    mechanism = mechanism_of(question)
    plan = mechanism.plan(question)
    asks, tools = list(mechanism.asks(plan)), database.trials.tools

    def open_doors(charge: Charge, unit: str = request.rows.unit_key) -> Any:
        return trials.open_trial(
            asks, charge, unit, tools.ledger, tools.open_cursor, lambda cursor: None, operating_system_entropy(),
            tools.workers,
        )  # fmt: skip

    price = plan.request.price
    return asks, compute_charge(price.charge, asks, price.least_rho), open_doors


def test_doors_have_one_count_and_fresh_noise(stays: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are counted once for all doors. Answers of two doors differ: equal ones have a chance below 1e-9."""
    jobs: list[Any] = []

    def counting_jobs(*arguments: Any) -> Any:
        count = counting(*arguments)

        def count_job(job: Any) -> Any:
            jobs.append(job)
            return count(job)

        return count_job

    monkeypatch.setattr(trials, "counting", counting_jobs)
    asks, charge, open_doors = opened(stays)
    with open_doors(charge) as new_door:
        answers = [new_door().answer(asks[0]) for _ in range(8)]
    assert len(jobs) == 1
    assert len({np.concatenate(answer).tobytes() for answer in answers}) > 1


def test_a_door_answers_as_often_as_an_ask_says(stays: Clinic) -> None:
    """A door of a trial has the limits of a release's door."""
    asks, charge, open_doors = opened(stays)
    with open_doors(charge) as new_door:
        door = new_door()
        door.answer(asks[0])
        with pytest.raises(InternalError, match="used up"):
            door.answer(asks[0])


def test_another_price_or_unit_is_refused(stays: Clinic) -> None:
    """Asks beyond the price, and rows of another unit, are refused before any row is counted."""
    _, charge, open_doors = opened(stays)
    for price, unit in ((Charge.pure(Fraction(1, 1000)), None), (charge, "memory.main.stays.ROW")):
        with pytest.raises(InternalError, match="nothing was charged"):
            open_doors(price, *([] if unit is None else [unit])).__enter__()


def test_nothing_is_charged(stays: Clinic) -> None:
    """The ledger has no entry more after many doors."""
    before = stays.rows("FROM dp_ledger()")
    asks, charge, open_doors = opened(stays)
    with open_doors(charge) as new_door:
        for _ in range(50):
            new_door().answer(asks[0])
    assert stays.rows("FROM dp_ledger()") == before
    assert stays.rows("SELECT spent FROM dp_budget()") == [(0.0,)]
