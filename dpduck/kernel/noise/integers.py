"""Exact discrete Laplace and discrete Gaussian noise, drawn from cumulative tables of the law over blocks of integers.

Laplace: Ghosh, Roughgarden and Sundararajan 2009, the two-sided geometric mechanism. Gaussian: Canonne, Kamath and
Steinke 2020, Definition 1.

The integers are cut into blocks of 2**shift. Block j holds k = j 2**shift + r, 0 <= r < 2**shift. The largest
probability of a block is at its `near` end (nearest to zero), the smallest at its `far` end. A uniform U picks

* a *sure* part, of weight 2**shift P(far): k is then uniform in the block and nothing is left to decide; or
* a *wedge* part, of weight 2**shift (P(near) - P(far)): k is uniform in the block and accepted with probability
  (P(k) - P(far)) / (P(near) - P(far)), else everything is drawn again.

This is the rejection method of Marsaglia's ziggurat on an integer law. Summed over both parts, k has weight P(k). With
shift = 0 there are no wedges, and a draw is plain inversion of the cumulative distribution.

U is a real number that is drawn lazily. Its first 16 bits settle most draws by one look-up in `guide`. The others draw
64 bits and are compared with `thresholds`, floor(2**64 F). A draw equal to a threshold, or beyond the last one, is
undecided: `settle` draws more bits and compares them with tighter integer bounds on F until one answer is certain.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import factorial

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.noise.coins import is_below
from dpduck.kernel.noise.entropy import Entropy, LazyUniform, uniform_bits, words16, words64
from dpduck.kernel.noise.exponentials import Bounds, DiscreteLaw, Interval, exp_minus

CHUNK = 1 << 16  # draws at a time: bounds the memory beside the result, and the work stays in the cache
SLACK = 2.0**-40  # more than the error of `_acceptance` (below 2**-46) and of a 53-bit uniform (2**-53) together
SERIES = tuple(1.0 / factorial(n + 1) for n in range(18))  # (e^y - 1)/y; for y <= 1 the rest is below 1.1/19! < 2**-56


def sample(table: NoiseTable, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draws independent values of the table's law, in a fresh array of shape (count,)."""
    result = np.empty(count, dtype=np.int64)
    for start in range(0, count, CHUNK):
        part = result[start : start + CHUNK]
        part[:], rejected = _candidates(table, len(part), entropy)
        while rejected.size:
            part[rejected], again = _candidates(table, rejected.size, entropy)
            rejected = rejected[again]
    return result


def _candidates(table: NoiseTable, count: int, entropy: Entropy) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Draws candidates, shape (count,). Returns also the positions of rejected ones, which are drawn again."""
    codes = _codes(table, count, entropy)
    if table.shift == 0:
        return codes, np.empty(0, dtype=np.intp)
    values = (codes >> 1) << table.shift
    values |= uniform_bits(entropy, table.shift, count)
    wedges = np.flatnonzero(codes & 1)
    accepted = _accept_wedges(table, codes[wedges] >> 1, values[wedges], entropy)
    return values, wedges[~accepted]


def _codes(table: NoiseTable, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draws parts of the table with their exact probabilities. Returns their codes (see `code_of`), shape (count,)."""
    prefixes = words16(entropy, count)
    looked_up = table.guide.take(prefixes)
    codes = looked_up.astype(np.int64)
    open_cells = np.flatnonzero(looked_up == UNDECIDED)
    if open_cells.size:
        codes[open_cells] = _refine_codes(table, prefixes[open_cells], entropy)
    return codes


def _refine_codes(table: NoiseTable, prefixes: NDArray[np.uint16], entropy: Entropy) -> NDArray[np.int64]:
    """Returns codes of draws that 16 bits do not decide. Draws 48 bits more, and for a tie as many as are needed."""
    # For T = floor(2**64 F) and 2**64 U in [u, u + 1): u < T gives U < F, u > T gives U > F, u = T is a tie.
    fresh = words64(entropy, len(prefixes)) >> np.uint64(16)
    draws = prefixes.astype(np.uint64) << np.uint64(48) | fresh
    parts = np.searchsorted(table.thresholds, draws, side="right")
    beyond = parts == len(table.thresholds)
    tied = table.thresholds[np.maximum(parts, 1) - 1] == draws
    codes = table.codes[np.where(beyond, 0, parts)]
    for position in np.flatnonzero(beyond | tied):
        codes[position] = settle(table.law, table.shift, LazyUniform(int(draws[position]), 64, entropy))
    return codes


