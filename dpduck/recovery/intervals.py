"""Standard errors and intervals of released cells, from public noise alone; errors fall on the wide side."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log, sqrt

from scipy.stats import norm

from dpduck.recovery.noise_quantiles import discrete_gaussian_quantile, discrete_laplace_quantile
from dpduck.trusted.noise import NoiseKind


@dataclass(frozen=True)
class ErrorLaw:
    """How the noise of the cells of one grouping set is distributed.

    spread: of the one integer measurement that a cell is, None where a cell combines several. variance: of a cell.
    step: the most that a cell changes when one integer of noise changes by one.
    """

    noise: NoiseKind
    spread: Fraction | None
    variance: float
    step: float = 1.0

    @property
    def stderr(self) -> float:
        """Standard error of a cell."""
        return sqrt(self.variance)


@dataclass(frozen=True)
class SumMargin:
    """The margin of a sum of noises with standard error s: the smaller of farthest * s and usual * s plus a jump.

    A sum of Laplace variables lies between one Laplace variable and a normal one of the same variance, but its values
    lie apart: half a jump is added, and a whole one where the noise is hardly larger. That covers every sum that the
    tests try, exactly; Chebyshev's inequality covers all, and is the smaller where noise is mostly 0.
    """

    farthest: float
    usual: float

    def of(self, stderr: float, step: float = 1.0) -> float:
        """step: the most that the sum can change when one integer of noise changes by one."""
        jump = step if stderr < JUMPY * step else step / 2
        return min(self.farthest * stderr, self.usual * stderr + jump)


JUMPY = 2.0
"""Below this many steps of standard error, a whole jump is added."""


def sum_margin(noise: NoiseKind, confidence: Fraction) -> SumMargin:
    """For cells that combine several noises of one kind."""
    outside = 1.0 - float(confidence)
    usual = float(norm.isf(outside / 2))
    if noise is NoiseKind.LAPLACE:
        usual = max(usual, log(1 / outside) / sqrt(2))
    return SumMargin(1 / sqrt(outside), usual)


def margin(law: ErrorLaw, confidence: Fraction) -> float:
    """Half the width of an interval that covers a cell's exact value with at least this probability."""
    if law.spread is not None:
        quantile = discrete_laplace_quantile if law.noise is NoiseKind.LAPLACE else discrete_gaussian_quantile
        return law.step * float(quantile(law.spread, float(confidence)))
    return sum_margin(law.noise, confidence).of(law.stderr, law.step)


def rounded_margin(law: ErrorLaw, confidence: Fraction) -> float:
    """The margin of an answer that was rounded to a whole number."""
    return float(ceil(margin(law, confidence) + 0.5))
