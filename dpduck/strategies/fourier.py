"""F: unnormalised Hadamard rows on the bits of each attribute (Cormode et al., section 4.1; DESIGN 4.1)."""

from __future__ import annotations

import numpy as np

from dpduck.arrays import FloatArray
from dpduck.trusted.operators import hadamard_transform
from dpduck.workload.lattice import Lattice


def padded(size: int) -> int:
    """The number of codes m of an attribute of `size` values: the next power of two.

    >>> padded(9), padded(16), padded(1)
    (16, 16, 1)
    """
    return 1 << (size - 1).bit_length()


def hadamard_adjoint(size: int, tensor: FloatArray, axis: int) -> FloatArray:
    """A HadamardFactor's transpose times `tensor` along `axis`: coefficients back to the valid codes."""
    moved = np.moveaxis(tensor, axis, 0)
    codes = np.zeros((padded(size), *moved.shape[1:]), dtype=tensor.dtype)
    codes[1:] = moved
    values: FloatArray = np.ascontiguousarray(np.moveaxis(hadamard_transform(codes)[:size], 0, axis))
    return values


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
