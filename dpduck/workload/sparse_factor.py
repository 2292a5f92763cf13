"""An integer matrix over one attribute that is held sparsely: a level of a tree, or Haar rows, over many values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

IntegerArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SparseFactor:
    """A Factor (workload/kronecker.py) in compressed rows, int64.

    >>> SparseFactor(sparse.csr_array(np.array([[1, 1, 0], [0, -1, 2]]))).column_l1()
    2
    """

    entries: sparse.csr_array

    def __post_init__(self) -> None:
        if self.entries.dtype != np.int64:
            raise TypeError("a sparse factor takes an int64 matrix")
        self.entries.sum_duplicates()

    @property
    def size(self) -> int:
        return int(self.entries.shape[1])

    @property
    def rows(self) -> int:
        return int(self.entries.shape[0])

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        moved = np.moveaxis(tensor, axis, 0)
        flat = self.entries @ np.ascontiguousarray(moved).reshape(self.size, -1)
        shaped = flat.reshape(self.rows, *moved.shape[1:])
        answers: IntegerArray = np.ascontiguousarray(np.moveaxis(shaped, 0, axis))
        return answers

    def matrix(self) -> IntegerArray:
        dense: IntegerArray = self.entries.toarray()
        return dense

    def column_l1(self) -> int:
        return int(abs(self.entries).sum(axis=0).max())

    def column_l2_squared(self) -> int:
        return int(self.entries.multiply(self.entries).sum(axis=0).max())

    def row_l1(self) -> int:
        return int(abs(self.entries).sum(axis=1).max())
