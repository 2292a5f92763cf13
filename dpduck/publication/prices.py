"""Prices of a plan, and the check that its budgets have room for all of it. Nothing is charged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import Any

from dpduck.database.database import Database
from dpduck.database.functions import OWNER
from dpduck.kernel.door import compute_charge
from dpduck.kernel.price import Ask
from dpduck.language.statements.kinds import STREAM, CreatePrivate
from dpduck.language.statements.parse import parse_statement
from dpduck.mechanisms.registry import mechanism_of
from dpduck.mechanisms.streams.measurements import asks_of
from dpduck.mechanisms.streams.strategies import plans
from dpduck.publication.plan import PlanStep
from dpduck.values.periods import Periods
from dpduck.values.privacy import Charge, add_charges


def require_room(database: Database, steps: Sequence[PlanStep]) -> None:
    """Refuses a plan if a budget has no room for the sum of its charges."""
    by_unit: dict[tuple[str, Periods | None], list[Charge]] = defaultdict(list)
    for step in steps:
        unit, periods, charge = _charge_of(database, step.text)
        by_unit[unit, periods].append(charge)
    for (unit, periods), charges in by_unit.items():
        database.ledger.check(
            unit, reduce(add_charges, charges), principal=OWNER.name, allotment=None, periods=periods, anew=False
        )


def _charge_of(database: Database, text: str) -> tuple[str, Periods | None, Charge]:
    """Returns the privacy unit of a statement, the periods of its rows, and its price."""
    statement = parse_statement(text)
    if isinstance(statement, CreatePrivate) and statement.kind == STREAM:
        stream = database.streams.analyse(statement)
        asks: Sequence[Ask[Any]] = asks_of(stream, plans(stream)[0])
        request = stream.request
    else:
        question, _ = database.question_of(text, OWNER)
        mechanism = mechanism_of(question)
        plan = mechanism.plan(question)
        asks, request = mechanism.asks(plan), plan.request
    price, rows = request.price, request.rows
    periods = None if rows.periods is None else rows.periods.periods
    return rows.unit_key, periods, compute_charge(price.charge, asks, price.least_rho)
