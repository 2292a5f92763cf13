"""Noise of an answer: its distribution (law), its variance, and its price. Nothing is drawn here (draw.py)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from math import exp, isinf, sinh

from dpduck.kernel.noise.integers import LARGEST_SCALE, LARGEST_VARIANCE
from dpduck.values.accounting import rho_of_laplace
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.privacy import Charge

SMALL = 4.0
"""The sigma^2 below which the variance is summed. Beyond it, variance and sigma^2 differ by less than 1e-30 of sigma^2.
"""


class NoiseKind(Enum):
    """Kinds of noise: discrete Laplace under pure budgets, discrete Gaussian under zCDP."""

    LAPLACE = "discrete Laplace"
    GAUSSIAN = "discrete Gaussian"


@dataclass(frozen=True)
class Noise:
    """One law of noise, in the integer units of its query.

    parameter: for Laplace the scale b, P(k) proportional to exp(-|k|/b). For Gaussian sigma^2, P(k) proportional to
    exp(-k^2 / (2 sigma^2)). A parameter beyond the samplers' 64 bits is refused.
    """

    kind: NoiseKind
    parameter: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.parameter, Fraction) or self.parameter <= 0:
            raise InternalError("a measurement without noise")
        if self.parameter > (LARGEST_SCALE if self.kind is NoiseKind.LAPLACE else LARGEST_VARIANCE):
            raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon or rho")

    def cost(self, l1: int, l2_squared: int, most: int | None = None) -> Charge:
        """Returns the price of integers that one unit changes by these norms.

        It is an epsilon of l1 / b for Laplace, and a rho of l2^2 / (2 sigma^2) for Gaussian noise. The less a single
        integer changes at most (`most`), the less rho Laplace noise costs.

        >>> Noise(NoiseKind.LAPLACE, Fraction(8)).cost(4, 16).epsilon
        Fraction(1, 2)
        """
        if l1 < 0 or l2_squared < 0:
            raise InternalError("a norm below zero")
        if self.kind is NoiseKind.LAPLACE:
            return Charge(
                Fraction(l1) / self.parameter, rho_of_laplace(l1, l1 if most is None else most, self.parameter)
            )
        return Charge.zcdp(Fraction(l2_squared) / (2 * self.parameter))

    @property
    def variance(self) -> float:
        return noise_variance(self.kind, self.parameter)


def noise_variance(kind: NoiseKind, parameter: Fraction) -> float:
    """Returns the true variance of one draw, for predictions.

    Laplace of scale b: 2 a / (1 - a)^2 with a = exp(-1/b), which is 1 / (2 sinh(1/(2b))^2).
    Gaussian: sum k^2 exp(-k^2/(2 sigma^2)) / sum exp(..), never above sigma^2 (Canonne et al. 2020, Corollary 19).

    >>> round(noise_variance(NoiseKind.LAPLACE, Fraction(1)), 6)
    1.841347
    """
    return laplace_variance(float(parameter)) if kind is NoiseKind.LAPLACE else gaussian_variance(float(parameter))


def laplace_variance(scale: float) -> float:
    """Returns the variance of discrete Laplace noise from its scale b."""
    if isinf(scale):
        return scale
    return 0.5 / sinh(0.5 / scale) ** 2 if scale > 1 / 700 else 0.0


def gaussian_variance(sigma_squared: float) -> float:
    """Returns the variance of discrete Gaussian noise from its parameter sigma^2."""
    if sigma_squared >= SMALL:
        return sigma_squared
    terms = [exp(-k * k / (2 * sigma_squared)) for k in range(1, 32)]
    second_moment = sum(k * k * term for k, term in enumerate(terms, start=1))
    return min(sigma_squared, 2 * second_moment / (1 + 2 * sum(terms)))
