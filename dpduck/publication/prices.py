"""Prices of a plan, and the check that its budgets have room for all of it. Nothing is charged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from dpduck.database.database import Database
from dpduck.database.functions import OWNER
from dpduck.kernel.door import compute_charge
from dpduck.kernel.price import Ask
from dpduck.language.statements.kinds import STREAM, CreatePrivate
from dpduck.language.statements.parse import parse_statement
from dpduck.language.statements.synthetic import CreateSynthetic
from dpduck.mechanisms.batch import numbered
from dpduck.mechanisms.registry import mechanism_of
from dpduck.mechanisms.streams.measurements import asks_of
from dpduck.mechanisms.streams.strategies import plans
from dpduck.publication.plan import PlanStep
from dpduck.values.errors import Refusal
from dpduck.values.periods import Periods
from dpduck.values.privacy import Charge, add_charges
from dpduck.values.quoting import fold


def require_room(database: Database, steps: Mapping[int, PlanStep]) -> dict[int, bool]:
    """Refuses a plan if a budget has no room for the sum of its charges. Returns which statements are charged.

    A request that was charged before, or that an earlier statement of the plan makes, is free.
    """
    by_unit: dict[tuple[str, Periods | None], list[Charge]] = defaultdict(list)
    charged, seen = dict[int, bool](), set[str]()
    for number, step in steps.items():
        with numbered(number):
            unit, periods, charge, digest = _charge_of(database, step.text)
        charged[number] = digest not in seen and not database.is_charged(digest)
        seen.add(digest)
        if charged[number]:
            by_unit[unit, periods].append(charge)
    for (unit, periods), charges in by_unit.items():
        database.ledger.check(
            unit, reduce(add_charges, charges), principal=OWNER.name, allotment=None, periods=periods, anew=False
        )
    return charged


def require_names(database: Database, steps: Mapping[int, PlanStep], there: Iterable[str]) -> None:
    """Refuses a plan with a name that is taken, or a step that reads what does not exist. there: names of releases.

    So no statement is charged before one that would fail.
    """
    known = {fold(name): True for name in there}  # the value says whether SAMPLE can read it
    for number, step in steps.items():
        with numbered(number):
            if step.makes:
                database.require_name(step.name, replaces=step.replaces)
            if step.reads and fold(step.reads) not in known:
                what = f"{step.reads!r} does not exist at its place in the plan"
                raise Refusal(what, accepted="a statement that makes it, before")
            if step.makes and step.reads and not known[fold(step.reads)]:
                accepted = "its number of rows in OPTIONS (rows = ..)"
                raise Refusal(f"{step.reads!r} is a synthetic table already", accepted=accepted)
        known[fold(step.name)] = known.get(fold(step.name), True) and not isinstance(
            parse_statement(step.text), CreateSynthetic
        )


def _charge_of(database: Database, text: str) -> tuple[str, Periods | None, Charge, str]:
    """Returns the privacy unit of a statement, the periods of its rows, its price and its digest."""
    statement = parse_statement(text)
    if isinstance(statement, CreatePrivate) and statement.kind == STREAM:
        stream = database.streams.analyse(statement)
        asks: Sequence[Ask[Any]] = asks_of(stream, plans(stream)[0])
        request, digest = stream.request, stream.digest()
    else:
        question, _ = database.question_of(text, OWNER)
        mechanism = mechanism_of(question)
        plan = mechanism.plan(question)
        asks, request, digest = mechanism.asks(plan), plan.request, question.digest()
    price, rows = request.price, request.rows
    periods = None if rows.periods is None else rows.periods.periods
    return rows.unit_key, periods, compute_charge(price.charge, asks, price.least_rho), digest
