"""Compares the average size of noise with its law, and with the same law at wrong scales."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.noise.law import NoiseKind

ERRORS = 7.0
"""Standard errors by which a mean of 2,000 magnitudes and more is off with a chance below 4e-11.

2.6e-12 for a normal mean, times exp(skewness t^3 / 6) < 14 for its skewness, at most 2 / sqrt(2000).
"""


def law(noise: NoiseKind | None, parameter: Fraction) -> NDArray[np.float64]:
    """Probabilities of the magnitudes 0, 1, .. of noise. None stands for one-sided geometric noise of this scale."""
    sizes = np.arange(60 * (1 + int(parameter)))
    gaussian = noise is NoiseKind.GAUSSIAN
    weights = np.exp(-(sizes * sizes) / (2 * float(parameter)) if gaussian else -sizes / float(parameter))
    if noise is not None:
        weights[1:] *= 2
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


def fits(drawn: Sequence[int] | NDArray[np.int64], noise: NoiseKind | None, parameter: Fraction) -> bool:
    """Tells whether the mean magnitude of draws agrees with their law, within ERRORS standard errors."""
    probabilities = law(noise, parameter)
    sizes = np.arange(len(probabilities))
    mean = float(sizes @ probabilities)
    deviation = sqrt(float((sizes - mean) ** 2 @ probabilities))
    return bool(abs(np.abs(drawn).mean() - mean) < ERRORS * deviation / sqrt(len(drawn)))


def has_scale(drawn: Sequence[int] | NDArray[np.int64], noise: NoiseKind | None, parameter: Fraction) -> bool:
    """Tells whether at least 2,000 draws fit this parameter, and fit neither 2/3 nor 3/2 of the scale.

    parameter: a scale, or a variance. A wrong scale is more than 10 standard errors beyond the accepted deviation.
    """
    if len(drawn) < 2_000:
        raise ValueError("too few draws to tell scales apart")
    power = 2 if noise is NoiseKind.GAUSSIAN else 1
    wrong = (parameter * Fraction(2, 3) ** power, parameter * Fraction(3, 2) ** power)
    return fits(drawn, noise, parameter) and not any(fits(drawn, noise, other) for other in wrong)