def _accept_wedges(
    table: NoiseTable, blocks: NDArray[np.int64], values: NDArray[np.int64], entropy: Entropy
) -> NDArray[np.bool_]:
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
    """Returns expm1(x(far) - x(k)) / expm1(x(far) - x(near)), within 2**-46, and a mask: where that error is proven.

    Proof. Let u = 2**-53. The relative error of the rises y is within 6 u (`rise`), and of expm1 within 1.6 * 6 u for
    y <= 1. The series has positive terms only, so Horner's rule in IEEE arithmetic is within 2 * 18 u. Coefficients are
    within u, omitted terms within u/8, and the last product within u. Two such factors and a division are below
    2 * 50 u < 2**-46. No function of a mathematical library is trusted.
    """
    ends = far.astype(np.float64)
    whole = law.rise(near.astype(np.float64), ends)
    proven = (whole <= 1.0) & (far < 1 << 52)
    return _expm1(law.rise(magnitudes.astype(np.float64), ends)) / _expm1(whole), proven


def _expm1(argument: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.full_like(argument, SERIES[-1])
    for coefficient in SERIES[-2::-1]:
        total *= argument
        total += coefficient
    return total * argument


def accept_exactly(law: DiscreteLaw, near: int, magnitude: int, far: int, uniform: LazyUniform) -> bool:
    """Tells whether U (g(near) - g(far)) < g(k) - g(far), g = exp(-x), by integers of more bits until it is certain."""
    start = law.exponent(near)

    def chance(precision: int) -> Bounds:
        value = exp_minus(law.exponent(magnitude) - start, precision)
        end = exp_minus(law.exponent(far) - start, precision)
        unit = 1 << precision
        return Fraction(value[0] - end[1], unit - end[0]), Fraction(value[1] - end[0], unit - end[1])

    return is_below(uniform, chance)


LARGEST_SCALE = 1 << 40
WIDEST = (
    16  # largest scale, in blocks: the table has about 36 * 2 * 2 * WIDEST parts, wedges weigh 1/WIDEST or twice that
)


def discrete_laplace(scale: Fraction, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draws independent integers with P(k) proportional to exp(-|k| / scale), exactly. scale: at most 2**40."""
    _require("scale of discrete Laplace", scale, LARGEST_SCALE, count)
    law = DiscreteLaw(linear=1 / scale, quadratic=Fraction(0))
    return sample(noise_table(law, block_shift(scale, WIDEST)), count, entropy)


def _require(what: str, parameter: Fraction, most: int, count: int) -> None:
    """Refuses a negative count, and a parameter that is not exact, not positive, or above `most` (a power of two)."""
    if not isinstance(parameter, Fraction):
        raise TypeError(f"the {what} noise must be a Fraction")
    if not 0 < parameter <= most:
        raise ValueError(f"the {what} noise must be above 0 and at most 2**{most.bit_length() - 1}")
    if count < 0:
        raise ValueError("the number of draws must not be negative")


LARGEST_VARIANCE = 1 << 80
GAUSSIAN_WIDEST = (
    32  # largest sigma, in blocks: the table has at most 9.4 * 2 * 2 * WIDEST parts; wedges weigh 0.8 blocks/sigma
)


def discrete_gaussian(variance: Fraction, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draws independent integers with P(k) proportional to exp(-k^2 / (2 variance)), exactly.

    variance: a rational up to 2**80. The variance of the draws is a little smaller, noticeably so below 1.
    """
    _require("variance of discrete Gaussian", variance, LARGEST_VARIANCE, count)
    law = DiscreteLaw(linear=Fraction(0), quadratic=1 / (2 * variance))
    # the smallest shift with sigma <= WIDEST * 2**shift: half of the shift for sigma^2 and WIDEST^2, rounded up
    shift = (block_shift(variance, GAUSSIAN_WIDEST * GAUSSIAN_WIDEST) + 1) // 2
    return sample(noise_table(law, shift), count, entropy)


UNDECIDED = np.int16(-32768)  # in `guide`: these 16 bits do not settle the draw
TABLE_REACH = 52  # bits: beyond the last threshold lies at most 2**-52 of the probability
LARGEST_BLOCK = 1 << 20  # int64 holds the values up to here. Blocks further out have probability below exp(-2**16)


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """Precomputed values of one law, read-only.

    thresholds: floor(2**64 F(i)), uint64, increasing. codes: the code of part i (see `code_of`), int64. guide: for each
    value of the first 16 bits, the code of all draws that begin with them, or UNDECIDED, int16, shape (65536,).
    """

    law: DiscreteLaw
    shift: int
    thresholds: NDArray[np.uint64]
    codes: NDArray[np.int64]
    guide: NDArray[np.int16]


def code_of(part: int, shift: int) -> int:
    """Returns the code of part i of a table. Parts alternate between k >= 0 and k < 0, outwards from zero.

    With shift = 0, the code is the integer k. Otherwise it is 2 j + 1 for the wedge of block j, 2 j for its sure part.

    >>> [code_of(part, 0) for part in range(5)], [code_of(part, 3) for part in range(5)]
    ([0, -1, 1, -2, 2], [0, 1, -2, -1, 2])
    """
    block, wedge = (part, 0) if shift == 0 else divmod(part, 2)
    distance, negative = divmod(block, 2)
    signed = ~distance if negative else distance
    return signed if shift == 0 else 2 * signed + wedge


def cumulative_bounds(law: DiscreteLaw, shift: int, precision: int, reach: int) -> tuple[list[int], int]:
    """Returns lower bounds on 2**precision F(0), F(1), .., and the most by which the truth can exceed any of them.

    F: cumulative probability of the parts. reach: about 2**-reach of the probability, or less, is beyond the last F.
    Blocks j >= 0 have magnitudes j w .. j w + w - 1 with w = 2**shift, blocks j = ~q < 0 have q w + 1 .. q w + w.
    """
    width, unit = 1 << shift, 1 << precision
    starts = (0, width - 1, 1, width) if shift else (0, 0, 1, 1)
    streams = zip(*(law.weights(start, width, precision) for start in starts), strict=True)
    # The rest beyond the last block has a closed form for Laplace. For Gaussian it has only a bound, and must be small.
    enough = unit >> 5 + (precision - 24 if law.quadratic else reach)
    sums: list[int] = []
    total, blocks, whole = 0, 0, unit
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
    inverse = (unit << precision) // norm_high
    # F = A/Z with A in [a, a + short], Z in [norm_low, norm_high], Z >= 1: a * inverse falls behind F by at most
    # short + (norm_high - norm_low) from these bounds, and Z + 1 units from rounding the inverse and the product.
    error = short + norm_high - norm_low + (norm_high >> precision) + 3
    return [low * inverse >> precision for low in sums], error


def _rest(law: DiscreteLaw, width: int, blocks: int, precision: int) -> Interval:
    """Bounds the summed weights w(q) = g(q width) + g(q width + 1) of all q >= blocks."""
    # x is convex, so they fall at least as fast as a geometric series, and exactly as fast for Laplace
    near = exp_minus(law.exponent(blocks * width), precision)
    mirror = exp_minus(law.exponent(blocks * width + 1), precision)
    ratio = exp_minus(law.exponent((blocks + 1) * width) - law.exponent(blocks * width), precision)
    unit = 1 << precision
    high = -(-((near[1] + mirror[1]) << precision) // (unit - ratio[1]))
    low = 0 if law.quadratic else ((near[0] + mirror[0]) << precision) // (unit - ratio[0])
    return low, high


@lru_cache(maxsize=128)
def noise_table(law: DiscreteLaw, shift: int) -> NoiseTable:
    """Computes a law's table, which depends on rationals alone. It is cached: it takes 2 ms, and has 0.2 MB."""
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
    """Returns floor(2**64 F(i)) exactly: the precision grows until both bounds of every F have one floor."""
    # F < 1, so an upper bound that reaches 1 is lowered. The list ends at the first F with the largest floor.
    precision, top = 128, (1 << 64) - 1
    while True:
        lows, error = cumulative_bounds(law, shift, precision, TABLE_REACH)
        drop = precision - 64
        floors = [low >> drop for low in lows]
        if floors == [min(low + error >> drop, top) for low in lows]:
            return floors[: bisect_left(floors, top) + 1]
        precision *= 2


def settle(law: DiscreteLaw, shift: int, uniform: LazyUniform) -> int:
    """Returns the code of the part that holds U. Draws more bits of U until the part is certain."""
    # certain if U is below the lower bound of F(part), and not below the upper bound of F(part - 1)
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
    """Returns the smallest shift >= 0 with width <= widest * 2**shift.

    >>> block_shift(Fraction(33), 16)
    2
    """
    shift = 0
    while width > widest << shift:
        shift += 1
    return shift
