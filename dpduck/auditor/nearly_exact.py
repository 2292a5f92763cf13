"""Plans of statements with negligible noise, and the door's nearly exact answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, sqrt
from typing import Any

import duckdb
import numpy as np

from dpduck.auditor.audit_plan import AuditPlan, plan_statement
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, price
from dpduck.kernel.queries.tables import Table, Total
from dpduck.kernel.worker.workers import Workers
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import DpduckError

FAR, MOST_OF_ASK, MOST_IN_ALL = 60, 4000, 900_000
"""FAR: noise exceeds its bound with probability 2 exp(-FAR), below 1e-25. The others: the most epsilon or rho of one
ask, and of all asks together, from the budget of the twin."""


@dataclass(frozen=True)
class ExactPlan:
    """A statement and its asks, with negligible noise. slack: the largest error that one answer may have."""

    planned: AuditPlan
    asks: tuple[Ask[Any], ...]
    slack: int


def plans_of_statement(twin: duckdb.DuckDBPyConnection, text: str) -> list[ExactPlan]:
    """Plans a statement. Returns no plan if it is refused, or asks for nothing that adds up."""
    results: list[AuditPlan] = []
    with suppress(DpduckError, duckdb.Error):
        results.append(plan_statement(twin, text))
    return [plan for each in results for plan in _nearly_exact(each)]


def _nearly_exact(statement: AuditPlan) -> list[ExactPlan]:
    """Plans the asks for tables of numbers. For a scan without such an ask, it plans an ask for the number of rows.

    Asks for selected keys are left out, because the set of published keys does not add up.
    """
    kind = NoiseKind.LAPLACE if statement.claim.epsilon is not None else NoiseKind.GAUSSIAN
    linear = [ask for ask in statement.asks if isinstance(ask.query, Table)]
    covered = {id(ask.scan) for ask in linear}
    for ask in statement.asks:
        if id(ask.scan) not in covered and not ask.scan.job.selected:
            covered.add(id(ask.scan))
            if len(ask.scan.tables) == 1:
                linear.append(Ask(ask.scan, Total(), Noise(kind, Fraction(1))))
    cheap = [replace(ask, noise=_nearly_none(ask, kind), times=1) for ask in linear]
    return [ExactPlan(statement, tuple(cheap), max(_slack(ask.noise) for ask in cheap))] if cheap else []


def _nearly_none(ask: Ask[Any], kind: NoiseKind) -> Noise:
    """Returns noise that is 0 except with probability 2 exp(-FAR), or as little noise as MOST_OF_ASK buys."""
    l1, l2_squared, _ = ask.moves or (1, 1, 1)
    if kind is NoiseKind.LAPLACE:
        return Noise(kind, max(Fraction(1, FAR + 1), Fraction(l1, MOST_OF_ASK)))
    return Noise(kind, max(Fraction(1, 2 * FAR + 1), Fraction(l2_squared, 2 * MOST_OF_ASK)))


def _slack(noise: Noise | None) -> int:
    """Returns a bound that the absolute value of noise exceeds with probability 2 exp(-FAR) at most."""
    if noise is None:
        return 0
    return floor(FAR * noise.parameter if noise.kind is NoiseKind.LAPLACE else sqrt(2 * FAR * noise.parameter))


def affordable_plans(plans: Sequence[ExactPlan], times: int) -> list[ExactPlan]:
    """Returns the first plans that the budgets of the twin can pay for. times: how often each plan is paid for."""
    spent, affordable = dict[str, Fraction](), []
    for plan in plans:
        key, cost = plan.planned.plan.request.rows.unit_key, price(plan.asks)
        total = spent.get(key, Fraction(0)) + times * (cost.rho if cost.epsilon is None else cost.epsilon)
        if total <= MOST_IN_ALL:
            spent[key] = total
            affordable.append(plan)
    return affordable


def nearly_exact_answers(plans: Sequence[ExactPlan], workers: Workers) -> Iterator[IntegerArray]:
    """Yields the door's answers to each plan, over the present rows of the tables."""
    for plan in plans:
        with plan.planned.open_door(plan.asks, workers) as door:
            answers = [door.answer(ask) for ask in plan.asks]
        yield np.concatenate([np.ravel(part) for answer in answers for part in _arrays(answer)])


def _arrays(answer: object) -> list[IntegerArray]:
    return list(answer) if isinstance(answer, tuple) else [np.array([answer], np.int64)]
