"""Exact counts by key in, a noisy projection out, and what passing costs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.errors import InternalError
from dpduck.planning.plan import NoiseKind
from dpduck.privacy import Charge
from dpduck.trusted.discrete_gaussian import discrete_gaussian
from dpduck.trusted.discrete_laplace import discrete_laplace
from dpduck.trusted.entropy import Entropy, words64
from dpduck.trusted.key_counts import KeyCounts
from dpduck.workload.sign_hash import PRIME, Words, project, reduced, words_for


def draw_coefficients(words: int, independence: int, entropy: Entropy) -> Words:
    """Uniform field elements, shape (words, independence): public, but drawn like everything that is random."""
    drawn = np.empty(words * independence, dtype=np.uint64)
    open_places = np.arange(len(drawn))
    while open_places.size:
        fresh = words64(entropy, open_places.size) >> np.uint64(3)
        drawn[open_places] = fresh
        open_places = open_places[fresh == PRIME]  # 61 bits, all of them ones, are no element
    return drawn.reshape(words, independence)


def measure_projection(
    counts: KeyCounts, coefficients: Words, rows: int, noise: NoiseKind, spread: Fraction, entropy: Entropy
) -> NDArray[np.int64]:
    """A x + noise in integers, shape (rows,); keys are elements of the field by the higher half of their digests."""
    if len(coefficients) != words_for(rows):
        raise InternalError("the projection and its coefficients disagree")
    draws = discrete_laplace if noise is NoiseKind.LAPLACE else discrete_gaussian
    noisy = draws(spread, rows, entropy)
    noisy += project(coefficients, reduced(counts._exact_high), counts._exact_counts, rows)
    return noisy


def projection_cost(rows: int, unit_bound: int, noise: NoiseKind, spread: Fraction) -> Charge:
    """The price: a unit's rows move every projected row by at most unit_bound, whatever its keys.

    L1 sensitivity rows * unit_bound, squared L2 sensitivity rows * unit_bound^2, and each is reached by one key.
    """
    if spread <= 0 or rows < 1 or unit_bound < 1:
        raise InternalError("a projection without noise")
    if noise is NoiseKind.LAPLACE:
        return Charge.pure(Fraction(rows * unit_bound) / spread)
    return Charge.concentrated(Fraction(rows * unit_bound**2) / (2 * spread))
