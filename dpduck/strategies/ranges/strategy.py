"""Strategy for interval queries: groups of integer rows, each with a share of the budget, and predicted errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from dpduck.algebra.ranges import RangeWorkload
from dpduck.kernel.queries.operators import Factor, IdentityFactor, MatrixFactor
from dpduck.strategies.ranges.haar import Haar, haar_variances
from dpduck.strategies.ranges.hierarchy import Hierarchy, hierarchy_variances
from dpduck.strategies.ranges.normal_matrix import covariance_of
from dpduck.values.arrays import FloatArray, IndexArray, IntegerArray

SMALL = 1 << 16
"""Matrices of up to this many entries are dense. Larger ones are dense if more than one entry in 8 is not 0."""


@dataclass(frozen=True, eq=False)
class RangeStrategy:
    """Groups of rows. Group k measures factors[k] with the share shares[k] of the budget.

    workload: the queries over n values. buckets, boundaries: these queries over buckets of values that no query tells
    apart (RangeWorkload.merge_values). structure: a tree or wavelet over the buckets, None for any other matrix.
    groups: the measured groups of the structure. Factors have n columns, equal within a bucket, 0 outside all buckets.
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
        """Returns each group's column norm as an integer: the L1 norm (norm 1) or the squared L2 norm (norm 2)."""
        return tuple(factor.norms[norm - 1] for factor in self.factors)

    def unit_parameters(self, norm: int) -> FloatArray:
        """Returns each group's noise parameter at a budget of 1: b if epsilon is 1, or sigma^2 if rho is 1/2."""
        return np.array(self.norms(norm), dtype=np.float64) / self.shares

    @cached_property
    def bucket_matrices(self) -> tuple[FloatArray | scipy.sparse.csr_array, ...]:
        """Returns each group's matrix over buckets, shape (rows, buckets), sparse if its factor is sparse."""
        first = self.boundaries[:-1]
        arrays = (factor.entries if isinstance(factor, MatrixFactor) else matrix_of(factor) for factor in self.factors)
        return tuple(entries[:, first].astype(np.float64) for entries in arrays)

    def variances(self, noise: Sequence[float] | FloatArray) -> FloatArray:
        """Returns each query's variance after least squares. noise: a noise variance for each group."""
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
        parameters = self.unit_parameters(norm)
        return float(self.workload.weights @ self.variances(parameters**2 if norm == 1 else parameters))


def matrix_of(factor: Factor) -> IntegerArray:
    """Returns the dense matrix of a factor, shape (rows, size), for small sizes."""
    return factor.apply(np.eye(factor.size, dtype=np.int64), 0)


def factor_over(size: int, boundaries: IndexArray, entries: IntegerArray | scipy.sparse.csr_array) -> Factor:
    """Returns a factor: integer rows over buckets, as rows over `size` values. Values in no bucket have zeros."""
    rows = entries.shape[0]
    buckets = len(boundaries) - 1
    inside = boundaries[-1] - boundaries[0]
    columns = np.arange(boundaries[0], boundaries[-1])
    ones = np.ones(inside, dtype=np.int64)
    spread = scipy.sparse.csr_array(
        (ones, (np.repeat(np.arange(buckets), np.diff(boundaries)), columns)), shape=(buckets, size)
    )
    wide = scipy.sparse.csr_array(scipy.sparse.csr_array(entries) @ spread)
    wide.eliminate_zeros()
    if rows * size > SMALL and wide.nnz * 8 < rows * size:
        return MatrixFactor(wide)
    return MatrixFactor(np.asarray(wide.toarray(), dtype=np.int64))


def identity_over(size: int, boundaries: IndexArray) -> Factor:
    """Returns the factor over `size` values that counts each bucket."""
    if len(boundaries) == size + 1:
        return IdentityFactor(size)
    return factor_over(size, boundaries, scipy.sparse.eye_array(len(boundaries) - 1, dtype=np.int64, format="csr"))
