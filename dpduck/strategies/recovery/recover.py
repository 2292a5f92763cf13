"""Recovery of a plan's answers from noisy integers: one rule for each structure of measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from dpduck.algebra.lattice import close_downward
from dpduck.kernel.queries.operators import Factor, HadamardFactor, IdentityFactor
from dpduck.strategies.marginals.weights import code_count
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.plan import Plan, factor_kinds
from dpduck.strategies.recovery.consistent import nearest_consistent
from dpduck.strategies.variance import BALANCED, adjoint, direct_sources, margins, recover_least_squares, spread_evenly
from dpduck.values.arrays import FloatArray, IntegerArray


def recover_directly(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Returns marginals by the paper's initial recovery without consistency: from tables, coefficients, residuals."""
    factors = factor_kinds(plan)
    if factors <= {IdentityFactor}:
        return _from_tables(plan, noisy)
    if factors <= {HadamardFactor}:
        return _inverse_transform(plan, noisy)
    return recover_least_squares(plan.workload, plan.measurements, plan.noise, noisy)


def _from_tables(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Returns every marginal from one noisy table: its own if it was measured, else sums with the least variance."""
    sources, _ = direct_sources(plan.workload, plan.measurements, plan.noise)
    wanted: dict[int, set[tuple[int, ...]]] = {}
    for source, marginal in zip(sources, plan.workload.marginals, strict=True):
        wanted.setdefault(source, set()).add(marginal)
    sums = {
        source: margins(noisy[source], plan.measurements[source].query.attributes, marginals)
        for source, marginals in wanted.items()
    }
    return tuple(
        np.array(sums[source][marginal], dtype=np.float64)
        for source, marginal in zip(sources, plan.workload.marginals, strict=True)
    )


def _inverse_transform(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Computes each cell of marginal B as the sum of chi(cell) f / m_B over its coefficients f (Theorem 4.1 (2)).

    chi(cell) is the sign of a coefficient in the cell. m_B is the number of codes of B.
    """
    lattice = close_downward(plan.workload.marginals, plan.workload.sizes)
    sums = [np.zeros(tuple(plan.workload.sizes[attribute] for attribute in members)) for members in lattice.sets]
    for measurement, answers in zip(plan.measurements, noisy, strict=True):
        number = lattice.numbers[measurement.query.attributes]
        sums[number] = _back(measurement, answers)
    spread_evenly(lattice, sums, averaged=False)
    codes = lattice.products([code_count(size) for size in lattice.sizes])
    return tuple(sums[number] / codes[number] for number in lattice.family.tolist())


def _back(measurement: Measurement, answers: IntegerArray) -> FloatArray:
    back: FloatArray = np.asarray(answers, dtype=np.float64)
    factors: Sequence[Factor] = measurement.query.factors
    for axis, factor in enumerate(factors):
        back = adjoint(factor, back, axis)
    return back


Recovery = Callable[[Plan, Sequence[IntegerArray]], tuple[FloatArray, ...]]


def recover(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Returns one array per marginal, with an axis per attribute, from one array of query.shape per measurement."""
    for accepts, answer in RECOVERIES:
        if accepts(plan):
            return answer(plan, noisy)
    raise TypeError(f"no recovery for the strategy {plan.strategy}")


def recover_linearly(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Recovers a plan's answers, with least squares in place of a linear program, since its errors have no formula."""
    return _least_squares(plan, noisy) if solves_program(plan) else recover(plan, noisy)


def _has_parts(plan: Plan) -> bool:
    return bool(plan.parts)


def _recover_parts(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    remaining, answers = iter(noisy), list[FloatArray]()
    for part in plan.parts:
        answers += part.recover(list(islice(remaining, len(part.measurements))))
    return tuple(answers)


def _is_balanced(plan: Plan) -> bool:
    return factor_kinds(plan) <= BALANCED


def _direct(plan: Plan) -> bool:
    return plan.consistency == "none" and _is_balanced(plan)


def solves_program(plan: Plan) -> bool:
    """Tells whether a linear program makes the answers from several noisy tables consistent."""
    several = len(plan.measurements) > 1
    return plan.consistency in {"l1", "linf"} and several and factor_kinds(plan) <= {IdentityFactor}


def _least_squares(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    return recover_least_squares(plan.workload, plan.measurements, plan.noise, noisy)


def _nearest(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    deviations = [variance**0.5 for variance in plan.variances]
    direct, start = recover_directly(plan, noisy), _least_squares(plan, noisy)
    return nearest_consistent(plan.workload, direct, deviations, start, plan.consistency)


RECOVERIES: tuple[tuple[Callable[[Plan], bool], Recovery], ...] = (
    (_has_parts, _recover_parts),
    (_direct, recover_directly),
    (solves_program, _nearest),
    (_is_balanced, _least_squares),
)
"""Condition and recovery of each rule. The first rule that accepts a plan recovers it."""
