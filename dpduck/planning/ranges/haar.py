"""The unnormalised Haar wavelet as integer rows: the total, then per level (+1 left, -1 right) of every split.

Xiao, Wang, Gehrke, Differential privacy via wavelet transforms (2010), with optimal budgets per level and for any n:
a split halves the count of its node's values as nearly as it can; the n rows are invertible whatever the lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from dpduck.algebra.ranges import RangeWorkload
from dpduck.planning.ranges.hierarchy import Hierarchy, balanced_hierarchy
from dpduck.values.arrays import FloatArray, IndexArray

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

    def group_entries(self, group: int) -> sparse.csr_array:
        """The integer matrix of one group, shape (rows, n)."""
        if group == 0:
            return self.tree.level_entries(0)
        below = self.tree.level_entries(group)
        left = self.tree.first_child[group - 1][self.split[group - 1]]
        return sparse.csr_array(below[left] - below[left + 1])


def haar_wavelet(size: int) -> Haar:
    """The wavelet over n values.

    >>> haar_wavelet(3).group_entries(2).toarray().tolist()
    [[0, 1, -1]]
    """
    return Haar(balanced_hierarchy(size, 2))


def haar_recovery_weights(haar: Haar, workload: RangeWorkload) -> FloatArray:
    """Summed recovery weights s_r per group (DESIGN 4.2): total variance is sum_r s_r v_r."""
    weights = [float(workload.weights @ squares) for squares in _squares(haar, workload)]
    return np.array(weights)


def haar_shares(haar: Haar, workload: RangeWorkload, norm: int) -> FloatArray:
    """Optimal shares of epsilon (norm 1) or rho (norm 2) per group; 0 for a group that no query needs.

    DESIGN 4.2 with C_r = 1: eta_r proportional to s_r^(1/3), or eta_r^2 to s_r^(1/2).
    """
    weights = haar_recovery_weights(haar, workload)
    weights[weights < 1e-12 * weights.max()] = 0.0
    raised = weights ** (1 / 3 if norm == 1 else 1 / 2)
    shares: FloatArray = raised / raised.sum()
    return shares


def haar_variances(haar: Haar, variances: FloatArray, workload: RangeWorkload) -> FloatArray:
    """Variance of every query, shape (queries,), from one noise variance per group; O(n + queries) per group."""
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
