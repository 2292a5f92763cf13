"""Exact binomial draws for any number of trials and any probability that can be bounded ever more tightly.

Inversion runs over the integers in the order mode, mode + 1, .., then mode - 1, ... Weights relative to the mode's
follow from w(k + 1)/w(k) = (N - k)/(k + 1) p/(1 - p). Lower and upper bounds are kept in integers. The uniform U is
drawn lazily: 64 bits settle nearly every draw. If they do not, more bits are drawn and bounds are tightened. About 24
standard deviations of weights are computed, whatever N is. Floats decide unless U is close to a step. Then integers do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, chain

import numpy as np

from dpduck.kernel.noise.entropy import Entropy, LazyUniform
from dpduck.kernel.noise.exponentials import Bounds
from dpduck.values.arrays import FloatArray

MOST_STEPS = 1 << 16
"""The most weights on one side that are computed in floats."""

SLACK = 2.0**-30
"""Relative slack of the distribution function in floats (see `_in_floats`)."""

Probability = Callable[[int], Bounds]
"""Function from a number of bits to bounds on the probability. Unless the probability is tiny, the bounds have that
many bits of relative precision."""


def binomial(trials: int, probability: Probability, entropy: Entropy) -> int:
    """Draws the number of successes in `trials` independent trials, exactly."""
    if trials < 0:
        raise ValueError("the number of trials must not be negative")
    if trials == 0:
        return 0
    uniform = LazyUniform(0, 0, entropy)
    uniform.extend(64)
    successes = _in_floats(trials, probability(128), uniform)
    if successes is not None:
        return successes
    while True:
        successes = _invert_bounds(trials, probability(uniform.bits + 64), uniform)
        if successes is not None:
            return successes
        uniform.extend(uniform.bits)


def _in_floats(trials: int, bounds: Bounds, uniform: LazyUniform) -> int | None:
    """Returns the value that `_invert_bounds` finds, computed in floats. None if the floats leave a doubt.

    Proof. Let u = 2**-53. The relative error of the odds is within 2 u, since the bounds differ by 2**-80 of p
    and of 1 - p. N - k and k are within 2 u (N below 2**53, or k at most N/2). So a ratio is within 8 u, and a product
    of MOST_STEPS = 2**16 ratios within 9 * 2**16 u. Sums of positive terms are within 2**17 u more. Then S(i)/Z and
    U Z are within 2 * 11 * 2**16 u, below 2**-32 of Z. The omitted weights are within 2**-40 of Z.
    """
    low, high = bounds
    if low == 1:
        return None
    mode = min(int((trials + 1) * low), trials)
    steps = int(12 * float(mode * (1 - low)) ** 0.5) + 64
    if (
        high - low > low * (1 - low) / 2**80
        or steps > MOST_STEPS
        or (trials >= 1 << 53 and 2 * (mode + steps) > trials)
    ):
        return None
    odds = float(low / (1 - low))
    up, down = (np.arange(min(steps, length), dtype=np.float64) for length in (trials - mode, mode))
    above: FloatArray = np.cumprod((float(trials) - (mode + up)) / (mode + 1 + up) * odds, dtype=np.float64)
    # If the odds are 0, the mode is 0, and nothing is below it.
    below: FloatArray = np.cumprod((mode - down) / (float(trials) - mode + 1 + down) / (odds or 1.0), dtype=np.float64)
    if _leaves_out(above, trials - mode) or _leaves_out(below, mode):
        return None
    sums = np.cumsum(np.concatenate([np.ones(1), above, below]))
    target, slack = uniform.value * 2.0**-uniform.bits * sums[-1], SLACK * sums[-1]
    part = int(np.searchsorted(sums, target))
    if part == len(sums) or abs(sums[part] - target) < slack or (part and abs(sums[part - 1] - target) < slack):
        return None
    return mode + part if part <= len(above) else mode - (part - len(above))


def _leaves_out(weights: FloatArray, length: int) -> bool:
    """Tells whether the omitted weights may matter.

    A geometric series bounds their sum. Its ratio is the ratio of the last two weights that were computed.
    """
    if len(weights) == length:
        return False
    last, before = float(weights[-1]), float(weights[-2])
    return last >= before or last * last > 2.0**-41 * (before - last)


def _invert_bounds(trials: int, bounds: Bounds, uniform: LazyUniform) -> int | None:
    """Returns the value at which the distribution function passes U. None if the bounds do not decide."""
    if bounds[0] == 1:
        return trials
    if bounds[1] == 1:
        return None
    mode = min(int((trials + 1) * bounds[0]), trials)
    odds = bounds[0] / (1 - bounds[0]), bounds[1] / (1 - bounds[1])
    precision = uniform.bits + 32
    above = _weights(trials, mode, odds, precision, upwards=True)
    # Nothing is below 0, which is the mode wherever the lower bound on the odds is 0.
    below = _weights(trials, mode, odds, precision, upwards=False) if mode else ([], [], 0)
    unit = 1 << precision
    lows = list(accumulate(chain((unit,), above[0], below[0])))
    highs = list(accumulate(chain((unit,), above[1], below[1])))
    rest = above[2] + below[2]
    # F(i) = S(i)/Z with S(i) in [lows, highs] and Z in [lows[-1], highs[-1] + rest]; U 2**bits is in [value, value + 1)
    whole = highs[-1] + rest
    part = bisect_left(lows, -(-(uniform.value + 1) * whole >> uniform.bits) + 1)
    if part == len(lows) or (part and uniform.value * lows[-1] < highs[part - 1] << uniform.bits):
        return None
    steps = len(above[0])
    return mode + part if part <= steps else mode - (part - steps)


def _weights(
    trials: int, mode: int, odds: tuple[Fraction, Fraction], precision: int, *, upwards: bool
) -> tuple[list[int], list[int], int]:
    """Returns lower and upper bounds of the weights on one side of the mode, and a bound of the omitted sum."""
    low_step, high_step = odds if upwards else (1 / odds[1], 1 / odds[0])
    shift = precision + max(0, high_step.denominator.bit_length() - high_step.numerator.bit_length())
    low_rate = (low_step.numerator << shift) // low_step.denominator
    high_rate = -(-(high_step.numerator << shift) // high_step.denominator)
    low = high = 1 << precision
    enough = 1 << max(precision // 2 - 24, 1)
    lows: list[int] = []
    highs: list[int] = []
    count, last = mode, trials if upwards else 0
    while count != last:
        over, under = (trials - count, count + 1) if upwards else (count, trials - count + 1)
        under <<= shift
        low = low * over * low_rate // under
        high = high * over * high_rate // under + 1
        # Ratios fall away from the mode: a geometric series bounds the rest.
        if high <= enough and (gap := under - over * high_rate) > 0:
            return lows, highs, high * under // gap + 1
        lows.append(low)
        highs.append(high)
        count += 1 if upwards else -1
    return lows, highs, 0
