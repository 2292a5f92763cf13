"""Trees over an ordered attribute, of any branching: one group of disjoint interval counts per level, with budgets.

The method is from Hay, Rastogi, Miklau, Suciu, Boosting the accuracy of differentially private histograms through
consistency (2010). Here levels may have unequal noise or no measurement, and sizes need not be powers of the branching.
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

    boundaries: per level, increasing, from 0 to n. The first level has [0, n], the last level has 0..n.
    """

    size: int
    boundaries: tuple[IndexArray, ...]

    @property
    def levels(self) -> int:
        return len(self.boundaries)

    @cached_property
    def first_child(self) -> tuple[IndexArray, ...]:
        """Returns, for each level but the last, the index of each node's first child, and one index past the end."""
        pairs = zip(self.boundaries, self.boundaries[1:], strict=False)
        return tuple(np.searchsorted(below, above) for above, below in pairs)

    @cached_property
    def node_of(self) -> tuple[IndexArray, ...]:
        """Returns, for each level, the node that holds each position 0..n. Position n lies past the last node."""
        return tuple(np.repeat(np.arange(len(b)), np.diff(b, append=self.size + 1)) for b in self.boundaries)

    def level_entries(self, level: int) -> scipy.sparse.csr_array:
        """Returns the integer 0/1 matrix of one level, shape (nodes, n)."""
        bounds = self.boundaries[level]
        ones = np.ones(self.size, dtype=np.int64)
        return scipy.sparse.csr_array((ones, np.arange(self.size), bounds), shape=(len(bounds) - 1, self.size))


def build_hierarchy(size: int, branching: int) -> Hierarchy:
    """Cuts the n values at level l into branching^l intervals. Their lengths differ by at most 1.

    >>> [b.tolist() for b in build_hierarchy(5, 2).boundaries]
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

    from_children: s_v, the sum of the children's best variances, 0 at the last level.
    best: a_v, the best variance of the node's own count: 1/a_v = w_l + 1/s_v with w_l the precision of its level.
    """

    from_children: tuple[FloatArray, ...]
    best: tuple[FloatArray, ...]


def subtree_variances(tree: Hierarchy, precisions: FloatArray) -> SubtreeVariances:
    """Computes best variances from each level's 1/variance, 0 without a measurement. The last level must have one."""
    best = [np.full(tree.size, 1 / precisions[-1])]
    below = [np.zeros(tree.size)]
    for level in range(tree.levels - 2, -1, -1):
        summed = np.add.reduceat(best[0], tree.first_child[level][:-1])
        below.insert(0, summed)
        best.insert(0, summed / (1 + precisions[level] * summed))
    return SubtreeVariances(tuple(below), tuple(best))


def hierarchy_variances(tree: Hierarchy, precisions: FloatArray, workload: RangeWorkload) -> FloatArray:
    """Returns the variance of every query after least squares, shape (queries,), in O(n + queries) per level.

    Given the total of node v, its children have covariance diag(a_c) - a a'/s_v. Let g_v spread a unit of node v over
    its values in proportion to a_c/s_v at every step down. Then Var(q) = sum_v (a_v - s_v) (g_v . q)^2. Nodes inside
    the interval have g_v . q = 1. The interval cuts at most two nodes of a level.
    """
    subtrees = subtree_variances(tree, precisions)
    variances = np.zeros(workload.queries)
    before = np.zeros(tree.size + 1)  # g_v mass of the values before each position, in the node that holds it
    for level in range(tree.levels - 1, -1, -1):
        node = tree.node_of[level]
        if level < tree.levels - 1:
            child = tree.node_of[level + 1]
            best = np.append(subtrees.best[level + 1], 0.0)
            earlier = np.concatenate([[0.0], np.cumsum(best)])
            from_start = earlier[child] - earlier[tree.first_child[level]][node]
            before = (from_start + best[child] * before) / np.append(subtrees.from_children[level], 1.0)[node]
        if precisions[level] > 0:  # else a_v = s_v
            change = np.append(subtrees.best[level] - subtrees.from_children[level], 0.0)
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
    """Computes trace(V P_l) per level. P_l is the projector onto the part that level l adds to the levels above it.

    P_l = Q_l - Q_{l-1} with Q_l the means over the nodes of level l.
    """
    dense = workload.queries > 2 * tree.size and tree.size <= LARGEST_DENSE
    energies = _block_energies(tree, workload) if dense else _query_energies(tree, workload)
    return np.maximum(np.diff(energies, prepend=0.0), 0.0)


def _block_energies(tree: Hierarchy, workload: RangeWorkload) -> list[float]:
    """Computes trace(V Q_l) = sum over nodes of 1'V1/m, from two-dimensional prefix sums of V."""
    sums = np.zeros((tree.size + 1, tree.size + 1))
    sums[1:, 1:] = workload.gram.cumsum(axis=0).cumsum(axis=1)
    energies = []
    for bounds in tree.boundaries:
        start, stop = bounds[:-1], bounds[1:]
        blocks = sums[stop, stop] - 2 * sums[start, stop] + sums[start, start]
        energies.append(float((blocks / (stop - start)).sum()))
    return energies


