"""Contribution of one row to tables of integers, and exact, checked bounds for one privacy unit from public facts.

A value is clamped to [low, high] and rounded to one of `steps` equal steps: k = 0 .. K. The exact sums of 1, k and k^2
in a cell give the measured tables:

* `count`: 1 for every row that contributes;
* `sum`: the value (low + k step)/u, or its distance from a public centre. Here u is the largest number that divides
  both the step and low, or the step and the distance of low from the centre;
* `squares`: the square of that distance;
* `valued`: 1 for every row with a value;
* `moments` of degree d: the Bernstein basis C(d, i) k^i (K - k)^(d - i), i = 0 .. d. Its members are not negative and
  add up to K^d for every row. So all d + 1 tables together cost no more than one. Their combinations give the number
  of rows, the sum and, for d = 2, the sum of squares. `rest`: one more table, K^d for rows without a value.

Sums are taken in 128-bit integers, which no number of rows can overflow. From there on all arithmetic is modulo 2^64.
It commutes with adding noise, so wrapping is post-processing of the noisy answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, isqrt

from dpduck.kernel.columns.expressions import Expression
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

MOST_STEPS = 1 << 40
LARGEST_BOUND = 1 << 45
SMALLEST_STEP = Fraction(1, 1 << 900)  # keeps the arithmetic of steps far above doubles that round to 0
FULL = 1 << 10
"""The weight of a unit that is counted in full, where units have weights."""

MOST_SQUARED_STEPS = 1 << 15  # squares of larger numbers would leave few of the 64 bits for rows


@dataclass(frozen=True)
class Contribution:
    """Contribution of each row. A plain Contribution(condition) counts the rows for which the condition is true.

    condition: predicate of a row, None for every row. form: 'count', 'valued', 'sum', 'squares' or 'moments'.
    value: DOUBLE of a row. NULL, NaN and infinities do not contribute.
    low, high: public bounds of the value. steps: K, the number of steps between them. degree, rest: for moments.
    reach: bound of the value's absolute value, if known. stepped: whether the value is already a number of steps.
    per_group: '' to add up rows. 'sum' or 'average' merge a unit's rows in a cell first, and clamp the merged value.
    norm: largest squared L2 norm of a unit over all cells, 0 for no limit. A unit above it gets a smaller weight
        (loss.py), and all integers are in units of 1/FULL.
    centre: number that is subtracted from each value of a sum, or of squares.
    shared: whether a unit has the same weight for this and the next aggregate.
    """

    condition: Expression | None = None
    form: str = "count"
    value: Expression | None = None
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)
    steps: int = 1
    degree: int = 0
    rest: bool = False
    per_group: str = ""
    reach: Fraction | None = None
    stepped: bool = False
    norm: int = 0
    centre: Fraction = Fraction(0)
    shared: bool = False

    def __post_init__(self) -> None:
        most = MOST_SQUARED_STEPS if self.degree == 2 or self.form == "squares" else MOST_STEPS
        if not (self.low < self.high and 1 <= self.steps <= most):
            raise InternalError("a contribution without bounds")
        has_form = self.form in ("count", "valued", "sum", "squares", "moments")
        if not has_form or (self.form == "moments") != (self.degree in (1, 2)):
            raise InternalError("a contribution of no known form")
        summed = self.form in ("sum", "squares") and self.value is not None
        if self.centre and not (summed and self.low <= self.centre <= self.high):
            raise InternalError("a centre of no sum of values")
        if self.per_group and (self.rest or self.form in ("count", "squares") or self.low % self.step != 0):
            raise InternalError("a contribution by group that does not fit its steps")
        if self.step < SMALLEST_STEP:
            raise InternalError("steps that a double cannot tell apart")
        if self.bound > LARGEST_BOUND or max(abs(self.low), abs(self.high)) > LARGEST_BOUND * self.step:
            raise InternalError("a contribution that would not fit 64 bits")
        if self.norm < 0 or (self.norm and self.form == "moments"):
            raise InternalError("a norm of several tables")

    @property
    def step(self) -> Fraction:
        return (self.high - self.low) / self.steps

    @property
    def unit(self) -> Fraction:
        """Returns the amount that a 1 stands for: 1 in counts, u in sums, u^2 in squares, 1/K^d in moments."""
        if self.form in ("sum", "squares"):
            return common_divisor(self.low - self.centre, self.step) ** self._power
        return Fraction(1, self.steps**self.degree)

    @property
    def tables(self) -> int:
        return self.degree + 1 + self.rest if self.form == "moments" else 1

    @property
    def bound(self) -> int:
        """Bounds one row's contribution to all tables together. By group, bounds a unit's contribution to one cell."""
        if self.form in ("sum", "squares"):
            farthest = max(abs(self.low - self.centre), abs(self.high - self.centre))
            return int(farthest**self._power / self.unit)
        return int(self.steps**self.degree)

    @property
    def has_squares(self) -> bool:
        return self.form == "squares" or self.degree == 2

    @property
    def of_steps(self) -> tuple[int, int]:
        divisor = common_divisor(self.low - self.centre, self.step)
        return int((self.low - self.centre) / divisor), int(self.step / divisor)

    @property
    def _power(self) -> int:
        return 2 if self.form == "squares" else 1

    def unit_bound(self, rows: int, cells: int) -> int:
        """Bounds the L1 norm, over all tables of `cells` cells, of a unit with `rows` rows.

        By group, a unit adds once to each cell in which it has rows. A number of rows, clamped to bounds around 0, is
        no farther from 0 than before. So a count by group is bounded by the unit's number of rows, too.
        """
        if not self.norm:
            return self._whole_bound(rows, cells)
        squared = FULL * FULL * self.norm  # integers add up to no more than their squares
        return min(FULL * self._whole_bound(rows, cells), isqrt(cells * squared - 1) + 1, squared)

    def squared_bound(self, rows: int, cells: int, cell_rows: int) -> int:
        """Bounds a unit's squared L2 norm over `cells` cells, with at most `cell_rows` rows in each."""
        # a sum of squares is at most the sum of absolute values times the largest absolute value
        by_cells = self.unit_bound(rows, cells) * self.unit_bound(cell_rows, 1)
        return min(by_cells, FULL * FULL * self.norm) if self.norm else by_cells

    def together_bound(self, rows: int, cells: int) -> int:
        """Returns a bound of a unit's contribution to the sum of all cells. `norm` must be a limit on this sum."""
        whole = self._whole_bound(rows, cells)
        return min(FULL * whole, isqrt(FULL * FULL * self.norm)) if self.norm else whole

    def _whole_bound(self, rows: int, cells: int) -> int:
        if not self.per_group:
            return rows * self.bound
        by_group = min(rows, cells) * self.bound
        counts = self.value is None and self.form == "sum" and self.unit == 1 and self.low <= 0 <= self.high
        return min(by_group, rows) if counts else by_group

    def tables_of(
        self, rows: IntegerArray, valued: IntegerArray, sums: IntegerArray, squares: IntegerArray
    ) -> list[IntegerArray]:
        """Computes tables modulo 2^64 from sums by cell: rows that meet the condition, rows with a value, k and k^2."""
        if self.form == "count":
            return [rows]
        if self.form == "valued":
            return [valued]
        first, step = self.of_steps
        if self.form == "sum":
            return [valued * first + sums * step]
        if self.form == "squares":
            return [valued * first**2 + sums * (2 * first * step) + squares * step**2]
        most = self.steps
        if self.degree == 1:
            tables = [most * valued - sums, sums]
        else:
            tables = [most * most * valued - 2 * most * sums + squares, 2 * (most * sums - squares), squares]
        return [*tables, most**self.degree * (rows - valued)] if self.rest else tables


def common_divisor(first: Fraction, second: Fraction) -> Fraction:
    """Returns the largest number by which both numbers are whole multiples.

    >>> common_divisor(Fraction(1, 2), Fraction(3))
    Fraction(1, 2)
    """
    numerator = gcd(first.numerator * second.denominator, second.numerator * first.denominator)
    return Fraction(numerator, first.denominator * second.denominator)
