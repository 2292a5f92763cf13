"""What every strategy for ranges is: groups of integer rows, the share of the budget of each, how errors follow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh
from threadpoolctl import threadpool_limits

from dpduck.algebra.ranges import RangeWorkload
from dpduck.planning.ranges.hierarchy import Haar, Hierarchy, haar_variances, hierarchy_variances
from dpduck.trusted.operators import Factor, IdentityFactor, MatrixFactor
from dpduck.values.arrays import FloatArray, IndexArray, IntegerArray

SMALL = 1 << 16
"""Matrices of up to this many entries are dense; larger ones are if more than one entry in 8 is not 0."""


@dataclass(frozen=True, eq=False)
class RangeStrategy:
    """Group k measures factors[k] with the share shares[k] of the budget; column norms C_k come from the factors.

    workload: as asked, over n values. buckets, boundaries: the same queries over the buckets that no query tells apart
    (RangeWorkload.reduced). structure: a tree or wavelet over the buckets whose groups groups[k] are measured, or None
    for any matrix. Factors have n columns; values of one bucket have equal columns, values outside all have zeros.
    """

    name: str
    workload: RangeWorkload
    buckets: RangeWorkload
    boundaries: IndexArray
    factors: tuple[Factor, ...]
    shares: FloatArray
    structure: Hierarchy | Haar | None = None
    groups: tuple[int, ...] = (0,)
    note: str = ""

    def norms(self, norm: int) -> tuple[int, ...]:
        """C_k under L1 (norm 1), C_k^2 under L2 (norm 2): exact, of the integers."""
        return tuple(factor.norms[norm - 1] for factor in self.factors)

    def unit_parameters(self, norm: int) -> FloatArray:
        """Parameters at a budget of 1: C_k/share_k (b at epsilon = 1) or C_k^2/share_k (sigma^2 at rho = 1/2)."""
        return np.array(self.norms(norm), dtype=np.float64) / self.shares

    @cached_property
    def bucket_matrices(self) -> tuple[FloatArray | sparse.csr_array, ...]:
        """Returns each group over buckets, shape (rows, buckets), sparse where its factor is."""
        first = self.boundaries[:-1]
        held = (factor.entries if isinstance(factor, MatrixFactor) else matrix_of(factor) for factor in self.factors)
        return tuple(entries[:, first].astype(np.float64) for entries in held)

    def variances(self, noise: Sequence[float] | FloatArray) -> FloatArray:
        """Returns the variance of every query after least squares, shape (queries,), from one noise variance
        per group.
        """
        if isinstance(self.structure, Hierarchy):
            precisions = np.zeros(self.structure.levels)
            precisions[list(self.groups)] = 1 / np.asarray(noise)
            return hierarchy_variances(self.structure, precisions, self.buckets)
        if isinstance(self.structure, Haar):
            full = np.full(self.structure.groups, np.inf)
            full[list(self.groups)] = noise
            return haar_variances(self.structure, full, self.buckets)
        normal = np.zeros((self.buckets.size, self.buckets.size))
        for matrix, variance in zip(self.bucket_matrices, noise, strict=True):
            square = matrix.T @ matrix
            normal += (square if isinstance(square, np.ndarray) else square.toarray()) / variance
        return self.buckets.variances(covariance_of(normal))

    def unit_total(self, norm: int) -> float:
        """Returns the total weighted variance, to compare: a parameter is a variance (norm 2) or a standard deviation
        (norm 1).
        """
        parameters = self.unit_parameters(norm)
        return float(self.workload.weights @ self.variances(parameters**2 if norm == 1 else parameters))


def matrix_of(factor: Factor) -> IntegerArray:
    """Returns the dense matrix of a factor, shape (rows, size): for small sizes."""
    return factor.apply(np.eye(factor.size, dtype=np.int64), 0)


def factor_over(size: int, boundaries: IndexArray, entries: IntegerArray | sparse.csr_array) -> Factor:
    """Returns the factor over n values of integer rows over buckets; values outside the buckets get zeros."""
    rows = entries.shape[0]
    buckets = len(boundaries) - 1
    inside = boundaries[-1] - boundaries[0]
    columns = np.arange(boundaries[0], boundaries[-1])
    ones = np.ones(inside, dtype=np.int64)
    spread = sparse.csr_array(
        (ones, (np.repeat(np.arange(buckets), np.diff(boundaries)), columns)), shape=(buckets, size)
    )
    wide = sparse.csr_array(sparse.csr_array(entries) @ spread)
    wide.eliminate_zeros()
    if rows * size > SMALL and wide.nnz * 8 < rows * size:
        return MatrixFactor(wide)
    return MatrixFactor(np.asarray(wide.toarray(), dtype=np.int64))


def identity_over(size: int, boundaries: IndexArray) -> Factor:
    """Counts each bucket by itself."""
    if len(boundaries) == size + 1:
        return IdentityFactor(size)
    return factor_over(size, boundaries, sparse.eye_array(len(boundaries) - 1, dtype=np.int64, format="csr"))


# The inverse of a normal matrix A'WA, or its pseudo-inverse where the strategy does not determine every
# value.

SINGULAR = 1e-6
"""A Cholesky factor whose smallest diagonal entry is below this part of the largest is taken for singular."""


def cholesky_factor(normal: FloatArray) -> tuple[FloatArray, bool] | None:
    """Returns a factor for scipy's cho_solve, or None where the matrix is singular to working precision."""
    try:
        factor: tuple[FloatArray, bool] = cho_factor(normal)
    except LinAlgError:
        return None
    diagonal = np.abs(factor[0].diagonal())
    return factor if diagonal.min() >= SINGULAR * diagonal.max() else None


def covariance_of(normal: FloatArray) -> FloatArray:
    """Returns the covariance of the least-squares estimate of least norm."""
    factor = cholesky_factor(normal)
    inverse: FloatArray = pinvh(normal, rtol=SINGULAR**2) if factor is None else cho_solve(factor, np.eye(len(normal)))
    return inverse


# Linear algebra on one thread: on a busy machine threads that wait for each other make small matrices far
# slower.


def one_thread() -> AbstractContextManager[object]:
    """While it lasts, every BLAS of the process uses one thread."""
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits
