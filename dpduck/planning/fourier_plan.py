"""Plans of the Fourier strategy F: Hadamard coefficients of the binary encoding, uniform or optimal noise (F+)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpduck.arrays import FloatArray
from dpduck.planning.closure_plan import closure_measurements
from dpduck.planning.marginal_variance import cell_weights, marginal_variances, workload_variances
from dpduck.planning.measurement_list import FamilyMeasurements
from dpduck.planning.plan import Measurement, Plan
from dpduck.strategies.fourier import coefficient_weights, padded
from dpduck.trusted.noise import NoiseKind, noise_variance
from dpduck.trusted.operators import HadamardFactor
from dpduck.workload.lattice import Lattice, close_downward
from dpduck.workload.marginals import MarginalWorkload


def plan_fourier(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    consistency: str = "l2",
    *,
    lattice: Lattice | None = None,
) -> Plan:
    """F or F+. With 'none' the paper's plain inverse transform; else least squares over the valid cells.

    Where a size is no power of two the padded codes are structural zeros: knowing them lowers the error of every
    cell (by 4 % on Adult's eight attributes), and makes the released margins consistent, which the plain inverse is
    not once the padded cells are left out. For powers of two both are the same.
    """
    closed = lattice or close_downward(workload.marginals, workload.sizes)
    codes = np.array([padded(size) for size in closed.sizes], dtype=np.float64)
    if budgets == "optimal":
        weights = coefficient_weights(closed, cell_weights(closed, workload))
    else:  # as many rows as weight: the same noise on every coefficient
        weights = closed.products(codes - 1)
    factors = [HadamardFactor(size) for size in workload.sizes]
    measurements = closure_measurements(closed, factors, weights, noise, amount, unit_bound)
    if consistency == "none":
        variances = _plain_variances(closed, measurements, noise)
    else:
        variances = workload_variances(closed, measurements, noise)
    return Plan(
        strategy="F+" if budgets == "optimal" else "F",
        noise=noise,
        workload=workload,
        measurements=measurements,
        variances=variances,
        consistency=consistency,
        note=f"measures {int(closed.products(codes - 1).sum())} coefficients of the binary encoding",
    )


def _plain_variances(lattice: Lattice, measurements: FamilyMeasurements, noise: NoiseKind) -> tuple[float, ...]:
    """Variance of a cell of B by the inverse transform: sum over T in B of v_T prod_{i in T} (m_i - 1) / m_B^2.

    That is the ANOVA formula over the padded sizes m_i, with component variance v_T.
    """
    by_set = coefficient_variances(lattice, measurements, noise)
    return tuple(marginal_variances(padded_lattice(lattice), by_set)[lattice.family].tolist())


def coefficient_variances(lattice: Lattice, measurements: Sequence[Measurement], noise: NoiseKind) -> FloatArray:
    """v_T of every set's coefficients, 0 where there are none."""
    by_set = np.zeros(len(lattice))
    for measurement in measurements:
        by_set[lattice.numbers[measurement.query.attributes]] = noise_variance(noise, measurement.spread)
    return by_set


def padded_lattice(lattice: Lattice) -> Lattice:
    """The same sets over the padded sizes m_i."""
    return replace(lattice, sizes=tuple(padded(size) for size in lattice.sizes))
