"""Buckets between two public bounds, for quantiles: by a noisy tree over the buckets, or by the choice of a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, expm1, log, sqrt

from dpduck.algebra.ranges import RangeWorkload, intervals
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.budgets import root_below
from dpduck.values.errors import Refusal

MOST_BUCKETS = 1024
MOST_CHOICES = 1 << 14
"""Most buckets to choose from. The error grows with the logarithm of their number."""
FEWEST_BUCKETS = 16
MOST_TREE_CELLS = 1 << 22
"""Largest product of the number of buckets and the number of cells in all grouping sets."""


@dataclass(frozen=True)
class Buckets:
    """`count` buckets of equal width from `start`. whole: whether each is one value, in its middle, and no range."""

    start: Fraction
    width: Fraction
    count: int
    whole: bool

    @property
    def edges(self) -> tuple[Fraction, ...]:
        return tuple(self.start + self.width * number for number in range(self.count + 1))


def buckets_for(low: Fraction, high: Fraction, step: Fraction, cells: int, most: int = MOST_BUCKETS) -> Buckets:
    """Returns a bucket for each value low, low + step .. high, or ranges if there are too many values for the cells.

    >>> buckets_for(Fraction(0), Fraction(2), Fraction(1), 1)
    Buckets(start=Fraction(-1, 2), width=Fraction(1, 1), count=3, whole=True)
    """
    most = min(most, MOST_TREE_CELLS // cells)
    values = int((high - low) / step) + 1
    if values <= most:
        return Buckets(low - step / 2, step, values, True)
    if most < FEWEST_BUCKETS:
        raise Refusal(
            f"quantiles of {cells} cells", accepted=f"at most {MOST_TREE_CELLS // FEWEST_BUCKETS} cells with quantiles"
        )
    return Buckets(low, (high - low) / most, most, False)


def tree_workload(count: int) -> RangeWorkload:
    """Returns the workload of the rows below each inner edge, the rows above each inner edge, and all rows.

    >>> tree_workload(2).matrix().tolist()
    [[1, 0], [0, 1], [1, 1]]
    """
    below = [(0, stop) for stop in range(1, count)]
    above = [(start, count) for start in range(1, count)]
    return intervals(count, [*below, *above, (0, count)])


RARELY = 20
"""One in this many cells without rows has an answer. One in this many values is further off than BucketChoice.far."""


@dataclass(frozen=True)
class BucketChoice:
    """Choice of one bucket of each cell near a quantile or an end of its interval, with the fields of Quantiles."""

    buckets: int
    below: int
    above: int
    rate: Fraction
    nothing: int
    shift: int = 0

    @property
    def far(self) -> float:
        """Returns a rank error that at least 19 of 20 values do not exceed, whatever the rows."""
        return log(RARELY * self.buckets) / float(self.rate * (self.below + self.above))

    @property
    def lead(self) -> float:
        """Returns the rows between the quantile and the rank that stands for an end of its interval, 0 for a value."""
        return abs(self.shift) / (self.below + self.above)

    def deviation(self, rows: float) -> float:
        """Returns the standard error of the value, as a part of the range, if `rows` rows lie evenly over the range.

        Weights fall by a factor e per `scale` on both sides of the quantile: a Laplace law, cut at the bounds.
        """
        scale = min(1 / (float(self.rate) * (self.below + self.above) * max(rows, 1.0)), 1000.0)  # nearly uniform
        squares, weights = 0.0, 0.0
        for side in (self.below, self.above):
            far = side / (self.below + self.above) / scale
            squares += scale**3 * (2 - exp(-far) * (far**2 + 2 * far + 2))
            weights += scale * -expm1(-far)
        return sqrt(squares / weights)


PARTS = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))
"""Parts of the price for the value, the lower end and the upper end of its interval."""
WITHOUT_ENDS = (Fraction(1),)


def bucket_choices(
    fraction: Fraction,
    buckets: int,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    sets: int,
    parts: Sequence[Fraction] = PARTS,
) -> tuple[BucketChoice, ...]:
    """Returns the choices of a value, a lower end and an upper end, for `sets` grouping sets at the price `amount`.

    amount: epsilon or rho. parts: of the price, for the value alone or for all three choices. Each choice costs
    epsilon = 2 rate max(below, above) unit_bound, or rho = epsilon^2 / 8.
    """
    below, above = fraction.denominator - fraction.numerator, fraction.numerator

    def choice(part: Fraction, side: int = 0, direction: int = 0) -> BucketChoice:
        """Plans a value or an end. An end is on the wrong side of the quantile at most 1 in 40 times (privacy.md)."""
        loss = part * amount / sets if noise is NoiseKind.LAPLACE else 2 * root_below(2 * part * amount / sets)
        rate = loss / (2 * max(below, above) * unit_bound)
        if not direction:
            return BucketChoice(buckets, below, above, rate, ceil(log(RARELY * buckets) / float(rate)))
        lead = ceil(log(2 * RARELY * buckets) / float(rate)) + below + above
        nothing = ceil(Fraction(max(below, above) * lead, side))
        return BucketChoice(buckets, below, above, rate, nothing, direction * lead)

    ends = [choice(part, *end) for part, end in zip(parts[1:], ((above, 1), (below, -1)), strict=False)]
    return (choice(parts[0]), *ends)
