"""consistency = 'none': each answer from the measurements that the paper's initial recovery uses, no least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpduck.arrays import FloatArray, IntegerArray
from dpduck.planning.direct import direct_sources
from dpduck.planning.measurement_list import measured_kinds
from dpduck.planning.plan import Measurement, Plan
from dpduck.recovery.anova import margins, recover_least_squares, spread_evenly
from dpduck.strategies.fourier import padded
from dpduck.strategies.gram import adjoint
from dpduck.trusted.operators import Factor, HadamardFactor, IdentityFactor
from dpduck.workload.lattice import close_downward


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
