"""Draws exact discrete Laplace and discrete Gaussian noise.

Laplace: Ghosh, Roughgarden and Sundararajan 2009, the two-sided geometric mechanism.
"""

from __future__ import annotations

from fractions import Fraction
from math import factorial

import numpy as np
from numpy.typing import NDArray

from dpduck.trusted.noise.coins import DiscreteLaw, exp_minus
from dpduck.trusted.noise.entropy import Entropy, LazyUniform, words16, words32, words64
from dpduck.trusted.noise.table import UNDECIDED, NoiseTable, block_shift, noise_table, settle

# Vectorised exact draws from a `NoiseTable`: one look-up for most, integers of growing precision for the doubtful.


CHUNK = 1 << 16  # draws at a time: bounds the memory beside the result, and the work stays in the cache
SLACK = 2.0**-40  # more than the error of `_acceptance` (below 2**-46) and of a 53-bit uniform (2**-53) together
SERIES = tuple(1.0 / factorial(n + 1) for n in range(18))  # (e^y - 1)/y; for y <= 1 the rest is below 1.1/19! < 2**-56


def sample(table: NoiseTable, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Independent draws of the table's law, a fresh array of shape (count,)."""
    result = np.empty(count, dtype=np.int64)
    for start in range(0, count, CHUNK):
        part = result[start : start + CHUNK]
        part[:], rejected = _candidates(table, len(part), entropy)
        while rejected.size:
            part[rejected], again = _candidates(table, rejected.size, entropy)
            rejected = rejected[again]
    return result


def _candidates(table: NoiseTable, count: int, entropy: Entropy) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Candidates, shape (count,), and the positions of those that are rejected and must be drawn again."""
    codes = _codes(table, count, entropy)
    if table.shift == 0:
        return codes, np.empty(0, dtype=np.intp)
    values = (codes >> 1) << table.shift
    values |= _uniform_integers(table.shift, count, entropy)
    wedges = np.flatnonzero(codes & 1)
    accepted = _accept_wedges(table, codes[wedges] >> 1, values[wedges], entropy)
    return values, wedges[~accepted]


def _codes(table: NoiseTable, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Parts of the table with their exact probabilities, as codes (see `code_of`), shape (count,)."""
    prefixes = words16(entropy, count)
    looked_up = table.guide.take(prefixes)
    codes = looked_up.astype(np.int64)
    open_cells = np.flatnonzero(looked_up == UNDECIDED)
    if open_cells.size:
        codes[open_cells] = _refined_codes(table, prefixes[open_cells], entropy)
    return codes


def _refined_codes(table: NoiseTable, prefixes: NDArray[np.uint16], entropy: Entropy) -> NDArray[np.int64]:
    """Codes of draws whose first 16 bits were not enough: 48 bits more, and for a tie as many as it takes.

    With T = floor(2**64 F) and the real 2**64 U in [u, u + 1): u < T gives U < F, u > T gives U > F, u = T nothing.
    """
    fresh = words64(entropy, len(prefixes)) >> np.uint64(16)
    draws = prefixes.astype(np.uint64) << np.uint64(48) | fresh
    parts = np.searchsorted(table.thresholds, draws, side="right")
    beyond = parts == len(table.thresholds)
    tied = table.thresholds[np.maximum(parts, 1) - 1] == draws
    codes = table.codes[np.where(beyond, 0, parts)]
    for position in np.flatnonzero(beyond | tied):
        codes[position] = settle(table.law, table.shift, LazyUniform(int(draws[position]), 64, entropy))
    return codes


def _uniform_integers(bits: int, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Uniform integers of `bits` bits, 1 to 64, shape (count,)."""
    if bits <= 16:
        return (words16(entropy, count) & np.uint16((1 << bits) - 1)).astype(np.int64)
    if bits <= 32:
        return (words32(entropy, count) & np.uint32((1 << bits) - 1)).astype(np.int64)
    return (words64(entropy, count) & np.uint64((1 << bits) - 1)).astype(np.int64)


def _accept_wedges(
    table: NoiseTable, blocks: NDArray[np.int64], values: NDArray[np.int64], entropy: Entropy
) -> NDArray[np.bool_]:
    """True with probability (P(k) - P(far)) / (P(near) - P(far)), exactly, for values k of these blocks."""
    width = 1 << table.shift
    near = np.where(blocks < 0, (~blocks << table.shift) + 1, blocks << table.shift)
    magnitudes, far = np.abs(values), near + (width - 1)
    uniforms = words64(entropy, len(values))
    coarse = (uniforms >> np.uint64(11)).astype(np.float64) * 2.0**-53  # exact; U is in [coarse, coarse + 2**-53)
    probability, proven = _acceptance(table.law, near, magnitudes, far)
    accepted = coarse + SLACK < probability
    undecided = ~(accepted | (coarse > probability + SLACK)) | ~proven
    for position in np.flatnonzero(undecided):
        uniform = LazyUniform(int(uniforms[position]), 64, entropy)
        ends = int(near[position]), int(magnitudes[position]), int(far[position])
        accepted[position] = accept_exactly(table.law, *ends, uniform)
    return accepted


def _acceptance(
    law: DiscreteLaw, near: NDArray[np.int64], magnitudes: NDArray[np.int64], far: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """expm1(x(far) - x(k)) / expm1(x(far) - x(near)), within 2**-46, and where that is proven.

    Proof, u = 2**-53: the rises y are within 6 u relatively (`rise`), which expm1 turns into at most 1.6 * 6 u for
    y <= 1. The series has positive terms only, so Horner's rule in IEEE arithmetic is within 2 * 18 u, its coefficients
    within u, the terms left out within u/8, the last product within u. Two such factors and a division: below
    2 * 50 u < 2**-46. No function of a mathematical library is trusted.
    """
    ends = far.astype(np.float64)
    whole = law.rise(near.astype(np.float64), ends)
    proven = (whole <= 1.0) & (far < 1 << 52)
    return _expm1(law.rise(magnitudes.astype(np.float64), ends)) / _expm1(whole), proven


def _expm1(argument: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^y - 1 by its series and Horner's rule, for 0 <= y <= 1."""
    total = np.full_like(argument, SERIES[-1])
    for coefficient in SERIES[-2::-1]:
        total *= argument
        total += coefficient
    return total * argument


def accept_exactly(law: DiscreteLaw, near: int, magnitude: int, far: int, uniform: LazyUniform) -> bool:
    """Whether U (g(near) - g(far)) < g(k) - g(far), g = exp(-x): integers, of more bits until it is certain."""
    start = law.exponent(near)
    while True:
        precision = uniform.bits + 64
        value = exp_minus(law.exponent(magnitude) - start, precision)
        end = exp_minus(law.exponent(far) - start, precision)
        one = 1 << precision
        if (uniform.value + 1) * (one - end[0]) <= (value[0] - end[1]) << uniform.bits:
            return True
        if uniform.value * (one - end[1]) >= (value[1] - end[0]) << uniform.bits:
            return False
        uniform.extend(uniform.bits)


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
