"""Thresholded keys released alone, under (epsilon, delta): the joint formula, with discrete noise.

A unit adds up to k to the counts of C groups, of which S exist without it. Noise is discrete Gaussian of
variance V. A group is published if its noisy count is above k + tau. With P = P(noise <= tau)^(C - S) and
gamma = ln P,

delta = max over S of 1 - P + P delta_S(epsilon - gamma) and delta_S(epsilon + gamma),

where delta_S is the curve of S counts that move by k. Their sum decides. With T the sum of S noises,

delta_S(e) = P(T > e V / k - S k / 2) - exp(e) P(T > e V / k + S k / 2).

S = 0 gives the probability that a new group is published at all. Every figure here falls on the upper side.

No statement of the product is priced so: the ledger composes. Tests and benchmarks compare with this formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, floor, log1p, pi, sqrt

import numpy as np
import scipy
from scipy.optimize import brentq

from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.keys import key_delta
from dpduck.mechanisms.keys.plan import smallest_excess
from dpduck.values.arrays import FloatArray

SPREAD_OUT = 9.0
"""From this variance on, a sum of S discrete Gaussians is one of variance S V, up to a factor of exp(10 S exp(-pi^2 V))
(Kairouz, Liu and Steinke 2021, Theorem 11), which is below 1 + 1e-30; below it, laws are convolved."""

REACH = 16.0
"""A law that is convolved ends here: exp(-REACH^2 / 2) is below 1e-55."""

SMALLEST_DELTA = Fraction(1, 10**30)

FINEST = 1e-6
"""Relative step by which sigma is raised until the formula holds."""


MARGIN = 1e-9
"""Relative; a thousand times the error of sums of positive terms below, and added on the safe side."""

SUMMED = 3000.0
"""Up to this sigma the tail of a discrete Gaussian is summed; above, it differs from an integral by less than 1e-6."""

SMALLEST = 1e-300
"""Added to an upper bound: above anything that underflows."""

REACH_SQUARED = 80.0
"""Terms are summed until they are exp(-REACH_SQUARED / 2) of the first: the rest is nothing in double precision."""


def gaussian_tails(variance: float, start: int) -> tuple[float, float]:
    """Returns a lower and an upper bound of P(X >= start) for P(x) proportional to exp(-x^2 / (2 variance)).

    A large sigma compares the sum of f(n) = exp(-n^2 / (2 variance)) from n = start on with the integral from
    start - 1/2 on. A term differs from the integral over its cell by |f''|/24 <= f (z^2 + 1) / (24 variance), z being
    n / sigma. Terms beyond 12 sigma weigh nothing. The normaliser is sqrt(2 pi variance) within exp(-2 pi^2 variance).
    """
    if start <= 0:
        low, high = gaussian_tails(variance, 1 - start)
        return 1.0 - high - MARGIN, 1.0 - low + MARGIN
    sigma = sqrt(variance)
    if sigma <= SUMMED:
        terms = np.arange(start, int(sqrt(start * start + REACH_SQUARED * variance)) + 3, dtype=np.float64)
        share = float(np.exp(-terms * terms / (2 * variance)).sum()) / normaliser(variance)
        return share * (1 - MARGIN), share * (1 + MARGIN) + SMALLEST
    place = (start - 0.5) / sigma
    share = exp(scipy.special.log_ndtr(-place))
    loose = MARGIN + (max(place, 12.0) ** 2 + 1) / (12 * variance)
    return share * (1 - loose), share * (1 + loose) + SMALLEST


def normaliser(variance: float) -> float:
    """Returns the sum of exp(-n^2 / (2 variance)) over all integers. Poisson's formula gives sqrt(2 pi variance)."""
    if variance >= 4:
        return sqrt(2 * pi * variance) * (1 + 2 * exp(-2 * pi * pi * variance))
    terms = np.arange(1, 82, dtype=np.float64)
    return 1 + 2 * float(np.exp(-terms * terms / (2 * variance)).sum())


def any_of(groups: int, one: float) -> float:
    """1 - (1 - one)^groups, rounded up: that any of several independent groups is published."""
    return -expm1(groups * log1p(-min(one, 0.5))) * (1 + MARGIN)


@dataclass(frozen=True)
class JointThreshold:
    """Noise and threshold of a release that stands alone. excess: tau. delta: the formula's, at most the asked one."""

    variance: Fraction
    excess: int
    delta: float


def joint_delta(epsilon: float, variance: Fraction, excess: int, groups: int, rows: int = 1) -> float:
    """Returns an upper bound of the formula for a given variance and tau. groups: C. rows: k."""
    one = float(key_delta(Noise(NoiseKind.GAUSSIAN, variance), excess, 1))
    return max(_at(epsilon, float(variance), one, groups, existing, rows) for existing in range(groups + 1))


def calibrate_jointly(epsilon: Fraction, delta: Fraction, groups: int, rows: int = 1) -> JointThreshold:
    """Returns the smallest sigma, with its smallest threshold, that keeps the formula at or below `delta`.

    tau spends all of delta on new groups and sigma all of it on old ones. They never spend both at once, which is the
    gain over adding the two.
    """
    if delta < SMALLEST_DELTA:
        raise ValueError("delta must be at least 1e-30")
    wanted, share = float(epsilon), float(delta)
    sigma = _smallest_sigma(wanted, share * (1 - 1e-7), groups, rows)
    step = FINEST
    while True:
        variance = Fraction(sigma * sigma).limit_denominator(10**9)
        excess = smallest_excess(Noise(NoiseKind.GAUSSIAN, variance), groups, delta)
        if within(wanted, share, variance, excess, groups, rows):
            return JointThreshold(variance, excess, _reached(wanted, variance, excess, groups, rows))
        sigma, step = sigma * (1 + step), step * 2


def calibrate_apart(epsilon: Fraction, delta: Fraction, groups: int, rows: int = 1) -> JointThreshold:
    """Calibrates by adding two deltas of one half: one for old groups, one for new ones."""
    sigma = _smallest_sigma(float(epsilon), float(delta) / 2 * (1 - 1e-7), groups, rows)
    variance = Fraction(sigma * sigma).limit_denominator(10**9)
    excess = smallest_excess(Noise(NoiseKind.GAUSSIAN, variance), groups, delta / 2)
    return JointThreshold(variance, excess, float(delta))


def within(epsilon: float, delta: float, variance: Fraction, excess: int, groups: int, rows: int = 1) -> bool:
    """Tells whether the formula stays at or below delta for every S. Judges runs of S together where it can."""
    one = float(key_delta(Noise(NoiseKind.GAUSSIAN, variance), excess, 1))
    runs = [(0, groups)]
    if any_of(groups, one) > delta:
        return False
    while runs:
        first, last = runs.pop()  # S from first to last: P is smallest at first, the curve largest at last
        if _run(epsilon, float(variance), one, groups, first, last, rows) <= delta:
            continue
        if first == last:
            return False
        middle = (first + last) // 2
        runs += [(first, middle), (middle + 1, last)]
    return True


def _reached(epsilon: float, variance: Fraction, excess: int, groups: int, rows: int) -> float:
    """The delta at S = 0 and S = C, where it is largest in all but extreme cases."""
    one = float(key_delta(Noise(NoiseKind.GAUSSIAN, variance), excess, 1))
    return max(_at(epsilon, float(variance), one, groups, existing, rows) for existing in (0, groups))


def _at(epsilon: float, variance: float, one: float, groups: int, existing: int, rows: int) -> float:
    return _run(epsilon, variance, one, groups, existing, existing, rows)


def _run(epsilon: float, variance: float, one: float, groups: int, first: int, last: int, rows: int) -> float:
    new = any_of(groups - first, one)  # 1 - P
    gamma = log1p(-new) if new else 0.0
    appears = new + (1 - new) * curve(epsilon - gamma, variance, last, rows) if first == last else None
    if appears is None:
        appears = new + curve(epsilon, variance, last, rows)
    return max(appears, curve(epsilon + gamma, variance, last, rows))


def curve(epsilon: float, variance: float, counts: int, rows: int) -> float:
    """delta_S(epsilon) of `counts` noisy counts that each move by `rows`, rounded up."""
    if counts == 0:
        return max(0.0, -np.expm1(epsilon)) if epsilon < 0 else 0.0
    middle, half = epsilon * variance / rows, counts * rows / 2
    above, below = floor(middle - half) + 1, floor(middle + half) + 1
    high = _sum_tails(variance, counts, above)[1]
    low = _sum_tails(variance, counts, below)[0]
    return min(1.0, max(0.0, high - exp(min(epsilon, 700.0)) * low * (1 - MARGIN)))


def _sum_tails(variance: float, counts: int, start: int) -> tuple[float, float]:
    """Bounds of P(T >= start) for the sum T of `counts` discrete Gaussians."""
    if counts == 1 or variance >= SPREAD_OUT:
        return gaussian_tails(counts * variance, start)
    width, upper = _convolved(variance, counts)
    place = start + width
    share = float(upper[min(max(place, 0), len(upper) - 1)])
    return share * (1 - 1e-7), share * (1 + 1e-7)


@lru_cache(maxsize=64)
def _convolved(variance: float, counts: int) -> tuple[int, FloatArray]:
    """P(T >= place - w) for place = 0 .. 2w + 1, and w. All terms are positive, so relative errors stay small."""
    reach = int(REACH * sqrt(variance)) + 2
    places = np.arange(-reach, reach + 1, dtype=np.float64)
    power = np.exp(-places * places / (2 * variance)) / normaliser(variance)
    law, left = np.ones(1), counts
    while left:
        if left & 1:
            law = _trimmed(np.convolve(law, power), variance * counts)
        left >>= 1
        if left:
            power = _trimmed(np.convolve(power, power), variance * counts)
    return len(law) // 2, np.append(np.cumsum(law[::-1])[::-1], 0.0)


def _trimmed(law: FloatArray, variance: float) -> FloatArray:
    """Without what lies beyond REACH standard deviations of the whole sum: nothing, in double precision."""
    width = min(len(law) // 2, ceil(REACH * sqrt(variance)) + 2)
    middle = len(law) // 2
    return law[middle - width : middle + width + 1]


def _smallest_sigma(epsilon: float, delta: float, groups: int, rows: int) -> float:
    """The sigma at which delta_C(epsilon) reaches delta. The curve has small steps, so the result is verified."""

    def excess(log_sigma: float) -> float:
        return float(np.log(max(curve(epsilon, exp(2 * log_sigma), groups, rows), 1e-300) / delta))

    scale = rows * sqrt(groups)
    low, high = np.log(scale / (10 * max(epsilon, 1.0))), np.log(10 * scale * max(1.0, 10 / epsilon))
    while excess(float(high)) > 0:
        high += 1
    while excess(float(low)) < 0:
        low -= 1
    return float(exp(brentq(excess, low, high, xtol=1e-9, rtol=1e-12)))
