"""Families of linear queries on one marginal each: the candidates among which synthetic data asks (Hardt et al.).

A query is a table of coefficients 0, 1 or -1 over the cells of its family's marginal, so that one row of a privacy
unit moves its answer by at most 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

IntegerArray = NDArray[np.int64]
Scalar = TypeVar("Scalar", np.int64, np.float64)


@dataclass(frozen=True, eq=False)
class Family:
    """Queries on one marginal.

    attributes: increasing positions in the domain. shape: the marginal's. matrices: one per attribute, rows by values,
    whose Kronecker products are the queries; none at all: every cell of the marginal. masks: any queries instead,
    shape (rows, *shape).

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
        """Whether its queries are the cells of the marginal."""
        return not self.matrices and self.masks is None

    @property
    def rows(self) -> int:
        """Number of queries."""
        if self.masks is not None:
            return len(self.masks)
        return prod(len(matrix) for matrix in self.matrices) if self.matrices else prod(self.shape)

    def answers(self, marginal: NDArray[Scalar]) -> NDArray[Scalar]:
        """Every query's answer from the marginal, shape (rows,)."""
        if self.masks is not None:
            return np.asarray(self.masks.reshape(len(self.masks), -1) @ marginal.reshape(-1))
        found = marginal
        for axis, matrix in enumerate(self.matrices):
            found = np.moveaxis(np.tensordot(matrix, found, axes=([1], [axis])), 0, axis)
        return np.ascontiguousarray(found).reshape(-1)

    def coefficients(self, row: int) -> IntegerArray:
        """One query's coefficients over the marginal."""
        if self.masks is not None:
            chosen_mask: IntegerArray = self.masks[row]
            return chosen_mask
        if not self.matrices:
            cell = np.zeros(self.shape, np.int64)
            cell.reshape(-1)[row] = 1
            return cell
        chosen = np.unravel_index(row, tuple(len(matrix) for matrix in self.matrices))
        table = np.ones((), np.int64)
        for matrix, position in zip(self.matrices, chosen, strict=True):
            table = np.multiply.outer(table, matrix[position])
        return table


def parities(attributes: tuple[int, ...], shape: tuple[int, ...]) -> Family:
    """The Fourier queries with exactly this support: products of non-constant Hadamard rows over the valid codes."""
    return Family(attributes, shape, tuple(_hadamard(size)[1:, :size] for size in shape))


def interval_products(attributes: tuple[int, ...], shape: tuple[int, ...]) -> Family:
    """Products of one interval per attribute."""
    return Family(attributes, shape, tuple(_intervals(size) for size in shape))


def _hadamard(size: int) -> IntegerArray:
    codes = np.arange(1 << (size - 1).bit_length())
    both = np.bitwise_count(codes[:, None] & codes[None, :])
    return np.where(both % 2, -1, 1).astype(np.int64)


def _intervals(size: int) -> IntegerArray:
    starts, stops = np.triu_indices(size)
    values = np.arange(size)
    return ((values >= starts[:, None]) & (values <= stops[:, None])).astype(np.int64)
