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

from dpduck.values.arrays import IntegerArray

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
