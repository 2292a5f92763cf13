"""The true variance of the discrete noises, for predictions."""

from __future__ import annotations

from fractions import Fraction
from math import exp, isinf, sinh

from dpduck.planning.plan import NoiseKind

SMALL = 4.0
"""Below this sigma^2 the discrete Gaussian is summed; above, it differs from sigma^2 by less than 1e-30 of it."""


def noise_variance(noise: NoiseKind, spread: Fraction) -> float:
    """Variance of one draw in the integer units of its query.

    Laplace of scale b: 2 a / (1 - a)^2 with a = exp(-1/b) (DESIGN 4.5), which is 1 / (2 sinh(1/(2b))^2).
    Gaussian: sum k^2 exp(-k^2/(2 sigma^2)) / sum exp(..), never above sigma^2 (Canonne et al. 2020, Corollary 19).

    >>> round(noise_variance(NoiseKind.LAPLACE, Fraction(1)), 6)
    1.841347
    """
    return laplace_variance(float(spread)) if noise is NoiseKind.LAPLACE else gaussian_variance(float(spread))


def laplace_variance(scale: float) -> float:
    """The discrete Laplace's variance from its scale b."""
    if isinf(scale):
        return scale
    return 0.5 / sinh(0.5 / scale) ** 2 if scale > 1 / 700 else 0.0


def gaussian_variance(sigma_squared: float) -> float:
    """The discrete Gaussian's variance from its parameter sigma^2."""
    if sigma_squared >= SMALL:
        return sigma_squared
    terms = [exp(-k * k / (2 * sigma_squared)) for k in range(1, 32)]
    second_moment = sum(k * k * term for k, term in enumerate(terms, start=1))
    return min(sigma_squared, 2 * second_moment / (1 + 2 * sum(terms)))
