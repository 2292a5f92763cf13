"""From a request to the plans that could serve it, at its price or at the smallest that reaches its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.edges.strategy_table import matrix_of
from dpduck.errors import Refusal
from dpduck.frontend.request import Key, Request, Target, Treatment
from dpduck.planning.choose import plan_workload
from dpduck.planning.covariance import TableCovariances, covariances
from dpduck.planning.plan import NoiseKind, Plan
from dpduck.planning.range_sets_plan import RangeSetsPlan, plan_own_matrix, plan_range_sets
from dpduck.planning.target import price_for, raised
from dpduck.privacy import Charge
from dpduck.recovery.combination import covariances_to_text
from dpduck.recovery.intervals import ErrorLaw
from dpduck.recovery.range_recovery import recover_sets
from dpduck.recovery.recover import recover
from dpduck.recovery.treatment import treated
from dpduck.workload.kronecker import IdentityFactor
from dpduck.workload.marginals import MarginalWorkload
from dpduck.workload.ranges import RangeWorkload, all_ranges, identity, intervals, prefixes

FloatArray = NDArray[np.float64]
IntegerArray = NDArray[np.int64]

AnyPlan = Plan | RangeSetsPlan
Plans = tuple[AnyPlan, ...]
FEW_SETS = 50
"""Up to so many grouping sets are planned again and again to find the smallest price."""

MOST_COVARIANCES = 20_000
"""Covariances of more sets of columns are not kept with a release."""

SMALLEST_PRICE = Fraction(1, 10**9)


def planned(request: Request) -> tuple[Request, Plans]:
    """The request with its price, and the candidates for each of its aggregates, the chosen one first.

    Aggregates share the price evenly.
    """
    if request.target is not None:
        return _priced(request, request.target)
    charge = request.charge
    return request, plans_at(
        request,
        noise_of(request),
        (charge.rho if charge.epsilon is None else charge.epsilon) / request.measured_aggregates,
    )


def noise_of(request: Request) -> NoiseKind:
    """Gaussian where rho is paid, Laplace where epsilon is."""
    return NoiseKind.GAUSSIAN if request.charge.epsilon is None else NoiseKind.LAPLACE


def plans_at(request: Request, noise: NoiseKind, amount: Fraction) -> Plans:
    """Candidates for one aggregate that may cost this epsilon or rho."""
    treatment = request.treatment
    weights = tuple(float(weight) for weight in treatment.weights) or (1.0,) * len(request.grouping_sets)
    workload = MarginalWorkload(request.sizes, request.grouping_sets, weights)
    if request.has_ranges:
        _require_plain(treatment)
        if request.intervals:
            asked = intervals(request.sources[0].domain.size, request.intervals)
            workload = MarginalWorkload((asked.size,), ((0,),), (1.0,))
            return plan_range_sets(
                [asked],
                workload,
                noise,
                amount,
                request.unit_bound,
                strategy=treatment.strategy,
                planning_seconds=float(treatment.planning_seconds),
            )
        if request.matrix:
            asked = range_workload(request.keys[0])
            return plan_own_matrix(asked, workload, matrix_of(request), noise, amount, request.unit_bound)
        return plan_range_sets(
            [range_workload(key) for key in request.keys],
            workload,
            noise,
            amount,
            request.unit_bound,
            strategy=treatment.strategy,
            budgets=treatment.budgets,
            planning_seconds=float(treatment.planning_seconds),
        )
    return plan_workload(
        workload,
        noise,
        amount,
        request.unit_bound,
        strategy=treatment.strategy,
        budgets=treatment.budgets,
        consistency=treatment.consistency,
        planning_seconds=float(treatment.planning_seconds),
    )


def range_workload(key: Key) -> RangeWorkload:
    """What is asked of one key: its labels one by one, or their intervals in released order."""
    makers = {"": identity, "prefixes": prefixes, "ranges": all_ranges}
    return makers[key.shape](len(key.labels))


def _require_plain(treatment: Treatment) -> None:
    if treatment.consistency != "l2" or treatment.nonnegative:
        raise Refusal(
            "PREFIXES, RANGES and strategy tables are recovered by least squares alone",
            accepted="consistency = 'l2' without nonnegative (greatest(n, 0) in the select list)",
        )


def _priced(request: Request, target: Target) -> tuple[Request, Plans]:
    """The smallest price at which the plan reaches the target, and the very plans that do."""
    noise, aggregates = noise_of(request), request.measured_aggregates
    wanted = float(target.stderr)
    searched = request.has_ranges or len(request.grouping_sets) > (1 if noise is NoiseKind.LAPLACE else FEW_SETS)
    amount = max(price_for(wanted, noise, lambda price: plans_at(request, noise, price)[0], searched), SMALLEST_PRICE)
    while True:
        _require_within(amount * aggregates, target)
        plans = plans_at(request, noise, amount)
        if plans[0].worst_stderr <= wanted:
            break
        amount = raised(amount, plans[0].worst_stderr / wanted, noise)
    price = amount * aggregates
    if target.pure:
        return replace(request, charge=Charge.pure(price), stated_epsilon=price), plans
    return replace(request, charge=Charge.concentrated(price)), plans


def _require_within(price: Fraction, target: Target) -> None:
    if price > target.limit:
        measure = "epsilon" if target.pure else "rho"
        raise Refusal(
            f"target_stderr = {float(target.stderr):g} would cost {measure} = {float(price):g}",
            accepted=f"a larger target_stderr: one statement may cost {measure} = {float(target.limit):g}",
        )


def measured_plan(plan: AnyPlan) -> Plan:
    """The plan as trusted code measures it."""
    return plan.measured if isinstance(plan, RangeSetsPlan) else plan


def released_cells(plan: AnyPlan) -> int:
    """Number of cells that one aggregate releases."""
    return plan.cells if isinstance(plan, RangeSetsPlan) else plan.workload.cells


def cell_stderrs(request: Request, plan: AnyPlan) -> list[Sequence[FloatArray]]:
    """For each aggregate and grouping set, the standard error of every cell, or of all its cells alike."""
    if not isinstance(plan, RangeSetsPlan):
        return [[np.array([variance**0.5]) for variance in plan.variances]] * len(request.aggregates)
    errors = [np.sqrt(variances).ravel() for variances in plan.variances]
    return by_aggregate(request, errors) if request.intervals else [errors] * len(request.aggregates)


def by_aggregate(request: Request, answers: Sequence[FloatArray]) -> list[Sequence[FloatArray]]:
    """The answers of intervals, measured together, as one cell of each aggregate."""
    return [[answers[0][number : number + 1]] for number in range(len(request.aggregates))]


def recovered(plan: AnyPlan, noisy: Sequence[IntegerArray], treatment: Treatment) -> Sequence[FloatArray]:
    """The answers of one aggregate, an array per grouping set."""
    if isinstance(plan, RangeSetsPlan):
        return recover_sets(plan, noisy, treatment.integer)
    return treated(plan, recover(plan, noisy), nonnegative=treatment.nonnegative, integer=treatment.integer)


def answers_are_whole(request: Request, plan: AnyPlan) -> bool:
    """Whether every answer is one integer measurement or rounded, a public property of request and plan."""
    if request.treatment.integer:
        return True
    if request.treatment.nonnegative or isinstance(plan, RangeSetsPlan):
        return False
    return all(_single_spread(plan, number) is not None for number in range(len(request.grouping_sets)))


def error_laws(plan: AnyPlan) -> tuple[ErrorLaw, ...]:
    """How the noise of each grouping set's cells is distributed; of ranges, the widest cell's."""
    if isinstance(plan, RangeSetsPlan):
        return tuple(ErrorLaw(plan.noise, None, float(variances.max())) for variances in plan.variances)
    return tuple(
        ErrorLaw(plan.noise, _single_spread(plan, number), variance) for number, variance in enumerate(plan.variances)
    )


def covariances_text(request: Request, plan: AnyPlan) -> str | None:
    """What is kept for sums of released cells; nothing where no formula holds, or where it would be very long."""
    if request.treatment.integer or request.treatment.nonnegative or len(request.grouping_sets) > MOST_COVARIANCES:
        return None
    if isinstance(plan, RangeSetsPlan):
        return None
    found = covariances(plan)
    sets = len(found.sources) if isinstance(found, TableCovariances) else len(found.variances)
    return covariances_to_text(found) if sets <= MOST_COVARIANCES else None


def _single_spread(plan: Plan, number: int) -> Fraction | None:
    if len(plan.measurements) != 1:
        return None
    query = plan.measurements[0].query
    alike = query.attributes == plan.workload.marginals[number]
    plain = all(isinstance(factor, IdentityFactor) for factor in query.factors)
    return plan.measurements[0].spread if alike and plain else None
