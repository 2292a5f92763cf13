"""The buckets between two public bounds whose noisy tree answers every quantile of a column."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpduck.algebra.ranges import RangeWorkload, intervals
from dpduck.values.errors import Refusal

MOST_BUCKETS = 1024
FEWEST_BUCKETS = 16
MOST_TREE_CELLS = 1 << 22
"""Cells of all grouping sets times buckets."""


@dataclass(frozen=True)
class Buckets:
    """`count` buckets of equal width from `start`. whole: a bucket is the one value in its middle, else a range."""

    start: Fraction
    width: Fraction
    count: int
    whole: bool

    @property
    def edges(self) -> tuple[Fraction, ...]:
        """The lower edges, and the end of the last bucket."""
        return tuple(self.start + self.width * number for number in range(self.count + 1))


def buckets_for(low: Fraction, high: Fraction, step: Fraction, cells: int) -> Buckets:
    """One bucket for each step where those are few, else at most MOST_BUCKETS ranges, fewer for many cells.

    >>> buckets_for(Fraction(0), Fraction(2), Fraction(1), 1)
    Buckets(start=Fraction(-1, 2), width=Fraction(1, 1), count=3, whole=True)
    """
    most = min(MOST_BUCKETS, MOST_TREE_CELLS // cells)
    values = int((high - low) / step) + 1
    if values <= most:
        return Buckets(low - step / 2, step, values, True)
    if most < FEWEST_BUCKETS:
        raise Refusal(
            f"quantiles of {cells} cells", accepted=f"at most {MOST_TREE_CELLS // FEWEST_BUCKETS} cells with quantiles"
        )
    return Buckets(low, (high - low) / most, most, False)


def tree_workload(count: int) -> RangeWorkload:
    """Rows below every edge, rows above every edge, and all rows: what ranks and their errors are computed from.

    >>> tree_workload(2).matrix().tolist()
    [[1, 0], [0, 1], [1, 1]]
    """
    below = [(0, stop) for stop in range(1, count)]
    above = [(start, count) for start in range(1, count)]
    return intervals(count, [*below, *above, (0, count)])
