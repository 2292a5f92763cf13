"""Plans that measure one block of queries for every subset of the workload's marginals: residuals and Fourier."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import compress

import numpy as np

from dpduck.arrays import FloatArray
from dpduck.planning.budgets import optimal_spreads, safe_spreads
from dpduck.planning.measurement_list import FamilyMeasurements
from dpduck.trusted.noise import NoiseKind
from dpduck.trusted.operators import Factor
from dpduck.workload.lattice import Lattice


def closure_measurements(
    lattice: Lattice,
    factors: Sequence[Factor],
    weights: FloatArray,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
) -> FamilyMeasurements:
    """One measurement for every set that has rows, with budgets that are optimal for these weights (DESIGN 4.2).

    factors: by domain position. weights: s of every set's block, summed over its rows. A set with an attribute of
    one value has no contrasts: nothing is measured there.
    """
    column = [norm_of(factors[attribute], noise) for attribute in lattice.attributes]
    every_norm = lattice.integer_products(column)
    kept = [norm > 0 for norm in every_norm]
    norms = list(compress(every_norm, kept))
    wanted = optimal_spreads(noise, weights[kept], np.array(norms, dtype=np.float64), float(amount))
    spreads = safe_spreads(noise, wanted, norms, amount, unit_bound)
    return FamilyMeasurements(tuple(compress(lattice.sets, kept)), factors, spreads)


def norm_of(factor: Factor, noise: NoiseKind) -> int:
    """The column norm that this noise pays for: L1, or squared L2; norms of Kronecker products multiply."""
    return factor.norms[0 if noise is NoiseKind.LAPLACE else 1]
