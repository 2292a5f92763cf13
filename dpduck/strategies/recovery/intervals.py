"""Standard errors and intervals of released cells, from public noise alone. Numerical errors widen them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log, sqrt

import numpy as np
import scipy

from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.strategies.recovery.tails import discrete_gaussian_quantile, discrete_laplace_quantile, survivals
from dpduck.values.arrays import FloatArray, IntegerArray


@dataclass(frozen=True)
class ErrorLaw:
    """Distribution of the noise in each cell of one grouping set.

    parameter: of the noise if a cell comes from one integer measurement, None if the cell combines several. step: the
    most that a cell changes if one integer of noise changes by one.
    """

    noise: NoiseKind
    parameter: Fraction | None
    variance: float
    step: float = 1.0

    @property
    def stderr(self) -> float:
        return sqrt(self.variance)


def law_of(noise: Noise) -> ErrorLaw:
    """Returns the error law of a cell that is one integer with this noise."""
    return ErrorLaw(noise.kind, noise.parameter, noise.variance)


@dataclass(frozen=True)
class SumMargin:
    """Margin (half the width of an interval) of a sum of noises with standard error s.

    The margin is farthest * s (Chebyshev's inequality, for all sums), or usual * s plus a jump if that is less. A sum
    of Laplace variables has a law between a Laplace and a normal law of its variance, but discrete values. So half a
    jump is added, or a whole jump if s is hardly larger. This covers, exactly, every sum in the tests.
    """

    farthest: float
    usual: float

    def of(self, stderr: float, step: float = 1.0) -> float:
        """Computes the margin. step: the most that the sum changes if one integer of noise changes by one (a jump)."""
        jump = step if stderr < JUMPY * step else step / 2
        return min(self.farthest * stderr, self.usual * stderr + jump)


JUMPY = 2.0
"""If the standard error is below this number of steps, a whole step is added to a margin, else half a step."""


def sum_margin(noise: NoiseKind, confidence: Fraction) -> SumMargin:
    """Returns the margin of cells that combine several noises of one kind."""
    outside = 1.0 - float(confidence)
    usual = float(-scipy.special.ndtri(outside / 2))
    if noise is NoiseKind.LAPLACE:
        usual = max(usual, log(1 / outside) / sqrt(2))
    return SumMargin(1 / sqrt(outside), usual)


def margin(law: ErrorLaw, confidence: Fraction) -> float:
    """Returns half the width of an interval that covers a cell's exact value with at least this confidence."""
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
    """Returns lower ends of intervals for counts that are shown because their noisy values exceed a threshold.

    The shape is (levels, answers). levels: confidences. The end for an answer x is the least integer u >= `least` with
    `P(noise >= x - u) > (1 - level) / 2 P(noise > threshold - u)`. So a count u that is shown has an answer of at least
    x with a chance above (1 - level) / 2. The chance grows with u, as both laws are log-concave. Upper ends need no
    change, since shown counts are less often too small. NaN stands for an answer so far above the threshold that the
    usual lower end serves, to four digits of the error.
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
    return lows[:, places]


DEEPEST = 25.0
"""The search for a lower end stops this many standard errors below the threshold. There the end is `least`."""
