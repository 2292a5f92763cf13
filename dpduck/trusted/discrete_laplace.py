"""Exact discrete Laplace noise (Ghosh, Roughgarden and Sundararajan 2009, the two-sided geometric mechanism)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.trusted.block_sampler import sample
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_exponential import DiscreteLaw
from dpduck.trusted.noise_table import block_shift, noise_table

LARGEST_SCALE = 1 << 40
WIDEST = (
    16  # largest scale, in blocks: the table has about 36 * 2 * 2 * WIDEST parts, wedges weigh 1/WIDEST or twice that
)


def discrete_laplace(scale: Fraction, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Independent integers with P(k) proportional to exp(-|k| / scale), exactly; shape (count,), a fresh array.

    scale: a positive rational up to 2**40, in the units of the query: sensitivity / epsilon.
    """
    if not isinstance(scale, Fraction):
        raise TypeError("the scale of discrete Laplace noise must be a Fraction")
    if not 0 < scale <= LARGEST_SCALE:
        raise ValueError("the scale of discrete Laplace noise must be above 0 and at most 2**40")
    if count < 0:
        raise ValueError("the number of draws must not be negative")
    law = DiscreteLaw(linear=1 / scale, quadratic=Fraction(0))
    return sample(noise_table(law, block_shift(scale, WIDEST)), count, entropy)
