"""How much of the budget each level of a tree gets; under Laplace not convex, so several starts that drop levels."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp

import numpy as np
from scipy.optimize import minimize

from dpduck.arrays import FloatArray
from dpduck.strategies.hierarchy import Hierarchy, level_energies
from dpduck.strategies.one_thread import one_thread
from dpduck.workload.ranges import RangeWorkload

LEAST_LEAF = 1e-4
"""The smallest share of the last level, which must be measured."""

DROPPED = 1e-6
"""A smaller share is no share: the level is not measured."""


def level_shares(tree: Hierarchy, workload: RangeWorkload, norm: int) -> tuple[FloatArray, float]:
    """Shares of epsilon (norm 1) or rho (norm 2) per level, summing to 1, for the least total variance; that total.

    Exact where all nodes of a level have the same length, else for the mean length: the levels' projectors P_l then
    diagonalise the normal matrix, and the total is sum_l trace(V P_l) / lambda_l, lambda_l = sum_{k >= l} w_k m_k with
    w_k the precision of level k and m_k the length of its nodes. The total is for w_k = share_k^2 (norm 1) or share_k.
    """
    energies = level_energies(tree, workload)
    lengths = np.array([tree.size / (len(bounds) - 1) for bounds in tree.boundaries])
    return optimal_shares(energies, lengths, norm)


def optimal_shares(energies: FloatArray, lengths: FloatArray, norm: int) -> tuple[FloatArray, float]:
    """Descents from several starts, then levels dropped, added or moved by one, as long as that helps."""
    if len(energies) == 1:
        return np.ones(1), float(energies[0] / lengths[0])
    with one_thread():
        return _search(energies, lengths, norm)


def _search(energies: FloatArray, lengths: FloatArray, norm: int) -> tuple[FloatArray, float]:
    tried = [_descend(start, energies, lengths, norm) for start in _starts(len(energies), norm)]
    value, shares = min(tried, key=lambda pair: pair[0])
    while norm == 1:  # under L2 the problem is convex
        tried = [_descend(start, energies, lengths, norm) for start in _neighbours(shares)]
        better = min(tried, key=lambda pair: pair[0], default=(np.inf, shares))
        if better[0] >= value - 1e-9:
            break
        value, shares = better
    return shares, exp(value)


def local_optimum(tree: Hierarchy, workload: RangeWorkload, norm: int) -> FloatArray:
    """The optimum that a descent from equal shares finds: what is usually reported."""
    lengths = np.array([tree.size / (len(bounds) - 1) for bounds in tree.boundaries])
    equal = np.full(tree.levels, 1 / tree.levels)
    return _descend(equal, level_energies(tree, workload), lengths, norm)[1]


def _starts(levels: int, norm: int) -> Iterator[FloatArray]:
    """Equal shares on every k-th level counted from the last one."""
    for step in range(1, levels if norm == 1 else 2):
        kept = np.zeros(levels)
        kept[::-1][::step] = 1.0
        yield kept / kept.sum()


def _neighbours(shares: FloatArray) -> Iterator[FloatArray]:
    """One level dropped, added with the mean share, or moved to the next level above or below; the last stays."""
    measured = shares > 0
    for level in range(len(shares) - 1):
        changed = shares.copy()
        changed[level] = 0.0 if measured[level] else shares[measured].mean()
        yield changed / changed.sum()
        if measured[level + 1] != measured[level] and level + 2 < len(shares):
            changed = shares.copy()
            changed[[level, level + 1]] = shares[[level + 1, level]]
            yield changed


def _descend(start: FloatArray, energies: FloatArray, lengths: FloatArray, norm: int) -> tuple[float, FloatArray]:
    """Minimise log(total variance) over shares >= 0 from `start`, scale-free; returns (value, shares)."""
    floor = np.zeros(len(start))
    floor[-1] = LEAST_LEAF

    def value(shares: FloatArray) -> tuple[float, FloatArray]:
        # Laplace: w = share^2, times (sum of shares)^2; Gaussian: w = share, times the sum (DESIGN 4.2)
        power = 2 if norm == 1 else 1
        rates = (shares**power * lengths)[::-1].cumsum()[::-1]
        terms = energies / rates
        slopes = -(terms / rates).cumsum() * lengths * power * shares ** (power - 1)
        total, whole = terms.sum(), shares.sum()
        return float(np.log(total) + power * np.log(whole)), slopes / total + power / whole

    best = minimize(value, np.maximum(start, floor), jac=True, method="L-BFGS-B", bounds=[(f, None) for f in floor])
    shares = np.where(best.x < DROPPED * best.x.sum(), 0.0, best.x)
    shares[-1] = best.x[-1]
    return float(best.fun), shares / shares.sum()
