"""Linear queries of exact tables: one integer matrix per attribute, with products and column norms.

A matrix has a row for each question and a column for each value. `norms` are exact: the largest L1 norm of a column,
its largest squared L2 norm and the largest entry. Only these four kinds of matrix are applied to counts, so that no
planner needs to be trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.values.arrays import IntegerArray

Scalar = TypeVar("Scalar", np.int64, np.float64)
Norms = tuple[int, int, int]  # L1, squared L2, and the largest change of one entry

EXACT_DOUBLE = 1 << 53  # integers up to here are exact in a double


@dataclass(frozen=True)
class IdentityFactor:
    """Identity matrix: one question per value."""

    size: int

    @property
    def rows(self) -> int:
        return self.size

    @property
    def norms(self) -> Norms:
        return 1, 1, 1

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        return tensor


@dataclass(frozen=True)
class CentredFactor:
    """Matrix n I - 11': n times each value's residual from the mean. A column has n - 1 once, and -1 elsewhere.

    >>> CentredFactor(3).norms
    (4, 6, 2)
    """

    size: int

    @property
    def rows(self) -> int:
        return self.size

    @property
    def norms(self) -> Norms:
        return 2 * (self.size - 1), self.size * (self.size - 1), self.size - 1

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        residual: IntegerArray = self.size * tensor - tensor.sum(axis=axis, keepdims=True)
        return residual


@dataclass(frozen=True)
class HadamardFactor:
    """The +1/-1 rows of the m x m Hadamard matrix without the constant row, over the valid codes 0..size-1 only.

    m: the next power of two. Codes from size to m-1 are structural zeros: they are never counted and never released.
    """

    size: int

    @property
    def rows(self) -> int:
        return (1 << (self.size - 1).bit_length()) - 1

    @property
    def norms(self) -> Norms:
        return self.rows, self.rows, 1

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        moved = np.moveaxis(tensor, axis, 0)
        codes = np.zeros((self.rows + 1, *moved.shape[1:]), dtype=np.int64)
        codes[: self.size] = moved
        answers: IntegerArray = np.ascontiguousarray(np.moveaxis(hadamard_transform(codes)[1:], 0, axis))
        return answers


@dataclass(frozen=True, eq=False)
class MatrixFactor:
    """Any integer matrix, dense or in compressed rows: a level of a tree, Haar rows, a searched strategy."""

    entries: IntegerArray | scipy.sparse.csr_array

    def __post_init__(self) -> None:
        if self.entries.ndim != 2 or self.entries.dtype != np.int64:
            raise TypeError("a matrix factor takes a two-dimensional int64 array")
        if isinstance(self.entries, np.ndarray):
            self.entries.setflags(write=False)
        else:
            self.entries.sum_duplicates()
        if max(int(self.entries.max()), -int(self.entries.min())) ** 2 * self.rows >= 1 << 62:
            raise TypeError("the norms of a matrix factor would not fit 64 bits")

    @property
    def size(self) -> int:
        return int(self.entries.shape[1])

    @property
    def rows(self) -> int:
        return int(self.entries.shape[0])

    @cached_property
    def norms(self) -> Norms:
        sizes = abs(self.entries)
        return int(sizes.sum(axis=0).max()), int((sizes * sizes).sum(axis=0).max()), int(sizes.max())

    @cached_property
    def asks_single_cells(self) -> bool:
        """Tells whether each row of the matrix has at most one entry that is not 0, as in the identity matrix."""
        return int((self.entries != 0).sum(axis=1).max()) <= 1

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        """Multiplies along an axis. A dense matrix uses doubles, which are much faster, if they hold all sums."""
        moved = np.moveaxis(tensor, axis, 0)
        flat, entries = np.ascontiguousarray(moved).reshape(self.size, -1), self.entries
        if isinstance(entries, np.ndarray):
            peak = max(int(tensor.max()), -int(tensor.min())) if tensor.size else 0
            reach = float(np.abs(entries.astype(np.float64)).sum(axis=1).max())  # in doubles: it must not wrap
            number = np.float64 if reach * peak <= EXACT_DOUBLE / 2 else np.int64
            entries, flat = entries.astype(number), flat.astype(number)
        shaped = (entries @ flat).astype(np.int64).reshape(self.rows, *moved.shape[1:])
        answers: IntegerArray = np.ascontiguousarray(np.moveaxis(shaped, 0, axis))
        return answers


Factor = IdentityFactor | CentredFactor | HadamardFactor | MatrixFactor


@dataclass(frozen=True)
class KroneckerQuery:
    """Product of `factors[i]` along `attributes[i]`, summed over every other attribute.

    attributes: strictly increasing positions in the domain. Without attributes the query is the grand total.

    >>> KroneckerQuery((0, 2), (IdentityFactor(3), CentredFactor(2))).shape
    (3, 2)
    """

    attributes: tuple[int, ...]
    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        if len(self.attributes) != len(self.factors) or not all(type(factor) in KINDS for factor in self.factors):
            raise ValueError("a Kronecker query needs one factor for each attribute")
        if any(a >= b for a, b in zip(self.attributes, self.attributes[1:], strict=False)):
            raise ValueError("the attributes of a Kronecker query must be strictly increasing")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(factor.rows for factor in self.factors)

    def asks_single_cells(self, attributes: int) -> bool:
        """Tells whether each answer is about one cell of a domain with `attributes` attributes in all."""
        every = self.attributes == tuple(range(attributes))
        return every and all(
            isinstance(factor, IdentityFactor) or (isinstance(factor, MatrixFactor) and factor.asks_single_cells)
            for factor in self.factors
        )

    @property
    def is_identity(self) -> bool:
        return all(isinstance(factor, IdentityFactor) for factor in self.factors)

    @property
    def norms(self) -> Norms:
        first, second, largest = ([factor.norms[which] for factor in self.factors] for which in range(3))
        return prod(first), prod(second), prod(largest)

    def apply(self, marginal: IntegerArray) -> IntegerArray:
        answers = marginal
        for axis, factor in enumerate(self.factors):
            answers = factor.apply(answers, axis)
        return answers


KINDS = frozenset((IdentityFactor, CentredFactor, HadamardFactor, MatrixFactor))


def hadamard_transform(codes: NDArray[Scalar]) -> NDArray[Scalar]:
    """Computes the unnormalised fast Hadamard transform in place along the first axis, which has 2^k entries."""
    half = 1
    while half < len(codes):
        blocks = codes.reshape(len(codes) // (2 * half), 2, half, *codes.shape[1:])
        low = blocks[:, 0].copy()
        blocks[:, 0] += blocks[:, 1]
        np.subtract(low, blocks[:, 1], out=blocks[:, 1])
        half *= 2
    return codes


@dataclass(frozen=True, eq=False)
class Family:
    """Linear queries on one marginal: candidates for questions of synthetic data (Hardt et al.).

    A query is a table of coefficients 0, 1 or -1 over the cells of the marginal. So one row of a privacy unit changes
    its answer by at most 1.

    attributes: increasing positions in the domain. shape: shape of the marginal. matrices: one per attribute, rows by
    values. The rows of their Kronecker product are the queries. Without matrices, every cell of the marginal is a
    query. masks: coefficients of any queries in place of matrices, shape (rows, *shape).

    >>> Family((0, 2), (2, 3)).rows
    6
    """

    attributes: tuple[int, ...]
    shape: tuple[int, ...]
    matrices: tuple[IntegerArray, ...] = ()
    masks: IntegerArray | None = None

    def __post_init__(self) -> None:
        given = [self.masks] if self.masks is not None else list(self.matrices)
        if any(np.abs(entries).max(initial=0) > 1 for entries in given):
            raise ValueError("the coefficients of a query are 0, 1 or -1")
        if len(self.attributes) != len(self.shape) or (self.matrices and len(self.matrices) != len(self.shape)):
            raise ValueError("a family needs a size, and a matrix or none, for each attribute")

    @property
    def is_marginal(self) -> bool:
        return not self.matrices and self.masks is None

    @property
    def rows(self) -> int:
        if self.masks is not None:
            return len(self.masks)
        return prod(len(matrix) for matrix in self.matrices) if self.matrices else prod(self.shape)

    def answers(self, marginal: NDArray[Scalar]) -> NDArray[Scalar]:
        if self.masks is not None:
            return np.asarray(self.masks.reshape(len(self.masks), -1) @ marginal.reshape(-1))
        table = marginal
        for axis, matrix in enumerate(self.matrices):
            table = np.moveaxis(np.tensordot(matrix, table, axes=([1], [axis])), 0, axis)
        return np.ascontiguousarray(table).reshape(-1)
