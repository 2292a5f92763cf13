"""Trees over an ordered attribute, of any branching: one group of disjoint interval counts per level, with budgets.

Hay, Rastogi, Miklau, Suciu, Boosting the accuracy of differentially private histograms through consistency (2010),
generalised to levels of unequal noise, levels that are not measured, and sizes that are no power of the branching.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from math import exp

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from dpduck.algebra.ranges import RangeWorkload
from dpduck.values.arrays import FloatArray, IndexArray

LARGEST_DENSE = 2048
"""Up to this many values an n x n matrix may be built."""


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Nested partitions of n values into intervals, from one interval to single values.

    boundaries: per level, increasing, from 0 to n; level 0 is [0, n], the last is 0..n.
    """

    size: int
    boundaries: tuple[IndexArray, ...]

    @property
    def levels(self) -> int:
        return len(self.boundaries)

    @cached_property
    def first_child(self) -> tuple[IndexArray, ...]:
        """Per level but the last: for each node, and once past the end, the index of its first child."""
        pairs = zip(self.boundaries, self.boundaries[1:], strict=False)
        return tuple(np.searchsorted(below, above) for above, below in pairs)

    @cached_property
    def node_of(self) -> tuple[IndexArray, ...]:
        """Per level: the node that holds each position 0..n; n lies past the last node."""
        return tuple(np.repeat(np.arange(len(b)), np.diff(b, append=self.size + 1)) for b in self.boundaries)

    def level_entries(self, level: int) -> scipy.sparse.csr_array:
        """Returns the integer 0/1 matrix of one level, shape (nodes, n)."""
        bounds = self.boundaries[level]
        ones = np.ones(self.size, dtype=np.int64)
        return scipy.sparse.csr_array((ones, np.arange(self.size), bounds), shape=(len(bounds) - 1, self.size))


