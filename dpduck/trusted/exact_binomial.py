"""Exact binomial draws for any number of trials and any probability that can be bounded ever more tightly.

Inversion over the integers in the order mode, mode + 1, .., then mode - 1, ..: weights relative to the mode's follow
from w(k + 1)/w(k) = (N - k)/(k + 1) p/(1 - p), kept as lower and upper bounds in integers. The uniform is drawn lazily:
64 bits settle nearly every draw, a tie draws more bits and computes tighter bounds. About 24 standard deviations of
weights are computed, whatever N is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction

from dpduck.trusted.entropy import Entropy, LazyUniform
from dpduck.trusted.summary_law import Bounds

Probability = Callable[[int], Bounds]
"""From a precision in bits to bounds on the probability, relatively that close where it is not tiny."""


def binomial(trials: int, probability: Probability, entropy: Entropy) -> int:
    """The number of successes in `trials` independent trials, exactly."""
    if trials < 0:
        raise ValueError("the number of trials must not be negative")
    if trials == 0:
        return 0
    uniform = LazyUniform(0, 0, entropy)
    uniform.extend(64)
    while True:
        found = _inverted(trials, probability(uniform.bits + 64), uniform)
        if found is not None:
            return found
        uniform.extend(uniform.bits)


def _inverted(trials: int, bounds: Bounds, uniform: LazyUniform) -> int | None:
    """The value at which the distribution function passes U; None where the bounds do not say."""
    if bounds[0] == 1:
        return trials
    if bounds[1] == 1:
        return None
    mode = min(int((trials + 1) * bounds[0]), trials)
    odds = bounds[0] / (1 - bounds[0]), bounds[1] / (1 - bounds[1])
    precision = uniform.bits + 64
    above = _weights(trials, mode, odds, precision, upwards=True)
    # Downwards there is nothing from 0, which is the mode wherever the lower bound on the odds is 0.
    below = _weights(trials, mode, odds, precision, upwards=False) if mode else ([], 0)
    one = 1 << precision
    lows, highs = [one], [one]
    for low, high in [*above[0], *below[0]]:
        lows.append(lows[-1] + low)
        highs.append(highs[-1] + high)
    rest = above[1] + below[1]
    # F(i) = S(i)/Z with S(i) in [lows, highs] and Z in [lows[-1], highs[-1] + rest]; U 2**bits is in [value, value + 1)
    whole = highs[-1] + rest
    part = bisect_left(lows, -(-(uniform.value + 1) * whole >> uniform.bits) + 1)
    if part == len(lows) or (part and uniform.value * lows[-1] < highs[part - 1] << uniform.bits):
        return None
    steps = len(above[0])
    return mode + part if part <= steps else mode - (part - steps)


def _weights(
    trials: int, mode: int, odds: tuple[Fraction, Fraction], precision: int, *, upwards: bool
) -> tuple[list[tuple[int, int]], int]:
    """Bounds on the weights beyond the mode on one side, and an upper bound on the sum of those left out."""
    low_step, high_step = odds if upwards else (1 / odds[1], 1 / odds[0])
    shift = precision + max(0, high_step.denominator.bit_length() - high_step.numerator.bit_length())
    low_rate = (low_step.numerator << shift) // low_step.denominator
    high_rate = -(-(high_step.numerator << shift) // high_step.denominator)
    low = high = 1 << precision
    enough = 1 << max(precision // 2 - 24, 1)
    found: list[tuple[int, int]] = []
    count, last = mode, trials if upwards else 0
    while count != last:
        over, under = (trials - count, count + 1) if upwards else (count, trials - count + 1)
        under <<= shift
        low = low * over * low_rate // under
        high = high * over * high_rate // under + 1
        gap = under - over * high_rate
        if high <= enough and gap > 0:  # ratios fall away from the mode: a geometric series bounds the rest
            return found, high * under // gap + 1
        found.append((low, high))
        count += 1 if upwards else -1
    return found, 0
