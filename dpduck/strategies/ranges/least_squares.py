"""Least squares: values from the noisy rows of a strategy for ranges.

Trees and Haar rows take two passes in linear time. Any other strategy takes a Cholesky factor of the normal matrix
A'WA, or LSMR if that matrix is singular or too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.strategies.ranges.haar import Haar
from dpduck.strategies.ranges.hierarchy import LARGEST_DENSE, Hierarchy, subtree_variances
from dpduck.strategies.ranges.normal_matrix import cholesky_factor
from dpduck.strategies.ranges.strategy import RangeStrategy
from dpduck.values.arrays import FloatArray, IntegerArray

Noisy = Mapping[int, NDArray[np.int64] | FloatArray]
Matrix: TypeAlias = "NDArray[np.int64] | FloatArray | scipy.sparse.csr_array"

TOLERANCE = 1e-12
"""LSMR stops if its residuals are this small relative to the data, with errors far below the noise."""


def recover_buckets(
    strategy: RangeStrategy, variances: Sequence[float] | FloatArray, noisy: Sequence[IntegerArray | FloatArray]
) -> FloatArray:
    """Estimates buckets by least squares. noisy, variances: by group, with rows on the first axis of each array."""
    if isinstance(strategy.structure, Hierarchy):
        precisions = np.zeros(strategy.structure.levels)
        precisions[list(strategy.groups)] = 1 / np.asarray(variances)
        return recover_hierarchy(strategy.structure, precisions, dict(zip(strategy.groups, noisy, strict=True)))
    if isinstance(strategy.structure, Haar):
        return recover_haar(strategy.structure, dict(zip(strategy.groups, noisy, strict=True)))
    return solve_least_squares(strategy.bucket_matrices, variances, [np.asarray(z, dtype=np.float64) for z in noisy])


def recover_hierarchy(tree: Hierarchy, precisions: FloatArray, noisy: Noisy) -> FloatArray:
    """Returns the n values by weighted least squares from the measured levels. Further axes are solved side by side.

    precisions: w_l = 1/variance by level, 0 if it is not measured. noisy: answers z by level, nodes on the first axis.
    See Hay et al. (2010), Theorem 3, with a_v and s_v of subtree_variances in place of uniform weights:
    upwards y_v = a_v (w_l z_v + (sum of y_c)/s_v), downwards x_c = y_c + (a_c/s_v)(x_v - sum of y_c).
    """
    subtrees = subtree_variances(tree, precisions)
    last = tree.levels - 1
    upward: list[FloatArray] = [np.asarray(noisy[last], dtype=np.float64)]
    extra = (1,) * (upward[0].ndim - 1)
    sums: list[FloatArray] = []
    for level in range(last - 1, -1, -1):
        summed = np.add.reduceat(upward[0], tree.first_child[level][:-1], axis=0)
        best, below = (array[level].reshape(-1, *extra) for array in (subtrees.best, subtrees.from_children))
        own = precisions[level] * noisy[level] if precisions[level] > 0 else 0.0
        sums.insert(0, summed)
        upward.insert(0, best * (own + summed / below))
    values = upward[0]
    for level in range(last):
        parent = np.repeat(np.arange(len(values)), np.diff(tree.first_child[level]))
        shares = subtrees.best[level + 1] / subtrees.from_children[level][parent]
        values = upward[level + 1] + shares.reshape(-1, *extra) * (values - sums[level])[parent]
    return values


def recover_haar(haar: Haar, noisy: Noisy) -> FloatArray:
    """Returns the values: at every split left = (total + difference)/2, right = (total - difference)/2.

    noisy: answers by group, rows on the first axis. A group without answers counts as 0, since no query needs it.
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


def solve_least_squares(
    matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray, noisy: Sequence[FloatArray]
) -> FloatArray:
    """Returns the x that minimises sum_k |A_k x - z_k|^2 / v_k, of least norm if there are several.

    matrices: A_k, shape (rows_k, n). variances: v_k. noisy: z_k, with rows_k on the first axis. Other axes remain.
    """
    if matrices[0].shape[1] <= LARGEST_DENSE:
        solved = _solve_by_cholesky(matrices, variances, noisy)
        if solved is not None:
            return solved
    return solve_sparse(matrices, variances, noisy)


def _solve_by_cholesky(
    matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray, noisy: Sequence[FloatArray]
) -> FloatArray | None:
    """Solves the normal equations with one step of refinement. Returns None if they are singular."""
    size = matrices[0].shape[1]
    whitened = scipy.sparse.vstack(_whiten(matrices, variances), format="csr")
    answers = np.concatenate([z.reshape(len(z), -1) / v**0.5 for z, v in zip(noisy, variances, strict=True)])
    factor = cholesky_factor((whitened.T @ whitened).toarray())
    if factor is None:
        return None
    values = scipy.linalg.cho_solve(factor, whitened.T @ answers)
    values += scipy.linalg.cho_solve(factor, whitened.T @ (answers - whitened @ values))
    solved: FloatArray = values.reshape(size, *noisy[0].shape[1:])
    return solved


def solve_sparse(
    matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray, noisy: Sequence[FloatArray]
) -> FloatArray:
    """Solves least squares by LSMR (Fong, Saunders 2011), for any rank."""
    whitened = scipy.sparse.vstack(_whiten(matrices, variances), format="csr")
    rows, size = whitened.shape
    answers = np.concatenate([z.reshape(len(z), -1) / v**0.5 for z, v in zip(noisy, variances, strict=True)])
    columns = []
    for answer in answers.T:
        solution = scipy.sparse.linalg.lsmr(
            whitened, answer, atol=TOLERANCE, btol=TOLERANCE, conlim=0.0, maxiter=4 * (rows + size)
        )
        columns.append(solution[0])
    return np.stack(columns, axis=1).reshape(size, *noisy[0].shape[1:])


def _whiten(matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray) -> list[scipy.sparse.csr_array]:
    return [
        scipy.sparse.csr_array(matrix).astype(np.float64) / variance**0.5
        for matrix, variance in zip(matrices, variances, strict=True)
    ]