def balanced_hierarchy(size: int, branching: int) -> Hierarchy:
    """Cuts the n values at level l into branching^l intervals, whose lengths differ by at most 1.

    >>> [b.tolist() for b in balanced_hierarchy(5, 2).boundaries]
    [[0, 5], [0, 2, 5], [0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 5]]
    """
    boundaries = []
    nodes = 1
    while nodes < size:
        boundaries.append(np.arange(nodes + 1) * size // nodes)
        nodes *= branching
    return Hierarchy(size, (*boundaries, np.arange(size + 1)))


@dataclass(frozen=True, eq=False)
class SubtreeVariances:
    """Best variances from measurements inside each subtree (Hay et al., section 4.1).

    from_children: s_v, the summed best variances of the children; 0 at the last level, which has none.
    best: a_v, of the node's own count: 1/a_v = w_l + 1/s_v with w_l the precision of its level.
    """

    from_children: tuple[FloatArray, ...]
    best: tuple[FloatArray, ...]


def subtree_variances(tree: Hierarchy, precisions: FloatArray) -> SubtreeVariances:
    """precisions: 1/variance per level, 0 where a level is not measured; the last must be measured."""
    best = [np.full(tree.size, 1 / precisions[-1])]
    below = [np.zeros(tree.size)]
    for level in range(tree.levels - 2, -1, -1):
        summed = np.add.reduceat(best[0], tree.first_child[level][:-1])
        below.insert(0, summed)
        best.insert(0, summed / (1 + precisions[level] * summed))
    return SubtreeVariances(tuple(below), tuple(best))


def hierarchy_variances(tree: Hierarchy, precisions: FloatArray, workload: RangeWorkload) -> FloatArray:
    """Returns the variance of every query after least squares, in O(n + queries) per level; shape (queries,).

    Given its node's total, a node's children have covariance diag(a_c) - a a'/s_v. Let g_v spread a unit of node v over
    its values in proportion to a_c/s_v at every step down; then Var(q) = sum_v (a_v - s_v) (g_v . q)^2. Nodes inside
    the interval have g_v . q = 1, and only two nodes of a level are cut.
    """
    found = subtree_variances(tree, precisions)
    variances = np.zeros(workload.queries)
    before = np.zeros(tree.size + 1)  # g_v mass of the values before each position, in the node that holds it
    for level in range(tree.levels - 1, -1, -1):
        node = tree.node_of[level]
        if level < tree.levels - 1:
            child = tree.node_of[level + 1]
            best = np.append(found.best[level + 1], 0.0)
            earlier = np.concatenate([[0.0], np.cumsum(best)])
            from_start = earlier[child] - earlier[tree.first_child[level]][node]
            before = (from_start + best[child] * before) / np.append(found.from_children[level], 1.0)[node]
        if precisions[level] > 0:  # else a_v = s_v
            change = np.append(found.best[level] - found.from_children[level], 0.0)
            variances += _cut_and_inside(node, before, change, workload)
    return variances


def _cut_and_inside(node: IndexArray, before: FloatArray, change: FloatArray, workload: RangeWorkload) -> FloatArray:
    """Returns the sum over one level's nodes of change_v (g_v . q)^2."""
    starts, stops = workload.starts, workload.stops
    first, last = node[starts], node[stops]
    earlier = np.concatenate([[0.0], np.cumsum(change)])
    one_node = change[first] * (before[stops] - before[starts]) ** 2
    inside = earlier[last] - earlier[np.minimum(first + 1, len(change))]
    ends = change[first] * (1 - before[starts]) ** 2 + change[last] * before[stops] ** 2
    chosen: FloatArray = np.where(first == last, one_node, inside + ends)
    return chosen


def level_energies(tree: Hierarchy, workload: RangeWorkload) -> FloatArray:
    """trace(V P_l) per level, with P_l the projector onto what level l adds to the levels above it.

    P_l = Q_l - Q_{l-1} with Q_l the means over the nodes of level l.
    """
    dense = workload.queries > 2 * tree.size and tree.size <= LARGEST_DENSE
    energies = _block_energies(tree, workload) if dense else _query_energies(tree, workload)
    return np.maximum(np.diff(energies, prepend=0.0), 0.0)


def _block_energies(tree: Hierarchy, workload: RangeWorkload) -> list[float]:
    """trace(V Q_l) = sum over nodes of 1'V1/m, from two-dimensional prefix sums of V."""
    sums = np.zeros((tree.size + 1, tree.size + 1))
    sums[1:, 1:] = workload.gram.cumsum(axis=0).cumsum(axis=1)
    energies = []
    for bounds in tree.boundaries:
        start, stop = bounds[:-1], bounds[1:]
        blocks = sums[stop, stop] - 2 * sums[start, stop] + sums[start, start]
        energies.append(float((blocks / (stop - start)).sum()))
    return energies


def _query_energies(tree: Hierarchy, workload: RangeWorkload) -> list[float]:
    """trace(V Q_l) = sum_q a_q |Q_l q|^2: a node inside the interval adds its length m, a cut one overlap^2/m."""
    energies = []
    for bounds, node in zip(tree.boundaries, tree.node_of, strict=True):
        starts, stops = workload.starts, workload.stops
        first, last = node[starts], node[stops]
        lengths = np.append(np.diff(bounds), 1)
        left = np.minimum(bounds[np.minimum(first + 1, len(bounds) - 1)], stops) - starts
        right = np.where(first == last, 0, stops - bounds[last])
        squares = left**2 / lengths[first] + (stops - starts - left - right) + right**2 / lengths[last]
        energies.append(float(workload.weights @ squares))
    return energies


# The unnormalised Haar wavelet as integer rows: the total, then per level (+1 left, -1 right) of every split.
#
# Xiao, Wang, Gehrke, Differential privacy via wavelet transforms (2010), with optimal budgets per level and for any n:
# a split halves the count of its node's values as nearly as it can; the n rows are invertible whatever the lengths.


NOTHING = 1e-12
"""Rounding errors of squares that are 0; the squares themselves are 0 or at least 1/n^2."""


@dataclass(frozen=True, eq=False)
class Haar:
    """Group 0 is the total; group l + 1 has a row for each node of level l of a binary tree that is split.

    Every column has one entry, +1 or -1, in at most every group: column norm 1 under L1 and L2.
    """

    tree: Hierarchy

    @property
    def size(self) -> int:
        return self.tree.size

    @property
    def groups(self) -> int:
        return self.tree.levels

    @cached_property
    def split(self) -> tuple[IndexArray, ...]:
        """Per level but the last: the nodes that are split, in the order of the rows."""
        return tuple(np.flatnonzero(np.diff(first) == 2) for first in self.tree.first_child)

    def group_entries(self, group: int) -> scipy.sparse.csr_array:
        """Returns the integer matrix of one group, shape (rows, n)."""
        if group == 0:
            return self.tree.level_entries(0)
        below = self.tree.level_entries(group)
        left = self.tree.first_child[group - 1][self.split[group - 1]]
        return scipy.sparse.csr_array(below[left] - below[left + 1])


def haar_wavelet(size: int) -> Haar:
    """Returns the wavelet over n values.

    >>> haar_wavelet(3).group_entries(2).toarray().tolist()
    [[0, 1, -1]]
    """
    return Haar(balanced_hierarchy(size, 2))


def haar_recovery_weights(haar: Haar, workload: RangeWorkload) -> FloatArray:
    """Returns summed recovery weights s_r per group: total variance is sum_r s_r v_r."""
    weights = [float(workload.weights @ squares) for squares in _squares(haar, workload)]
    return np.array(weights)


def haar_shares(haar: Haar, workload: RangeWorkload, norm: int) -> FloatArray:
    """Returns optimal shares of epsilon (norm 1) or rho (norm 2) per group; 0 for a group that no query needs.

    With C_r = 1: eta_r proportional to s_r^(1/3), or eta_r^2 to s_r^(1/2).
    """
    weights = haar_recovery_weights(haar, workload)
    weights[weights < 1e-12 * weights.max()] = 0.0
    raised = weights ** (1 / 3 if norm == 1 else 1 / 2)
    shares: FloatArray = raised / raised.sum()
    return shares


def haar_variances(haar: Haar, variances: FloatArray, workload: RangeWorkload) -> FloatArray:
    """Returns the variance of every query, shape (queries,), from one noise variance per group; O(n + queries) per
    group.
    """
    found = np.zeros(workload.queries)
    for variance, squares in zip(variances, _squares(haar, workload), strict=True):
        found += np.where(squares > NOTHING, variance, 0.0) * squares
    return found


def _squares(haar: Haar, workload: RangeWorkload) -> list[FloatArray]:
    """Per group, per query: the summed squares of the coefficients that turn the group's rows into the answer.

    With sums (left, right) = (total + difference)/2, (total - difference)/2 at every split, row v reaches its values
    with weights that add up to 0: only the nodes cut by an end of the interval count, by what lies before the cut.
    """
    tree, starts, stops = haar.tree, workload.starts, workload.stops
    share = np.zeros(tree.size + 1)  # part of its node's total before each position, all differences being 0
    found: list[FloatArray] = []
    for level in range(tree.levels - 2, -1, -1):
        node, child = tree.node_of[level], tree.node_of[level + 1]
        first = tree.first_child[level]
        children = np.append(np.diff(first), 1)[node]
        is_second = child > first[node]
        row = np.where(children == 2, np.where(is_second, 0.5 - 0.5 * share, 0.5 * share), 0.0)
        share = np.where(children == 2, 0.5 * share + 0.5 * is_second, share)
        row[-1] = share[-1] = 0.0
        apart = row[starts] ** 2 + row[stops] ** 2
        found.insert(0, np.where(node[starts] == node[stops], (row[stops] - row[starts]) ** 2, apart))
    whole = np.append(share[:-1], 1.0)
    return [(whole[stops] - whole[starts]) ** 2, *found]


# How much of the budget each level of a tree gets; under Laplace not convex, so several starts that drop
# levels.

LEAST_LEAF = 1e-4
"""The smallest share of the last level, which must be measured."""

DROPPED = 1e-6
"""A smaller share is no share: the level is not measured."""


def level_shares(tree: Hierarchy, workload: RangeWorkload, norm: int) -> tuple[FloatArray, float]:
    """Returns shares of epsilon (norm 1) or rho (norm 2) by level, of sum 1, of least total variance; that total.

    Exact where all nodes of a level have the same length, else for the mean length: the levels' projectors P_l then
    diagonalise the normal matrix, and the total is sum_l trace(V P_l) / lambda_l, lambda_l = sum_{k >= l} w_k m_k with
    w_k the precision of level k and m_k the length of its nodes. The total is for w_k = share_k^2 (norm 1) or share_k.
    """
    energies = level_energies(tree, workload)
    lengths = np.array([tree.size / (len(bounds) - 1) for bounds in tree.boundaries])
    return optimal_shares(energies, lengths, norm)


def uniform_shares(tree: Hierarchy, workload: RangeWorkload, norm: int) -> tuple[FloatArray, float]:
    """Returns equal shares of every level, and the same total."""
    shares = np.full(tree.levels, 1 / tree.levels)
    lengths = np.array([tree.size / (len(bounds) - 1) for bounds in tree.boundaries])
    rates = (shares ** (2 if norm == 1 else 1) * lengths)[::-1].cumsum()[::-1]
    return shares, float((level_energies(tree, workload) / rates).sum())


def optimal_shares(energies: FloatArray, lengths: FloatArray, norm: int) -> tuple[FloatArray, float]:
    """Descends from several starts, then drops, adds or moves levels by one, as long as that helps."""
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
    """Yields equal shares on every k-th level counted from the last one."""
    for step in range(1, levels if norm == 1 else 2):
        kept = np.zeros(levels)
        kept[::-1][::step] = 1.0
        yield kept / kept.sum()


def _neighbours(shares: FloatArray) -> Iterator[FloatArray]:
    """Yields shares with one level dropped, added with the mean share, or moved up or down by one; the last stays."""
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
        # Laplace: w = share^2, times (sum of shares)^2; Gaussian: w = share, times the sum
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


# Linear algebra on one thread: on a busy machine threads that wait for each other make small matrices far
# slower.


def one_thread() -> AbstractContextManager[object]:
    """While it lasts, every BLAS of the process uses one thread."""
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits
