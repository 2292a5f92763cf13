"""Plans strategies over marginals: which tables are measured, and the exact rationals of their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import compress

import numpy as np

from dpduck.algebra.lattice import Lattice, MarginalWorkload, close_downward
from dpduck.planning.budgets import optimal_parameters, safe_parameters, uniform_parameter, uniform_parameters
from dpduck.planning.plan import (
    FamilyMeasurements,
    Measurement,
    Plan,
    base_attributes,
    coefficient_weights,
    marginal_query,
    measured_marginals,
    padded,
    residual_weights,
)
from dpduck.planning.variance import cell_weights, direct_variance, marginal_variances, workload_variances
from dpduck.trusted.noise.law import NoiseKind, noise_variance
from dpduck.trusted.operators import CentredFactor, Factor, HadamardFactor, IdentityFactor
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal


def plan_identity(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    consistency: str = "l2",
) -> Plan:
    """I: the table over every attribute used, whose sums are consistent as they are, whatever `consistency` asks."""
    base = base_attributes(workload)
    parameter = uniform_parameter(noise, 1, amount, unit_bound)
    variance = noise_variance(noise, parameter)
    cells = np.prod([workload.sizes[attribute] for attribute in base], dtype=object)
    return Plan(
        strategy="I",
        noise=noise,
        workload=workload,
        measurements=(Measurement(marginal_query(base, workload.sizes), parameter),),
        variances=tuple(direct_variance(workload.sizes, base, asked, variance) for asked in workload.marginals),
        consistency=consistency,
        note=f"measures one table of {cells} cells",
    )


# Plans of the strategy Q: every marginal of the workload is measured, with uniform or optimal noise (Q+).


def plan_marginals(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    consistency: str = "l2",
    *,
    lattice: Lattice | None = None,
) -> Plan:
    """Q (uniform) or Q+ (optimal budgets, DESIGN 4.2), recovered as `consistency` says.

    lattice: the workload's closure where the caller has it already.
    """
    sets, weights = measured_marginals(workload)
    norms = [1] * len(sets)
    if budgets == "optimal":
        wanted = optimal_parameters(noise, weights, np.ones(len(sets)), float(amount))
        parameters = safe_parameters(noise, wanted, norms, amount, unit_bound)
    else:
        parameters = uniform_parameters(noise, norms, amount, unit_bound)
    measurements = FamilyMeasurements(sets, [IdentityFactor(size) for size in workload.sizes], parameters)
    if consistency == "l2":
        closed = lattice or close_downward(workload.marginals, workload.sizes)
        variances = workload_variances(closed, measurements, noise)
    else:
        by_set = dict(zip(sets, (noise_variance(noise, parameter) for parameter in parameters), strict=True))
        variances = tuple(by_set[marginal] for marginal in workload.marginals)
    return Plan(
        strategy="Q+" if budgets == "optimal" else "Q",
        noise=noise,
        workload=workload,
        measurements=measurements,
        variances=variances,
        consistency=consistency,
        note=f"measures each of the {len(sets)} marginals",
    )


# Plans of the residual basis R, the optimum of all Gaussian strategies for marginals (DESIGN 4.6).


def plan_residual(
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    consistency: str = "l2",
    *,
    lattice: Lattice | None = None,
) -> Plan:
    """R; its components are measured apart, so its answers are consistent whatever `consistency` asks.

    budgets = 'uniform': the same sigma_A^2 for every set, which is what equal weights v_A = p_A give.
    """
    if noise is not NoiseKind.GAUSSIAN:
        raise Refusal("the residual basis needs Gaussian noise", accepted="a budget with delta, or strategy = 'auto'")
    closed = lattice or close_downward(workload.marginals, workload.sizes)
    sizes = np.asarray(closed.sizes, dtype=np.float64)
    if budgets == "optimal":
        weights = residual_weights(closed, cell_weights(closed, workload))
    else:  # sigma_A^2 = sqrt(p_A / v_A) * const is the same everywhere
        weights = closed.products((sizes - 1) / sizes) / closed.products(sizes) ** 2
    factors = [CentredFactor(size) for size in workload.sizes]
    measurements = closure_measurements(closed, factors, weights, noise, amount, unit_bound)
    return Plan(
        strategy="R" if budgets == "optimal" else "R uniform",
        noise=noise,
        workload=workload,
        measurements=measurements,
        variances=workload_variances(closed, measurements, noise),
        consistency=consistency,
        note=f"measures {len(measurements)} tables of residuals",
    )


# Plans that measure one block of queries for every subset of the workload's marginals: residuals and Fourier.


def closure_measurements(
    lattice: Lattice,
    factors: Sequence[Factor],
    weights: FloatArray,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
) -> FamilyMeasurements:
    """One measurement for every set that has rows, with budgets that are optimal for these weights (DESIGN 4.2).

    factors: by domain position. weights: s of every set's block, summed over its rows. A set with an attribute of
    one value has no contrasts: nothing is measured there.
    """
    column = [norm_of(factors[attribute], noise) for attribute in lattice.attributes]
    every_norm = lattice.integer_products(column)
    kept = [norm > 0 for norm in every_norm]
    norms = list(compress(every_norm, kept))
    wanted = optimal_parameters(noise, weights[kept], np.array(norms, dtype=np.float64), float(amount))
    parameters = safe_parameters(noise, wanted, norms, amount, unit_bound)
    return FamilyMeasurements(tuple(compress(lattice.sets, kept)), factors, parameters)


def norm_of(factor: Factor, noise: NoiseKind) -> int:
    """The column norm that this noise pays for: L1, or squared L2; norms of Kronecker products multiply."""
    return factor.norms[0 if noise is NoiseKind.LAPLACE else 1]


# Plans of the Fourier strategy F: Hadamard coefficients of the binary encoding, uniform or optimal noise
# (F+).


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
        by_set[lattice.numbers[measurement.query.attributes]] = noise_variance(noise, measurement.parameter)
    return by_set


def padded_lattice(lattice: Lattice) -> Lattice:
    """The same sets over the padded sizes m_i."""
    return replace(lattice, sizes=tuple(padded(size) for size in lattice.sizes))


# Plans for numbers of distinct values: they do not add up over cells, so every grouping set is measured by
# itself.

DISTINCT = "distinct"


def plan_distinct(workload: MarginalWorkload, noise: NoiseKind, amount: Fraction, unit_bound: int) -> Plan:
    """A row adds at most one value to one cell of every grouping set, as it adds one to a count."""
    parameter = uniform_parameter(noise, len(workload.marginals), amount, unit_bound)
    return Plan(
        strategy=DISTINCT,
        noise=noise,
        workload=workload,
        measurements=tuple(
            Measurement(marginal_query(marginal, workload.sizes), parameter) for marginal in workload.marginals
        ),
        variances=(noise_variance(noise, parameter),) * len(workload.marginals),
        consistency="none",
        note="every grouping set is measured by itself",
    )
