"""The unnormalised Haar wavelet as integer rows: the total, then a row (+1 left, -1 right) for every split, by level.

The method is from Xiao, Wang, Gehrke, Differential privacy via wavelet transforms (2010). Here budgets are optimal per
level, and n is any number: a split halves a node's values as nearly as possible. The n rows are always invertible.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from dpduck.algebra.ranges import RangeWorkload
from dpduck.strategies.ranges.hierarchy import Hierarchy, build_hierarchy
from dpduck.values.arrays import FloatArray, IndexArray

NOTHING = 1e-12
"""Squares below this are rounding errors. True squares are 0 or at least 1/n^2."""


@dataclass(frozen=True, eq=False)
class Haar:
    """Haar wavelet. Group 0 is the total. Group l + 1 has a row for each node that splits on level l of a binary tree.

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
        """Returns, for each level but the last, the nodes with two children, in the order of the rows."""
        return tuple(np.flatnonzero(np.diff(first) == 2) for first in self.tree.first_child)

    def group_entries(self, group: int) -> scipy.sparse.csr_array:
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
    """Returns s_r for each group r, so that the total weighted variance is sum_r s_r v_r at noise variances v_r."""
    weights = [float(workload.weights @ squares) for squares in _squares(haar, workload)]
    return np.array(weights)


def haar_shares(haar: Haar, workload: RangeWorkload, norm: int) -> FloatArray:
    """Returns each group's optimal share of the budget, by its recovery weight, 0 if no query needs the group."""
    weights = haar_recovery_weights(haar, workload)
    weights[weights < 1e-12 * weights.max()] = 0.0
    raised = weights ** (1 / 3 if norm == 1 else 1 / 2)
    shares: FloatArray = raised / raised.sum()
    return shares


def haar_variances(haar: Haar, variances: FloatArray, workload: RangeWorkload) -> FloatArray:
    """Returns each query's variance, shape (queries,), in linear time. variances: of the noise, by group."""
    query_variances = np.zeros(workload.queries)
    for variance, squares in zip(variances, _squares(haar, workload), strict=True):
        query_variances += np.where(squares > NOTHING, variance, 0.0) * squares
    return query_variances


def _squares(haar: Haar, workload: RangeWorkload) -> list[FloatArray]:
    """Sums the squared weights of a group's rows in a query's answer, for each group and query.

    At every split (left, right) = ((total + difference)/2, (total - difference)/2). So a difference's weights in its
    node's values add up to 0. The difference counts in a query only if an end of the interval lies within the node.
    """
    tree, starts, stops = haar.tree, workload.starts, workload.stops
    share = np.zeros(tree.size + 1)  # part of a node's total that lies before each position, if differences are 0
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
