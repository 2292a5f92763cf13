"""F: unnormalised Hadamard rows on the bits of each attribute (Cormode et al., section 4.1; DESIGN 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpduck.workload.lattice import Lattice

FloatArray = NDArray[np.float64]
IntegerArray = NDArray[np.int64]
Scalar = TypeVar("Scalar", np.int64, np.float64)


def padded(size: int) -> int:
    """The number of codes m of an attribute of `size` values: the next power of two.

    >>> padded(9), padded(16), padded(1)
    (16, 16, 1)
    """
    return 1 << (size - 1).bit_length()


@dataclass(frozen=True)
class HadamardFactor:
    """The +1/-1 rows of the m x m Hadamard matrix but the constant one, over the valid codes 0..size-1 only.

    Codes from size to m-1 are structural zeros: they are never counted and never released (DESIGN section 7, trap 3).

    >>> HadamardFactor(3).matrix()
    array([[ 1, -1,  1],
           [ 1,  1, -1],
           [ 1, -1, -1]])
    """

    size: int

    @property
    def rows(self) -> int:
        return padded(self.size) - 1

    def apply(self, tensor: IntegerArray, axis: int) -> IntegerArray:
        moved = np.moveaxis(tensor, axis, 0)
        codes = np.zeros((padded(self.size), *moved.shape[1:]), dtype=tensor.dtype)
        codes[: self.size] = moved
        answers: IntegerArray = np.ascontiguousarray(np.moveaxis(hadamard_transform(codes)[1:], 0, axis))
        return answers

    def adjoint(self, tensor: FloatArray, axis: int) -> FloatArray:
        """The transpose times `tensor` along `axis`: coefficients back to the valid codes."""
        moved = np.moveaxis(tensor, axis, 0)
        codes = np.zeros((padded(self.size), *moved.shape[1:]), dtype=tensor.dtype)
        codes[1:] = moved
        values: FloatArray = np.ascontiguousarray(np.moveaxis(hadamard_transform(codes)[: self.size], 0, axis))
        return values

    def matrix(self) -> IntegerArray:
        return self.apply(np.eye(self.size, dtype=np.int64), 0)

    def column_l1(self) -> int:
        return self.rows

    def column_l2_squared(self) -> int:
        return self.rows

    def row_l1(self) -> int:
        return self.size


def hadamard_transform(codes: NDArray[Scalar]) -> NDArray[Scalar]:
    """The unnormalised fast Hadamard transform along the first axis, in place; its length is a power of two."""
    length = codes.shape[0]
    half = 1
    while half < length:
        blocks = codes.reshape(length // (2 * half), 2, half, *codes.shape[1:])
        low = blocks[:, 0].copy()
        blocks[:, 0] += blocks[:, 1]
        np.subtract(low, blocks[:, 1], out=blocks[:, 1])
        half *= 2
    return codes


def coefficient_weights(lattice: Lattice, cell_weights: FloatArray) -> FloatArray:
    """Summed recovery weight s_T of all coefficients with support T, for each set of the lattice.

    cell_weights: summed weight of the valid cells of each set's marginal, 0 where it is not asked.
    A cell of B is the sum of chi(cell) f / m_B over the coefficients f with support in B (equation 5 of the paper),
    so each coefficient has weight sum over B containing T of cell_weights(B) / m_B^2; T has prod (m_i - 1) of them.
    """
    codes = np.array([padded(size) for size in lattice.sizes], dtype=np.float64)
    each = lattice.sum_over_supersets(cell_weights / lattice.products(codes) ** 2, np.ones(len(codes)))
    weights: FloatArray = each * lattice.products(codes - 1)
    return weights
