"""Planners of strategies over marginals: the measured tables, and the exact rationals of their noise.

I is one table, Q each table that is asked, R the residual basis, and F Hadamard coefficients. A trailing + means
optimal noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import compress

import numpy as np

from dpduck.algebra.lattice import Lattice
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import CentredFactor, Factor, HadamardFactor
from dpduck.strategies.budgets import (
    LEAST_WEIGHT,
    optimal_parameters,
    safe_parameters,
    uniform_parameter,
    uniform_parameters,
)
from dpduck.strategies.marginals.weights import (
    base_attributes,
    code_count,
    coefficient_weights,
    distinct_marginals,
    residual_weights,
)
from dpduck.strategies.measurements import FamilyMeasurements, Measurement, Parameters
from dpduck.strategies.plan import Plan, PlanningProblem, marginal_query
from dpduck.strategies.variance import cell_weights, direct_variance, marginal_variances, workload_variances
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal

SHARES = "shares"
"""Value of the option `budgets`: the weight of each table is its share of the price."""


def plan_identity(problem: PlanningProblem, _: str = "optimal") -> Plan:
    """Plans strategy I: one table over every used attribute. Answers are sums of its cells, so they are consistent."""
    workload, base = problem.workload, base_attributes(problem.workload)
    whole = len(base) == len(workload.sizes)  # the cells of a margin move by more than the cells of the whole table
    squared = problem.squared_bound if whole else None
    parameter = uniform_parameter(problem.noise, 1, problem.amount, problem.unit_bound, squared)
    variance = noise_variance(problem.noise, parameter)
    cells = np.prod([workload.sizes[attribute] for attribute in base], dtype=object)
    measurements = (Measurement(marginal_query(base, workload.sizes), parameter),)
    variances = tuple(direct_variance(workload.sizes, base, asked, variance) for asked in workload.marginals)
    return problem.plan("I", measurements, variances, f"measures one table of {cells} cell{'' if cells == 1 else 's'}")


def plan_marginals(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """Plans Q, which measures each asked marginal: Q has equal noise, Q+ optimal noise, and Q shared given shares."""
    sets, weights = distinct_marginals(problem.workload)
    if budgets == SHARES:
        parameters = parameters_by_share(problem, sets)
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
    """Returns the noise parameters of `tables` tables: optimal for these recovery weights, or equal without weights."""
    norms = [1] * tables
    if weights is None:
        return uniform_parameters(problem.noise, norms, problem.amount, problem.unit_bound)
    wanted = optimal_parameters(problem.noise, weights, np.ones(tables), float(problem.amount))
    return safe_parameters(problem.noise, wanted, norms, problem.amount, problem.unit_bound)


def parameters_by_share(problem: PlanningProblem, sets: Sequence[tuple[int, ...]]) -> Parameters:
    """Returns noise parameters at which each table's part of the price is its weight over the sum of weights."""
    weights = dict(zip(problem.workload.marginals, problem.workload.weights, strict=True))
    given = np.array([weights[marginal] for marginal in sets], np.float64)
    raised = np.maximum(given, LEAST_WEIGHT * given.max())
    shares = raised / raised.sum()
    amount = float(problem.amount)
    wanted = 1 / (shares * (amount if problem.noise is NoiseKind.LAPLACE else 2 * amount))
    return safe_parameters(problem.noise, wanted, [1] * len(sets), problem.amount, problem.unit_bound)


