"""Trees over an ordered attribute, with any branching factor. A level is a group of counts of disjoint intervals.

The method is from Hay, Rastogi, Miklau, Suciu, Boosting the accuracy of differentially private histograms through
consistency (2010). Here levels may have unequal noise or no measurement, and any number of values is possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from dpduck.algebra.ranges import RangeWorkload
from dpduck.values.arrays import FloatArray, IndexArray

LARGEST_DENSE = 2048
"""Largest number n of values for which an n x n matrix may be built."""


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Nested partitions of n values into intervals, from one interval to single values.

    boundaries: of the intervals, by level, increasing from 0 to n. The first level has [0, n], the last has 0..n.
    """

    size: int
    boundaries: tuple[IndexArray, ...]

    @property
    def levels(self) -> int:
        return len(self.boundaries)

    @cached_property
    def first_child(self) -> tuple[IndexArray, ...]:
        """Returns, for each level but the last, the index of each node's first child, then the number of children."""
        pairs = zip(self.boundaries, self.boundaries[1:], strict=False)
        return tuple(np.searchsorted(below, above) for above, below in pairs)

    @cached_property
    def node_of(self) -> tuple[IndexArray, ...]:
        """Returns, for each level, the node that holds each position 0..n. Position n lies after the last node."""
        return tuple(np.repeat(np.arange(len(b)), np.diff(b, append=self.size + 1)) for b in self.boundaries)

    def level_entries(self, level: int) -> scipy.sparse.csr_array:
        """Returns the integer 0/1 matrix of one level, shape (nodes, n)."""
        bounds = self.boundaries[level]
        ones = np.ones(self.size, dtype=np.int64)
        return scipy.sparse.csr_array((ones, np.arange(self.size), bounds), shape=(len(bounds) - 1, self.size))


def build_hierarchy(size: int, branching: int) -> Hierarchy:
    """Returns the tree that cuts the values at level l into branching^l intervals of lengths that differ by at most 1.

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
    """Variances of the best estimates from measurements inside each subtree (Hay et al., section 4.1), by level.

    best: a_v, the variance for the count of node v: 1/a_v = w_l + 1/s_v, with w_l the precision of its level l.
    from_children: s_v, the sum of a_c over the children c of node v, 0 at the last level.
    """

    from_children: tuple[FloatArray, ...]
    best: tuple[FloatArray, ...]


def subtree_variances(tree: Hierarchy, precisions: FloatArray) -> SubtreeVariances:
    """Computes variances by subtree. precisions: 1/variance by level, 0 if unmeasured, above 0 for the last level."""
    best = [np.full(tree.size, 1 / precisions[-1])]
    below = [np.zeros(tree.size)]
    for level in range(tree.levels - 2, -1, -1):
        summed = np.add.reduceat(best[0], tree.first_child[level][:-1])
        below.insert(0, summed)
        best.insert(0, summed / (1 + precisions[level] * summed))
    return SubtreeVariances(tuple(below), tuple(best))


def hierarchy_variances(tree: Hierarchy, precisions: FloatArray, workload: RangeWorkload) -> FloatArray:
    """Returns the variance of every query after least squares, shape (queries,), in O(n + queries) per level.

    a_v, s_v: see SubtreeVariances. Given the total of node v, its children have covariance diag(a_c) - a a'/s_v. Let
    g_v spread a unit of node v over its values, in proportion to a_c/s_v at every step down. Then
    Var(q) = sum_v (a_v - s_v) (g_v . q)^2. Nodes inside the interval have g_v . q = 1. Its ends cut at most two per
    level.
    """
    subtrees = subtree_variances(tree, precisions)
    variances = np.zeros(workload.queries)
    before = np.zeros(tree.size + 1)  # for the node v that holds each position, the sum of g_v before the position
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
    """Returns, for each query q, the sum over one level's nodes v of change_v (g_v . q)^2 (see hierarchy_variances)."""
    starts, stops = workload.starts, workload.stops
    first, last = node[starts], node[stops]
    earlier = np.concatenate([[0.0], np.cumsum(change)])
    one_node = change[first] * (before[stops] - before[starts]) ** 2
    inside = earlier[last] - earlier[np.minimum(first + 1, len(change))]
    ends = change[first] * (1 - before[starts]) ** 2 + change[last] * before[stops] ** 2
    return np.where(first == last, one_node, inside + ends)


def level_energies(tree: Hierarchy, workload: RangeWorkload) -> FloatArray:
    """Computes trace(V P_l) for each level l, with the workload's Gram matrix V.

    P_l = Q_l - Q_{l-1} projects onto the part that level l adds. Q_l replaces each value by the mean over its node.
    """
    dense = workload.queries > 2 * tree.size and tree.size <= LARGEST_DENSE
    energies = _block_energies(tree, workload) if dense else _query_energies(tree, workload)
    return np.maximum(np.diff(energies, prepend=0.0), 0.0)


def _block_energies(tree: Hierarchy, workload: RangeWorkload) -> list[float]:
    """Computes trace(V Q_l) for each level: the sum of V over each node's block, divided by the node's length m."""
    sums = np.zeros((tree.size + 1, tree.size + 1))
    sums[1:, 1:] = workload.gram.cumsum(axis=0).cumsum(axis=1)
    energies = []
    for bounds in tree.boundaries:
        start, stop = bounds[:-1], bounds[1:]
        blocks = sums[stop, stop] - 2 * sums[start, stop] + sums[start, start]
        energies.append(float((blocks / (stop - start)).sum()))
    return energies


def _query_energies(tree: Hierarchy, workload: RangeWorkload) -> list[float]:
    """Computes trace(V Q_l) = sum_q a_q |Q_l q|^2. A node of length m that overlaps q adds overlap^2/m."""
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
