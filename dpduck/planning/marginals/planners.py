"""Plans strategies over marginals: which tables are measured, and the exact rationals of their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import compress

import numpy as np

from dpduck.algebra.lattice import Lattice, MarginalWorkload
from dpduck.planning.budgets import (
    LEAST_WEIGHT,
    optimal_parameters,
    safe_parameters,
    uniform_parameter,
    uniform_parameters,
)
from dpduck.planning.plan import (
    FamilyMeasurements,
    Measurement,
    Parameters,
    Plan,
    PlanningProblem,
    base_attributes,
    coefficient_weights,
    marginal_query,
    measured_marginals,
    padded,
    residual_weights,
)
from dpduck.planning.variance import cell_weights, direct_variance, marginal_variances, workload_variances
from dpduck.trusted.noise.law import NoiseKind, noise_variance
from dpduck.trusted.operators import CentredFactor, Factor, HadamardFactor
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal

SHARES = "shares"
"""Budgets that are given: each table costs the share of the price that its weight says."""


def plan_identity(problem: PlanningProblem, _: str = "optimal") -> Plan:
    """I: the table over every attribute used, whose sums are consistent as they are, whatever consistency is asked."""
    workload, base = problem.workload, base_attributes(problem.workload)
    parameter = uniform_parameter(problem.noise, 1, problem.amount, problem.unit_bound)
    variance = noise_variance(problem.noise, parameter)
    cells = np.prod([workload.sizes[attribute] for attribute in base], dtype=object)
    measurements = (Measurement(marginal_query(base, workload.sizes), parameter),)
    variances = tuple(direct_variance(workload.sizes, base, asked, variance) for asked in workload.marginals)
    return problem.plan("I", measurements, variances, f"measures one table of {cells} cells")


# Plans of the strategy Q: every marginal of the workload is measured, with uniform or optimal noise (Q+).


def plan_marginals(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """Q (uniform), Q+ (optimal budgets) or Q shared (the weights are shares), recovered as the problem's consistency
    says.
    """
    sets, weights = measured_marginals(problem.workload)
    if budgets == SHARES:
        parameters = shared_parameters(problem, sets)
    else:
        parameters = parameters_of(problem, weights if budgets == "optimal" else None, len(sets))
    measurements = problem.tables(sets, parameters)
    if problem.consistency == "l2":
        variances = workload_variances(problem.lattice, measurements, problem.noise)
    else:
        by_set = dict(zip(sets, (noise_variance(problem.noise, parameter) for parameter in parameters), strict=True))
        variances = tuple(by_set[marginal] for marginal in problem.workload.marginals)
    name = {"optimal": "Q+", SHARES: "Q shared"}.get(budgets, "Q")
    return problem.plan(name, measurements, variances, f"measures each of the {len(sets)} marginals")


def parameters_of(problem: PlanningProblem, weights: FloatArray | None, tables: int) -> Parameters:
    """Returns the noise of so many tables: optimal for these recovery weights, or the same for all."""
    norms = [1] * tables
    if weights is None:
        return uniform_parameters(problem.noise, norms, problem.amount, problem.unit_bound)
    wanted = optimal_parameters(problem.noise, weights, np.ones(tables), float(problem.amount))
    return safe_parameters(problem.noise, wanted, norms, problem.amount, problem.unit_bound)


def shared_parameters(problem: PlanningProblem, sets: Sequence[tuple[int, ...]]) -> Parameters:
    """Returns noise that costs of each table the share of the price that its weight says."""
    weights = dict(zip(problem.workload.marginals, problem.workload.weights, strict=True))
    given = np.array([weights[one] for one in sets], np.float64)
    raised = np.maximum(given, LEAST_WEIGHT * given.max())
    shares = raised / raised.sum()
    amount = float(problem.amount)
    wanted = 1 / (shares * (amount if problem.noise is NoiseKind.LAPLACE else 2 * amount))
    return safe_parameters(problem.noise, wanted, [1] * len(sets), problem.amount, problem.unit_bound)


# Plans of the residual basis R, the optimum of all Gaussian strategies for marginals.


def plan_residual(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """R; its components are measured apart, so its answers are consistent whatever consistency is asked.

    budgets = 'uniform': the same sigma_A^2 for every set, which is what equal weights v_A = p_A give.
    """
    if problem.noise is not NoiseKind.GAUSSIAN:
        raise Refusal("the residual basis needs Gaussian noise", accepted="a budget with delta, or strategy = 'auto'")
    closed = problem.lattice
    sizes = np.asarray(closed.sizes, dtype=np.float64)
    if budgets == "optimal":
        weights = residual_weights(closed, cell_weights(closed, problem.workload))
    else:  # sigma_A^2 = sqrt(p_A / v_A) * const is the same everywhere
        weights = closed.products((sizes - 1) / sizes) / closed.products(sizes) ** 2
    measurements = closure_measurements(problem, [CentredFactor(size) for size in problem.workload.sizes], weights)
    variances = workload_variances(closed, measurements, problem.noise)
    name = "R" if budgets == "optimal" else "R uniform"
    return problem.plan(name, measurements, variances, f"measures {len(measurements)} tables of residuals")


# Plans that measure one block of queries for every subset of the workload's marginals: residuals and Fourier.


def closure_measurements(
    problem: PlanningProblem, factors: Sequence[Factor], weights: FloatArray
) -> FamilyMeasurements:
    """Returns one measurement for every set that has rows, with budgets that are optimal for these weights.

    factors: by domain position. weights: s of every set's block, summed over its rows. A set with an attribute of
    one value has no contrasts: nothing is measured there.
    """
    noise, lattice = problem.noise, problem.lattice
    column = [norm_of(factors[attribute], noise) for attribute in lattice.attributes]
    every_norm = lattice.integer_products(column)
    kept = [norm > 0 for norm in every_norm]
    norms = list(compress(every_norm, kept))
    wanted = optimal_parameters(noise, weights[kept], np.array(norms, dtype=np.float64), float(problem.amount))
    parameters = safe_parameters(noise, wanted, norms, problem.amount, problem.unit_bound)
    return FamilyMeasurements(tuple(compress(lattice.sets, kept)), factors, parameters)


def norm_of(factor: Factor, noise: NoiseKind) -> int:
    """Returns the column norm that this noise pays for: L1, or squared L2; norms of Kronecker products multiply."""
    return factor.norms[0 if noise is NoiseKind.LAPLACE else 1]


# Plans of the Fourier strategy F: Hadamard coefficients of the binary encoding, uniform or optimal noise
# (F+).


def plan_fourier(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """F or F+. With 'none' the paper's plain inverse transform; else least squares over the valid cells.

    Where a size is no power of two the padded codes are structural zeros: knowing them lowers the error of every
    cell (by 4 % on Adult's eight attributes), and makes the released margins consistent, which the plain inverse is
    not once the padded cells are left out. For powers of two both are the same.
    """
    closed = problem.lattice
    codes = np.array([padded(size) for size in closed.sizes], dtype=np.float64)
    if budgets == "optimal":
        weights = coefficient_weights(closed, cell_weights(closed, problem.workload))
    else:  # as many rows as weight: the same noise on every coefficient
        weights = closed.products(codes - 1)
    measurements = closure_measurements(problem, [HadamardFactor(size) for size in problem.workload.sizes], weights)
    predicted = _plain_variances if problem.consistency == "none" else workload_variances
    note = f"measures {int(closed.products(codes - 1).sum())} coefficients of the binary encoding"
    name = "F+" if budgets == "optimal" else "F"
    return problem.plan(name, measurements, predicted(closed, measurements, problem.noise), note)


def _plain_variances(lattice: Lattice, measurements: FamilyMeasurements, noise: NoiseKind) -> tuple[float, ...]:
    """Returns the variance of a cell of B by the inverse transform: sum over T in B of v_T prod_{i in T} (m_i - 1) /
    m_B^2.

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
    """Returns the same sets over the padded sizes m_i."""
    return replace(lattice, sizes=tuple(padded(size) for size in lattice.sizes))


# Plans for numbers of distinct values: they do not add up over cells, so every grouping set is measured by
# itself.

DISTINCT = "distinct"


def plan_distinct(workload: MarginalWorkload, noise: NoiseKind, amount: Fraction, unit_bound: int) -> Plan:
    """Returns a row adds at most one value to one cell of every grouping set, as it adds one to a count."""
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
