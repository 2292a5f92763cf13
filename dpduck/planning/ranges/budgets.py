"""The optimal Gaussian strategy of any workload: min trace(V X^-1) over X = A'A with unit diagonal, certified.

Convex. By duality (Li, Miklau, Hay, McGregor, Rastogi, The matrix mechanism, 2015) the total of every strategy is at
least (trace R)^2 / sum(m) with R = (D^1/2 V D^1/2)^1/2, D = diag(m), for any m > 0, with equality at the optimum,
where X = D^-1/2 R D^-1/2 has unit diagonal: m = diag(R). That fixed point (Denisov, McMahan, Rush, Smith, Thakurta,
Improved differential privacy for SGD via optimal private linear operators, 2022, section 4) is iterated, first on a
coarser workload. Scaling X to unit diagonal gives a strategy at every step, so the gap to the bound is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from time import monotonic

import numpy as np
from scipy.linalg import cholesky, eigh
from scipy.optimize import minimize

from dpduck.algebra.ranges import RangeWorkload
from dpduck.planning.ranges.hierarchy import Hierarchy, level_energies
from dpduck.planning.ranges.strategy import one_thread
from dpduck.values.arrays import FloatArray

GAP = 1e-4
"""The iteration stops when the total variance exceeds the lower bound by at most this part of it."""

COARSEST = 128
"""A workload over more values starts from the solution over a quarter as many intervals of them."""

MOST_STEPS = 300

MEMORY = 5
"""Former iterates that Anderson's acceleration combines."""

MIXING = 1.5
LARGEST_MOVE = 4.0
"""Of a logarithm of m in one step."""

RIDGE = 1e-9
"""Added to V's diagonal, relative to its mean, so that the strategy answers every value even if no query needs it."""


@dataclass(frozen=True, eq=False)
class GaussianOptimum:
    """A strategy and what it is worth at sigma = 1 with columns of L2 norm 1.

    matrix: A, shape (n, n), upper triangular. total: trace(V (A'A)^-1). lower_bound: of every strategy's total.
    """

    matrix: FloatArray
    total: float
    lower_bound: float


def optimise_gaussian(gram: FloatArray, seconds: float) -> GaussianOptimum:
    """The optimum for the Gram matrix V, shape (n, n), within GAP unless the time runs out first."""
    deadline = monotonic() + seconds
    size = len(gram)
    raised = gram + RIDGE * np.trace(gram) / size * np.eye(size)
    with one_thread():
        _, inner, total, bound = _iterate(raised, _multipliers(raised, deadline), deadline, GAP)
    return GaussianOptimum(cholesky(inner), total, bound)


def _multipliers(gram: FloatArray, deadline: float) -> FloatArray:
    """A starting point for m: that of the workload over intervals of values, spread out, for large sizes."""
    size = len(gram)
    if size <= COARSEST:
        return np.ones(size)
    bounds = np.arange(size // 4 + 1) * size // (size // 4)
    coarse = np.add.reduceat(np.add.reduceat(gram, bounds[:-1], axis=0), bounds[:-1], axis=1)
    found = _iterate(coarse, _multipliers(coarse, deadline), deadline, GAP / 10)[0]
    centres = (bounds[:-1] + bounds[1:] - 1) / 2
    return np.asarray(np.interp(np.arange(size), centres, found))


def _iterate(
    gram: FloatArray, multipliers: FloatArray, deadline: float, gap: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """(m, best X, its total, lower bound) after the gap is closed or the deadline has passed."""
    best_total, best_bound = np.inf, 0.0
    inner = np.eye(len(gram))
    logs: list[FloatArray] = []
    steps: list[FloatArray] = []
    for _ in range(MOST_STEPS):
        root = np.sqrt(multipliers)
        values, vectors = eigh(root[:, None] * gram * root, check_finite=False, driver="evd")
        singular = np.sqrt(np.maximum(values, 1e-15 * values[-1]))
        best_bound = max(best_bound, float(singular.sum() ** 2 / multipliers.sum()))
        diagonal = (vectors * vectors) @ singular
        # X = D^-1/2 R D^-1/2 has diagonal diag(R)/m; scaled to 1 its inverse is B' R^-1 B with B below
        scale = np.sqrt(diagonal / multipliers)
        rows = vectors.T * (root * scale)
        total = float(np.einsum("ij,ij->i", rows @ gram, rows) @ (1 / singular))
        if total < best_total:
            best_total = total
            half = np.sqrt(singular)[:, None] * vectors.T / (root * scale)
            inner = half.T @ half
        if best_total <= best_bound * (1 + gap) or monotonic() > deadline:
            break
        logs = [*logs[-MEMORY:], np.log(multipliers)]
        steps = [*steps[-MEMORY:], np.log(diagonal / diagonal.sum()) - np.log(multipliers / multipliers.sum())]
        multipliers = np.exp(_accelerated(logs, steps, diagonal))
    return multipliers, inner, best_total, best_bound


def _accelerated(logs: list[FloatArray], steps: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Anderson's mixing of the fixed point log m -> log m + step: the next log m, scaled to a mean of 0."""
    move = MIXING * steps[-1]
    if len(logs) > 1:
        step_changes = np.stack([steps[-1] - step for step in steps[:-1]], axis=1)
        log_changes = np.stack([logs[-1] - log for log in logs[:-1]], axis=1)
        root = np.sqrt(weights)
        mixed = np.linalg.lstsq(step_changes * root[:, None], steps[-1] * root, rcond=1e-6)[0]
        move = move - (log_changes + MIXING * step_changes) @ mixed
    following = logs[-1] + np.clip(move, -LARGEST_MOVE, LARGEST_MOVE)
    return np.asarray(following - following.mean())


# How much of the budget each level of a tree gets; under Laplace not convex, so several starts that drop
# levels.

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
