"""Budgets of a strategy without groups: the convex program (1)-(3) of Cormode et al., solved through its dual.

Minimise sum_i s_i eta_i^-q subject to, for every column j, sum_i A_ji eta_i <= E, where
Laplace:  eta = 1/b,       q = 2, A = |S|^T,        E = epsilon (the objective is half the variance), and
Gaussian: eta = 1/sigma^2, q = 1, A = S^T squared,  E = 2 rho.
For multipliers mu >= 0 of the columns and c = A^T mu, weak duality (Hoelder) gives for every feasible eta

    objective >= ( sum_i s_i^(1/(q+1)) c_i^(q/(q+1)) )^(q+1) / (E sum mu)^q,

with equality at eta_i proportional to (s_i/c_i)^(1/(q+1)),

so maximising phi(mu) - sum mu, phi the bracket, is a smooth concave problem with bounds only, for L-BFGS-B; the
feasible eta and the bound together certify the answer.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.optimize import minimize

from dpduck.planning.budgets import (
    GUARD_BITS,
    LEAST_WEIGHT,
    MARGIN,
    WASTE,
    optimal_parameters,
    safe_parameters,
    simplest_between,
)
from dpduck.planning.plan import Parameters
from dpduck.planning.ranges.plan import greedy_groups
from dpduck.trusted.noise.law import NoiseKind
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import InternalError

GAP = 1e-8
"""Relative distance from the optimum that is good enough."""

POLISHES = 20_000
"""Multiplicative updates at most, after the solver."""


def row_parameters(
    noise: NoiseKind, matrix: IntegerArray, weights: FloatArray, amount: Fraction, unit_bound: int
) -> Parameters:
    """Exact optimal parameters for the rows of any integer strategy: by groups where it has them, else by the program.

    weights: s_i, the summed recovery weight of each row. Rows must not be zero.
    """
    magnitudes = np.abs(matrix)
    groups = greedy_groups(matrix)
    power = 1 if noise is NoiseKind.LAPLACE else 2
    if all(group.exact for group in groups):
        summed = np.array([weights[list(group.rows)].sum() for group in groups])
        norms = [group.norm**power for group in groups]
        wanted = optimal_parameters(noise, summed, np.array(norms, dtype=np.float64), float(amount))
        parameters = safe_parameters(noise, wanted, norms, amount, unit_bound)
        which = np.empty(len(matrix), dtype=np.intp)
        for position, group in enumerate(groups):
            which[list(group.rows)] = parameters.which[position]
        return Parameters(parameters.distinct, which)
    costs = magnitudes.astype(np.float64) ** power
    wanted = unit_bound**power / (float(amount) * power * program(costs, weights, 3 - power))
    return _round_up(noise, matrix, wanted, amount, unit_bound)


def program(costs: FloatArray, weights: FloatArray, power: int) -> FloatArray:
    """eta that minimises sum of weights eta^-power with every column of costs' eta at most 1.

    costs: shape (rows, columns). Certified: the objective is within GAP of the dual bound, or as near as 20,000
    multiplicative steps get.
    """
    raised = np.maximum(weights, LEAST_WEIGHT * weights.max())
    columns = np.unique(costs, axis=1)
    weighted = raised ** (1 / (power + 1))
    exponent = power / (power + 1)

    def negative_dual(multipliers: FloatArray) -> tuple[float, FloatArray]:
        loads = np.maximum(columns @ multipliers, 1e-300)
        value = float((weighted * loads**exponent).sum() - multipliers.sum())
        slope = columns.T @ (exponent * weighted * loads ** (exponent - 1)) - 1
        return -value, -slope

    start = np.full(columns.shape[1], _scale(columns, weighted, exponent))
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-16, "gtol": 1e-12, "maxcor": 30}
    bounds = [(0.0, None)] * len(start)
    solved = minimize(negative_dual, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    multipliers = np.maximum(solved.x, 1e-12 * solved.x.max())
    return _polish(columns, raised, multipliers / multipliers.sum(), power)


def _scale(columns: FloatArray, weighted: FloatArray, exponent: float) -> float:
    """The best multiplier when all columns have the same: phi grows with the power `exponent`."""
    total = float((weighted * columns.sum(axis=1) ** exponent).sum())
    return float((exponent * total / columns.shape[1]) ** (1 / (1 - exponent)))


def _polish(columns: FloatArray, weights: FloatArray, multipliers: FloatArray, power: int) -> FloatArray:
    """Multiplicative steps towards stationarity until the certificate is below GAP; the best feasible eta found."""
    best, least = np.ones(len(weights)), np.inf
    for _ in range(POLISHES):
        eta = (weights / (columns @ multipliers)) ** (1 / (power + 1))
        loads = columns.T @ eta  # proportional to the slope of the dual in each multiplier
        feasible = eta / loads.max()
        value = float((weights * feasible**-power).sum())
        if value < least:
            best, least = feasible, value
        used = float(loads @ multipliers)  # the value of eta / used is the dual bound
        if (float(loads.max()) / used) ** power <= 1 + GAP:
            break
        multipliers = multipliers * (loads / used)
    return best


def _round_up(
    noise: NoiseKind, matrix: IntegerArray, wanted: FloatArray, amount: Fraction, unit_bound: int
) -> Parameters:
    """Exact parameters just above the wanted ones: every column's exact cost is at most the amount."""
    power = 1 if noise is NoiseKind.LAPLACE else 2
    allowed = Fraction(amount) * power  # epsilon, or 2 rho
    distinct = tuple(
        simplest_between(Fraction(value), Fraction(value * (1 + WASTE))) for value in (wanted * MARGIN).tolist()
    )
    columns = np.unique(np.abs(matrix), axis=1).T.tolist()
    worst = max(
        sum(_ceiling(entry**power, parameter) for entry, parameter in zip(column, distinct, strict=True) if entry)
        for column in columns
    )
    if worst * unit_bound**power > (allowed.numerator << GUARD_BITS) // allowed.denominator:
        raise InternalError("rounded noise scales cost more than the budget; nothing was released")
    return Parameters(distinct, np.arange(len(matrix)))


def _ceiling(norm: int, parameter: Fraction) -> int:
    """norm / parameter in units of 2^-GUARD_BITS, rounded up."""
    return -(-(norm * parameter.denominator << GUARD_BITS) // parameter.numerator)
