"""A noisy number of rows, for choices that would otherwise need a public guess: charged like everything that leaves."""

from __future__ import annotations

from fractions import Fraction

from dpduck.errors import InternalError
from dpduck.trusted.discrete_laplace import discrete_laplace
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import ExactCounts


def noisy_total(counts: ExactCounts, scale: Fraction, entropy: Entropy) -> int:
    """The rows of all cells together, with geometric noise; it may be negative."""
    return int(counts._exact_counts[0].sum()) + int(discrete_laplace(scale, 1, entropy)[0])


def total_cost(scale: Fraction, unit_bound: int) -> Fraction:
    """Epsilon: a unit's rows change the total by at most their number."""
    if scale <= 0 or unit_bound < 1:
        raise InternalError("a total without noise")
    return unit_bound / scale
