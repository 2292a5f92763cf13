"""Optimal noise for the groups of a strategy: closed forms, and exact rationals that never cost more than the price.

A measurement has one or more groups of rows (Cormode et al., Definition 3.1) with the same noise. Its `weight` s is the
sum of its rows' recovery weights. Its `norm` is the largest column norm: C under L1, C^2 under L2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import isqrt

import numpy as np

from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.strategies.measurements import Parameters
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge

WASTE = 9e-10
"""Largest relative amount by which a rounded parameter exceeds its optimum."""

MARGIN = 1 + 2.0**-36
"""Factor on parameters before rounding: far above the closed forms' rounding errors, far below WASTE."""

SIMPLE = 2000
"""Most different parameters that get least denominators. If there are more, they get 31 bits and powers of two."""

LEAST_WEIGHT = 1e-9
"""A measurement without weight gets this part of the largest weight, so that its noise stays finite."""

GUARD_BITS = 128


def optimal_parameters(noise: NoiseKind, weights: FloatArray, norms: FloatArray, amount: float) -> FloatArray:
    """Returns the noise parameters with the least sum of weight times noise variance, if a unit has one row.

    weights: s_r. norms: C_r (Laplace) or C_r^2 (Gaussian). Laplace: b_r is proportional to (C_r / s_r)^(1/3), and sum
    C_r / b_r = epsilon. Gaussian: sigma_r^2 is proportional to (C_r^2 / s_r)^(1/2), and sum C_r^2 / sigma_r^2 = 2 rho.
    """
    raised = np.maximum(weights, LEAST_WEIGHT * weights.max(initial=0.0))
    if not raised.any():
        raised = np.ones_like(weights)
    shape = (norms / raised) ** (1 / 3 if noise is NoiseKind.LAPLACE else 1 / 2)
    total = float((norms / shape).sum())
    scale = total / (amount if noise is NoiseKind.LAPLACE else 2 * amount)
    scaled: FloatArray = shape * scale
    return scaled


def uniform_parameter(
    noise: NoiseKind, norm: int, amount: Fraction, unit_bound: int, squared_bound: int | None = None
) -> Fraction:
    """Returns the exact parameter that measurements share. Their column norms (L1, or squared L2) add up to `norm`.

    unit_bound: rows of a privacy unit. squared_bound: its squared L2 sensitivity if each answer is about one cell.

    >>> uniform_parameter(NoiseKind.LAPLACE, 2, Fraction(1, 2), 3)
    Fraction(12, 1)
    >>> uniform_parameter(NoiseKind.GAUSSIAN, 1, Fraction(1, 2), 16, 16)
    Fraction(16, 1)
    """
    if noise is NoiseKind.LAPLACE:
        return unit_bound * norm / Fraction(amount)
    squared = unit_bound * unit_bound if squared_bound is None else squared_bound
    return squared * norm / (2 * Fraction(amount))


def noise_for(noise: NoiseKind, amount: Fraction, l1: int, l2_squared: int | None = None) -> Noise:
    """Returns the noise that a price buys for integers. l1, l2_squared: norms of a unit's change (None: l1 squared)."""
    return Noise(noise, uniform_parameter(noise, 1, amount, l1, l2_squared))


def kind_and_amount(charge: Charge) -> tuple[NoiseKind, Fraction]:
    """Returns Laplace noise and epsilon for a price in epsilon, else Gaussian noise and rho."""
    if charge.epsilon is None:
        return NoiseKind.GAUSSIAN, charge.rho
    return NoiseKind.LAPLACE, charge.epsilon


def uniform_parameters(noise: NoiseKind, norms: Sequence[int], amount: Fraction, unit_bound: int) -> Parameters:
    """Returns equal exact parameters for all measurements, which together cost `amount`."""
    parameter = uniform_parameter(noise, sum(norms), amount, unit_bound)
    return Parameters((parameter,), np.zeros(len(norms), dtype=np.intp))


def safe_parameters(
    noise: NoiseKind, wanted: FloatArray, norms: Sequence[int], amount: Fraction, unit_bound: int
) -> Parameters:
    """Returns exact parameters that cost at most `amount`: `wanted`, scaled to a unit's rows and rounded up."""
    if np.ptp(wanted) <= 1e-12 * wanted.max():  # nothing to gain: keep the simple rational
        return uniform_parameters(noise, norms, amount, unit_bound)
    factor = unit_bound if noise is NoiseKind.LAPLACE else unit_bound * unit_bound
    values, which = np.unique(wanted * (factor * MARGIN), return_inverse=True)
    if len(values) <= SIMPLE:
        distinct = tuple(simplest_between(Fraction(v), Fraction(v * (1 + WASTE))) for v in values.tolist())
    else:
        distinct = _dyadic(values)
    parameters = Parameters(distinct, which.reshape(-1).astype(np.intp))
    if not fits(noise, parameters, norms, amount, unit_bound):
        raise InternalError("rounded noise scales cost more than the budget; nothing was released")
    return parameters


def fits(noise: NoiseKind, parameters: Parameters, norms: Sequence[int], amount: Fraction, unit_bound: int) -> bool:
    """Tells whether all noise costs at most `amount`, in integers: every term is rounded up to a multiple of 2^-128."""
    factor = unit_bound if noise is NoiseKind.LAPLACE else unit_bound * unit_bound
    allowed = amount if noise is NoiseKind.LAPLACE else 2 * amount
    if len(parameters.distinct) == 1:
        return factor * sum(norms) <= allowed * parameters.distinct[0]
    unit = (allowed.denominator * factor) << GUARD_BITS
    total = 0
    for (norm, which), count in Counter(zip(norms, parameters.which.tolist(), strict=True)).items():
        parameter = parameters.distinct[which]
        total -= -(count * norm * parameter.denominator * unit) // (parameter.numerator * allowed.numerator)
    return total <= 1 << GUARD_BITS


def simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """Returns the fraction of smallest denominator from low to high, for 0 < low <= high (Stern and Brocot).

    >>> simplest_between(Fraction(314, 100), Fraction(315, 100))
    Fraction(22, 7)
    """
    whole = -(-low.numerator // low.denominator)
    if whole <= high:
        return Fraction(whole)
    whole -= 1
    return whole + 1 / simplest_between(1 / (high - whole), 1 / (low - whole))


def root_below(value: Fraction) -> Fraction:
    """Returns a rational number at or just below the square root of a value, so that a price rounds down.

    >>> root_below(Fraction(1, 4))
    Fraction(1, 2)
    """
    bits = 64 + max(0, value.denominator.bit_length() - value.numerator.bit_length())
    return Fraction(isqrt((value.numerator << 2 * bits) // value.denominator), 1 << bits)


def _dyadic(values: FloatArray) -> tuple[Fraction, ...]:
    mantissas, exponents = np.frexp(values)
    numerators = np.ceil(np.ldexp(mantissas, 31)).astype(np.int64).tolist()
    return tuple(
        Fraction(numerator << (exponent - 31)) if exponent >= 31 else Fraction(numerator, 1 << (31 - exponent))
        for numerator, exponent in zip(numerators, exponents.tolist(), strict=True)
    )
