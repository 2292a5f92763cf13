"""Grids of public numbers, low + k step for k = 0 .. K: the possible values of an expression, and their arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, gcd, log10

LARGEST_INTEGER = 1 << 24  # most steps from 0 to a bound. With finer steps, samplers could not draw the noise
FINEST = 10**6  # Approximate largest number of decimal steps between bounds without a step


@dataclass(frozen=True)
class Grid:
    """Range of values: low <= value <= high, at multiples of `step` from low. A step of 0 allows all values between.

    >>> (Grid(Fraction(0), Fraction(2), Fraction(1, 2)) * Grid(Fraction(-1), Fraction(3), Fraction(1))).low
    Fraction(-2, 1)
    """

    low: Fraction
    high: Fraction
    step: Fraction

    @property
    def unit(self) -> Fraction:
        """Returns the largest number that divides all values, 0 if no number does."""
        return divisor(self.low, self.step) if self.step else Fraction(0)

    def __add__(self, other: Grid) -> Grid:
        step = divisor(self.step, other.step) if self.step and other.step else Fraction(0)
        if self.low == self.high or other.low == other.high:
            step = max(self.step, other.step)
        return Grid(self.low + other.low, self.high + other.high, step)

    def __neg__(self) -> Grid:
        return Grid(-self.high, -self.low, self.step)

    def __mul__(self, other: Grid) -> Grid:
        """Returns the grid of products: multiples of the product of both units. A constant scales the other's step."""
        ends = [first * second for first in (self.low, self.high) for second in (other.low, other.high)]
        for constant, grid in ((self, other), (other, self)):
            if constant.low == constant.high:
                return Grid(min(ends), max(ends), grid.step * abs(constant.low))
        return Grid(min(ends), max(ends), self.unit * other.unit)

    def to_integers(self) -> Grid:
        """Returns the grid of values after round, floor, ceil, trunc or a cast to a whole number."""
        return Grid(Fraction(floor(self.low)), Fraction(ceil(self.high)), Fraction(1))

    def absolute(self) -> Grid:
        """Returns the grid of absolute values. They are still multiples of the unit."""
        ends = (abs(self.low), abs(self.high))
        least = Fraction(0) if self.low <= 0 <= self.high else min(ends)
        return Grid(least, max(ends), self.unit)

    def align(self) -> Grid:
        """Returns the grid with bounds at multiples of its step. With too many steps, the step becomes coarser."""
        alone = abs(self.low) if self.low == self.high else Fraction(0)
        step = self.step or alone or decimal_step(self.high - self.low)
        if self.step and divisor(self.low, step) != step:
            step = divisor(self.low, step)
        farthest = max(abs(self.low), abs(self.high))
        step *= max(1, ceil(farthest / step / LARGEST_INTEGER))
        low, high = floor(self.low / step) * step, ceil(self.high / step) * step
        return Grid(low, max(high, low + step), step)


def constant(value: Fraction) -> Grid:
    """Returns the grid of a constant."""
    return Grid(value, value, Fraction(0))


def union(grids: Iterable[Grid]) -> Grid:
    """Returns one grid that has the values of all given grids, such as the grids of CASE's branches."""
    listed = list(grids)
    low = min(grid.low for grid in listed)
    step = Fraction(0)
    for grid in listed:
        if grid.low != grid.high and not grid.step:
            return Grid(low, max(member.high for member in listed), Fraction(0))
        step = divisor(divisor(step, grid.step), grid.low - low)
    return Grid(low, max(grid.high for grid in listed), step)


def divisor(first: Fraction, second: Fraction) -> Fraction:
    """Returns the largest number that divides both numbers without a rest.

    >>> divisor(Fraction(1, 2), Fraction(3)), divisor(Fraction(0), Fraction(3))
    (Fraction(1, 2), Fraction(3, 1))
    """
    numerator = gcd(first.numerator * second.denominator, second.numerator * first.denominator)
    return Fraction(numerator, first.denominator * second.denominator)


def decimal_step(width: Fraction) -> Fraction:
    """Returns a power of ten that divides the width into about FINEST steps or fewer. For a width of 0 it is 1."""
    return Fraction(Fraction(10) ** ceil(log10(float(width) / FINEST))) if width > 0 else Fraction(1)
