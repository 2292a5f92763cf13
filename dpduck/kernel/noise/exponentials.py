"""Proven bounds in Python integers on exp(-x) and on its sums: the only place where probabilities are computed.

An interval (low, high) at `precision` bits means low <= 2**precision * truth <= high. Lower ends are rounded down,
upper ends up. So every statement that follows from an interval is a theorem and never an approximation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Interval = tuple[int, int]


def exp_minus(exponent: Fraction, precision: int) -> Interval:
    """Bounds exp(-exponent) for a rational exponent >= 0.

    With y = exponent / 2**halvings <= 1/2, exp(-y) comes from its alternating series. Then it is squared `halvings`
    times. Proof of high - low <= 2: the series leaves at most 4 working + 10 units, since each term is at most half the
    one before. A squaring at most doubles the interval and adds 2. At the end 2 halvings + 32 extra bits are dropped.
    """
    if exponent == 0:
        return 1 << precision, 1 << precision
    if exponent >= precision:
        return 0, 1  # exp(-x) < 2**-x
    halvings = max(0, (exponent.numerator // exponent.denominator).bit_length() + 1)
    working = precision + 2 * halvings + 32
    low, high = _exp_minus_small((exponent.numerator << working) // (exponent.denominator << halvings), working)
    for _ in range(halvings):
        low, high = low * low >> working, (high * high >> working) + 1
    drop = working - precision
    return low >> drop, min((high >> drop) + 1, 1 << precision)


def _exp_minus_small(argument: int, working: int) -> Interval:
    """Bounds exp(-y) for y in [argument, argument + 1] / 2**working, y <= 1/2, at `working` bits.

    A term is the previous term times y/n, rounded down: its error e_n <= e_{n-1}/2 + 1 <= 2 units. So the sum of N
    terms is off by at most 2 N. The alternating remainder is less than the first omitted term (computed as 0, hence at
    most 2). The argument's own rounding adds at most 1 (the slope of exp(-y) is at most 1).
    """
    term = total = 1 << working
    count = 0
    while term:
        count += 1
        term = term * argument // (count << working)
        total += -term if count % 2 else term
    error = 2 * count + 3
    return max(total - error, 0), min(total + error, 1 << working)


@dataclass(frozen=True)
class DiscreteLaw:
    """The law on the integers with P(k) proportional to exp(-x(|k|)), x(a) = linear a + quadratic a^2.

    linear = 1/scale for discrete Laplace, quadratic = 1/(2 sigma^2) for discrete Gaussian. Both are exact rationals.
    """

    linear: Fraction
    quadratic: Fraction

    def exponent(self, magnitude: int) -> Fraction:
        return magnitude * (self.linear + self.quadratic * magnitude)

    def rise(self, near: NDArray[np.float64], far: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns x(far) - x(near) in floats, for integers below 2**52: relative error below 6 * 2**-53."""
        # nothing cancels: difference and sum of the integers are exact, and the two terms are not negative
        slope: NDArray[np.float64] = float(self.linear) + float(self.quadratic) * (far + near)
        return (far - near) * slope

    def weights(self, start: int, step: int, precision: int) -> Iterator[int]:
        """Yields lower bounds on w(q) = exp(-x(start + q step)), q = 0, 1, .., each short by at most 4 (q + 1)^2 units.

        x is quadratic in q, so the ratio w(q + 1)/w(q) changes by the constant factor exp(-2 quadratic step^2). Each
        weight takes one or two multiplications instead of an exponential. All numbers are at most 1. So a product of
        lower bounds that are short by e and f is short by at most e + f + 1. Starting from 2 (`exp_minus`), the ratio
        is short by at most 2 + 3 q <= 4 q + 3. And 4 (q + 1)^2 + (4 q + 3) + 1 <= 4 (q + 2)^2.
        """
        weight, _ = exp_minus(self.exponent(start), precision)
        ratio, _ = exp_minus(self.exponent(start + step) - self.exponent(start), precision)
        bend, _ = exp_minus(2 * self.quadratic * step * step, precision)
        while True:
            yield weight
            weight = weight * ratio >> precision
            if self.quadratic:
                ratio = ratio * bend >> precision


Bounds = tuple[Fraction, Fraction]
"""A lower and an upper bound on a real number, as rationals that are not negative."""


def exp_bounds(exponent: Fraction, precision: int) -> Bounds:
    """Bounds exp(-exponent) by rationals."""
    low, high = exp_minus(exponent, precision)
    return Fraction(low, 1 << precision), Fraction(high, 1 << precision)
