"""Cumulative tables of a discrete law over blocks of integers, exact to the last bit of a uniform draw.

The integers are cut into blocks of 2**shift. Block j holds k = j 2**shift + r, 0 <= r < 2**shift. The largest
probability of a block is at its `near` end (nearest to zero), the smallest at its `far` end. A uniform U picks

* a *sure* part, of weight 2**shift P(far): k is then uniform in the block and nothing is left to decide; or
* a *wedge* part, of weight 2**shift (P(near) - P(far)): k is uniform in the block and accepted with probability
  (P(k) - P(far)) / (P(near) - P(far)), else everything is drawn again.

This is the rejection method of Marsaglia's ziggurat on an integer law; summed over both parts, k has weight P(k).
With shift = 0 there are no wedges, and a draw is plain inversion of the cumulative distribution.

U is a real number that is drawn lazily. Its first 16 bits settle most draws by one look-up in `guide`; the rest draw
64 bits and are compared with `thresholds`, floor(2**64 F). A draw equal to a threshold, or beyond the last one, is
undecided: `settle` draws more bits and compares them with tighter integer bounds on F until one answer is certain.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpduck.trusted.noise.coins import DiscreteLaw, Interval, exp_minus
from dpduck.trusted.noise.entropy import LazyUniform

UNDECIDED = np.int16(-32768)  # in `guide`: these 16 bits do not settle the draw
TABLE_REACH = 52  # bits: beyond the last threshold lies at most 2**-52 of the probability
LARGEST_BLOCK = 1 << 20  # blocks further out have probability below exp(-2**16), and int64 still holds them


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """Everything precomputed for one law; read-only.

    thresholds: floor(2**64 F(i)), uint64, increasing; codes: what part i means (see `code_of`), int64;
    guide: the code of all draws that begin with these 16 bits, or UNDECIDED, int16, shape (65536,).
    """

    law: DiscreteLaw
    shift: int
    thresholds: NDArray[np.uint64]
    codes: NDArray[np.int64]
    guide: NDArray[np.int16]


def code_of(part: int, shift: int) -> int:
    """Meaning of part i: parts alternate between k >= 0 and k < 0, outwards from zero.

    shift = 0: the integer k itself. Else 2 j + 1 for the wedge of block j, 2 j for its sure part.

    >>> [code_of(part, 0) for part in range(5)], [code_of(part, 3) for part in range(5)]
    ([0, -1, 1, -2, 2], [0, 1, -2, -1, 2])
    """
    block, wedge = (part, 0) if shift == 0 else divmod(part, 2)
    distance, negative = divmod(block, 2)
    signed = ~distance if negative else distance
    return signed if shift == 0 else 2 * signed + wedge


def cumulative_bounds(law: DiscreteLaw, shift: int, precision: int, reach: int) -> tuple[list[int], int]:
    """Lower bounds on 2**precision F(0), F(1), ..., and one number that is at most added to each by the truth.

    reach: bits; about 2**-reach of the probability, or less, is left beyond the last F.
    Blocks j >= 0 have magnitudes j w .. j w + w - 1 with w = 2**shift, blocks j = ~q < 0 have q w + 1 .. q w + w.
    """
    width, one = 1 << shift, 1 << precision
    starts = (0, width - 1, 1, width) if shift else (0, 0, 1, 1)
    streams = zip(*(law.weights(start, width, precision) for start in starts), strict=True)
    # The rest beyond the last block is known exactly for Laplace; for Gaussian it is only bounded, so it must be small.
    enough = one >> 5 + (precision - 24 if law.quadratic else reach)
    sums: list[int] = []
    total, blocks, whole = 0, 0, one
    while whole > enough:
        near, far, mirror_near, mirror_far = next(streams)
        whole = near + mirror_near
        sums += (total + far, total + near) if shift else (total + near,)
        sums += (total + near + mirror_far, total + whole) if shift else (total + whole,)
        total += whole
        blocks += 1
    short = 8 * blocks**3  # 2 blocks weights, each short by at most 4 blocks^2 (`weights`)
    rest_low, rest_high = _rest(law, width, blocks, precision)
    norm_low, norm_high = total + rest_low, total + short + rest_high
    inverse = (one << precision) // norm_high
    # F = A/Z with A in [a, a + short], Z in [norm_low, norm_high], Z >= 1: a * inverse falls behind F by at most
    # short + (norm_high - norm_low) from these bounds, and Z + 1 units from rounding the inverse and the product.
    error = short + norm_high - norm_low + (norm_high >> precision) + 3
    return [low * inverse >> precision for low in sums], error


def _rest(law: DiscreteLaw, width: int, blocks: int, precision: int) -> Interval:
    """Bounds on the summed weights w(q) = g(q width) + g(q width + 1) of all q >= blocks.

    x is convex, so they fall at least as fast as a geometric series, and exactly as fast for Laplace.
    """
    near = exp_minus(law.exponent(blocks * width), precision)
    mirror = exp_minus(law.exponent(blocks * width + 1), precision)
    ratio = exp_minus(law.exponent((blocks + 1) * width) - law.exponent(blocks * width), precision)
    one = 1 << precision
    high = -(-((near[1] + mirror[1]) << precision) // (one - ratio[1]))
    low = 0 if law.quadratic else ((near[0] + mirror[0]) << precision) // (one - ratio[0])
    return low, high


@lru_cache(maxsize=128)
def noise_table(law: DiscreteLaw, shift: int) -> NoiseTable:
    """The table of a law, a pure function of rationals: about two milliseconds, 0.2 MB, kept for the next release."""
    thresholds = np.array(_floors(law, shift), dtype=np.uint64)
    codes = np.array([code_of(part, shift) for part in range(len(thresholds))], dtype=np.int64)
    # The 16-bit cell c holds the draws [c, c + 1) * 2**48. All of them are in part i = #{T : T < c * 2**48} unless a
    # threshold lies inside the cell, or the cell lies beyond the last threshold: those are left open.
    inside = np.bincount((thresholds >> np.uint64(48)).astype(np.int64), minlength=1 << 16)
    part = np.cumsum(inside) - inside
    decided = (inside == 0) & (part < len(codes))
    guide = np.where(decided, codes[np.minimum(part, len(codes) - 1)], UNDECIDED).astype(np.int16)
    for array in (thresholds, codes, guide):
        array.setflags(write=False)
    return NoiseTable(law, shift, thresholds, codes, guide)


def _floors(law: DiscreteLaw, shift: int) -> list[int]:
    """floor(2**64 F(i)), certain: the precision grows until both bounds of every F have one floor.

    F < 1 is known, so an upper bound that reaches 1 is lowered to the largest number below it. Where that is the floor,
    every later floor is the same: the list ends.
    """
    precision, top = 128, (1 << 64) - 1
    while True:
        lows, error = cumulative_bounds(law, shift, precision, TABLE_REACH)
        drop = precision - 64
        floors = [low >> drop for low in lows]
        if floors == [min(low + error >> drop, top) for low in lows]:
            return floors[: bisect_left(floors, top) + 1]
        precision *= 2


def settle(law: DiscreteLaw, shift: int, uniform: LazyUniform) -> int:
    """The code of the part that holds U, drawing bits until it is certain; never guesses.

    Certain: U < F(part) and U >= F(part - 1), shown by the lower bound of one and the upper bound of the other.
    """
    while True:
        uniform.extend(uniform.bits)
        lows, error = cumulative_bounds(law, shift, uniform.bits + 64, uniform.bits)
        first, last = uniform.value << 64, (uniform.value + 1) << 64  # U * 2**precision is in [first, last)
        part = bisect_left(lows, last)
        if part < len(lows) and (part == 0 or lows[part - 1] + error <= first):
            code = code_of(part, shift)
            if abs(code) > 2 * LARGEST_BLOCK:
                raise OverflowError("a noise value does not fit in 64 bits")
            return code


def block_shift(width: Fraction, widest: int) -> int:
    """The smallest shift >= 0 with width <= widest * 2**shift.

    >>> block_shift(Fraction(33), 16)
    2
    """
    shift = 0
    while width > widest << shift:
        shift += 1
    return shift
