"""Draws exact discrete Laplace and discrete Gaussian noise.

Laplace: Ghosh, Roughgarden and Sundararajan 2009, the two-sided geometric mechanism.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.trusted.noise.blocks import sample
from dpduck.trusted.noise.coins import DiscreteLaw
from dpduck.trusted.noise.entropy import Entropy
from dpduck.trusted.noise.table import block_shift, noise_table

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


# Exact discrete Gaussian noise (Canonne, Kamath and Steinke 2020, Definition 1).

LARGEST_VARIANCE = 1 << 80
GAUSSIAN_WIDEST = (
    32  # largest sigma, in blocks: the table has at most 9.4 * 2 * 2 * WIDEST parts; wedges weigh 0.8 blocks/sigma
)


def discrete_gaussian(variance: Fraction, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Independent integers with P(k) proportional to exp(-k^2 / (2 variance)), exactly; shape (count,), a fresh array.

    variance: sigma^2, a positive rational up to 2**80, in the squared units of the query. (The variance of the draws is
    a little smaller, noticeably so for sigma below 1.)
    """
    if not isinstance(variance, Fraction):
        raise TypeError("the variance of discrete Gaussian noise must be a Fraction")
    if not 0 < variance <= LARGEST_VARIANCE:
        raise ValueError("the variance of discrete Gaussian noise must be above 0 and at most 2**80")
    if count < 0:
        raise ValueError("the number of draws must not be negative")
    law = DiscreteLaw(linear=Fraction(0), quadratic=1 / (2 * variance))
    # sigma <= WIDEST * 2**shift for the smallest shift: half the shift, rounded up, that sigma^2 needs against WIDEST^2
    shift = (block_shift(variance, GAUSSIAN_WIDEST * GAUSSIAN_WIDEST) + 1) // 2
    return sample(noise_table(law, shift), count, entropy)
