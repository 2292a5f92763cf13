"""Budgets eta_i of a strategy's rows, without groups: the convex program (1)-(3) of Cormode et al., by its dual.

Minimise sum_i s_i eta_i^-q so that sum_i A_ij eta_i <= E for every column j. s_i is the recovery weight of row i.
Laplace:  eta = 1/b,       q = 2, A = |S|,       E = epsilon (the objective is half the variance).
Gaussian: eta = 1/sigma^2, q = 1, A = S squared, E = 2 rho.
Take multipliers mu >= 0 of the columns, and c = A mu. By weak duality (Hoelder), every feasible eta has

    objective >= ( sum_i s_i^(1/(q+1)) c_i^(q/(q+1)) )^(q+1) / (E sum mu)^q,

with equality at eta_i proportional to (s_i/c_i)^(1/(q+1)). With phi(mu) for the bracket, maximising phi(mu) - sum mu is
a smooth concave problem for L-BFGS-B. The feasible eta and the bound together certify the answer.
"""

from __future__ import annotations

import numpy as np
import scipy

from dpduck.strategies.budgets import LEAST_WEIGHT
from dpduck.values.arrays import FloatArray

GAP = 1e-8

POLISHES = 20_000
"""Largest number of multiplicative updates after the solver."""


def convex_budgets(
    costs: FloatArray, weights: FloatArray, power: int, gap: float = GAP, polishes: int = POLISHES
) -> FloatArray:
    """Returns eta >= 0 with the least sum of weights * eta^-power, if no entry of costs.T @ eta may exceed 1.

    costs: shape (rows, columns). The sum is within `gap` (relative) of a lower bound, if `polishes` steps suffice.

    >>> convex_budgets(np.array([[1.0], [1.0]]), np.array([1.0, 8.0]), 2).round(6).tolist()
    [0.333333, 0.666667]
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
    solved = scipy.optimize.minimize(negative_dual, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    multipliers = np.maximum(solved.x, 1e-12 * solved.x.max())
    return _polish(columns, raised, multipliers / multipliers.sum(), power, gap, polishes)


def _scale(columns: FloatArray, weighted: FloatArray, exponent: float) -> float:
    """Returns the best multiplier mu if all columns share it. phi (see above) grows like mu^exponent."""
    total = float((weighted * columns.sum(axis=1) ** exponent).sum())
    return float((exponent * total / columns.shape[1]) ** (1 / (1 - exponent)))


def _polish(
    columns: FloatArray, weights: FloatArray, multipliers: FloatArray, power: int, gap: float, polishes: int
) -> FloatArray:
    """Multiplies mu in steps until the relative distance from the dual bound is below `gap`. Returns the best eta."""
    best: FloatArray = np.full(len(weights), 1 / columns.sum(axis=0).max())
    least = np.inf
    for _ in range(polishes):
        eta = (weights / (columns @ multipliers)) ** (1 / (power + 1))
        loads = columns.T @ eta  # proportional to the slope of the dual in each multiplier
        feasible = eta / loads.max()
        value = float((weights * feasible**-power).sum())
        if value < least:
            best, least = feasible, value
        used = float(loads @ multipliers)  # the value of eta / used is the dual bound
        if (float(loads.max()) / used) ** power <= 1 + gap:
            break
        multipliers = multipliers * (loads / used)
    return best
