"""Generalised least squares for any strategy: a Cholesky factor of A'WA, LSMR where that is singular or too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_solve
from scipy.sparse.linalg import lsmr

from dpduck.arrays import FloatArray
from dpduck.strategies.hierarchy import LARGEST_DENSE
from dpduck.strategies.normal_matrix import cholesky_factor

Matrix: TypeAlias = "NDArray[np.int64] | FloatArray | sparse.csr_array"

TOLERANCE = 1e-12
"""LSMR stops when its residuals are this small relative to the data: errors far below the noise, which is 1 there."""


def solve_least_squares(
    matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray, noisy: Sequence[FloatArray]
) -> FloatArray:
    """argmin_x sum_k |A_k x - z_k|^2 / v_k, of least norm where that is not unique; leading axis n, others are kept.

    matrices: A_k, shape (rows_k, n). variances: v_k. noisy: z_k, leading axis rows_k.
    """
    if matrices[0].shape[1] <= LARGEST_DENSE:
        solved = _solve_by_cholesky(matrices, variances, noisy)
        if solved is not None:
            return solved
    return solve_sparse(matrices, variances, noisy)


def _solve_by_cholesky(
    matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray, noisy: Sequence[FloatArray]
) -> FloatArray | None:
    """Normal equations with one step of refinement; None where they are singular."""
    size = matrices[0].shape[1]
    whitened = sparse.vstack(_whitened(matrices, variances), format="csr")
    answers = np.concatenate([z.reshape(len(z), -1) / v**0.5 for z, v in zip(noisy, variances, strict=True)])
    factor = cholesky_factor((whitened.T @ whitened).toarray())
    if factor is None:
        return None
    values = cho_solve(factor, whitened.T @ answers)
    values += cho_solve(factor, whitened.T @ (answers - whitened @ values))
    solved: FloatArray = values.reshape(size, *noisy[0].shape[1:])
    return solved


def solve_sparse(
    matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray, noisy: Sequence[FloatArray]
) -> FloatArray:
    """The same by LSMR (Fong, Saunders 2011) on the whitened matrix; rank-deficient strategies included."""
    whitened = sparse.vstack(_whitened(matrices, variances), format="csr")
    rows, size = whitened.shape
    answers = np.concatenate([z.reshape(len(z), -1) / v**0.5 for z, v in zip(noisy, variances, strict=True)])
    columns = []
    for answer in answers.T:
        found = lsmr(whitened, answer, atol=TOLERANCE, btol=TOLERANCE, conlim=0.0, maxiter=4 * (rows + size))
        columns.append(found[0])
    solved: FloatArray = np.stack(columns, axis=1).reshape(size, *noisy[0].shape[1:])
    return solved


def _whitened(matrices: Sequence[Matrix], variances: Sequence[float] | FloatArray) -> list[sparse.csr_array]:
    """Each matrix divided by its noise's standard deviation."""
    return [
        sparse.csr_array(matrix).astype(np.float64) / variance**0.5
        for matrix, variance in zip(matrices, variances, strict=True)
    ]
