"""Integer queries as Kronecker products of one small integer matrix per attribute (DESIGN 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

IntegerArray = NDArray[np.int64]

EXACT_DOUBLE = 1 << 53  # integers up to here are doubles


class Factor(Protocol):
    """An integer matrix over one attribute: a row per question, a column per value of the attribute."""

    @property
    def size(self) -> int:
        """Number of values of the attribute (columns)."""

    @property
    def rows(self) -> int:
        """Number of questions (rows)."""

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        """The matrix times `tensor` along `axis`, in integers."""

    def matrix(self) -> IntegerArray:
        """The dense matrix, shape (rows, size): for tests, oracles and small sizes."""

    def column_l1(self) -> int:
        """Largest sum of absolute values in a column."""

    def column_l2_squared(self) -> int:
        """Largest sum of squares in a column."""

    def row_l1(self) -> int:
        """Largest sum of absolute values in a row: bounds how much an answer can grow."""


@dataclass(frozen=True)
class IdentityFactor:
    """One question per value.

    >>> IdentityFactor(3).column_l1()
    1
    """

    size: int

    @property
    def rows(self) -> int:
        return self.size

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        return tensor

    def matrix(self) -> IntegerArray:
        return np.eye(self.size, dtype=np.int64)

    def column_l1(self) -> int:
        return 1

    def column_l2_squared(self) -> int:
        return 1

    def row_l1(self) -> int:
        return 1


@dataclass(frozen=True)
class CentredFactor:
    """n I - 11': the residual of a value against the mean of its attribute, times n (DESIGN 4.6).

    >>> CentredFactor(3).column_l2_squared()
    6
    """

    size: int

    @property
    def rows(self) -> int:
        return self.size

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        residual: IntegerArray = self.size * tensor - tensor.sum(axis=axis, keepdims=True)
        return residual

    def matrix(self) -> IntegerArray:
        return self.size * np.eye(self.size, dtype=np.int64) - np.ones((self.size, self.size), dtype=np.int64)

    def column_l1(self) -> int:
        return 2 * (self.size - 1)

    def column_l2_squared(self) -> int:
        return self.size * (self.size - 1)

    def row_l1(self) -> int:
        return 2 * (self.size - 1)


@dataclass(frozen=True, eq=False)
class MatrixFactor:
    """Any integer matrix over one attribute: a level of a tree, Haar rows, Hadamard rows, a searched strategy."""

    entries: IntegerArray

    def __post_init__(self) -> None:
        if self.entries.ndim != 2 or self.entries.dtype != np.int64:
            raise TypeError("a matrix factor takes a two-dimensional int64 array")
        self.entries.setflags(write=False)

    @property
    def size(self) -> int:
        return int(self.entries.shape[1])

    @property
    def rows(self) -> int:
        return int(self.entries.shape[0])

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        """In doubles, which is much faster, where each of them holds every partial sum exactly."""
        peak = max(int(tensor.max()), -int(tensor.min())) if tensor.size else 0
        reach = float(np.abs(self.entries.astype(np.float64)).sum(axis=1).max())  # in doubles: it must not wrap
        number = np.float64 if reach * peak <= EXACT_DOUBLE / 2 else np.int64
        moved = np.tensordot(self.entries.astype(number), tensor.astype(number), axes=([1], [axis]))
        answers: IntegerArray = np.ascontiguousarray(np.moveaxis(moved, 0, axis)).astype(np.int64)
        return answers

    def matrix(self) -> IntegerArray:
        return self.entries

    def column_l1(self) -> int:
        return int(np.abs(self.entries).sum(axis=0).max())

    def column_l2_squared(self) -> int:
        return int((self.entries * self.entries).sum(axis=0).max())

    def row_l1(self) -> int:
        return int(np.abs(self.entries).sum(axis=1).max())


@dataclass(frozen=True)
class KroneckerQuery:
    """Asks `factors[i]` along `attributes[i]`, sums over every other attribute.

    attributes: strictly increasing positions in the domain. No attribute at all: the grand total.

    >>> KroneckerQuery((0, 2), (IdentityFactor(3), CentredFactor(2))).shape
    (3, 2)
    """

    attributes: tuple[int, ...]
    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        if len(self.attributes) != len(self.factors):
            raise ValueError("a Kronecker query needs one factor for each attribute")
        if any(a >= b for a, b in zip(self.attributes, self.attributes[1:], strict=False)):
            raise ValueError("the attributes of a Kronecker query must be strictly increasing")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answer: one axis per attribute."""
        return tuple(factor.rows for factor in self.factors)

    def apply(self, marginal: IntegerArray) -> IntegerArray:
        """Exact answers from the marginal on `attributes`, shape `shape`."""
        answers = marginal
        for axis, factor in enumerate(self.factors):
            answers = factor.apply(answers, axis)
        return answers

    def column_l1(self) -> int:
        """L1 sensitivity to one row: column norms of a Kronecker product multiply."""
        return int(np.prod([factor.column_l1() for factor in self.factors], dtype=object))

    def column_l2_squared(self) -> int:
        """Squared L2 sensitivity to one row."""
        return int(np.prod([factor.column_l2_squared() for factor in self.factors], dtype=object))

    def row_l1(self) -> int:
        """Largest possible answer per row counted."""
        return int(np.prod([factor.row_l1() for factor in self.factors], dtype=object))


def marginal_query(attributes: tuple[int, ...], sizes: tuple[int, ...]) -> KroneckerQuery:
    """The marginal on `attributes` of a domain with these sizes."""
    return KroneckerQuery(attributes, tuple(IdentityFactor(sizes[attribute]) for attribute in attributes))
