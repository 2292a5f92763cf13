"""Smallest price at which the error of every answer is at most a target, and weights that make all errors equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import ceil, log10
from typing import Protocol

from dpduck.kernel.noise.law import NoiseKind
from dpduck.values.arrays import FloatArray

FINE = Fraction(1, 10**6)
"""A price at which discrete noise equals continuous noise to nine digits, so that the error follows its power law."""
REPLANS = 12
TOLERANCE = Fraction(1, 1000)

WEIGHTINGS = 5
"""Number of weightings that are tried. The last ones change a price by less than one percent."""


class Predicted(Protocol):
    """Plan of any kind, with its predicted error."""

    @property
    def worst_stderr(self) -> float: ...


def price_for(target: float, noise: NoiseKind, plan_at: Callable[[Fraction], Predicted], searched: bool) -> Fraction:
    """Returns a price at which no standard error exceeds `target`: epsilon (Laplace) or rho (Gaussian), to six digits.

    plan_at: returns the plan at a price. Errors of continuous noise fall as 1/epsilon or rho^(-1/2), and discrete noise
    has less variance, so a price from the law of continuous noise suffices. If plans come from no search (searched is
    False), lower prices are tried too. The result is then within a thousandth of the least price.
    """
    fine = plan_at(FINE).worst_stderr
    ratio = Fraction(fine / target * (1 + 1e-9))
    enough = round_up(FINE * (ratio if noise is NoiseKind.LAPLACE else ratio * ratio))
    if searched:
        return enough
    low, high = enough / 2, enough
    for _ in range(REPLANS):
        if high - low <= TOLERANCE * high:
            break
        middle = round_up((low + high) / 2)
        if middle >= high:
            break
        low, high = (low, middle) if plan_at(middle).worst_stderr <= target else (middle, high)
    return high


def round_up(amount: Fraction) -> Fraction:
    """Rounds an amount up to six significant digits."""
    digits = 6 - ceil(log10(float(amount)))
    scale = Fraction(10) ** digits
    return Fraction(ceil(amount * scale)) / scale


def raise_price(amount: Fraction, excess: float, noise: NoiseKind) -> Fraction:
    """Returns a higher price if the plan, perhaps of a repeated search, had `excess` times the target error."""
    ratio = Fraction(max(excess, 1.0) * (1 + 1e-4))
    return round_up(amount * (ratio if noise is NoiseKind.LAPLACE else ratio * ratio))


def even_weights(
    weights: FloatArray, variances: Callable[[], FloatArray], power: int = 1, cells: FloatArray | None = None
) -> Iterator[FloatArray]:
    """Yields weights of answers. In each round, answers with larger errors get more weight.

    Planners minimise a weighted sum of variances. With certain weights this also gives the least worst variance, and
    all answers with a weight have equal errors. variances: returns the answers' variances at the last weights. cells:
    the number of each answer's cells. With `cells`, weights are scaled so that weight times cells has a mean of 1.
    """
    for _ in range(WEIGHTINGS):
        if cells is not None:
            weights = weights / ((weights * cells).sum() / len(cells))
        yield weights
        errors = variances()
        weights = weights * (errors / errors.max()) ** power
