"""Tails and quantiles of the noise, for error bars: public facts about the law, computed from its parameter alone.

Numerical errors are on the safe side: a tail is never too small, so an interval is never too narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import erfc, exp, sqrt

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.values.arrays import FloatArray, IntegerArray

SAFETY = 1 + 2.0**-36  # above all relative errors here: 745 u in exp, 4100 u in erfc, 5200 u in the sums, u = 2**-53
SMALLEST = 1e-300  # added to a tail, more than any part that underflows or is left out
SUMMED_VARIANCE = 1 << 14  # tails are summed below this variance. Above, the continuous law is hardly wider.


def discrete_laplace_tail(scale: Fraction, bound: int) -> float:
    """Returns an upper bound on P(|noise| > bound) = 2 alpha^(bound + 1) / (1 + alpha), within 1 + 2^-35."""
    return SAFETY * 2 * exp(-_rate(scale / (bound + 1))) / (1 + exp(-_rate(scale))) + SMALLEST


def discrete_gaussian_tail(variance: Fraction, bound: int) -> float:
    """Returns an upper bound on P(|noise| > bound). A small variance has exact sums.

    For a large variance let g(x) = exp(-x^2/(2 sigma^2)), which is convex beyond sigma. There g(k) is at most the
    integral of g over k - 1/2 .. k + 1/2 (Hermite and Hadamard). As g decreases, g(k) is at most the integral over
    k - 1 .. k. The sum of all g(k) is at least sigma sqrt(2 pi), as Poisson summation has positive terms only.
    """
    if variance < SUMMED_VARIANCE:
        tails = _tail_bounds(variance)
        return float(tails[min(bound, len(tails) - 1)])
    sigma = sqrt(variance)
    start = bound + 0.5 if bound + 0.5 >= sigma * SAFETY else float(bound)
    return SAFETY * erfc(start / (sigma * sqrt(2.0))) + SMALLEST


def discrete_laplace_quantile(scale: Fraction, confidence: float) -> int:
    """Returns the least integer t with P(|noise| <= t) >= confidence, or one that is larger by at most 1e-9 scale.

    >>> discrete_laplace_quantile(Fraction(1), 0.95)
    3
    """
    return _smallest(lambda bound: discrete_laplace_tail(scale, bound), confidence)


def discrete_gaussian_quantile(variance: Fraction, confidence: float) -> int:
    """Returns the least integer t with P(|noise| <= t) >= confidence, or one larger by at most 1 and 1e-9 sigma.

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
    """Returns the smaller of 1 / scale and 700. exp(-700) is far below all probabilities that matter."""
    if scale <= 0:
        raise ValueError("the parameter of noise must be above 0")
    return float(min(1 / scale, Fraction(700)))


def _tail_bounds(variance: Fraction) -> NDArray[np.float64]:
    """Returns upper bounds on P(|noise| > t) for t = 0 .. 40 sigma. Beyond, the probability is below 1e-300."""
    sigma_squared = _positive(variance)
    magnitudes = np.arange(0.0, 40 * sqrt(sigma_squared) + 3)
    weights = np.exp(-(magnitudes**2) / (2 * sigma_squared))
    beyond = np.concatenate((np.cumsum(weights[:0:-1])[::-1], [0.0]))
    tails: NDArray[np.float64] = SAFETY * 2 * beyond / (1 + 2 * beyond[0]) + SMALLEST
    return tails


def _error_probability(confidence: float) -> float:
    """Returns 1 - confidence, rounded down where it is not exact."""
    if not 0 < confidence < 1:
        raise ValueError("a confidence must be above 0 and below 1")
    return float(np.nextafter(1 - confidence, 0.0)) if confidence < 0.5 else 1 - confidence


def _smallest(tail: Callable[[int], float], confidence: float) -> int:
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


def survivals(noise: Noise, starts: IntegerArray) -> FloatArray:
    """Computes P(noise >= start) for each start, to five digits."""
    above = np.where(starts > 0, starts, 1 - starts)
    if noise.kind is NoiseKind.LAPLACE:
        tails = np.exp(-above * _rate(noise.parameter)) / (1 + exp(-_rate(noise.parameter)))
    elif noise.parameter < SUMMED_VARIANCE:
        table = _tail_bounds(noise.parameter) / 2
        tails = table[np.minimum(above - 1, len(table) - 1)]
    else:
        tails = scipy.special.ndtr((0.5 - above) / sqrt(noise.parameter))
    return np.where(starts > 0, tails, 1 - tails)
