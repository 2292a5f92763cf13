"""Tails of the discrete noises, never below the truth: what the delta of thresholded keys is made of.

Sums of positive terms in double precision have a relative error far below MARGIN, which is added on the safe side.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp, expm1, log1p, pi, sqrt

import numpy as np
from scipy.special import log_ndtr

from dpduck.trusted.noise.law import Noise, NoiseKind

MARGIN = 1e-9
"""Relative; a thousand times the error of the computations below."""

SUMMED = 3000.0
"""Up to this sigma the tail of a discrete Gaussian is summed; above, it differs from an integral by less than 1e-6."""

SMALLEST = 1e-300
"""Added to an upper bound: above anything that underflows."""

REACH_SQUARED = 80.0
"""Terms are summed until they are exp(-REACH_SQUARED / 2) of the first: the rest is nothing in double precision."""

SMALLEST_SHARE = 1e-100
"""The least probability that a threshold is looked for with."""


def tail(noise: Noise, start: int) -> float:
    """An upper bound of P(X >= start), start from 1, with a relative error of at most 1e-5.

    Laplace of scale b, a = exp(-1/b): a^start / (1 + a). Gaussian: see gaussian_tails.
    """
    if noise.kind is NoiseKind.LAPLACE:
        scale = float(noise.parameter)
        return exp(-start / scale - log1p(exp(-1 / scale))) * (1 + MARGIN) + SMALLEST
    return gaussian_tails(float(noise.parameter), start)[1]


def gaussian_tails(variance: float, start: int) -> tuple[float, float]:
    """A lower and an upper bound of P(X >= start) for P(x) proportional to exp(-x^2 / (2 variance)).

    Large sigma: the sum of f(n) = exp(-n^2 / (2 variance)) from n = start on against the integral from start - 1/2 on.
    Each term differs from the integral over its cell by |f''|/24 <= f (z^2 + 1) / (24 variance) with z = n / sigma, and
    terms beyond 12 sigma weigh nothing; the normaliser is sqrt(2 pi variance) to within exp(-2 pi^2 variance).
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
    share = exp(log_ndtr(-place))
    loose = MARGIN + (max(place, 12.0) ** 2 + 1) / (12 * variance)
    return share * (1 - loose), share * (1 + loose) + SMALLEST


def normaliser(variance: float) -> float:
    """The sum of exp(-n^2 / (2 variance)) over all integers; sqrt(2 pi variance) from Poisson's formula."""
    if variance >= 4:
        return sqrt(2 * pi * variance) * (1 + 2 * exp(-2 * pi * pi * variance))
    terms = np.arange(1, 82, dtype=np.float64)
    return 1 + 2 * float(np.exp(-terms * terms / (2 * variance)).sum())


def each_of(groups: int, any_one: Fraction) -> float:
    """The inverse, rounded down: what each group may have so that all together have any_one."""
    return -expm1(log1p(-float(any_one)) / groups) * (1 - 2 * MARGIN)


def smallest_excess(noise: Noise, each: float) -> int:
    """tau: the smallest whole number from 0 with P(noise > tau) <= each."""
    if not SMALLEST_SHARE <= each < 0.5:
        raise ValueError("the probability that a group is published must lie between 1e-100 and 1/2")
    low, high = -1, 1
    while tail(noise, high + 1) > each:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(noise, middle + 1) <= each else (middle, high)
    return high
