"""Planners of strategies over marginals: the measured tables, and the exact rationals of their noise.

I is one table, Q each table that is asked, R the residual basis, and F Hadamard coefficients. A trailing + is for
optimal noise. Numbers of distinct values do not add up over cells, so each grouping set is measured by itself.
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
"""Budgets by given shares: each table's weight is its share of the price."""


def plan_identity(problem: PlanningProblem, _: str = "optimal") -> Plan:
    """Plans I: one table over every used attribute. Its sums are consistent, whatever consistency is asked."""
    workload, base = problem.workload, base_attributes(problem.workload)
    whole = len(base) == len(workload.sizes)  # a margin moves by more than its cells
    squared = problem.squared_bound if whole else None
    parameter = uniform_parameter(problem.noise, 1, problem.amount, problem.unit_bound, squared)
    variance = noise_variance(problem.noise, parameter)
    cells = np.prod([workload.sizes[attribute] for attribute in base], dtype=object)
    measurements = (Measurement(marginal_query(base, workload.sizes), parameter),)
    variances = tuple(direct_variance(workload.sizes, base, asked, variance) for asked in workload.marginals)
    return problem.plan("I", measurements, variances, f"measures one table of {cells} cell{'' if cells == 1 else 's'}")


def plan_marginals(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """Plans Q (uniform), Q+ (optimal budgets) or Q shared (weights as shares), with the problem's consistency."""
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
    """Returns the noise of `tables` tables: optimal for these recovery weights, or the same for all."""
    norms = [1] * tables
    if weights is None:
        return uniform_parameters(problem.noise, norms, problem.amount, problem.unit_bound)
    wanted = optimal_parameters(problem.noise, weights, np.ones(tables), float(problem.amount))
    return safe_parameters(problem.noise, wanted, norms, problem.amount, problem.unit_bound)


def parameters_by_share(problem: PlanningProblem, sets: Sequence[tuple[int, ...]]) -> Parameters:
    """Returns noise at which each table costs its weight's share of the price."""
    weights = dict(zip(problem.workload.marginals, problem.workload.weights, strict=True))
    given = np.array([weights[marginal] for marginal in sets], np.float64)
    raised = np.maximum(given, LEAST_WEIGHT * given.max())
    shares = raised / raised.sum()
    amount = float(problem.amount)
    wanted = 1 / (shares * (amount if problem.noise is NoiseKind.LAPLACE else 2 * amount))
    return safe_parameters(problem.noise, wanted, [1] * len(sets), problem.amount, problem.unit_bound)


def plan_residual(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """Plans R. Its components are measured apart, so its answers are consistent, whatever consistency is asked.

    budgets = 'uniform': the same sigma_A^2 for every set, as the weights v_A = p_A give.
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


def closure_measurements(
    problem: PlanningProblem, factors: Sequence[Factor], weights: FloatArray
) -> FamilyMeasurements:
    """Returns one measurement for every set that has rows, with budgets that are optimal for these weights.

    factors: by domain position. weights: s of every set's block, summed over its rows. A set with an attribute of one
    value has no contrasts, so nothing is measured there.
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
    """Returns the column norm that this noise pays for: L1, or squared L2. Norms of Kronecker products multiply."""
    return factor.norms[0 if noise is NoiseKind.LAPLACE else 1]


def plan_fourier(problem: PlanningProblem, budgets: str = "optimal") -> Plan:
    """Plans F or F+. 'none' takes the paper's plain inverse transform, others take least squares over the valid cells.

    If a size is no power of two, the padded codes are structural zeros. This knowledge lowers the error of every cell
    (by 4 % on Adult's eight attributes), and makes the released margins consistent. The plain inverse is not consistent
    once the padded cells are left out. For powers of two both are the same.
    """
    closed = problem.lattice
    codes = np.array([code_count(size) for size in closed.sizes], dtype=np.float64)
    if budgets == "optimal":
        weights = coefficient_weights(closed, cell_weights(closed, problem.workload))
    else:  # weights equal to the numbers of rows: the same noise on every coefficient
        weights = closed.products(codes - 1)
    measurements = closure_measurements(problem, [HadamardFactor(size) for size in problem.workload.sizes], weights)
    predicted = _plain_variances if problem.consistency == "none" else workload_variances
    note = f"measures {int(closed.products(codes - 1).sum())} coefficients of the binary encoding"
    name = "F+" if budgets == "optimal" else "F"
    return problem.plan(name, measurements, predicted(closed, measurements, problem.noise), note)


def _plain_variances(lattice: Lattice, measurements: FamilyMeasurements, noise: NoiseKind) -> tuple[float, ...]:
    """Returns the variance of a cell of B by the inverse transform: sum_{T in B} v_T prod_{i in T} (m_i - 1) / m_B^2.

    That is the ANOVA formula over the padded sizes m_i, with component variance v_T.
    """
    by_set = coefficient_variances(lattice, measurements, noise)
    return tuple(marginal_variances(code_lattice(lattice), by_set)[lattice.family].tolist())


def coefficient_variances(lattice: Lattice, measurements: Sequence[Measurement], noise: NoiseKind) -> FloatArray:
    """Returns v_T of every set's coefficients, 0 if there are none."""
    by_set = np.zeros(len(lattice))
    for measurement in measurements:
        by_set[lattice.numbers[measurement.query.attributes]] = noise_variance(noise, measurement.parameter)
    return by_set


def code_lattice(lattice: Lattice) -> Lattice:
    """Returns the same sets over the padded sizes m_i."""
    return replace(lattice, sizes=tuple(code_count(size) for size in lattice.sizes))


DISTINCT = "distinct"


def plan_distinct(
    workload: MarginalWorkload, noise: NoiseKind, amount: Fraction, unit_bound: int, squared_bound: int
) -> Plan:
    """Plans grouping sets that are measured one by one. A row adds a value to at most one cell of each set.

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
