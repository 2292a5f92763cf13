"""Distribution of a column from noisy quantiles: the share of units on each side of an edge, and sums beyond a bound.

A quantile is a place between public edges. Quantiles at many fractions, from one noisy tree, form a distribution
function. Shares below the noise are assumed to fall as the last ones above the noise do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import log

STANDS_OUT = 2.5
"""A share of more than this many standard errors is taken as real, and not as noise: it "stands out"."""

ONE_SIDE = 1.645
"""The truth lies more than this many standard errors above an estimate once in 20 times."""

FLATTEST = 1.05
"""Least exponent of a tail. If shares may fall more slowly, the sum of the values beyond an edge has no estimate."""

RESOLUTION = 0.00025
"""Half of the smallest share that quantiles can show."""

NEXT = 4
"""The fall of shares is measured up to this multiple of the last edge with a share that stands out."""

STEP = 1 / 40
"""The step from one fraction to the next, except near the ends."""

_ENDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02)
FRACTIONS = tuple(sorted({*_ENDS, *(part * STEP for part in range(1, 40)), *(round(1 - end, 4) for end in _ENDS)}))
"""Fractions of the quantiles that a draft asks for. They lie close together at both ends."""


def shares_up_to(places: Sequence[float | None], number: int) -> list[float]:
    """Returns the share of the units at or below each of `number` places. places: a quantile for each of FRACTIONS.

    >>> [round(share, 2) for share in shares_up_to([1.0] * 20 + [2.0] * 37, 4)]
    [0.0, 0.29, 1.0, 1.0]
    """
    rising = list(accumulate((0.0 if place is None else place for place in places), max))
    fractions = [0.0, *FRACTIONS, 1.0]
    shares = []
    for place in range(number):
        reached = bisect_right(rising, place + 0.25)
        shares.append((fractions[reached] + fractions[reached + 1]) / 2)
    return shares


@dataclass(frozen=True)
class Beyond:
    """The amount beyond a bound: a sum over the units, divided by their number. most: the largest that noise allows."""

    likely: float
    most: float


@dataclass(frozen=True)
class Tail:
    """Upper tail of a distribution. The edges increase from 0, or from the smallest possible value.

    at_least: the share of the units with a value at or above each edge. error: the standard error of such a share.
    whole: whether the values are whole numbers.
    """

    edges: tuple[float, ...]
    at_least: tuple[float, ...]
    error: float
    whole: bool

    @cached_property
    def last(self) -> int:
        """Returns the number of the last edge with a share that stands out of the noise, or -1."""
        seen = [place for place, share in enumerate(self.at_least) if share > STANDS_OUT * self.error]
        return max(seen, default=-1)

    def at_most(self, place: int) -> float:
        """Returns an upper bound on the share at or above an edge, which holds in 19 of 20 cases."""
        return min(max(self.at_least[place], 0.0) + ONE_SIDE * self.error + RESOLUTION, 1.0)

    @cached_property
    def exponent(self) -> tuple[float, float] | None:
        """Returns the exponent with which shares fall, as a power of the value, and its lower bound. None if unknown.

        The fall is measured from an earlier edge to the last one that stands out, and from there to edges of mere
        noise.
        """
        last = self.last
        if last < 0 or self.edges[last] <= 0:
            return None
        high, end = self.at_least[last], self.edges[last]
        likely, least = [0.0], [0.0]
        for times in (4, 2):
            above = [place for place in range(last) if self.edges[place] > 0 and self.at_least[place] >= times * high]
            if above:
                first = above[-1]
                wide = log(end / self.edges[first])
                likely.append(log(self.at_least[first] / high) / wide)
                least.append(log((self.at_least[first] - self.error) / (high + self.error)) / wide)
                break
        for place in range(last + 1, len(self.edges)):
            wide = log(self.edges[place] / end)
            if wide > log(NEXT):
                break
            fallen = log((high - self.error) / self.at_most(place)) / wide
            likely.append(fallen)
            least.append(fallen)
        return max(likely), max(least)

    def within(self, low: int, high: int) -> float:
        """Returns the integral of the shares between two edges: the part of the mean between these values."""
        total = 0.0
        for place in range(low, high):
            width = self.edges[place + 1] - self.edges[place]
            middle = (self.at_least[place] + self.at_least[place + 1]) / 2
            total += width * (self.at_least[place + 1] if self.whole and width == 1 else middle)
        return total

    def beyond(self, place: int) -> Beyond | None:
        """Returns the mean amount by which values exceed an edge, or None if the noise hides how shares fall."""
        last, slopes = self.last, self.exponent
        if slopes is None or slopes[1] <= FLATTEST or last + 1 >= len(self.edges):
            return None
        slope, flattest = slopes
        far = max(place, last + 1)
        bound, here = self.edges[far], max(self.at_least[far], 0.0)
        share = min(self.at_least[last] * (bound / self.edges[last]) ** -slope, here + self.error)
        likely = share * bound / (slope - 1)
        most = self.at_most(far) * bound * max(1 / (flattest - 1), 0.5)
        if place <= last:
            inner = self.within(place, far)
            likely += inner
            most += inner + ONE_SIDE * self.error * (bound - self.edges[place])
        return Beyond(likely, max(most, likely))

    def body(self) -> float:
        """Returns the integral of the shares up to the middle of the step after the last edge that stands out."""
        last = self.last
        if last < 0 or last + 1 >= len(self.edges):
            return 0.0
        half = (self.edges[last + 1] - self.edges[last]) / 2
        return self.within(0, last) + self.at_least[last] * half
