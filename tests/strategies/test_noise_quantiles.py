"""Error bars rest on these figures: they must be right, and never too narrow."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import isclose, pi, sqrt

import pytest

from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.strategies.recovery.tails import (
    discrete_gaussian_quantile,
    discrete_gaussian_tail,
    discrete_laplace_quantile,
    discrete_laplace_tail,
)

CONFIDENCES = [0.01, 0.5, 0.6, 0.9, 0.95, 0.99, 0.999999, 1 - 1e-12]
LAPLACE_SCALES = [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(22, 7), Fraction(1000), Fraction(10**9)]


def exact_laplace_tail(scale: Fraction, bound: int) -> Decimal:
    with localcontext(prec=60):
        step = Decimal(scale.denominator) / Decimal(scale.numerator)
        return 2 * (-(bound + 1) * step).exp() / (1 + (-step).exp())


def exact_gaussian_tail(variance: Fraction, bound: int) -> Decimal:
    """By summation with 40 digits: for sigma up to a few hundred."""
    with localcontext(prec=40):
        twice = 2 * Decimal(variance.numerator) / Decimal(variance.denominator)
        reach = int(13 * float(variance) ** 0.5) + 20
        weights = [(-Decimal(k * k) / twice).exp() for k in range(reach)]
        total = 2 * sum(weights) - 1
        return 2 * sum(weights[bound + 1 :], Decimal(0)) / total


@pytest.mark.parametrize("scale", LAPLACE_SCALES)
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_laplace_quantile_covers_and_is_smallest(scale: Fraction, confidence: float) -> None:
    """Never below the exact quantile, nor above it by more than a billionth of the scale."""
    bound = discrete_laplace_quantile(scale, confidence)
    allowed = 1 - Decimal(confidence)
    assert exact_laplace_tail(scale, bound) <= allowed
    smaller = bound - 1 - int(scale / 10**9)
    assert smaller < 0 or exact_laplace_tail(scale, smaller) > allowed


@pytest.mark.parametrize("sigma", [Fraction(1, 1000), Fraction(1, 2), Fraction(1), Fraction(10, 3), Fraction(127)])
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_gaussian_quantile_covers_and_is_smallest(sigma: Fraction, confidence: float) -> None:
    """By summation: exactly the smallest integer that covers."""
    bound = discrete_gaussian_quantile(sigma * sigma, confidence)
    allowed = 1 - Decimal(confidence)
    assert exact_gaussian_tail(sigma * sigma, bound) <= allowed
    assert bound == 0 or exact_gaussian_tail(sigma * sigma, bound - 1) > allowed


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_gaussian_quantile_by_the_continuous_law(confidence: float) -> None:
    """Above the switch to the continuous law: covers, and is at most 1 too wide."""
    variance = Fraction(130 * 130)
    bound = discrete_gaussian_quantile(variance, confidence)
    allowed = 1 - Decimal(confidence)
    assert exact_gaussian_tail(variance, bound) <= allowed
    assert bound < 2 or exact_gaussian_tail(variance, bound - 2) > allowed


def test_large_gaussian_quantile() -> None:
    """sigma = 10^9: 1.959963984540054 sigma covers 95 %."""
    bound = discrete_gaussian_quantile(Fraction(10**18), 0.95)
    assert 1959963984 <= bound <= 1959963986


def test_tails_are_upper_bounds() -> None:
    for bound in (0, 1, 5, 40):
        assert Decimal(discrete_laplace_tail(Fraction(3), bound)) >= exact_laplace_tail(Fraction(3), bound)
        assert Decimal(discrete_gaussian_tail(Fraction(9), bound)) >= exact_gaussian_tail(Fraction(9), bound)
        assert isclose(
            discrete_laplace_tail(Fraction(3), bound), float(exact_laplace_tail(Fraction(3), bound)), rel_tol=1e-9
        )
    assert discrete_gaussian_tail(Fraction(9), 10**6) > 0


@pytest.mark.parametrize("scale", [Fraction(1, 20), Fraction(1, 2), Fraction(1), Fraction(7, 2)])
def test_laplace_variance_is_the_sum_of_squares(scale: Fraction) -> None:
    tails = [float(exact_laplace_tail(scale, bound)) for bound in range(300)]
    # E k^2 = sum over t of (2 t + 1) P(|k| > t)
    assert isclose(
        noise_variance(NoiseKind.LAPLACE, scale), sum((2 * t + 1) * tail for t, tail in enumerate(tails)), rel_tol=1e-12
    )


@pytest.mark.parametrize(
    "sigma", [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(199, 100), Fraction(201, 100)]
)
def test_gaussian_variance_is_the_sum_of_squares(sigma: Fraction) -> None:
    tails = [float(exact_gaussian_tail(sigma * sigma, bound)) for bound in range(45)]
    expected = sum((2 * t + 1) * tail for t, tail in enumerate(tails))
    assert isclose(noise_variance(NoiseKind.GAUSSIAN, sigma * sigma), expected, rel_tol=1e-12)


def test_extreme_parameters() -> None:
    """No overflow at either end. The discrete variance of a wide Laplace is 2 scale^2 - 1/6."""
    assert noise_variance(NoiseKind.LAPLACE, Fraction(1, 10**6)) < 1e-300
    assert isclose(noise_variance(NoiseKind.LAPLACE, Fraction(10**9)), 2e18, rel_tol=1e-12)
    assert isclose(noise_variance(NoiseKind.LAPLACE, Fraction(50)) - 2 * 50**2, -1 / 6, abs_tol=1e-4)
    assert noise_variance(NoiseKind.GAUSSIAN, Fraction(1, 10**6)) < 1e-300
    assert discrete_laplace_quantile(Fraction(1, 1000), 0.99) == 0
    # Poisson summation, first term
    assert isclose(
        1 - noise_variance(NoiseKind.GAUSSIAN, Fraction(1)), 8 * pi**2 * 2.718281828459045 ** (-2 * pi**2), rel_tol=1e-6
    )
    assert isclose(sqrt(noise_variance(NoiseKind.GAUSSIAN, Fraction(10**18))), 1e9)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_confidence_outside_its_range(confidence: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        discrete_laplace_quantile(Fraction(1), confidence)
    with pytest.raises(ValueError, match="above 0 and below 1"):
        discrete_gaussian_quantile(Fraction(1), confidence)
