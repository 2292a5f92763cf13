"""Recovers the answers of a plan from noisy integers: one rule for each structure of measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpduck.algebra.lattice import close_downward
from dpduck.planning.marginals.operators import padded
from dpduck.planning.plan import Measurement, Plan, measured_kinds
from dpduck.planning.recovery.anova import margins, recover_least_squares, spread_evenly
from dpduck.planning.recovery.consistent import (
    integer_table,
    nearest_consistent,
    nonnegative_consistent,
    nonnegative_table,
)
from dpduck.planning.variance import BALANCED, adjoint, direct_sources
from dpduck.trusted.operators import Factor, HadamardFactor, IdentityFactor
from dpduck.values.arrays import FloatArray, IntegerArray

# consistency = 'none': each answer from the measurements that the paper's initial recovery uses, no least
# squares.


def recover_directly(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Marginals: sums of one noisy table. Fourier: the plain inverse transform. Residuals: their only recovery."""
    factors = measured_kinds(plan)
    if factors <= {IdentityFactor}:
        return _from_tables(plan, noisy)
    if factors <= {HadamardFactor}:
        return _inverse_transform(plan, noisy)
    return recover_least_squares(plan.workload, plan.measurements, plan.noise, noisy)


def _from_tables(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """Every answer summed from the one table that predicts it best."""
    sources, _ = direct_sources(plan.workload, plan.measurements, plan.noise)
    wanted: dict[int, set[tuple[int, ...]]] = {}
    for source, marginal in zip(sources, plan.workload.marginals, strict=True):
        wanted.setdefault(source, set()).add(marginal)
    sums = {
        source: margins(noisy[source], plan.measurements[source].query.attributes, asked)
        for source, asked in wanted.items()
    }
    return tuple(
        np.array(sums[source][marginal], dtype=np.float64)
        for source, marginal in zip(sources, plan.workload.marginals, strict=True)
    )


def _inverse_transform(plan: Plan, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
    """A cell of B is the sum of chi(cell) f / m_B over coefficients with support in B (equation 5 of the paper)."""
    lattice = close_downward(plan.workload.marginals, plan.workload.sizes)
    sums = [np.zeros(tuple(plan.workload.sizes[attribute] for attribute in members)) for members in lattice.sets]
    for measurement, answers in zip(plan.measurements, noisy, strict=True):
        number = lattice.numbers[measurement.query.attributes]
        sums[number] = _back(measurement, answers)
    spread_evenly(lattice, sums, averaged=False)
    codes = lattice.products([padded(size) for size in lattice.sizes])
    return tuple(sums[number] / codes[number] for number in lattice.family.tolist())


def _back(measurement: Measurement, answers: IntegerArray) -> FloatArray:
    """F' z on the valid codes of the measurement's own attributes."""
    back: FloatArray = np.asarray(answers, dtype=np.float64)
    factors: Sequence[Factor] = measurement.query.factors
    for axis, factor in enumerate(factors):
        back = adjoint(factor, back, axis)
    return back


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


# The options nonnegative and integer, applied after recovery; both bias sums of many cells, and are never
# silent.


def treated(plan: Plan, answers: Sequence[FloatArray], *, nonnegative: bool, integer: bool) -> tuple[FloatArray, ...]:
    """Answers after the options: tables stay consistent if they were, unless they are rounded too.

    Totals are kept: a table's sum stays what it was (0 if it was negative), rounded under `integer`.
    """
    tables = tuple(answers)
    if nonnegative and plan.consistency == "none":
        tables = tuple(nonnegative_table(table) for table in tables)
    elif nonnegative:
        tables = nonnegative_consistent(plan.workload, tables, plan.variances)
    return tuple(integer_table(table) for table in tables) if integer else tables