def plan_residual(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """Plans R, which measures each ANOVA component apart, so that answers are consistent whatever is asked."""
    if problem.noise is not NoiseKind.GAUSSIAN:
        raise Refusal("the residual basis needs Gaussian noise", accepted="a budget with delta, or strategy = 'auto'")
    closed = problem.lattice
    sizes = np.asarray(closed.sizes, dtype=np.float64)
    if budgets == "optimal":
        weights = residual_weights(closed, cell_weights(closed, problem.workload))
    else:  # sigma_A^2 = sqrt(p_A / v_A) * const is equal for all sets
        weights = closed.products((sizes - 1) / sizes) / closed.products(sizes) ** 2
    measurements = closure_measurements(problem, [CentredFactor(size) for size in problem.workload.sizes], weights)
    variances = workload_variances(closed, measurements, problem.noise)
    name = "R" if budgets == "optimal" else "R uniform"
    return problem.plan(name, measurements, variances, f"measures {len(measurements)} tables of residuals")


def closure_measurements(
    problem: PlanningProblem, factors: Sequence[Factor], weights: FloatArray
) -> FamilyMeasurements:
    """Returns one measurement for each subset of the workload's marginals, with noise that is optimal for the weights.

    weights: each subset's recovery weight, summed over the rows of its query. A subset with an attribute of one value
    has no rows, so nothing is measured there.
    """
    noise, lattice = problem.noise, problem.lattice
    column = [norm_of(factors[attribute], noise) for attribute in lattice.attributes]
    every_norm = lattice.integer_products(column)
    has_rows = [norm > 0 for norm in every_norm]
    norms = list(compress(every_norm, has_rows))
    wanted = optimal_parameters(noise, weights[has_rows], np.array(norms, dtype=np.float64), float(problem.amount))
    parameters = safe_parameters(noise, wanted, norms, problem.amount, problem.unit_bound)
    return FamilyMeasurements(tuple(compress(lattice.sets, has_rows)), factors, parameters)


def norm_of(factor: Factor, noise: NoiseKind) -> int:
    """Returns a factor's column norm: L1 (Laplace), or squared L2 (Gaussian). Norms of Kronecker products multiply."""
    return factor.norms[0 if noise is NoiseKind.LAPLACE else 1]


def plan_fourier(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """Plans F (equal noise) or F+ (optimal noise), which measure Hadamard coefficients of the codes' bits.

    Recovery is least squares, or the paper's plain inverse transform at consistency 'none'. If a size is no power of
    two, only least squares knows that cells of padded codes are 0. This lowers the error of every cell (by 4 % on
    Adult's eight attributes), and margins are consistent.
    """
    closed = problem.lattice
    codes = np.array([code_count(size) for size in closed.sizes], dtype=np.float64)
    if budgets == "optimal":
        weights = coefficient_weights(closed, cell_weights(closed, problem.workload))
    else:  # weights equal to the numbers of rows give equal noise on every coefficient
        weights = closed.products(codes - 1)
    measurements = closure_measurements(problem, [HadamardFactor(size) for size in problem.workload.sizes], weights)
    predicted = _plain_variances if problem.consistency == "none" else workload_variances
    note = f"measures {int(closed.products(codes - 1).sum())} coefficients of the binary encoding"
    name = "F+" if budgets == "optimal" else "F"
    return problem.plan(name, measurements, predicted(closed, measurements, problem.noise), note)


def _plain_variances(lattice: Lattice, measurements: FamilyMeasurements, noise: NoiseKind) -> tuple[float, ...]:
    """Returns a cell's variance in each marginal by the plain inverse transform: ANOVA over padded sizes."""
    by_set = coefficient_variances(lattice, measurements, noise)
    return tuple(marginal_variances(code_lattice(lattice), by_set)[lattice.family].tolist())


def coefficient_variances(lattice: Lattice, measurements: Sequence[Measurement], noise: NoiseKind) -> FloatArray:
    """Returns the noise variance of the coefficients of each set, 0 for a set without coefficients."""
    by_set = np.zeros(len(lattice))
    for measurement in measurements:
        by_set[lattice.numbers[measurement.query.attributes]] = noise_variance(noise, measurement.parameter)
    return by_set


def code_lattice(lattice: Lattice) -> Lattice:
    """Returns the lattice with each size raised to the next power of two."""
    return replace(lattice, sizes=tuple(code_count(size) for size in lattice.sizes))


DISTINCT = "distinct"


def plan_distinct(
    workload: MarginalWorkload, noise: NoiseKind, amount: Fraction, unit_bound: int, squared_bound: int
) -> Plan:
    """Plans counts of distinct values, which do not add up over cells, so that each set needs a measurement.

    squared_bound: a unit's squared L2 sensitivity in one grouping set.
    """
    parameter = uniform_parameter(noise, len(workload.marginals), amount, unit_bound, squared_bound)
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
