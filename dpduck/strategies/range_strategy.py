"""What every strategy for ranges is: groups of integer rows, the share of the budget of each, how errors follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from dpduck.arrays import FloatArray, IndexArray, IntegerArray
from dpduck.strategies.haar import Haar, haar_variances
from dpduck.strategies.hierarchy import Hierarchy, hierarchy_variances
from dpduck.strategies.normal_matrix import covariance_of
from dpduck.trusted.operators import Factor, IdentityFactor, MatrixFactor
from dpduck.workload.ranges import RangeWorkload

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

    def unit_spreads(self, norm: int) -> FloatArray:
        """Spreads at a budget of 1: C_k/share_k (Laplace's b at epsilon = 1), C_k^2/share_k (sigma^2 at rho = 1/2)."""
        return np.array(self.norms(norm), dtype=np.float64) / self.shares

    @cached_property
    def bucket_matrices(self) -> tuple[FloatArray | sparse.csr_array, ...]:
        """Each group over buckets, shape (rows, buckets), sparse where its factor is."""
        first = self.boundaries[:-1]
        held = (factor.entries if isinstance(factor, MatrixFactor) else matrix_of(factor) for factor in self.factors)
        return tuple(entries[:, first].astype(np.float64) for entries in held)

    def variances(self, noise: Sequence[float] | FloatArray) -> FloatArray:
        """Variance of every query after least squares, shape (queries,), from one noise variance per group."""
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
        """Total weighted variance where a noise variance is the spread (norm 2) or its square (norm 1): to compare."""
        spreads = self.unit_spreads(norm)
        return float(self.workload.weights @ self.variances(spreads**2 if norm == 1 else spreads))


def matrix_of(factor: Factor) -> IntegerArray:
    """The dense matrix of a factor, shape (rows, size): for small sizes."""
    return factor.apply(np.eye(factor.size, dtype=np.int64), 0)


def factor_over(size: int, boundaries: IndexArray, entries: IntegerArray | sparse.csr_array) -> Factor:
    """The factor over n values of integer rows over buckets; values outside the buckets get zeros."""
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
    """One count per bucket."""
    if len(boundaries) == size + 1:
        return IdentityFactor(size)
    return factor_over(size, boundaries, sparse.eye_array(len(boundaries) - 1, dtype=np.int64, format="csr"))