def _query_energies(tree: Hierarchy, workload: RangeWorkload) -> list[float]:
    """Computes trace(V Q_l) = sum_q a_q |Q_l q|^2. A node inside query q adds its length m, a cut node overlap^2/m."""
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


# The unnormalised Haar wavelet as integer rows: the total, then a row (+1 left, -1 right) for every split, by level.
#
# Xiao, Wang, Gehrke, Differential privacy via wavelet transforms (2010), with optimal budgets per level and for any n:
# a split halves the count of its node's values as nearly as possible. The n rows are invertible for all lengths.


NOTHING = 1e-12
"""Bound on the rounding errors of squares that are 0. All other squares are at least 1/n^2."""


@dataclass(frozen=True, eq=False)
class Haar:
    """Haar wavelet. Group 0 is the total. Group l + 1 has a row for each split node of level l of a binary tree.

    A column has at most one entry, +1 or -1, in each group. So each group has column norm 1 under L1 and L2.
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
        """Returns, for each level but the last, the nodes that are split, in the order of the rows."""
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
    return Haar(build_hierarchy(size, 2))


def haar_recovery_weights(haar: Haar, workload: RangeWorkload) -> FloatArray:
    """Returns the summed recovery weight s_r of each group. The total variance is sum_r s_r v_r."""
    weights = [float(workload.weights @ squares) for squares in _squares(haar, workload)]
    return np.array(weights)


def haar_shares(haar: Haar, workload: RangeWorkload, norm: int) -> FloatArray:
    """Returns the optimal share of epsilon (norm 1) or rho (norm 2) per group, 0 for a group that no query needs.

    With C_r = 1, eta_r is proportional to s_r^(1/3) under norm 1, and eta_r^2 to s_r^(1/2) under norm 2.
    """
    weights = haar_recovery_weights(haar, workload)
    weights[weights < 1e-12 * weights.max()] = 0.0
    raised = weights ** (1 / 3 if norm == 1 else 1 / 2)
    shares: FloatArray = raised / raised.sum()
    return shares


def haar_variances(haar: Haar, variances: FloatArray, workload: RangeWorkload) -> FloatArray:
    """Returns each query's variance, shape (queries,), from a noise variance per group, in O(n + queries) per group."""
    query_variances = np.zeros(workload.queries)
    for variance, squares in zip(variances, _squares(haar, workload), strict=True):
        query_variances += np.where(squares > NOTHING, variance, 0.0) * squares
    return query_variances


def _squares(haar: Haar, workload: RangeWorkload) -> list[FloatArray]:
    """Returns, per group and query, the summed squares of the coefficients that turn the group's rows into the answer.

    At every split (left, right) = ((total + difference)/2, (total - difference)/2). So a difference enters the values
    below with weights that add up to 0. It counts only if an interval ends within its node, by the weights before.
    """
    tree, starts, stops = haar.tree, workload.starts, workload.stops
    share = np.zeros(tree.size + 1)  # part of its node's total before each position, if differences are 0
    group_squares: list[FloatArray] = []
    for level in range(tree.levels - 2, -1, -1):
        node, child = tree.node_of[level], tree.node_of[level + 1]
        first = tree.first_child[level]
        children = np.append(np.diff(first), 1)[node]
        is_second = child > first[node]
        row = np.where(children == 2, np.where(is_second, 0.5 - 0.5 * share, 0.5 * share), 0.0)
        share = np.where(children == 2, 0.5 * share + 0.5 * is_second, share)
        row[-1] = share[-1] = 0.0
        apart = row[starts] ** 2 + row[stops] ** 2
        group_squares.insert(0, np.where(node[starts] == node[stops], (row[stops] - row[starts]) ** 2, apart))
    whole = np.append(share[:-1], 1.0)
    return [(whole[stops] - whole[starts]) ** 2, *group_squares]


# Shares of the budget by level of a tree. Under Laplace noise the problem is not convex. So there are several starts,
# with levels dropped.

LEAST_LEAF = 1e-4
"""Smallest share of the last level, which must be measured."""

DROPPED = 1e-6
"""A level with a smaller share is not measured."""


def level_shares(tree: Hierarchy, workload: RangeWorkload, norm: int) -> tuple[FloatArray, float]:
    """Returns shares of epsilon (norm 1) or rho (norm 2) by level, with sum 1 and least total variance, and that total.

    Exact if all nodes of a level have the same length: the levels' projectors P_l then diagonalise the normal matrix.
    Otherwise the mean length stands for all lengths. Let w_k be the precision of level k, m_k the length of its nodes,
    and lambda_l the sum of w_k m_k over k >= l. The total is sum_l trace(V P_l) / lambda_l with w_k = share_k^2
    (norm 1) or share_k (norm 2).
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
    """Descends from several starts. Then drops, adds or moves levels one by one, as long as the total falls."""
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
    """Yields shares with one level dropped, added at the mean share, or moved up or down by one. The last one stays."""
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
    """Minimises log(total variance) over shares >= 0 from `start`, scale-free. Returns (value, shares)."""
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


# Linear algebra on one thread: on a busy machine, threads that wait for each other make small matrices far slower.


def one_thread() -> AbstractContextManager[object]:
    """Limits every BLAS of the process to one thread while the context lasts."""
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits
