"""Standard errors and intervals of released cells, from public noise alone. Numerical errors widen them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, erfc, exp, log, sqrt

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.values.arrays import FloatArray, IntegerArray


@dataclass(frozen=True)
class ErrorLaw:
    """Distribution of the noise of the cells of one grouping set.

    parameter: of the one integer measurement behind a cell, None if a cell combines several. variance: of a cell. step:
    the most that a cell changes if one integer of noise changes by one.
    """

    noise: NoiseKind
    parameter: Fraction | None
    variance: float
    step: float = 1.0

    @property
    def stderr(self) -> float:
        """Returns the standard error of a cell."""
        return sqrt(self.variance)


def law_of(noise: Noise) -> ErrorLaw:
    """Returns the law of a cell that is one integer measurement."""
    return ErrorLaw(noise.kind, noise.parameter, noise.variance)


@dataclass(frozen=True)
class SumMargin:
    """Margin of a sum of noises with standard error s: the smaller of farthest * s and usual * s plus a jump.

    A sum of Laplace variables lies between one Laplace variable and a normal one of the same variance, but its values
    lie apart. So half a jump is added, and a whole jump if the noise is hardly larger. That covers, exactly, every sum
    in the tests. Chebyshev's inequality covers all sums, and is the smaller if noise is mostly 0.
    """

    farthest: float
    usual: float

    def of(self, stderr: float, step: float = 1.0) -> float:
        """Computes the margin. step: the most that the sum can change if one integer of noise changes by one."""
        jump = step if stderr < JUMPY * step else step / 2
        return min(self.farthest * stderr, self.usual * stderr + jump)


JUMPY = 2.0
"""If the standard error has fewer steps than this, a whole jump is added."""


def sum_margin(noise: NoiseKind, confidence: Fraction) -> SumMargin:
    """Returns the margin of cells that combine several noises of one kind."""
    outside = 1.0 - float(confidence)
    usual = float(-scipy.special.ndtri(outside / 2))
    if noise is NoiseKind.LAPLACE:
        usual = max(usual, log(1 / outside) / sqrt(2))
    return SumMargin(1 / sqrt(outside), usual)


def margin(law: ErrorLaw, confidence: Fraction) -> float:
    """Returns half the width of an interval that covers a cell's exact value with at least this probability."""
    if law.parameter is not None:
        quantile = discrete_laplace_quantile if law.noise is NoiseKind.LAPLACE else discrete_gaussian_quantile
        return law.step * float(quantile(law.parameter, float(confidence)))
    return sum_margin(law.noise, confidence).of(law.stderr, law.step)


def margin_after_rounding(law: ErrorLaw, confidence: Fraction) -> float:
    """Returns the margin of an answer that is rounded to a whole number."""
    return float(ceil(margin(law, confidence) + 0.5))


def lows_after_selection(
    noise: Noise, threshold: int, least: int, answers: IntegerArray, levels: Sequence[Fraction]
) -> FloatArray:
    """Returns lower ends for counts that are visible because their noisy values pass a threshold.

    The shape is (levels, answers). The lower end for an answer x is the smallest integer u from `least` on that
    satisfies `P(noise >= x - u) > half P(noise > threshold - u)`. Here half is half of the error that the confidence
    leaves. Noise that lifts u above the threshold then makes it as large as x with more than that chance. The chance
    grows with u, as both laws are log-concave. Upper ends stay: visible counts are less often too small. NaN stands
    for answers so far above the threshold that the usual lower end serves, to four digits of the error.
    """
    values, places = np.unique(answers, return_inverse=True)
    law = law_of(noise)
    near = values[values <= threshold + 2 * margin(law, max(levels)) + 1]
    half = np.array([[(1 - float(level)) / 2] for level in levels])
    deepest = max(least, threshold - ceil(DEEPEST * law.stderr))
    high = np.maximum(near, deepest) + np.zeros((len(levels), 1), np.int64)
    low = np.full_like(high, deepest)
    while np.any(low < high):
        units = (low + high) // 2
        enough = survivals(noise, near - units) > half * survivals(noise, threshold + 1 - units)
        low, high = np.where(enough, low, units + 1), np.where(enough, units, high)
    lows = np.full((len(levels), len(values)), np.nan)
    lows[:, : len(near)] = np.where(high == deepest, least, high)
    shown: FloatArray = lows[:, places]
    return shown


DEEPEST = 25.0
"""Depth below a threshold, in standard errors. A group that is visible from there gets `least` as its lower end."""


def survivals(noise: Noise, starts: IntegerArray) -> FloatArray:
    """Computes P(noise >= start) for many starts, to five digits."""
    above = np.where(starts > 0, starts, 1 - starts)
    if noise.kind is NoiseKind.LAPLACE:
        tails = np.exp(-above * _rate(noise.parameter)) / (1 + exp(-_rate(noise.parameter)))
    elif noise.parameter < SUMMED_VARIANCE:
        table = _tail_bounds(noise.parameter) / 2
        tails = table[np.minimum(above - 1, len(table) - 1)]
    else:
        tails = scipy.special.ndtr((0.5 - above) / sqrt(noise.parameter))
    chances: FloatArray = np.where(starts > 0, tails, 1 - tails)
    return chances


# Moments and quantiles of the noise, for error bars: public facts about the law, computed from its parameter alone.
#
# Numerical errors fall on the safe side: a tail is never reported too small, so an interval is never too narrow.

SAFETY = 1 + 2.0**-36  # above every relative error below: 745 u in exp, 4100 u in erfc, 5200 u in the sums, u = 2**-53
SMALLEST = 1e-300  # added to a tail: above anything that underflows or is left out
SUMMED_VARIANCE = 1 << 14  # below: tails by direct summation; above: by the continuous law, which is then hardly wider


def discrete_laplace_tail(scale: Fraction, bound: int) -> float:
    """Returns an upper bound on P(|noise| > bound) = 2 alpha^(bound + 1) / (1 + alpha), within 1 + 2^-35."""
    return SAFETY * 2 * exp(-_rate(scale / (bound + 1))) / (1 + exp(-_rate(scale))) + SMALLEST


def discrete_gaussian_tail(variance: Fraction, bound: int) -> float:
    """Returns an upper bound on P(|noise| > bound).

    Let the variance be large. g(x) = exp(-x^2/(2 sigma^2)) is convex beyond sigma, so g(k) is at most its integral over
    k - 1/2 .. k + 1/2 (Hermite and Hadamard). It decreases everywhere, so g(k) is at most its integral over k - 1 .. k.
    The norm is at least sigma sqrt(2 pi) (Poisson summation has positive terms only).
    """
    if variance < SUMMED_VARIANCE:
        tails = _tail_bounds(variance)
        return float(tails[min(bound, len(tails) - 1)])
    sigma = sqrt(variance)
    start = bound + 0.5 if bound + 0.5 >= sigma * SAFETY else float(bound)
    return SAFETY * erfc(start / (sigma * sqrt(2.0))) + SMALLEST


def discrete_laplace_quantile(scale: Fraction, confidence: float) -> int:
    """Returns the smallest integer t with P(|noise| <= t) >= confidence, or slightly above: by at most 1e-9 in t/scale.

    >>> discrete_laplace_quantile(Fraction(1), 0.95)
    3
    """
    return _smallest(lambda bound: discrete_laplace_tail(scale, bound), confidence)


def discrete_gaussian_quantile(variance: Fraction, confidence: float) -> int:
    """Returns the smallest integer t with P(|noise| <= t) >= confidence, or above: by at most 1 and 1e-9 sigma.

    >>> discrete_gaussian_quantile(Fraction(100), 0.95)
    20
    """
    if variance < SUMMED_VARIANCE:
        tails = _tail_bounds(variance)
        return int(np.argmax(tails <= _error_probability(confidence)))
    return _smallest(lambda bound: discrete_gaussian_tail(variance, bound), confidence)


def _positive(variance: Fraction) -> float:
    if variance <= 0:
        raise ValueError("the parameter of noise must be above 0")
    return max(float(variance), SMALLEST)


def _rate(scale: Fraction) -> float:
    """Returns 1 / scale, at most 700: exp(-700) is far below everything that matters."""
    if scale <= 0:
        raise ValueError("the parameter of noise must be above 0")
    return float(min(1 / scale, Fraction(700)))


def _tail_bounds(variance: Fraction) -> NDArray[np.float64]:
    """Returns upper bounds on P(|noise| > t) for t = 0 .. 40 sigma. The tail beyond is below 1e-300."""
    sigma_squared = _positive(variance)
    magnitudes = np.arange(0.0, 40 * sqrt(sigma_squared) + 3)
    weights = np.exp(-(magnitudes**2) / (2 * sigma_squared))
    beyond = np.concatenate((np.cumsum(weights[:0:-1])[::-1], [0.0]))
    tails: NDArray[np.float64] = SAFETY * 2 * beyond / (1 + 2 * beyond[0]) + SMALLEST
    return tails


def _error_probability(confidence: float) -> float:
    """Returns 1 - confidence, exact in floats from 1/2 on, rounded down below 1/2."""
    if not 0 < confidence < 1:
        raise ValueError("a confidence must be above 0 and below 1")
    return float(np.nextafter(1 - confidence, 0.0)) if confidence < 0.5 else 1 - confidence


def _smallest(tail: Callable[[int], float], confidence: float) -> int:
    """Returns the smallest t >= 0 with tail(t) <= 1 - confidence, by doubling and bisection."""
    allowed = _error_probability(confidence)
    if tail(0) <= allowed:
        return 0
    low, high = 0, 1
    while tail(high) > allowed:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle) <= allowed else (middle, high)
    return high
