"""From noisy integers to the answers of a plan: one rule for each structure of measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpduck.arrays import FloatArray, IntegerArray
from dpduck.planning.measurement_list import measured_kinds
from dpduck.planning.plan import Plan
from dpduck.recovery.anova import recover_least_squares
from dpduck.recovery.consistency import nearest_consistent
from dpduck.recovery.direct import recover_directly
from dpduck.strategies.gram import BALANCED
from dpduck.trusted.operators import IdentityFactor

Recovery = Callable[[Plan, Sequence[IntegerArray]], tuple[FloatArray, ...]]


def recover(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """One array per workload marginal, shape (n_i for i in it), from one array per measurement, shape query.shape."""
    for accepts, answer in RECOVERIES:
        if accepts(plan):
            return answer(plan, noisy)
    raise TypeError(f"no recovery for the strategy {plan.strategy}")


def recover_linearly(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """The same, and by least squares where the plan asks for a linear program, whose errors have no formula."""
    return _least_squares(plan, noisy) if solves_program(plan) else recover(plan, noisy)


def _balanced(plan: Plan) -> bool:
    """Whether every factor's Gram matrix is alpha I + beta J."""
    return measured_kinds(plan) <= BALANCED


def _direct(plan: Plan) -> bool:
    """Whether each answer comes from a measurement of its own, without least squares."""
    return plan.consistency == "none" and _balanced(plan)


def solves_program(plan: Plan) -> bool:
    """Whether answers of their own tables are to be made consistent by a linear program."""
    several = len(plan.measurements) > 1
    return plan.consistency in {"l1", "linf"} and several and measured_kinds(plan) <= {IdentityFactor}


def _least_squares(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    return recover_least_squares(plan.workload, plan.measurements, plan.noise, noisy)


def _nearest(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    deviations = [variance**0.5 for variance in plan.variances]
    direct, start = recover_directly(plan, noisy), _least_squares(plan, noisy)
    return nearest_consistent(plan.workload, direct, deviations, start, plan.consistency)


RECOVERIES: tuple[tuple[Callable[[Plan], bool], Recovery], ...] = (
    (_direct, recover_directly),
    (solves_program, _nearest),
    (_balanced, _least_squares),
)
"""What each rule accepts and how it answers; the first that accepts a plan recovers it."""
