"""Says what strategies over marginals measure and how it is weighted: identity, marginals, residuals, Fourier."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import Lattice, MarginalWorkload
from dpduck.trusted.operators import hadamard_transform
from dpduck.values.arrays import FloatArray


def base_attributes(workload: MarginalWorkload) -> tuple[int, ...]:
    """Every attribute that some marginal uses, increasing.

    >>> base_attributes(MarginalWorkload((2, 3, 4), ((2,), (0, 2)), (1.0, 1.0)))
    (0, 2)
    """
    return tuple(sorted(set().union(*workload.marginals)))


# Q: each marginal of the workload is measured itself; its cells are one group with C = 1 (paper, section
# 3.2).


def measured_marginals(workload: MarginalWorkload) -> tuple[tuple[tuple[int, ...], ...], NDArray[np.float64]]:
    """The distinct marginals and, for each, s_r: the summed weight of its cells."""
    weights: dict[tuple[int, ...], float] = {}
    for marginal, weight in zip(workload.marginals, workload.weights, strict=True):
        cells = prod([workload.sizes[attribute] for attribute in marginal])
        weights[marginal] = weights.get(marginal, 0.0) + weight * cells
    return tuple(weights), np.fromiter(weights.values(), dtype=np.float64, count=len(weights))


# R: the residual basis, optimal for marginals under Gaussian noise (ResidualPlanner, arXiv 2305.08175; DESIGN
# 4.6).
#
# For every subset A of a workload marginal the integer query kron over i in A of (n_i I - 11') is measured
# once; with p_A = prod (n_i - 1)/n_i its squared L2 sensitivity is prod n_i (n_i - 1) = p_A n_A^2.


def residual_weights(lattice: Lattice, cell_weights: FloatArray) -> FloatArray:
    """Summed recovery weight of the rows of each set's residual query, in the query's integer units.

    cell_weights: w_B N_B of each set's marginal, 0 where it is not asked. DESIGN 4.6 has, per unit of sigma_A^2,
    v_A = p_A sum over B containing A of w_B N_B prod_{j in B minus A} n_j^-2; the integer query's variance is
    sigma_A^2 n_A^2, so its weight is v_A / n_A^2.
    """
    sizes = np.asarray(lattice.sizes, dtype=np.float64)
    kept = lattice.products((sizes - 1) / sizes)
    above = lattice.sum_over_supersets(cell_weights, sizes**-2)
    weights: FloatArray = kept * above / lattice.products(sizes) ** 2
    return weights


# F: unnormalised Hadamard rows on the bits of each attribute (Cormode et al., section 4.1; DESIGN 4.1).


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
