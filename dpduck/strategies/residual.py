"""R: the residual basis, optimal for marginals under Gaussian noise (ResidualPlanner, arXiv 2305.08175; DESIGN 4.6).

For every subset A of a workload marginal the integer query kron over i in A of (n_i I - 11') is measured once; with
p_A = prod (n_i - 1)/n_i its squared L2 sensitivity is prod n_i (n_i - 1) = p_A n_A^2.
"""

from __future__ import annotations

import numpy as np

from dpduck.arrays import FloatArray
from dpduck.workload.lattice import Lattice


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
