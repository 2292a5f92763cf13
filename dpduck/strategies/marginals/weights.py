"""Recovery weights of the measurements of strategies over marginals. Optimal noise follows from these weights.

* Q: each marginal of the workload is measured. Its cells are one group with C = 1 (paper, section 3.2).
* R: the residual basis, optimal for marginals under Gaussian noise (ResidualPlanner, arXiv 2305.08175). For every
  subset A of a workload marginal the integer query kron over i in A of (n_i I - 11') is measured once. With
  p_A = prod (n_i - 1)/n_i, its squared L2 sensitivity is prod n_i (n_i - 1) = p_A n_A^2.
* F: unnormalised Hadamard rows on the bits of each attribute (Cormode et al., section 4.1).
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import Lattice
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.queries.operators import hadamard_transform
from dpduck.values.arrays import FloatArray


def base_attributes(workload: MarginalWorkload) -> tuple[int, ...]:
    """Returns every attribute that some marginal uses, increasing.

    >>> base_attributes(MarginalWorkload((2, 3, 4), ((2,), (0, 2)), (1.0, 1.0)))
    (0, 2)
    """
    return tuple(sorted(set().union(*workload.marginals)))


def distinct_marginals(workload: MarginalWorkload) -> tuple[tuple[tuple[int, ...], ...], NDArray[np.float64]]:
    """Returns the distinct marginals, and for each the sum of weights over its cells and its repetitions."""
    weights: dict[tuple[int, ...], float] = {}
    for marginal, weight in zip(workload.marginals, workload.weights, strict=True):
        cells = prod([workload.sizes[attribute] for attribute in marginal])
        weights[marginal] = weights.get(marginal, 0.0) + weight * cells
    return tuple(weights), np.fromiter(weights.values(), dtype=np.float64, count=len(weights))


def residual_weights(lattice: Lattice, cell_weights: FloatArray) -> FloatArray:
    """Returns the recovery weight of each set's integer residual query (strategy R), summed over the query's rows.

    cell_weights: w_B N_B, the weight times the cells of each marginal B, 0 if B is not asked. A unit of sigma_A^2 adds
    `v_A = p_A sum over B containing A of w_B N_B prod_{j in B minus A} n_j^-2` to the weighted variance of all answers.
    The integer query's variance is sigma_A^2 n_A^2, so its weight is v_A / n_A^2.
    """
    sizes = np.asarray(lattice.sizes, dtype=np.float64)
    shares = lattice.products((sizes - 1) / sizes)
    above = lattice.sum_over_supersets(cell_weights, sizes**-2)
    return shares * above / lattice.products(sizes) ** 2


def code_count(size: int) -> int:
    """Returns the number of codes of an attribute with `size` values: the least power of two that is not below it.

    >>> code_count(9), code_count(16), code_count(1)
    (16, 16, 1)
    """
    return 1 << (size - 1).bit_length()


def hadamard_adjoint(size: int, tensor: FloatArray, axis: int) -> FloatArray:
    """Returns the transpose of a HadamardFactor times `tensor` along `axis`, from coefficients to the valid codes."""
    moved = np.moveaxis(tensor, axis, 0)
    codes = np.zeros((code_count(size), *moved.shape[1:]), dtype=tensor.dtype)
    codes[1:] = moved
    return np.ascontiguousarray(np.moveaxis(hadamard_transform(codes)[:size], 0, axis))


def coefficient_weights(lattice: Lattice, cell_weights: FloatArray) -> FloatArray:
    """Returns, for each set T in the lattice, the summed recovery weight of the Hadamard coefficients with support T.

    cell_weights: the summed weight of the valid cells of each set's marginal, 0 if it is not asked. A cell of marginal
    B is the sum of chi(cell) f / m_B over the coefficients f with support in B (the paper, Theorem 4.1 (2)), where m_i
    is the number of codes of attribute i. There are prod_{i in T} (m_i - 1) coefficients with support T.
    """
    codes = np.array([code_count(size) for size in lattice.sizes], dtype=np.float64)
    each = lattice.sum_over_supersets(cell_weights / lattice.products(codes) ** 2, np.ones(len(codes)))
    return each * lattice.products(codes - 1)
