"""Noisy levels of a tree, or noisy Haar rows, to values: two passes, exact least squares, linear time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import FloatArray
from dpduck.strategies.haar import Haar
from dpduck.strategies.hierarchy import Hierarchy, subtree_variances

Noisy = Mapping[int, NDArray[np.int64] | FloatArray]


def recover_hierarchy(tree: Hierarchy, precisions: FloatArray, noisy: Noisy) -> FloatArray:
    """Weighted least squares from the measured levels; leading axis n, further axes are recovered side by side.

    precisions: 1/variance per level, 0 where it is not measured. noisy: level to its answers, nodes first.
    Hay et al. (2010), Theorem 3, with a_v and s_v of subtree_variances in place of the uniform weights:
    upwards y_v = a_v (w_l z_v + (sum of y_c)/s_v); downwards x_c = y_c + (a_c/s_v)(x_v - sum of y_c).
    """
    found = subtree_variances(tree, precisions)
    last = tree.levels - 1
    upward: list[FloatArray] = [np.asarray(noisy[last], dtype=np.float64)]
    extra = (1,) * (upward[0].ndim - 1)
    sums: list[FloatArray] = []
    for level in range(last - 1, -1, -1):
        summed = np.add.reduceat(upward[0], tree.first_child[level][:-1], axis=0)
        best, below = (array[level].reshape(-1, *extra) for array in (found.best, found.from_children))
        own = precisions[level] * noisy[level] if precisions[level] > 0 else 0.0
        sums.insert(0, summed)
        upward.insert(0, best * (own + summed / below))
    values = upward[0]
    for level in range(last):
        parent = np.repeat(np.arange(len(values)), np.diff(tree.first_child[level]))
        part = found.best[level + 1] / found.from_children[level][parent]
        values = upward[level + 1] + part.reshape(-1, *extra) * (values - sums[level])[parent]
    return values


def recover_haar(haar: Haar, noisy: Noisy) -> FloatArray:
    """The inverse transform: at every split left = (total + difference)/2, right = (total - difference)/2.

    noisy: group to its answers, rows first; a group that was not measured counts as 0 and no query needs it.
    """
    shape = next(iter(noisy.values())).shape[1:]
    values = np.asarray(noisy.get(0, np.zeros((1, *shape))), dtype=np.float64)
    for level, split in enumerate(haar.split):
        first = haar.tree.first_child[level]
        parent = np.repeat(np.arange(len(values)), np.diff(first))
        difference = np.asarray(noisy.get(level + 1, np.zeros((len(split), *shape))), dtype=np.float64)
        below = values[parent]
        left = first[split]
        below[left] = (values[split] + difference) / 2
        below[left + 1] = (values[split] - difference) / 2
        values = below
    return values
