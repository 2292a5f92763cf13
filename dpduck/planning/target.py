"""The smallest price at which every released cell has a standard error of at most a target."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, log10
from typing import Protocol

from dpduck.trusted.noise import NoiseKind

FINE = Fraction(1, 10**6)
"""A price at which discrete noise is continuous to nine digits, so that the error scales as its power law says."""
REPLANS = 12
TOLERANCE = Fraction(1, 1000)


class Predicted(Protocol):
    """A plan of any kind."""

    @property
    def worst_stderr(self) -> float: ...


def price_for(target: float, noise: NoiseKind, plan_at: Callable[[Fraction], Predicted], searched: bool) -> Fraction:
    """Epsilon (Laplace) or rho (Gaussian), rounded up to six digits, within a thousandth of the smallest.

    plan_at: the chosen plan at a price. Errors fall as 1/epsilon and as rho^(-1/2); discrete noise has less variance
    than the continuous law (DESIGN 4.5), so that this price always reaches the target. Where planning is no search
    (searched is False), prices below it are tried as well.
    """
    fine = plan_at(FINE).worst_stderr
    ratio = Fraction(fine / target * (1 + 1e-9))
    enough = _rounded_up(FINE * (ratio if noise is NoiseKind.LAPLACE else ratio * ratio))
    if searched:
        return enough
    low, high = enough / 2, enough
    for _ in range(REPLANS):
        if high - low <= TOLERANCE * high:
            break
        middle = _rounded_up((low + high) / 2)
        if middle >= high:
            break
        low, high = (low, middle) if plan_at(middle).worst_stderr <= target else (middle, high)
    return high


def _rounded_up(amount: Fraction) -> Fraction:
    """Six significant digits, never below the amount."""
    digits = 6 - ceil(log10(float(amount)))
    scale = Fraction(10) ** digits
    return Fraction(ceil(amount * scale)) / scale


def raised(amount: Fraction, excess: float, noise: NoiseKind) -> Fraction:
    """A higher price for a plan whose error came out `excess` times the target: a search may end elsewhere."""
    ratio = Fraction(max(excess, 1.0) * (1 + 1e-4))
    return _rounded_up(amount * (ratio if noise is NoiseKind.LAPLACE else ratio * ratio))
