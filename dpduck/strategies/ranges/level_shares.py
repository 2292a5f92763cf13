"""Shares of the budget by level of a tree. Under Laplace noise the problem is not convex, so it has several starts."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp

import numpy as np
import scipy

from dpduck.algebra.ranges import RangeWorkload
from dpduck.strategies.ranges.hierarchy import Hierarchy, level_energies
from dpduck.strategies.threads import one_thread
from dpduck.values.arrays import FloatArray

LEAST_LEAF = 1e-4
"""Smallest share of the last level, which must be measured."""

DROPPED = 1e-6
"""A level with a smaller share is not measured."""


def level_shares(tree: Hierarchy, workload: RangeWorkload, norm: int) -> tuple[FloatArray, float]:
    """Returns the shares of epsilon (norm 1) or rho (norm 2) by level with the least total variance, and this total.

    Let w_k be the precision of level k, m_k the mean length of its nodes, lambda_l the sum of w_k m_k over k >= l. The
    total is sum_l trace(V P_l) / lambda_l with w_k = share_k^2 (norm 1) or share_k (norm 2). P_l: see level_energies.
    This total is exact if all nodes of a level have equal length, since the P_l then diagonalise the normal matrix.
    """
    energies = level_energies(tree, workload)
    lengths = np.array([tree.size / (len(bounds) - 1) for bounds in tree.boundaries])
    return optimal_shares(energies, lengths, norm)


def uniform_shares(tree: Hierarchy, workload: RangeWorkload, norm: int) -> tuple[FloatArray, float]:
    """Returns equal shares for all levels, and their total variance."""
    shares = np.full(tree.levels, 1 / tree.levels)
    lengths = np.array([tree.size / (len(bounds) - 1) for bounds in tree.boundaries])
    rates = (shares ** (2 if norm == 1 else 1) * lengths)[::-1].cumsum()[::-1]
    return shares, float((level_energies(tree, workload) / rates).sum())


def optimal_shares(energies: FloatArray, lengths: FloatArray, norm: int) -> tuple[FloatArray, float]:
    """Returns the best shares and their total (see level_shares): descends from several starts, then changes levels."""
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


def _starts(levels: int, norm: int) -> Iterator[FloatArray]:
    """Yields equal shares on every k-th level, counted from the last level."""
    for step in range(1, levels if norm == 1 else 2):
        shares = np.zeros(levels)
        shares[::-1][::step] = 1.0
        yield shares / shares.sum()


def _neighbours(shares: FloatArray) -> Iterator[FloatArray]:
    """Yields shares with one level dropped, added at the mean share, or moved by one. The last level never changes."""
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
    """Minimises log(total variance) over shares >= 0 from `start`. Returns the least value and the shares."""
    floor = np.zeros(len(start))
    floor[-1] = LEAST_LEAF

    def value(shares: FloatArray) -> tuple[float, FloatArray]:
        # total at shares with sum 1: Laplace has w = share^2 and (sum of shares)^2, Gaussian w = share and the sum
        power = 2 if norm == 1 else 1
        rates = (shares**power * lengths)[::-1].cumsum()[::-1]
        terms = energies / rates
        slopes = -(terms / rates).cumsum() * lengths * power * shares ** (power - 1)
        total, whole = terms.sum(), shares.sum()
        return float(np.log(total) + power * np.log(whole)), slopes / total + power / whole

    best = scipy.optimize.minimize(
        value, np.maximum(start, floor), jac=True, method="L-BFGS-B", bounds=[(f, None) for f in floor]
    )
    shares = np.where(best.x < DROPPED * best.x.sum(), 0.0, best.x)
    shares[-1] = best.x[-1]
    return float(best.fun), shares / shares.sum()
